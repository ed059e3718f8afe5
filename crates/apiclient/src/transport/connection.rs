//! One connection: HTTP/2 with many requests at once, or HTTP/1.1 with one.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn;
use hyper::rt::{Read, Write};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::address::Address;
use super::dial::{Pings, io_words};
use super::socket::Switch;

/// Requests at once on a connection. API servers allow a hundred and let more of them hang, so some are left.
const MAX_STREAMS: usize = 90;
/// What may come in before somebody reads it.
const STREAM_WINDOW: u32 = 128 << 10;
/// As much as all streams together: those that nobody reads must not hold up the others. It is a promise to the server
/// and costs nothing until it is used.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * MAX_STREAMS as u32;
const SEND_BUFFER: usize = 64 << 10;
const HTTP1_BUFFER: usize = 64 << 10;
/// As Go's client allows.
const MAX_HEADERS: u32 = 1 << 20;

type Body = Full<Bytes>;

pub enum Connection {
    Http2(Http2),
    Http1(Http1),
}

impl Connection {
    pub fn switch(&self) -> &Arc<Switch> {
        match self {
            Self::Http2(connection) => &connection.switch,
            Self::Http1(connection) => &connection.switch,
        }
    }
}

/// Closes when it is dropped and its last request has ended.
pub struct Http2 {
    sender: conn::http2::SendRequest<Body>,
    streams: AtomicUsize,
    /// What the server said last.
    allowed: Arc<AtomicUsize>,
    pub switch: Arc<Switch>,
}

impl Http2 {
    /// Counts a request, if there is room for one.
    pub fn enter(&self) -> bool {
        if self.sender.is_closed() || self.switch.is_cut() {
            return false;
        }
        let room = self.allowed.load(Ordering::Relaxed).clamp(1, MAX_STREAMS);
        let add = |streams: usize| (streams < room).then_some(streams + 1);
        self.streams.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).is_ok()
    }

    /// Whether that was the last.
    pub fn leave(&self) -> bool {
        self.streams.fetch_sub(1, Ordering::AcqRel) == 1
    }

    pub fn is_empty(&self) -> bool {
        self.streams.load(Ordering::Acquire) == 0
    }

    pub fn is_closed(&self) -> bool {
        self.sender.is_closed() || self.switch.is_cut()
    }

    pub async fn send(&self, address: &Address, outgoing: &Outgoing) -> Result<Response<Incoming>, Lost> {
        let request = outgoing.request(address.url(&outgoing.path))?;
        self.sender.clone().try_send_request(request).await.map_err(Lost::of)
    }
}

pub struct Http1 {
    sender: conn::http1::SendRequest<Body>,
    pub switch: Arc<Switch>,
}

impl Http1 {
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed() || self.switch.is_cut()
    }

    pub async fn send(&mut self, address: &Address, outgoing: &Outgoing) -> Result<Response<Incoming>, Lost> {
        let mut request = outgoing.request(address.path(&outgoing.path))?;
        let host = HeaderValue::from_str(address.authority.as_str())
            .map_err(|_| Lost::local("the host is no header"))?;
        request.headers_mut().insert(HOST, host);
        self.sender.try_send_request(request).await.map_err(Lost::of)
    }

    /// Once the answer has been read. Whether another request may follow.
    pub async fn ready(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }
}

pub async fn http2<T>(io: T, switch: Arc<Switch>, pings: Pings) -> hyper::Result<Connection>
where
    T: Read + Write + Send + Unpin + 'static,
{
    let mut builder = conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(pings.interval)
        .keep_alive_timeout(pings.timeout)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(MAX_HEADERS)
        .max_send_buf_size(SEND_BUFFER);
    let (sender, mut connection) = builder.handshake(io).await?;
    let allowed = Arc::new(AtomicUsize::new(MAX_STREAMS));
    let seen = Arc::clone(&allowed);
    // Ends with the connection. It is polled for each request, and looks then what the server allows by now.
    tokio::spawn(poll_fn(move |cx| {
        let polled = Pin::new(&mut connection).poll(cx);
        seen.store(connection.current_max_send_streams(), Ordering::Relaxed);
        polled.map(|ended| {
            if let Err(error) = ended {
                tracing::debug!(error = words(&error), "A connection to the API server ended");
            }
        })
    }));
    Ok(Connection::Http2(Http2 { sender, streams: AtomicUsize::new(0), allowed, switch }))
}

pub async fn http1<T>(io: T, switch: Arc<Switch>) -> hyper::Result<Connection>
where
    T: Read + Write + Send + Unpin + 'static,
{
    let mut builder = conn::http1::Builder::new();
    builder.max_buf_size(HTTP1_BUFFER);
    let (sender, connection) = builder.handshake(io).await?;
    // Ends with the connection, which ends when its sender and its answer are dropped.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(error = words(&error), "A connection to the API server ended");
        }
    });
    Ok(Connection::Http1(Http1 { sender, switch }))
}

/// A request in neither of the two ways of saying it.
pub struct Outgoing {
    pub method: Method,
    /// With its query.
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Outgoing {
    fn request(&self, uri: String) -> Result<Request<Body>, Lost> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri.parse().map_err(|_| Lost::local("the path is no URI"))?;
        *request.headers_mut() = self.headers.clone();
        Ok(request)
    }
}

/// A request without an answer.
#[derive(Debug)]
pub struct Lost {
    pub message: String,
    /// The server has certainly not seen it.
    pub unsent: bool,
}

impl Lost {
    fn local(why: &str) -> Self {
        Self { message: why.to_owned(), unsent: false }
    }

    fn of(mut error: conn::TrySendError<Request<Body>>) -> Self {
        let returned = error.take_message().is_some();
        let error = error.into_error();
        Self { message: words(&error), unsent: returned || refused(&error) }
    }

    /// While the answer was read.
    pub fn midway(error: &hyper::Error) -> Self {
        Self { message: words(error), unsent: false }
    }
}

/// The server has said itself that it has not looked at the request: it goes away, or has too many.
fn refused(error: &hyper::Error) -> bool {
    let Some(error) = find::<h2::Error>(error) else { return false };
    match error.reason() {
        Some(h2::Reason::REFUSED_STREAM) => true,
        Some(h2::Reason::NO_ERROR) => error.is_go_away() && error.is_remote(),
        _ => false,
    }
}

fn words(error: &hyper::Error) -> String {
    if error.is_timeout() {
        return "http2: client connection lost".to_owned();
    }
    if let Some(error) = find::<io::Error>(error) {
        return io_words(error);
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}
