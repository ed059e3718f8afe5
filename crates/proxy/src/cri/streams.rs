//! Small helpers for HTTP/2 streams.

use std::future::poll_fn;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Response};

use super::framing::{Frame, Frames};
use crate::rules::Failure;

/// What arrived of a request until its first message was whole, or it ended.
#[derive(Debug, Default)]
pub struct Beginning {
    pub pieces: Vec<Bytes>,
    pub message: Option<Frame>,
}

pub async fn beginning(body: &mut RecvStream) -> Result<Beginning, h2::Error> {
    let mut beginning = Beginning::default();
    let mut frames = Frames::default();
    while beginning.message.is_none() {
        let Some(piece) = next_piece(body).await? else { break };
        beginning.message = frames.push(&piece).into_iter().next();
        beginning.pieces.push(piece);
    }
    Ok(beginning)
}

/// The next piece of a body; the sender may send as much again at once.
pub async fn next_piece(body: &mut RecvStream) -> Result<Option<Bytes>, h2::Error> {
    let Some(piece) = body.data().await.transpose()? else { return Ok(None) };
    body.flow_control().release_capacity(piece.len())?;
    Ok(Some(piece))
}

/// Sends all of it, as fast as the other side takes it.
pub async fn send(stream: &mut SendStream<Bytes>, mut piece: Bytes, last: bool) -> Result<(), h2::Error> {
    while !piece.is_empty() {
        stream.reserve_capacity(piece.len());
        let granted = poll_fn(|cx| stream.poll_capacity(cx)).await;
        let granted = granted.unwrap_or(Err(h2::Error::from(Reason::STREAM_CLOSED)))?;
        let part = piece.split_to(granted.min(piece.len()));
        let ends = last && piece.is_empty();
        stream.send_data(part, ends)?;
        if ends {
            return Ok(());
        }
    }
    if last {
        stream.send_data(Bytes::new(), true)?;
    }
    Ok(())
}

/// Runs `work` unless the client resets the call, or its connection is gone.
pub async fn unless_reset<T>(respond: &mut SendResponse<Bytes>, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        _ = poll_fn(|cx| respond.poll_reset(cx)) => None,
        done = work => Some(done),
    }
}

/// The code and the message of gRPC's trailers, or of headers that stand for them.
pub fn status(headers: &HeaderMap) -> (Option<u16>, Option<String>) {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let code = text("grpc-status").and_then(|code| code.parse().ok());
    (code, text("grpc-message").map(unescape))
}

/// A whole answer that is an error and nothing else.
pub fn failure(failure: &Failure) -> Response<()> {
    let mut response = Response::new(());
    let headers = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from(failure.code));
    if let Ok(message) = HeaderValue::from_str(&escape(&failure.message)) {
        headers.insert("grpc-message", message);
    }
    response
}

/// gRPC writes messages in printable ASCII, and everything else as `%` and two hex digits.
fn escape(message: &str) -> String {
    let escaped = |byte: u8| match byte {
        b' '..=b'~' if byte != b'%' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    message.bytes().map(escaped).collect()
}

fn unescape(message: &str) -> String {
    let mut bytes = Vec::with_capacity(message.len());
    let mut rest = message.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) if first == b'%' => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_their_escaping() {
        for message in ["plain", "100 % \"sure\"", "zwei\nZeilen, \u{fc}ber", "%zz", ""] {
            assert_eq!(unescape(&escape(message)), message);
        }
        assert_eq!(escape("a\u{fc}%"), "a%C3%BC%25");
    }
}
