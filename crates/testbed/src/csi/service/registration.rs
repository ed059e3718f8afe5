//! The driver's entry in a kubelet's `plugins_registry`, spoken frame by frame.
//!
//! Upstream's kubelet names the socket's path as the authority of its requests, and the HTTP/2 library under tonic refuses
//! such a name. So this is the little of HTTP/2 that two calls need: each request is a message in data frames, and what it
//! is, is told by its size: the question is empty, the news is not. Headers are skipped.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use crablet_protos::registration as proto;
use prost::Message;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use super::Shared;

const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
/// Also what `ACK` is for settings and pings.
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const LARGEST_FRAME: usize = 1 << 16;
/// `:status: 200` and `content-type: application/grpc`, the names from HPACK's static table.
const ANSWER: &[u8] = b"\x88\x0f\x10\x10application/grpc";
const WELL: &[u8] = b"\x00\x0bgrpc-status\x010";

pub async fn serve(shared: Arc<Shared>, listener: UnixListener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let shared = shared.clone();
        tokio::spawn(async move {
            if let Err(error) = talk(&shared, stream).await {
                eprintln!("registration: {error}");
            }
        });
    }
}

async fn talk(shared: &Shared, mut stream: UnixStream) -> io::Result<()> {
    let mut preface = [0; PREFACE];
    stream.read_exact(&mut preface).await?;
    send(&mut stream, SETTINGS, 0, 0, &[]).await?;
    let mut bodies: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    loop {
        let mut head = [0; 9];
        match stream.read_exact(&mut head).await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        };
        let size = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        if size > LARGEST_FRAME {
            return Err(io::Error::other("a frame is too large"));
        }
        let (kind, flags) = (head[3], head[4]);
        let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & (u32::MAX >> 1);
        let mut payload = vec![0; size];
        stream.read_exact(&mut payload).await?;
        match kind {
            SETTINGS | PING if flags & END_STREAM == 0 => {
                let echo = if kind == PING { &*payload } else { &[] };
                send(&mut stream, kind, END_STREAM, 0, echo).await?;
            }
            DATA => {
                let body = bodies.entry(id).or_default();
                body.extend_from_slice(&payload);
                if flags & END_STREAM != 0 {
                    let request = bodies.remove(&id).unwrap_or_default();
                    let Some(answer) = answer(shared, request.get(5..).unwrap_or_default()).await else {
                        return Ok(());
                    };
                    reply(&mut stream, id, &answer).await?;
                }
            }
            _ => {}
        }
    }
}

/// Nothing where a fault says so: the connection ends then.
async fn answer(shared: &Shared, request: &[u8]) -> Option<Vec<u8>> {
    if request.is_empty() {
        let options = &shared.options;
        let info = proto::PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: options.name.clone(),
            endpoint: options.endpoint().display().to_string(),
            supported_versions: vec!["1.0.0".to_owned()],
        };
        return shared.call("GetInfo", "", json!({}), || Ok(info.encode_to_vec())).await.ok();
    }
    let status = proto::RegistrationStatus::decode(request).ok()?;
    let told = json!({ "registered": status.plugin_registered, "error": status.error });
    shared.call("NotifyRegistrationStatus", "", told, || Ok(Vec::new())).await.ok()
}

async fn reply(stream: &mut UnixStream, id: u32, message: &[u8]) -> io::Result<()> {
    let mut body = vec![0];
    body.extend_from_slice(&u32::try_from(message.len()).unwrap_or_default().to_be_bytes());
    body.extend_from_slice(message);
    send(stream, HEADERS, END_HEADERS, id, ANSWER).await?;
    send(stream, DATA, 0, id, &body).await?;
    send(stream, HEADERS, END_HEADERS | END_STREAM, id, WELL).await
}

async fn send(stream: &mut UnixStream, kind: u8, flags: u8, id: u32, payload: &[u8]) -> io::Result<()> {
    let size = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    let mut frame = vec![size[1], size[2], size[3], kind, flags];
    frame.extend_from_slice(&id.to_be_bytes());
    frame.extend_from_slice(payload);
    stream.write_all(&frame).await
}
