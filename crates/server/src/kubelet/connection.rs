//! One connection, from its handshake to its end.

use std::any::Any;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::debug;

use super::tls::H2;
use super::wire::{LargeHeads, MAX_HEAD_BYTES, Meter, Wire};

/// A handshake that takes longer is given up.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// As upstream's: how long a connection may rest between two requests, and the head of one may take.
const IDLE: Duration = Duration::from_secs(90);
/// Upstream's limit for one answer. A connection of this age takes no more requests, and is cut at twice this age.
const LIFETIME: Duration = Duration::from_secs(4 * 60 * 60);
/// As Go's: a peer that vanished is noticed even where nothing is sent.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Over HTTP/2, where each of many requests at a time may have as much. What has long heads are commands, and they need
/// an upgrade of HTTP/1.1.
const H2_MAX_HEAD_BYTES: u32 = 64 << 10;
/// TLS records waiting for a slow client.
const TLS_BUFFER: usize = 16 << 10;
/// For each request of an HTTP/2 connection.
const H2_SEND_BUFFER: usize = 32 << 10;
/// What a client may send of requests' bodies before somebody reads them.
const H2_RECEIVE_WINDOW: u32 = 64 << 10;
/// As Go's.
const H2_STREAMS: u32 = 250;

/// What a new connection brings.
pub(super) struct Guest {
    pub address: SocketAddr,
    /// Whether a request said who it is from.
    pub known: Arc<AtomicBool>,
    /// Held until the socket is gone.
    pub place: OwnedSemaphorePermit,
    pub large_heads: LargeHeads,
}

/// The other end of a connection, known to each of its requests.
#[derive(Clone)]
pub(crate) struct Peer(Arc<Facts>);

struct Facts {
    address: SocketAddr,
    certificates: Vec<CertificateDer<'static>>,
    known: Arc<AtomicBool>,
    meter: Arc<Meter>,
    requests: AtomicUsize,
}

impl Peer {
    /// The client's own first; none if it sent none. Nobody has judged them yet.
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.0.certificates
    }

    /// A request said who it is from: the connection is no stranger's any more.
    pub fn is_known(&self) {
        self.0.known.store(true, Ordering::Relaxed);
    }

    /// A request was let in.
    pub fn is_admitted(&self) {
        self.0.meter.admit();
    }

    /// Keeps something until the connection is closed, also when it has become another protocol's.
    pub fn keep(&self, thing: Box<dyn Any + Send>) {
        self.0.meter.keep(thing);
    }
}

/// Until the connection's end.
pub(super) async fn run(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    router: Router,
    guest: Guest,
    stopping: watch::Receiver<()>,
) {
    let _ = stream.set_nodelay(true);
    keep_alive(&stream);
    let accepting =
        TlsAcceptor::from(config).accept_with(stream, |tls| tls.set_buffer_limit(Some(TLS_BUFFER)));
    // On the heap: a handshake is large, and over soon.
    let stream = match tokio::time::timeout(HANDSHAKE, Box::pin(accepting)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return debug!(err = %error, "A TLS handshake failed"),
        Err(_) => return debug!("A TLS handshake took too long"),
    };
    let session = stream.get_ref().1;
    let certificates =
        session.peer_certificates().unwrap_or_default().iter().map(|der| der.clone().into_owned());
    let Guest { address, known, place, large_heads } = guest;
    let meter = Arc::<Meter>::default();
    let certificates = certificates.collect();
    let facts = Facts { address, certificates, known, meter: meter.clone(), requests: AtomicUsize::new(0) };
    let is_h2 = session.alpn_protocol() == Some(H2);
    let service = WithPeer { inner: TowerToHyperService::new(router), peer: Peer(Arc::new(facts)) };
    if is_h2 {
        serve_h2(Wire::http2(stream, meter, place), service, stopping).await;
    } else {
        serve_h1(Wire::http1(stream, meter, large_heads, place), service, stopping).await;
    }
}

type Stream = Wire<TlsStream<TcpStream>>;

async fn serve_h1(stream: Stream, service: WithPeer, stopping: watch::Receiver<()>) {
    let peer = service.peer.clone();
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::pin!(serving);
    tokio::select! {
        biased;
        result = &mut serving => return said(result),
        () = wind_down(&peer, stopping, None) => {}
    }
    serving.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(LIFETIME, serving).await;
}

async fn serve_h2(stream: Stream, service: WithPeer, stopping: watch::Receiver<()>) {
    let peer = service.peer.clone();
    let serving = http2::Builder::new(Tasks::default())
        .timer(TokioTimer::new())
        .max_concurrent_streams(H2_STREAMS)
        .initial_stream_window_size(H2_RECEIVE_WINDOW)
        .initial_connection_window_size(H2_RECEIVE_WINDOW)
        .max_header_list_size(H2_MAX_HEAD_BYTES)
        .max_send_buf_size(H2_SEND_BUFFER)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    tokio::select! {
        biased;
        result = &mut serving => return said(result),
        () = wind_down(&peer, stopping, Some(IDLE)) => {}
    }
    serving.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(LIFETIME, serving).await;
}

fn said(result: hyper::Result<()>) {
    if let Err(error) = result {
        debug!(err = %error, "A connection ended badly");
    }
}

/// Until the connection should take no more requests: the agent stops, it is old, or nobody has used it for `idle`.
async fn wind_down(peer: &Peer, mut stopping: watch::Receiver<()>, idle: Option<Duration>) {
    let unused = async {
        let Some(idle) = idle else { return std::future::pending().await };
        // Looked at once per period: an unused connection lives for one to two of them.
        loop {
            tokio::time::sleep(idle).await;
            if peer.0.requests.swap(0, Ordering::Relaxed) == 0 && !in_use(peer) {
                return;
            }
        }
    };
    tokio::select! {
        biased;
        // The sender is dropped when the agent stops.
        _ = stopping.changed() => {}
        () = unused => {}
        () = tokio::time::sleep(LIFETIME) => {}
    }
}

/// Answers under way hold the peer, besides the service and the watcher of the connection.
fn in_use(peer: &Peer) -> bool {
    Arc::strong_count(&peer.0) > 2
}

/// Best effort: without it, a vanished peer is noticed later.
fn keep_alive(stream: &TcpStream) {
    use rustix::net::sockopt;
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, KEEP_ALIVE);
    let _ = sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE);
}

/// Tells each request whose it is.
struct WithPeer {
    inner: TowerToHyperService<Router>,
    peer: Peer,
}

impl Service<hyper::Request<Incoming>> for WithPeer {
    type Response = hyper::Response<Held>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<hyper::Response<Held>, Infallible>> + Send>>;

    fn call(&self, mut request: hyper::Request<Incoming>) -> Self::Future {
        self.peer.0.requests.fetch_add(1, Ordering::Relaxed);
        let peer = self.peer.clone();
        request.extensions_mut().insert(peer.clone());
        request.extensions_mut().insert(ConnectInfo(peer.0.address));
        peer.0.meter.give_query(request.extensions_mut());
        let answering = self.inner.call(request);
        Box::pin(async move {
            let answer = answering.await?;
            peer.0.meter.answered();
            Ok(answer.map(|body| Held { body, _peer: peer }))
        })
    }
}

/// An answer's body, which keeps its connection in use until it has ended.
struct Held {
    body: axum::body::Body,
    _peer: Peer,
}

impl Body for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Runs the requests of one HTTP/2 connection and ends with it.
#[derive(Clone, Default)]
struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Tasks {
    fn execute(&self, task: F) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        let task: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(task);
        tasks.spawn(task);
    }
}
