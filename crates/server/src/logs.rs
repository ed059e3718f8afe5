//! Containers' logs, as `kubectl logs` asks for them: `/containerLogs/{namespace}/{pod}/{container}`.
//!
//! | module | what it is |
//! |---|---|
//! | [`options`] | the query, in upstream's terms |
//! | [`lines`] | from the bytes of a CRI log file to the bytes that were asked for |
//! | [`file`] | a log file: opened safely, read in blocks, searched from its end |
//! | [`follow`] | waiting until there is more, or another file, or the container's end |
//! | [`stream`] | all of it as the body of an answer |
//!
//! The next block is read only when the client has taken the last one. A log can have any size, and a line of it too: the
//! memory for one answer is a few blocks.

mod file;
mod follow;
mod lines;
mod options;
mod stream;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use crablet_host::Clock;

use crate::mux::{Entry, route};
use crate::ports::{LogRefusal, Logs};
use crate::reply;
pub(crate) use follow::Watcher;
use options::{BadQuery, LogOptions, LogStream};

pub(crate) const ENTRY: Entry = Entry::Service("/containerLogs", &[route(3, &["GET"])]);

#[derive(Clone)]
pub(crate) struct LogService {
    pub logs: Arc<dyn Logs>,
    pub clock: Arc<dyn Clock>,
    pub split_streams: bool,
    pub watcher: Watcher,
}

impl LogService {
    pub fn routes(self) -> Router {
        Router::new()
            .route("/containerLogs/{namespace}/{pod}/{container}", get(container_logs))
            .with_state(self)
    }
}

async fn container_logs(
    State(service): State<LogService>,
    Path((namespace, pod, container)): Path<(String, String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    let options = match LogOptions::parse(&query.unwrap_or_default()) {
        Ok(options) => options,
        Err(BadQuery::Undecodable) => {
            return reply::plain(StatusCode::BAD_REQUEST, r#"{"message": "Unable to decode query."}"#);
        }
        Err(BadQuery::Invalid) => {
            return reply::plain(StatusCode::UNPROCESSABLE_ENTITY, r#"{"message": "Invalid request."}"#);
        }
    };
    let found = service.logs.find(&namespace, &pod, &container, options.previous).await;
    let unsplittable = options.stream != LogStream::All && !service.split_streams;
    match found {
        Err(refusal @ (LogRefusal::NoPod { .. } | LogRefusal::NoContainer { .. })) => {
            reply::plain(StatusCode::NOT_FOUND, refusal.to_string())
        }
        _ if unsplittable => {
            let message = format!(
                "unable to return the given log stream: {:?}. Please enable PodLogsQuerySplitStreams feature gate in kubelet",
                options.stream.name()
            );
            reply::plain(StatusCode::BAD_REQUEST, message)
        }
        // Upstream has sent the head of the answer already when it asks the runtime.
        Err(refusal @ LogRefusal::Unretrievable { .. }) => answer(Body::from(refusal.to_string())),
        Err(refusal) => {
            let mut response = answer(Body::from(refusal.to_string()));
            *response.status_mut() = StatusCode::BAD_REQUEST;
            response
        }
        Ok(file) => {
            answer(Body::from_stream(stream::read(file, options, service.clock.now(), service.watcher)))
        }
    }
}

/// Upstream does not say of what kind it is, nor of refusals at this point.
fn answer(body: Body) -> Response {
    Response::new(body)
}
