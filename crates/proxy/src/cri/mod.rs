//! The proxy between a kubelet and its container runtime.
//!
//! It passes gRPC on at the level of HTTP/2: pieces of messages, headers, trailers, resets and the end of connections go
//! through as they are, and copies of the messages are decoded for the record. So a field that nobody here knows, a
//! deadline, a cancellation or an error with details reaches the other side as if there were no proxy.

mod answer;
mod call;
mod connection;
mod decode;
mod entry;
mod framing;
mod schema;
mod streams;
mod wire;

use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::task::JoinSet;

use self::decode::Limits;
pub use self::entry::CriRecord;
use crate::background::Background;
use crate::error::{Error, Result};
use crate::record::{DEFAULT_KEPT, Recorder};
use crate::rules::Rules;
use crate::secrets::{Salt, Values};

/// How long a connection stays open for what was written last to leave, before it is closed without a word.
const LINGER: Duration = Duration::from_millis(50);

/// How to start it.
#[derive(Debug, Clone)]
pub struct CriOptions {
    /// The socket to make for the kubelet.
    pub listen: PathBuf,
    /// The runtime's socket. It need not be there yet.
    pub upstream: PathBuf,
    /// Where lines are appended.
    pub log: PathBuf,
    /// Environment variables and the like in the record.
    pub values: Values,
    /// Give two proxies the same one to compare their records.
    pub salt: Salt,
    /// How much of a command's output is written, in bytes.
    pub output_limit: usize,
    /// Messages longer than this are not shown in the record, only their length.
    pub message_limit: usize,
    /// How many lines are kept in memory.
    pub kept: usize,
}

impl CriOptions {
    pub fn new(
        listen: impl Into<PathBuf>,
        upstream: impl Into<PathBuf>,
        log: impl Into<PathBuf>,
    ) -> CriOptions {
        CriOptions {
            listen: listen.into(),
            upstream: upstream.into(),
            log: log.into(),
            values: Values::default(),
            salt: Salt::random(),
            output_limit: 4 << 10,
            message_limit: 4 << 20,
            kept: DEFAULT_KEPT,
        }
    }
}

/// What connections and calls share.
struct Context {
    rules: Rules,
    recorder: Recorder<CriRecord>,
    limits: Limits,
}

/// The proxy for those who have a runtime: it listens from [`CriServer::bind`] on, and works while [`CriServer::run`] is
/// polled. Dropping it, or the future, closes every connection and removes the socket.
pub struct CriServer {
    listener: UnixListener,
    _socket: Socket,
    upstream: PathBuf,
    context: Arc<Context>,
}

impl CriServer {
    /// Must be called within a tokio runtime.
    pub fn bind(options: &CriOptions) -> Result<CriServer> {
        let recorder = Recorder::open(&options.log, options.kept)?;
        let path = options.listen.as_path();
        remove_stale(path)?;
        let failed = |source| Error::Listen { address: path.display().to_string(), source };
        let listener = UnixListener::bind(path).map_err(failed)?;
        let limits = Limits {
            values: options.values,
            salt: options.salt.clone(),
            output: options.output_limit,
            message: options.message_limit,
        };
        Ok(CriServer {
            listener,
            _socket: Socket(path.to_owned()),
            upstream: options.upstream.clone(),
            context: Arc::new(Context { rules: Rules::default(), recorder, limits }),
        })
    }

    pub fn rules(&self) -> Rules {
        self.context.rules.clone()
    }

    pub fn record(&self) -> Recorder<CriRecord> {
        self.context.recorder.clone()
    }

    /// Serves for as long as it is polled.
    pub async fn run(self) {
        let mut connections = JoinSet::new();
        loop {
            // Both can be dropped at any time.
            tokio::select! {
                biased;
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((client, _)) => {
                        let context = Arc::clone(&self.context);
                        connections.spawn(connection::serve(context, client, self.upstream.clone()));
                    }
                    // Out of file descriptors, most likely: others have to end first.
                    Err(_) => tokio::time::sleep(LINGER).await,
                },
            }
        }
    }
}

/// The proxy for everyone else: it runs in threads of its own until it is dropped.
///
/// ```no_run
/// # use crablet_proxy::{Action, CriProxy, Failure, Matcher, Rule, grpc};
/// # use std::{path::Path, time::Duration};
/// # fn main() -> crablet_proxy::Result<()> {
/// let proxy = CriProxy::start(
///     Path::new("/run/test/proxy.sock"),
///     Path::new("/run/containerd/containerd.sock"),
///     Path::new("/tmp/cri.jsonl"),
/// )?;
/// let failure = Failure::grpc(grpc::UNAVAILABLE, "the runtime has a bad day");
/// let rule = Rule::new(Matcher::method("RunPodSandbox").pod("web"), Action::FailAfter(failure)).first(2);
/// let rule = proxy.rules().add(rule);
/// // ... start a kubelet on the socket, create the pod ...
/// proxy.rules().wait_fired(rule, 2, Duration::from_secs(60))?;
/// proxy.record().wait("the third try", Duration::from_secs(60), |line| {
///     line.method == "RunPodSandbox" && line.code == Some(grpc::OK)
/// })?;
/// # Ok(())
/// # }
/// ```
pub struct CriProxy {
    rules: Rules,
    recorder: Recorder<CriRecord>,
    listen: PathBuf,
    _background: Background,
}

impl CriProxy {
    /// With everything else as [`CriOptions::new`] has it.
    pub fn start(listen: &Path, upstream: &Path, log: &Path) -> Result<CriProxy> {
        CriProxy::start_with(&CriOptions::new(listen, upstream, log))
    }

    pub fn start_with(options: &CriOptions) -> Result<CriProxy> {
        let options = options.clone();
        let listen = options.listen.clone();
        let (background, (rules, recorder)) = Background::start("cri-proxy", move || {
            let server = CriServer::bind(&options)?;
            let handles = (server.rules(), server.record());
            Ok((handles, server.run()))
        })?;
        Ok(CriProxy { rules, recorder, listen, _background: background })
    }

    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    pub fn record(&self) -> &Recorder<CriRecord> {
        &self.recorder
    }

    /// For `--container-runtime-endpoint`.
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.listen.display())
    }
}

/// Removes the socket's file when it is dropped.
struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A socket that someone left behind is in the way; one that someone listens on is theirs.
fn remove_stale(path: &Path) -> Result<()> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    if !is_socket {
        return Ok(());
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            let removed = std::fs::remove_file(path);
            removed.map_err(|source| Error::Listen { address: path.display().to_string(), source })
        }
        _ => Err(Error::InUse { path: path.to_owned() }),
    }
}
