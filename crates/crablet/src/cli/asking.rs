//! Questions to the agent of this machine, over its local socket.

use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::anyhow;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

const DEADLINE: Duration = Duration::from_secs(10);
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// What the agent of this root directory answers.
pub fn ask(root_dir: &Path, path: &str) -> anyhow::Result<(StatusCode, Bytes)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let socket = crablet_config::local_socket(root_dir);
    runtime
        .block_on(async { tokio::time::timeout(DEADLINE, get(&socket, path)).await })
        .map_err(|_| anyhow!("the agent on {socket:?} did not answer within {DEADLINE:?}"))?
}

/// For an answer that nobody expects.
pub fn refused(status: StatusCode, answer: &[u8]) -> anyhow::Error {
    anyhow!("the agent answered {status}: {}", printable(String::from_utf8_lossy(answer).trim()))
}

async fn get(socket: &Path, path: &str) -> anyhow::Result<(StatusCode, Bytes)> {
    let stream = UnixStream::connect(socket).await.map_err(|error| unreachable_agent(socket, &error))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // Ends with this short-lived runtime.
    tokio::spawn(connection);
    let request = Request::get(path).header(header::HOST, "localhost").body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
    let body = body.map_err(|error| anyhow!("cannot read the agent's answer: {error}"))?;
    Ok((status, body.to_bytes()))
}

fn unreachable_agent(socket: &Path, error: &io::Error) -> anyhow::Error {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => "run it as root, or as the user that runs the agent",
        _ => "is crablet running? If it has another --root-dir, give the same one here",
    };
    anyhow!("no agent answers on {socket:?}: {error}\nhint: {hint}")
}

/// Answers may quote what containers and registries said: it must not steer the terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
