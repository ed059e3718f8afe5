//! WebSocket as a server: the handshake, and frames that are passed on in blocks as they come, so that no message is too
//! long and none is ever held whole.

mod decoder;

use std::io;
use std::sync::{Mutex, PoisonError};

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::Refused;
use super::client::FAREWELL;
use crate::reply;
pub use decoder::{Decoder, Event, Kind, Violation};

/// The headers of the handshake, which mean nothing to anybody behind us.
pub const HEADERS: [HeaderName; 4] = [
    header::SEC_WEBSOCKET_KEY,
    header::SEC_WEBSOCKET_VERSION,
    header::SEC_WEBSOCKET_PROTOCOL,
    header::SEC_WEBSOCKET_EXTENSIONS,
];

const VERSION: HeaderValue = HeaderValue::from_static("13");

/// Blocks are at most as long as this.
pub const BLOCK: usize = 8 << 10;

/// A close frame's reason, of which clients are told two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseCode {
    Normal = 1000,
    Protocol = 1002,
}

/// A handshake that is none. Upstream has two libraries for it, and each says it in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHandshake {
    Method,
    Key,
    Version,
}

impl BadHandshake {
    fn status(self) -> StatusCode {
        match self {
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Key | Self::Version => StatusCode::BAD_REQUEST,
        }
    }

    /// As clients of channels are told: a text of no declared kind.
    pub fn bare(self) -> Refused {
        let text = match self {
            Self::Method => "bad method",
            Self::Key => "mismatch challenge/response",
            Self::Version => "missing or bad WebSocket Version",
        };
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = self.status();
        if self == Self::Version {
            response.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, VERSION);
        }
        Box::new(response)
    }

    /// As clients of tunnels are told: the code's name.
    pub fn named(self) -> Refused {
        let status = self.status();
        let mut response = reply::line(status, status.canonical_reason().unwrap_or_default());
        response.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, VERSION);
        Box::new(response)
    }
}

/// The answer that makes a WebSocket of the connection.
pub fn accept(request: &Request, protocol: Option<&str>) -> Result<Response, BadHandshake> {
    let headers = request.headers();
    let key = headers.get(header::SEC_WEBSOCKET_KEY).map_or(&b""[..], HeaderValue::as_bytes);
    if *request.method() != Method::GET {
        return Err(BadHandshake::Method);
    }
    if key.is_empty() {
        return Err(BadHandshake::Key);
    }
    if headers.get(header::SEC_WEBSOCKET_VERSION) != Some(&VERSION) {
        return Err(BadHandshake::Version);
    }
    let mut answered = HeaderMap::new();
    answered.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    answered.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    let headers = [
        (header::SEC_WEBSOCKET_ACCEPT, Some(derive_accept_key(key))),
        (header::SEC_WEBSOCKET_PROTOCOL, protocol.map(str::to_owned)),
    ];
    for (name, value) in headers {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(&value).ok()) {
            answered.insert(name, value);
        }
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = answered;
    Ok(response)
}

/// What a client sends.
pub struct Reader<R> {
    io: R,
    decoder: Decoder,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// `early` is read before anything else.
    pub fn new(io: R, early: &[u8]) -> Self {
        Self { io, decoder: Decoder::default(), buffer: BytesMut::from(early) }
    }

    /// `None`: the connection has ended. Cancel-safe: what has been read stays in the buffer.
    pub async fn next(&mut self) -> Result<Option<Event>, Violation> {
        loop {
            if let Some(event) = self.decoder.next(&mut self.buffer)? {
                return Ok(Some(event));
            }
            self.buffer.reserve(BLOCK.saturating_sub(self.buffer.len()).max(1));
            match self.io.read_buf(&mut self.buffer).await {
                Ok(0) | Err(_) => return Ok(None),
                Ok(_) => {}
            }
        }
    }
}

/// What is sent to a client.
pub struct Writer<W> {
    io: W,
    /// A frame was begun and not ended: nothing that follows would be understood.
    torn: bool,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    pub fn new(io: W) -> Self {
        Self { io, torn: false }
    }

    /// One binary message of two parts.
    pub async fn message(&mut self, prefix: &[u8], payload: &[u8]) -> io::Result<()> {
        self.frame(Kind::Binary as u8, &[prefix, payload]).await
    }

    pub async fn pong(&mut self, payload: &[u8]) -> io::Result<()> {
        self.frame(0xa, &[payload]).await
    }

    async fn close(&mut self, code: CloseCode) -> io::Result<()> {
        self.frame(0x8, &[&(code as u16).to_be_bytes()]).await
    }

    /// Says goodbye where that can be understood, and closes.
    pub async fn end(mut self, code: CloseCode) {
        let ending = async {
            let _ = self.close(code).await;
            self.io.shutdown().await
        };
        let _ = tokio::time::timeout(FAREWELL, ending).await;
    }

    /// In one write, so that it becomes one TLS record.
    async fn frame(&mut self, opcode: u8, parts: &[&[u8]]) -> io::Result<()> {
        if self.torn {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let mut frame = Vec::with_capacity(length + 10);
        frame.push(0x80 | opcode);
        match (u8::try_from(length), u16::try_from(length)) {
            (Ok(short), _) if short < 126 => frame.push(short),
            (_, Ok(middle)) => {
                frame.push(126);
                frame.extend_from_slice(&middle.to_be_bytes());
            }
            _ => {
                frame.push(127);
                frame.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        for part in parts {
            frame.extend_from_slice(part);
        }
        self.torn = true;
        self.io.write_all(&frame).await?;
        self.io.flush().await?;
        self.torn = false;
        Ok(())
    }
}

/// Answers to pings, on their way from the one who reads to the one who writes. Of several, the last is enough.
#[derive(Default)]
pub struct Pongs {
    payload: Mutex<Option<Bytes>>,
    news: Notify,
}

impl Pongs {
    pub fn owe(&self, payload: Bytes) {
        *self.payload.lock().unwrap_or_else(PoisonError::into_inner) = Some(payload);
        self.news.notify_one();
    }

    /// Cancel-safe: nothing is awaited after the payload has been taken.
    pub async fn owed(&self) -> Bytes {
        loop {
            if let Some(payload) = self.payload.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return payload;
            }
            self.news.notified().await;
        }
    }
}
