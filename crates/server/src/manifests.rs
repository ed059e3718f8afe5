//! Storing manifests: through the local socket, and through the main port by who is allowed `nodes/proxy`.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::get;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::mux::{Entry, own_route};
use crate::ports::{ManifestRefusal, Manifests};
use crate::reply;

/// The size up to which upstream reads a manifest.
pub const MAX_MANIFEST_BYTES: usize = 10 << 20;

/// How long a client may take to send a manifest.
const BODY_DEADLINE: Duration = Duration::from_secs(60);

type Store = State<Arc<dyn Manifests>>;

pub(crate) const ENTRY: Entry =
    Entry::Service("/manifests", &[own_route(0, &["GET"]), own_route(1, &["GET", "PUT", "DELETE"])]);

pub(crate) fn routes(store: Arc<dyn Manifests>) -> Router {
    Router::new()
        .route("/manifests", get(list))
        .route("/manifests/{name}", get(read).put(write).delete(remove))
        .with_state(store)
}

async fn list(State(store): Store) -> Response {
    match store.list().await {
        Ok(names) => {
            let answer = serde_json::json!({ "manifests": names });
            reply::json(StatusCode::OK, format!("{answer}\n"))
        }
        Err(why) => said(StatusCode::INTERNAL_SERVER_ERROR, &format!("cannot list the manifests: {why}")),
    }
}

async fn read(State(store): Store, Path(name): Path<String>) -> Response {
    if !is_name(&name) {
        return bad_name();
    }
    match store.get(&name).await {
        Ok(Some(manifest)) => {
            let kind = HeaderValue::from_static("application/yaml");
            reply::of(StatusCode::OK, kind, Body::from(manifest))
        }
        Ok(None) => none(&name),
        Err(why) => said(StatusCode::INTERNAL_SERVER_ERROR, &format!("cannot read the manifest: {why}")),
    }
}

async fn write(State(store): Store, Path(name): Path<String>, body: Body) -> Response {
    if !is_name(&name) {
        return bad_name();
    }
    let body = match receive(body).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    match store.put(&name, &body).await {
        Ok(stored) => {
            let status = if stored.created { StatusCode::CREATED } else { StatusCode::OK };
            let answer = serde_json::json!({ "name": name, "warnings": stored.warnings });
            reply::json(status, format!("{answer}\n"))
        }
        Err(refusal @ ManifestRefusal::Invalid(_)) => {
            said(StatusCode::UNPROCESSABLE_ENTITY, &refusal.to_string())
        }
        Err(refusal @ ManifestRefusal::Storage(_)) => {
            said(StatusCode::INTERNAL_SERVER_ERROR, &refusal.to_string())
        }
    }
}

async fn remove(State(store): Store, Path(name): Path<String>) -> Response {
    if !is_name(&name) {
        return bad_name();
    }
    match store.delete(&name).await {
        Ok(true) => {
            let answer = serde_json::json!({ "name": name });
            reply::json(StatusCode::OK, format!("{answer}\n"))
        }
        Ok(false) => none(&name),
        Err(why) => said(StatusCode::INTERNAL_SERVER_ERROR, &format!("cannot remove the manifest: {why}")),
    }
}

async fn receive(body: Body) -> Result<Bytes, Response> {
    let whole = tokio::time::timeout(BODY_DEADLINE, Limited::new(body, MAX_MANIFEST_BYTES).collect());
    match whole.await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let why = format!("the manifest is larger than {} MiB", MAX_MANIFEST_BYTES >> 20);
            Err(reply::line(StatusCode::PAYLOAD_TOO_LARGE, &why))
        }
        Ok(Err(error)) => Err(said(StatusCode::BAD_REQUEST, &format!("cannot read the manifest: {error}"))),
        Err(_) => Err(reply::line(StatusCode::REQUEST_TIMEOUT, "the manifest took too long to arrive")),
    }
}

fn none(name: &str) -> Response {
    reply::line(StatusCode::NOT_FOUND, &format!("there is no manifest {name:?}"))
}

/// Reasons may hold what somebody else wrote; the answer stays one line.
fn said(status: StatusCode, why: &str) -> Response {
    reply::line(status, &why.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// A name becomes the name of a file: it is a DNS subdomain, which no path trick is.
fn is_name(name: &str) -> bool {
    let alphanumeric = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= 253
        && name.split('.').map(str::as_bytes).all(|label| {
            label.first().copied().is_some_and(alphanumeric)
                && label.last().copied().is_some_and(alphanumeric)
                && label.iter().all(|c| alphanumeric(*c) || *c == b'-')
        })
}

fn bad_name() -> Response {
    let why = "a manifest's name is up to 253 lower-case letters, digits, `-` and `.`, such as `web`";
    reply::line(StatusCode::BAD_REQUEST, why)
}
