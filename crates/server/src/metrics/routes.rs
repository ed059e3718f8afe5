//! `/metrics` and `/metrics/probes`, on every port that tells of pods.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::any;

use super::{CONTENT_TYPE, own, text};
use crate::mux::Entry;
use crate::ports::PodView;
use crate::reply;

pub(crate) const ENTRIES: [Entry; 2] = [Entry::Page("/metrics"), Entry::Page("/metrics/probes")];

pub(crate) fn routes(view: Arc<dyn PodView>) -> Router {
    Router::new().route("/metrics", any(all)).route("/metrics/probes", any(probes)).with_state(view)
}

async fn all(State(view): State<Arc<dyn PodView>>) -> Response {
    let mut families = own();
    families.extend(view.figures());
    families.sort_by(|a, b| a.name().cmp(b.name()));
    reply(&text::write(&families))
}

async fn probes(State(view): State<Arc<dyn PodView>>) -> Response {
    reply(&text::write(&view.probe_figures()))
}

fn reply(text: &str) -> Response {
    reply::of(StatusCode::OK, HeaderValue::from_static(CONTENT_TYPE), Body::from(text.to_owned()))
}
