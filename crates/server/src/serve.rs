//! Accept loops with limits. Nothing here wakes up while nobody asks.

use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tracing::{debug, warn};

use crate::unix::{BindError, LocalSocket};

/// What clients may use up.
#[derive(Clone, Copy, Debug)]
struct Limits {
    connections: usize,
    /// Whether anybody may come here. Then the oldest connection goes when there are too many: nobody keeps a place by
    /// sending or reading slowly. Otherwise more wait in the kernel's queue.
    strangers: bool,
    /// A connection ends after this long, whatever it does.
    lifetime: Option<Duration>,
    /// How long a client may take to send the head of a request, and how long a connection may rest between two of them.
    head: Duration,
    head_bytes: usize,
}

/// Idle connections end as upstream's do. Nothing that is served here takes long or is asked for with a long head.
const TCP: Limits = Limits {
    connections: 64,
    strangers: true,
    lifetime: Some(Duration::from_secs(300)),
    head: Duration::from_secs(90),
    head_bytes: 64 << 10,
};
/// Who watches stays: only root and the agent's own user come this far.
const LOCAL: Limits = Limits {
    connections: 64,
    strangers: false,
    lifetime: None,
    head: Duration::from_secs(30),
    head_bytes: 64 << 10,
};

/// How long answers under way may take to end once the agent stops.
const DRAIN: Duration = Duration::from_secs(1);
/// After an accept that failed for want of something, such as file descriptors.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Serves until `shutdown`. Dropping the future ends every connection.
pub async fn serve_tcp(listener: TcpListener, router: Router, shutdown: impl Future<Output = ()>) {
    accept_loop(&listener, router, shutdown, TCP).await;
}

/// Binds and serves until `shutdown`. Use [`LocalSocket`] to learn of a failed bind earlier.
pub async fn serve_unix(
    path: &Path,
    router: Router,
    shutdown: impl Future<Output = ()>,
) -> Result<(), BindError> {
    LocalSocket::bind(path).await?.serve(router, shutdown).await;
    Ok(())
}

impl LocalSocket {
    /// Serves until `shutdown`, then removes the socket file.
    pub async fn serve(self, router: Router, shutdown: impl Future<Output = ()>) {
        accept_loop(&self, router, shutdown, LOCAL).await;
    }
}

trait Accept {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// `None`: a peer that was turned away. Cancel-safe.
    fn accept(&self) -> impl Future<Output = io::Result<Option<Self::Stream>>> + Send;
}

impl Accept for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<Option<TcpStream>> {
        self.accept().await.map(|(stream, _)| Some(stream))
    }
}

impl Accept for LocalSocket {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<Option<UnixStream>> {
        self.accept().await
    }
}

async fn accept_loop<L: Accept>(
    listener: &L,
    router: Router,
    shutdown: impl Future<Output = ()>,
    limits: Limits,
) {
    let (stop, stopping) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut strangers = Strangers::default();
    tokio::pin!(shutdown);
    loop {
        let room = limits.strangers || connections.len() < limits.connections;
        // Every arm is cancel-safe: an accept that is not done has taken nothing from the kernel's queue.
        tokio::select! {
            () = &mut shutdown => break,
            _ = connections.join_next(), if !connections.is_empty() => (),
            accepted = async { if room { listener.accept().await } else { pending().await } } => match accepted {
                Ok(Some(stream)) => {
                    if limits.strangers {
                        strangers.make_room(limits.connections);
                    }
                    let task = connections.spawn(connection(stream, router.clone(), stopping.clone(), limits));
                    if limits.strangers {
                        strangers.add(Arc::default(), task);
                    }
                }
                Ok(None) => (),
                Err(error) if is_the_peers_fault(&error) => (),
                Err(error) => {
                    warn!(err = %error, "Cannot accept connections");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(stop);
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN, drained).await.is_err() {
        debug!(count = connections.len(), "Ending connections that did not end by themselves");
    }
    connections.shutdown().await;
}

/// Connections by age, with whether they are known by now.
#[derive(Default)]
pub(crate) struct Strangers {
    next: u64,
    waiting: BTreeMap<u64, (Arc<AtomicBool>, AbortHandle)>,
}

impl Strangers {
    /// Makes room for one more.
    pub fn make_room(&mut self, most: usize) {
        if self.waiting.len() < most {
            return;
        }
        self.waiting.retain(|_, (known, task)| !known.load(Ordering::Relaxed) && !task.is_finished());
        while self.waiting.len() >= most {
            if let Some((_, (_, task))) = self.waiting.pop_first() {
                debug!("Too many clients that did not say who they are, ending the oldest");
                task.abort();
            }
        }
    }

    pub fn add(&mut self, known: Arc<AtomicBool>, task: AbortHandle) {
        self.waiting.insert(self.next, (known, task));
        self.next += 1;
    }
}

pub(crate) fn is_the_peers_fault(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn connection<S>(stream: S, router: Router, mut stopping: watch::Receiver<()>, limits: Limits)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(limits.head_bytes)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(serving);
    let expired = async {
        match limits.lifetime {
            Some(lifetime) => tokio::time::sleep(lifetime).await,
            None => pending().await,
        }
    };
    tokio::select! {
        result = &mut serving => {
            if let Err(error) = result {
                debug!(err = %error, "A connection ended badly");
            }
        }
        // The sender is dropped when the agent stops. What is being answered is answered to its end.
        _ = stopping.changed() => {
            serving.as_mut().graceful_shutdown();
            let _ = serving.await;
        }
        () = expired => debug!("A connection was open for too long"),
    }
}
