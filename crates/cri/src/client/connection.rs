//! The socket, deadlines, and what a failed call means.

use std::error::Error;
use std::time::Duration;

use crablet_protos::cri::image_service_client::ImageServiceClient;
use crablet_protos::cri::runtime_service_client::RuntimeServiceClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};

use crate::port::{CriError, ErrorKind, Result};

/// As upstream's; gRPC's usual 4 MiB is too little for the container list of a full node.
const MAX_REPLY_BYTES: usize = 16 << 20;

/// How Go's gRPC words a missed deadline. It ends up in events, where people search for it.
const DEADLINE_MESSAGE: &str = "context deadline exceeded";

/// Both services of CRI, over one connection. Cloning is cheap, and calls need a clone of their own.
#[derive(Clone)]
pub struct Services {
    pub runtime: RuntimeServiceClient<Channel>,
    pub images: ImageServiceClient<Channel>,
}

pub struct Connection {
    services: Services,
    socket: String,
}

impl Connection {
    pub fn new(endpoint: &str) -> Result<Self> {
        let socket = socket_path(endpoint)?.to_owned();
        let channel = Endpoint::from_shared(format!("unix://{socket}"))
            .map_err(|error| unusable(endpoint, &error.to_string()))?
            .connect_lazy();
        let runtime = RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(MAX_REPLY_BYTES);
        let images = ImageServiceClient::new(channel).max_decoding_message_size(MAX_REPLY_BYTES);
        Ok(Self { services: Services { runtime, images }, socket })
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
                Err(_) => return Err(CriError::new(ErrorKind::DeadlineExceeded, DEADLINE_MESSAGE)),
            },
        };
        reply.map(Response::into_inner).map_err(|status| error(&self.socket, &status))
    }

    /// For what is awaited outside of [`Connection::call`].
    pub fn error_maker(&self) -> impl Fn(&Status) -> CriError + Send + use<> {
        let socket = self.socket.clone();
        move |status| error(&socket, status)
    }
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
            return CriError::new(ErrorKind::DeadlineExceeded, DEADLINE_MESSAGE);
        }
        let root = chain(cause).last().unwrap_or(cause);
        return CriError::new(ErrorKind::Unavailable, format!("no answer on `{socket}`: {root}"));
    }
    let kind = match status.code() {
        Code::NotFound => ErrorKind::NotFound,
        Code::Unimplemented => ErrorKind::Unimplemented,
        Code::Unavailable => ErrorKind::Unavailable,
        Code::DeadlineExceeded => ErrorKind::DeadlineExceeded,
        _ => ErrorKind::Refused,
    };
    CriError::new(kind, status.message())
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

#[cfg(test)]
mod tests;
