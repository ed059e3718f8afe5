//! `/pods`: which pods should run here and how they are; and what is served wherever they are told of.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;

use crate::mux::{Entry, Mux, dispatching, json_route};
use crate::ports::PodView;
use crate::{debugging, healthz, metrics, reply};

const PODS: Entry = Entry::Service("/pods", &[json_route(0, &["GET"])]);
/// Not served yet; the place is upstream's.
const STATS: Entry = Entry::Service("/stats/", &[]);

/// What is served wherever pods are told of.
pub(crate) fn entries() -> Vec<Entry> {
    let mut entries = healthz::ENTRIES.to_vec();
    entries.extend([PODS, STATS]);
    entries.extend(metrics::ENTRIES);
    entries
}

/// All that the read-only port serves.
pub fn router(view: Arc<dyn PodView>) -> Router {
    let mut entries = entries();
    entries.extend(debugging::DISABLED);
    let served = dispatching(routes(view).merge(debugging::disabled()));
    metrics::measured(Mux::new(entries).in_front_of(served), metrics::Paths::read_only())
}

/// What the read-only port and the local socket have in common.
pub(crate) fn routes(view: Arc<dyn PodView>) -> Router {
    let pods = Router::new().route("/pods", get(pods)).with_state(view.clone());
    healthz::routes(view.clone()).merge(pods).merge(metrics::routes(view))
}

async fn pods(State(view): State<Arc<dyn PodView>>) -> Response {
    reply::json(StatusCode::OK, pod_list(&view.pods_json()))
}

/// A `v1.PodList`, put together from pods that are JSON already. The newline at the end is upstream's.
fn pod_list(pods: &[bytes::Bytes]) -> Vec<u8> {
    const HEAD: &[u8] = br#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":["#;
    const TAIL: &[u8] = b"]}\n";
    const ITEM_KIND: &[u8] = br#"{"apiVersion":"v1","kind":"Pod","#;
    if pods.is_empty() {
        // As Go writes a list that was never begun.
        return br#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":null}"#.iter().chain(b"\n").copied().collect();
    }
    let size = pods.iter().map(|pod| pod.len() + 1).sum::<usize>() + HEAD.len() + TAIL.len();
    let mut list = Vec::with_capacity(size);
    list.extend_from_slice(HEAD);
    for (index, pod) in pods.iter().enumerate() {
        if index > 0 {
            list.push(b',');
        }
        // Upstream leaves the kind of a list's items to the list.
        match pod.strip_prefix(ITEM_KIND) {
            Some(rest) => {
                list.push(b'{');
                list.extend_from_slice(rest);
            }
            None => list.extend_from_slice(pod),
        }
    }
    list.extend_from_slice(TAIL);
    list
}
