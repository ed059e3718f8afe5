//! `exec`, `attach` and `portForward`: connections between clients and the runtime's streaming server.
//!
//! The runtime is asked for an address, and from then on this is about two connections. Most clients speak to the
//! runtime itself and bytes go both ways unread; newer WebSocket clients are served here.
//!
//! | module | what it is |
//! |---|---|
//! | `options` | what a request's query asks for |
//! | `head` | what a request's head says about upgrades |
//! | `runtime` | a request to the runtime's streaming server, and its answer |
//! | `proxy` | a client that speaks to the runtime itself |
//! | `relay` | bytes both ways, until one side ends |
//! | `client` | the client's socket after its upgrade |
//! | `sessions` | the tasks in which all that runs, a bounded number of them |
//! | `websocket` | WebSocket's handshake and frames, as a server |
//! | `spdy` | SPDY/3.1 frames, as a client |
//! | `translate` | a client of `v5.channel.k8s.io`: WebSocket here, SPDY to the runtime |
//! | `status` | how a command ended, as the runtime says it and as clients want it |
//! | `tunnel` | a client that sends SPDY inside a WebSocket, for port-forward |
//!
//! Nothing is buffered beyond one block for each direction: who writes to a slow reader waits.

mod client;
mod head;
mod options;
mod proxy;
mod relay;
mod runtime;
mod sessions;
mod spdy;
mod status;
mod translate;
mod tunnel;
mod websocket;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::{MethodFilter, on};
use bytes::Bytes;
use serde::Deserialize;

use crate::ports::{ContainerName, Containers, Refusal};
use crate::{metrics, reply};
use sessions::Sessions;

/// How long one waits who is told that the runtime has too many streams: as long as an address is good for.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("60");

pub(crate) struct Streaming {
    pub containers: Arc<dyn Containers>,
    /// WebSocket clients of protocol v5 and of tunnels are served here, not by the runtime.
    pub websockets: bool,
}

impl Streaming {
    /// Sessions end when the last clone of the router is gone.
    pub fn routes(self) -> Router {
        let (containers, websockets) = (self.containers, self.websockets);
        Service { containers, websockets, sessions: Arc::new(Sessions::new()) }.routes()
    }
}

#[derive(Clone)]
struct Service {
    containers: Arc<dyn Containers>,
    websockets: bool,
    sessions: Arc<Sessions>,
}

impl Service {
    fn routes(self) -> Router {
        let methods = || MethodFilter::GET.or(MethodFilter::POST);
        Router::new()
            .route("/exec/{namespace}/{pod}/{container}", on(methods(), exec))
            .route("/exec/{namespace}/{pod}/{uid}/{container}", on(methods(), exec))
            .route("/attach/{namespace}/{pod}/{container}", on(methods(), attach))
            .route("/attach/{namespace}/{pod}/{uid}/{container}", on(methods(), attach))
            .route("/portForward/{namespace}/{pod}", on(methods(), port_forward))
            .route("/portForward/{namespace}/{pod}/{uid}", on(methods(), port_forward))
            .with_state(self)
    }
}

#[derive(Deserialize)]
struct ContainerPath {
    namespace: String,
    pod: String,
    uid: Option<String>,
    container: String,
}

impl ContainerPath {
    fn name(self) -> ContainerName {
        let Self { namespace, pod, uid, container } = self;
        ContainerName { namespace, pod, uid, container }
    }
}

#[derive(Deserialize)]
struct PodPath {
    namespace: String,
    pod: String,
    uid: Option<String>,
}

async fn exec(State(service): State<Service>, Path(path): Path<ContainerPath>, request: Request) -> Response {
    answer(service.exec(path.name(), request).await)
}

async fn attach(
    State(service): State<Service>,
    Path(path): Path<ContainerPath>,
    request: Request,
) -> Response {
    answer(service.attach(path.name(), request).await)
}

async fn port_forward(
    State(service): State<Service>,
    Path(path): Path<PodPath>,
    request: Request,
) -> Response {
    answer(service.port_forward(path, request).await)
}

/// An answer too: the reason for which nothing is opened.
type Refused = Box<Response>;
type Opened = Result<Response, Refused>;

fn answer(opened: Opened) -> Response {
    opened.unwrap_or_else(|why| *why)
}

// Checks come in upstream's order: clients see which of two faults is named.
impl Service {
    async fn exec(&self, name: ContainerName, request: Request) -> Opened {
        let query = options::query(&request);
        let streams = options::streams(&query).map_err(bad_request)?;
        let command = options::command(&query);
        self.check_pod(&name.namespace, &name.pod)?;
        let address = self.containers.exec(&name, &command, streams).await.map_err(refused)?;
        if self.websockets && head::wants_v5(request.headers()) {
            metrics::websocket_request("exec");
            return translate::serve(&address, request, streams, &self.sessions);
        }
        proxy::serve(&address, request, &self.sessions).await
    }

    async fn attach(&self, name: ContainerName, request: Request) -> Opened {
        let streams = options::streams(&options::query(&request)).map_err(bad_request)?;
        self.check_pod(&name.namespace, &name.pod)?;
        let address = self.containers.attach(&name, streams).await.map_err(refused)?;
        if self.websockets && head::wants_v5(request.headers()) {
            metrics::websocket_request("attach");
            return translate::serve(&address, request, streams, &self.sessions);
        }
        proxy::serve(&address, request, &self.sessions).await
    }

    async fn port_forward(&self, path: PodPath, request: Request) -> Opened {
        let tunnel = self.websockets && head::wants_tunnel(request.headers());
        let named = !tunnel && head::is_websocket(request.headers());
        let ports = match named {
            true => options::ports(&options::query(&request)).map_err(bad_request)?,
            false => Vec::new(),
        };
        let uid = self.check_pod(&path.namespace, &path.pod)?;
        if path.uid.is_some_and(|wanted| wanted != uid) {
            return Err(Box::new(reply::plain(StatusCode::NOT_FOUND, "pod not found")));
        }
        let address =
            self.containers.port_forward(&path.namespace, &path.pod, &ports).await.map_err(refused)?;
        if tunnel {
            metrics::websocket_request("portforward");
            return tunnel::serve(&address, request, &self.sessions).await;
        }
        proxy::serve(&address, request, &self.sessions).await
    }

    /// The UID of the pod of that name.
    fn check_pod(&self, namespace: &str, name: &str) -> Result<String, Refused> {
        match self.containers.pod(namespace, name) {
            Some(pod) => Ok(pod.uid),
            None => Err(Box::new(reply::plain(StatusCode::NOT_FOUND, "pod does not exist"))),
        }
    }
}

fn bad_request(why: String) -> Refused {
    Box::new(reply::plain(StatusCode::BAD_REQUEST, why))
}

fn refused(refusal: Refusal) -> Refused {
    match refusal {
        Refusal::NotFound(why) => Box::new(reply::plain(StatusCode::NOT_FOUND, why)),
        Refusal::Exhausted(why) => too_many(why),
        Refusal::Failed(why) => Box::new(reply::plain(StatusCode::INTERNAL_SERVER_ERROR, why)),
    }
}

fn too_many(why: impl Into<Bytes>) -> Refused {
    let mut response = reply::plain(StatusCode::TOO_MANY_REQUESTS, why);
    response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
    Box::new(response)
}

/// What upstream writes with Go's `http.Error`.
fn failed(why: &str) -> Refused {
    Box::new(reply::line(StatusCode::INTERNAL_SERVER_ERROR, why))
}
