//! The local socket: for root on this machine, so it tells all and takes manifests.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::get;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream::{self, Stream};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::mux::{Entry, Mux, dispatching, own_route};
use crate::ports::{ImagePulls, Manifests, PodView};
use crate::{manifests, pods, reply};

/// The first line after a quiet time is sent at once; a storm of changes becomes at most twenty lines per second.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

const WATCH: Entry = Entry::Service("/watch", &[own_route(0, &["GET"])]);
const EXPLAIN: Entry = Entry::Service("/explain", &[own_route(2, &["GET"])]);
const PULLS: Entry = Entry::Service("/pulls", &[own_route(0, &["GET"])]);

pub fn router(view: Arc<dyn PodView>, store: Arc<dyn Manifests>, pulls: Arc<dyn ImagePulls>) -> Router {
    let own = Router::new()
        .route("/watch", get(watch_changes))
        .route("/explain/{namespace}/{name}", get(explain))
        .with_state(view.clone());
    let pulled = Router::new().route("/pulls", get(under_way)).with_state(pulls);
    let mut entries = pods::entries();
    entries.extend([manifests::ENTRY, WATCH, EXPLAIN, PULLS]);
    let served = pods::routes(view).merge(own).merge(pulled).merge(manifests::routes(store));
    Mux::new(entries).in_front_of(dispatching(served))
}

async fn explain(
    State(view): State<Arc<dyn PodView>>,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    match view.explain_json(&namespace, &name) {
        Some(journal) => reply::json(StatusCode::OK, journal),
        None => reply::line(
            StatusCode::NOT_FOUND,
            &format!("there is no pod {name:?} in namespace {namespace:?}"),
        ),
    }
}

async fn under_way(State(pulls): State<Arc<dyn ImagePulls>>) -> Response {
    reply::json(StatusCode::OK, pulls.under_way_json().await)
}

/// One JSON object per line: one at once, and one after each change.
async fn watch_changes(State(view): State<Arc<dyn PodView>>) -> Response {
    let kind = HeaderValue::from_static("application/x-ndjson");
    reply::of(StatusCode::OK, kind, Body::from_stream(lines(view)))
}

struct Watching {
    view: Arc<dyn PodView>,
    changes: watch::Receiver<u64>,
    /// When the last line was sent.
    last: Option<Instant>,
}

/// The next line is made only when the client has taken the one before: a slow client misses steps, never the end.
fn lines(view: Arc<dyn PodView>) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    let changes = view.changes();
    stream::unfold(Watching { view, changes, last: None }, |mut watching| async {
        if let Some(last) = watching.last {
            // Ends when the agent does.
            watching.changes.changed().await.ok()?;
            tokio::time::sleep_until(last + SHORTEST_PAUSE).await;
        }
        // Marked as seen before it is read: a change in between gives one line too many, never one too few.
        watching.changes.mark_unchanged();
        let summary = watching.view.summary_json();
        watching.last = Some(Instant::now());
        let mut line = BytesMut::with_capacity(summary.len() + 1);
        line.put(summary);
        line.put_u8(b'\n');
        Some((Ok(line.freeze()), watching))
    })
}
