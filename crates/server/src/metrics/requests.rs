//! Counts and times each request, until its answer has ended: a log that is followed, or a command that runs, is under
//! way for as long as that.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use prometheus::{Histogram, IntGauge};

use super::FIGURES;
use crate::kubelet::Peer;
use crate::mux::decode;

const OTHER: &str = "other";

/// On every port.
const COMMON: &[&str] =
    &["healthz", "pods", "stats", "metrics", "metrics/cadvisor", "metrics/probes", "metrics/resource"];
/// Where debugging handlers are served.
const DEBUGGING: &[&str] =
    &["logs", "debug", "run", "exec", "attach", "portForward", "containerLogs", "configz", "runningpods"];
/// Where they are refused. Upstream's list too has a `pprof` that no path begins with, and no `debug`.
const REFUSED: &[&str] =
    &["run", "exec", "attach", "portForward", "containerLogs", "runningpods", "pprof", "logs"];

/// Which paths of a port are told apart.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    server_type: &'static str,
    known: Vec<&'static str>,
}

impl Paths {
    pub fn read_only() -> Self {
        Self { server_type: "readonly", known: [COMMON, REFUSED].concat() }
    }

    /// `more`: those of `checkpoint`, `flagz` and `statusz` that the main port has.
    pub fn main(debugging_handlers: bool, more: &[&'static str]) -> Self {
        let known =
            if debugging_handlers { [COMMON, DEBUGGING, more].concat() } else { [COMMON, REFUSED].concat() };
        Self { server_type: "readwrite", known }
    }

    /// The first part of a path, and the second one of metrics.
    fn label(&self, path: &str) -> &'static str {
        let decoded = match path.contains('%') {
            true => decode(path).map(|bytes| Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())),
            false => Some(Cow::Borrowed(path)),
        };
        let Some(decoded) = decoded else { return OTHER };
        let mut parts = decoded.strip_prefix('/').unwrap_or(&decoded).split('/');
        let first = parts.next().unwrap_or_default();
        let second = parts.next().filter(|_| first == "metrics");
        let is_it = |known: &&&str| match (second, known.split_once('/')) {
            (None, None) => **known == first,
            (Some(second), Some((_, name))) => name == second,
            _ => false,
        };
        self.known.iter().find(is_it).copied().unwrap_or(OTHER)
    }
}

/// As upstream's set: `portForward` is written otherwise there, so that forwarded ports do not count as long.
fn is_long_running(path: &str) -> bool {
    matches!(path, "exec" | "attach" | "portforward" | "debug")
}

fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::OPTIONS => "OPTIONS",
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::TRACE => "TRACE",
        Method::CONNECT => "CONNECT",
        _ => OTHER,
    }
}

/// The outermost layer of a port.
pub(crate) fn measured(router: Router, paths: Paths) -> Router {
    router.layer(from_fn_with_state(Arc::new(paths), measure))
}

async fn measure(State(paths): State<Arc<Paths>>, request: Request, next: Next) -> Response {
    let Some(under_way) = UnderWay::begin(&paths, request.method(), request.uri().path()) else {
        return next.run(request).await;
    };
    let peer = request.extensions().get::<Peer>().cloned();
    let response = next.run(request).await;
    match peer {
        // What follows is another protocol, and ends with the connection.
        Some(peer) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            peer.keep(Box::new(under_way));
            response
        }
        _ => response.map(|body| Body::new(Measured { body, _under_way: under_way })),
    }
}

/// A request that has come and not ended.
struct UnderWay {
    count: IntGauge,
    duration: Histogram,
    since: Instant,
}

impl UnderWay {
    fn begin(paths: &Paths, method: &Method, path: &str) -> Option<Self> {
        let figures = FIGURES.as_ref()?;
        let path = paths.label(path);
        let long_running = if is_long_running(path) { "true" } else { "false" };
        let labels = [method_label(method), path, paths.server_type, long_running];
        figures.requests.with_label_values(&labels).inc();
        let count = figures.under_way.with_label_values(&labels);
        count.inc();
        Some(Self { count, duration: figures.durations.with_label_values(&labels), since: Instant::now() })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.count.dec();
        self.duration.observe(self.since.elapsed().as_secs_f64());
    }
}

/// An answer's body, whose request ends with it.
struct Measured {
    body: Body,
    _under_way: UnderWay,
}

impl HttpBody for Measured {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_apart_as_upstream_tells_them_apart() {
        let main = Paths::main(true, &["checkpoint", "flagz", "statusz"]);
        for (path, label) in [
            ("/pods", "pods"),
            ("/pods/x/y", "pods"),
            ("/%70ods", "pods"),
            ("/%zz", "other"),
            ("/metrics", "metrics"),
            ("/metrics/", "other"),
            ("/metrics/cadvisor", "metrics/cadvisor"),
            ("/metrics/cadvisor/x", "metrics/cadvisor"),
            ("/metrics/slis", "other"),
            ("/exec/a/b/c", "exec"),
            ("/portForward/a/b", "portForward"),
            ("/portforward/a/b", "other"),
            ("/debug/pprof/heap", "debug"),
            ("/checkpoint/a/b/c", "checkpoint"),
            ("/", "other"),
            ("//pods", "other"),
            ("/nothing", "other"),
        ] {
            assert_eq!(main.label(path), label, "{path}");
        }
        let closed = Paths::main(false, &["checkpoint"]);
        for (path, label) in [
            ("/exec/a", "exec"),
            ("/debug/pprof/", "other"),
            ("/checkpoint/", "other"),
            ("/configz", "other"),
        ] {
            assert_eq!(closed.label(path), label, "{path}");
        }
        assert_eq!(Paths::read_only().label("/logs/"), "logs");
    }
}
