//! The socket, deadlines, and what a failed call means.

use std::error::Error;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use crablet_protos::content::content_client::ContentClient;
use crablet_protos::cri::image_service_client::ImageServiceClient;
use crablet_protos::cri::runtime_service_client::RuntimeServiceClient;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request, Response, Status};

use crate::port::{CriError, ErrorKind, Result};

/// As upstream's; gRPC's usual 4 MiB is too little for the container list of a full node.
const MAX_REPLY_BYTES: usize = 16 << 20;

/// How Go's gRPC words a missed deadline. It ends up in events, where people search for it.
const DEADLINE_MESSAGE: &str = "context deadline exceeded";

/// A call that nobody waits for any more is given up after this long: nothing takes it, and it must not pile up.
const GIVE_UP: Duration = Duration::from_secs(15 * 60);

/// Is shown each new connection, to keep it open for a moment after this process has died.
pub type KeepOpen = Arc<dyn Fn(BorrowedFd<'_>) + Send + Sync>;

/// What the runtime serves, over one connection. Cloning is cheap, and calls need a clone of their own.
#[derive(Clone)]
pub struct Services {
    pub runtime: RuntimeServiceClient<Channel>,
    pub images: ImageServiceClient<Channel>,
    /// Not CRI's: containerd's own, on the same socket.
    pub content: ContentClient<Channel>,
}

pub struct Connection {
    services: Services,
    socket: String,
}

impl Connection {
    pub fn new(endpoint: &str, keep: Option<KeepOpen>) -> Result<Self> {
        let socket = socket_path(endpoint)?.to_owned();
        let path = socket.clone();
        let connector = tower::service_fn(move |_: Uri| connect(path.clone(), keep.clone()));
        // The address is never dialled; gRPC wants a name for the other side, and sockets go by this one.
        let channel = Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector);
        let runtime = RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(MAX_REPLY_BYTES);
        let images = ImageServiceClient::new(channel.clone()).max_decoding_message_size(MAX_REPLY_BYTES);
        let content = ContentClient::new(channel);
        Ok(Self { services: Services { runtime, images, content }, socket })
    }

    pub fn services(&self) -> Services {
        self.services.clone()
    }

    /// One call. The runtime is told the deadline too, so that it gives up when we do.
    pub async fn call<Q, R, F>(
        &self,
        deadline: Option<Duration>,
        message: Q,
        send: impl FnOnce(Services, Request<Q>) -> F,
    ) -> Result<R>
    where
        F: Future<Output = std::result::Result<Response<R>, Status>>,
    {
        let mut request = Request::new(message);
        if let Some(deadline) = deadline {
            request.set_timeout(deadline);
        }
        // Boxed, because each layer that holds a call by value adds the size of its message to every caller's future.
        let call = Box::pin(send(self.services(), request));
        let reply = match deadline {
            None => call.await,
            Some(deadline) => match tokio::time::timeout(deadline, call).await {
                Ok(reply) => reply,
                Err(_) => return Err(deadline_exceeded()),
            },
        };
        reply.map(Response::into_inner).map_err(|status| error(&self.socket, &status))
    }

    /// One call that changes something. It runs to its end even when nobody waits any more: a runtime that is cut off
    /// half-way leaves half a sandbox behind. Not even the deadline cuts it off; it only ends the waiting.
    pub async fn call_to_its_end<Q, R, F>(
        &self,
        deadline: Duration,
        message: Q,
        send: impl FnOnce(Services, Request<Q>) -> F,
    ) -> Result<R>
    where
        R: Send + 'static,
        F: Future<Output = std::result::Result<Response<R>, Status>> + Send + 'static,
    {
        let call = tokio::time::timeout(deadline.max(GIVE_UP), send(self.services(), Request::new(message)));
        let socket = self.socket.clone();
        let call = tokio::spawn(async move {
            let reply = call.await.map_err(|_| deadline_exceeded())?;
            reply.map(Response::into_inner).map_err(|status| error(&socket, &status))
        });
        match tokio::time::timeout(deadline, call).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(broken)) => Err(CriError::new(ErrorKind::Refused, broken.to_string())),
            Err(_) => Err(deadline_exceeded()),
        }
    }

    /// For what is awaited outside of [`Connection::call`].
    pub fn error_maker(&self) -> impl Fn(&Status) -> CriError + Send + use<> {
        let socket = self.socket.clone();
        move |status| error(&socket, status)
    }
}

async fn connect(path: String, keep: Option<KeepOpen>) -> io::Result<TokioIo<UnixStream>> {
    let stream = UnixStream::connect(path).await?;
    if let Some(keep) = keep {
        keep(stream.as_fd());
    }
    Ok(TokioIo::new(stream))
}

fn deadline_exceeded() -> CriError {
    CriError::new(ErrorKind::DeadlineExceeded, DEADLINE_MESSAGE)
}

fn socket_path(endpoint: &str) -> Result<&str> {
    let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
    if path.starts_with('/') {
        Ok(path)
    } else {
        Err(unusable(endpoint, "only a unix socket with an absolute path is supported"))
    }
}

fn unusable(endpoint: &str, why: &str) -> CriError {
    CriError::new(ErrorKind::Unavailable, format!("runtime endpoint `{endpoint}`: {why}"))
}

fn error(socket: &str, status: &Status) -> CriError {
    // The client library gives a cause to what it found itself; a status that the runtime sent has none.
    if let Some(cause) = status.source() {
        if chain(cause).any(|cause| cause.is::<tonic::TimeoutExpired>()) {
            return deadline_exceeded();
        }
        let root = chain(cause).last().unwrap_or(cause);
        return CriError::new(ErrorKind::Unavailable, format!("no answer on `{socket}`: {root}"));
    }
    let kind = match status.code() {
        Code::NotFound => ErrorKind::NotFound,
        Code::Unimplemented => ErrorKind::Unimplemented,
        Code::Unavailable => ErrorKind::Unavailable,
        Code::DeadlineExceeded => ErrorKind::DeadlineExceeded,
        Code::ResourceExhausted => ErrorKind::Exhausted,
        _ => ErrorKind::Refused,
    };
    CriError { code: Some(go_name(status.code())), ..CriError::new(kind, status.message()) }
}

/// What Go's gRPC calls a code. It ends up in events and statuses.
fn go_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

#[cfg(test)]
mod tests;
