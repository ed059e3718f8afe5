//! A client that sends SPDY inside a WebSocket, for port-forward. The runtime gets the SPDY, byte for byte.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::client::{self, Client, Watch};
use super::relay::{IDLE, Quiet};
use super::runtime::{self, Address, Answer};
use super::sessions::Sessions;
use super::translate::is_spdy;
use super::websocket::{self, BLOCK, BadHandshake, CloseCode, Event, Kind, Pongs, Reader, Writer};
use super::{Opened, failed, head, proxy};
use crate::reply;

pub async fn serve(address: &str, mut request: Request, sessions: &Sessions) -> Opened {
    let offered = head::tunnelled_protocols(request.headers());
    if offered.is_empty() {
        let why = "unable to upgrade: no tunneling spdy protocols provided";
        return Err(Box::new(reply::line(StatusCode::BAD_REQUEST, why)));
    }
    let place = sessions.place()?;
    let address = Address::parse(address).map_err(|why| failed(&why))?;
    let headers = headers_for_runtime(&request, &offered);
    let answer = runtime::ask(&address, Method::POST, headers).await;
    let (chosen, stream, early) = match answer.map_err(|why| failed(&why))? {
        Answer::Other { head, body } => return Ok(proxy::pass_on(head, body)),
        Answer::Switched { head, .. } if !is_spdy(&head.headers) => {
            return Err(failed("unable to upgrade: missing upgrade headers in response"));
        }
        Answer::Switched { head, stream, early } => (chosen(&head.headers, &offered), stream, early),
    };
    let response = websocket::accept(&request, chosen.as_deref()).map_err(BadHandshake::named)?;
    let upgrade = proxy::take_upgrade(&mut request)?;
    sessions.begin(place, async move {
        if let Some(client) = client::upgraded(upgrade).await {
            session(client, stream, early).await;
        }
    });
    Ok(response)
}

/// A request for SPDY instead of one for a WebSocket.
fn headers_for_runtime(request: &Request, offered: &[String]) -> HeaderMap {
    let mut headers = proxy::headers_for_runtime(request);
    for name in websocket::HEADERS.iter().chain(&[head::PROTOCOL_VERSION]) {
        headers.remove(name);
    }
    headers.insert(header::UPGRADE, HeaderValue::from_static("SPDY/3.1"));
    for protocol in offered {
        if let Ok(protocol) = HeaderValue::from_str(protocol) {
            headers.append(head::PROTOCOL_VERSION, protocol);
        }
    }
    headers
}

/// The tunnel of the protocol that the runtime chose, if the client has offered it.
fn chosen(headers: &HeaderMap, offered: &[String]) -> Option<String> {
    let chosen = headers.get(head::PROTOCOL_VERSION)?.to_str().ok()?.trim();
    offered.iter().any(|protocol| protocol == chosen).then(|| head::tunnel_of(chosen))
}

async fn session(client: Client, runtime: TcpStream, from_runtime: Bytes) {
    let watch = Watch::of(&client.socket);
    let (from_client, to_client) = tokio::io::split(client.socket);
    let (reader, mut writer) = (Reader::new(from_client, &client.early), Writer::new(to_client));
    let (from, to) = runtime.into_split();
    let (pongs, moved) = (Pongs::default(), AtomicU64::new(0));
    let silence = async {
        let mut quiet = Quiet::new();
        loop {
            tokio::time::sleep(IDLE).await;
            if quiet.is_over(moved.load(Ordering::Relaxed)) {
                return;
            }
        }
    };
    let code = tokio::select! {
        biased;
        _ = down(from, from_runtime, &mut writer, &pongs, &moved) => CloseCode::Normal,
        code = up(reader, to, &watch, &pongs, &moved) => code,
        () = silence => CloseCode::Normal,
    };
    writer.end(code).await;
}

/// Until the client or the runtime is gone.
async fn up(
    mut reader: Reader<impl AsyncRead + Unpin>,
    mut runtime: OwnedWriteHalf,
    watch: &Watch,
    pongs: &Pongs,
    moved: &AtomicU64,
) -> CloseCode {
    loop {
        match reader.next().await {
            Err(_) | Ok(Some(Event::Data { kind: Kind::Text, .. })) => return CloseCode::Protocol,
            Ok(None | Some(Event::Close)) => return CloseCode::Normal,
            Ok(Some(Event::Ping(payload))) => pongs.owe(payload),
            Ok(Some(Event::Pong)) => {}
            Ok(Some(Event::Data { bytes, .. })) => {
                if watch.write(&mut runtime, &bytes).await.is_err() {
                    return CloseCode::Normal;
                }
            }
        }
        moved.fetch_add(1, Ordering::Relaxed);
    }
}

/// Until the runtime or the client is gone.
async fn down(
    mut runtime: OwnedReadHalf,
    early: Bytes,
    writer: &mut Writer<impl tokio::io::AsyncWrite + Unpin>,
    pongs: &Pongs,
    moved: &AtomicU64,
) -> io::Result<()> {
    if !early.is_empty() {
        writer.message(&[], &early).await?;
    }
    let mut block = vec![0; BLOCK];
    loop {
        // Both arms are cancel-safe.
        tokio::select! {
            biased;
            payload = pongs.owed() => writer.pong(&payload).await?,
            read = runtime.read(&mut block) => match read? {
                0 => return Ok(()),
                count => writer.message(&[], &block[..count]).await?,
            },
        }
        moved.fetch_add(1, Ordering::Relaxed);
    }
}
