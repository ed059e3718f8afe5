//! `/runningpods/`, `/run/` and `/checkpoint/`: what the runtime has, and what can be done with it in one answer.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use axum::routing::{get, post};

use crate::kubelet::query_of;
use crate::ports::{ContainerName, Containers};
use crate::query::Query;
use crate::reply;

type Runtime = State<Arc<dyn Containers>>;

pub(super) fn routes(containers: Arc<dyn Containers>) -> Router {
    Router::new()
        .route("/runningpods", get(running_pods))
        .route("/run/{namespace}/{pod}/{container}", post(run))
        .route("/run/{namespace}/{pod}/{uid}/{container}", post(run_by_uid))
        .route("/checkpoint/{namespace}/{pod}/{container}", post(checkpoint))
        .with_state(containers)
}

async fn running_pods(State(containers): Runtime) -> Response {
    match containers.running_pods_json().await {
        Ok(list) => reply::json(StatusCode::OK, list),
        Err(refusal) => reply::plain(StatusCode::INTERNAL_SERVER_ERROR, refusal.to_string()),
    }
}

async fn run(
    State(containers): Runtime,
    Path((namespace, pod, container)): Path<(String, String, String)>,
    head: Parts,
) -> Response {
    run_in(&*containers, &ContainerName { namespace, pod, uid: None, container }, &head).await
}

async fn run_by_uid(
    State(containers): Runtime,
    Path((namespace, pod, uid, container)): Path<(String, String, String, String)>,
    head: Parts,
) -> Response {
    run_in(&*containers, &ContainerName { namespace, pod, uid: Some(uid), container }, &head).await
}

async fn run_in(containers: &dyn Containers, name: &ContainerName, head: &Parts) -> Response {
    if containers.pod(&name.namespace, &name.pod).is_none() {
        return no_pod();
    }
    // Upstream splits at each space, so that two of them hold an empty argument.
    let query = Query::parse(query_of(&head.uri, &head.extensions));
    let command: Vec<String> = query.first("cmd").unwrap_or_default().split(' ').map(str::to_owned).collect();
    match containers.run(name, &command).await {
        // Nothing is no JSON either.
        Ok(output) if output.is_empty() => Response::new(Body::empty()),
        // Upstream's word for whatever the command printed.
        Ok(output) => reply::json(StatusCode::OK, output),
        Err(refusal) => reply::plain(StatusCode::INTERNAL_SERVER_ERROR, refusal.to_string()),
    }
}

async fn checkpoint(
    State(containers): Runtime,
    Path((namespace, pod, container)): Path<(String, String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    let Some(known) = containers.pod(&namespace, &pod) else { return no_pod() };
    if !known.containers.contains(&container) {
        return reply::plain(StatusCode::NOT_FOUND, format!("container {container} does not exist"));
    }
    // The last of several counts; none is the runtime's own.
    let query = Query::parse(&query.unwrap_or_default());
    let Ok(timeout) = query.all("timeout").next_back().map_or(Ok(0), str::parse::<i64>) else {
        return reply::plain(StatusCode::NOT_FOUND, "cannot parse value of timeout parameter");
    };
    let name = ContainerName { namespace, pod, uid: None, container };
    match containers.checkpoint(&name, timeout).await {
        Ok(path) => reply::json(StatusCode::OK, serde_json::json!({ "items": [path] }).to_string()),
        Err(refusal) => {
            let ContainerName { namespace, pod, container, .. } = name;
            let why = format!("checkpointing of {namespace}/{pod}/{container} failed ({refusal})");
            reply::plain(StatusCode::INTERNAL_SERVER_ERROR, why)
        }
    }
}

fn no_pod() -> Response {
    reply::plain(StatusCode::NOT_FOUND, "pod does not exist")
}
