//! Figures about the requests to the kubelet's ports, under upstream's names.
//!
//! | module | what it is |
//! |---|---|
//! | `requests` | the layer that counts and times each request |
//! | `routes` | where they are served, with those of pods and volumes |
//! | `text` | figures as Prometheus reads them, numbers as Go writes them |
//!
//! Labels come from fixed sets, whatever clients send, so there is a bounded number of series.

mod requests;
mod routes;
mod text;

use std::sync::LazyLock;

use prometheus::proto::MetricFamily;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};

pub(crate) use requests::{Paths, measured};
pub(crate) use routes::{ENTRIES, routes};

/// What [`text`] is.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

const REQUEST_LABELS: &[&str] = &["method", "path", "server_type", "long_running"];

struct Figures {
    registry: Registry,
    requests: IntCounterVec,
    durations: HistogramVec,
    under_way: IntGaugeVec,
    websockets: IntCounterVec,
}

impl Figures {
    fn new() -> prometheus::Result<Self> {
        let alpha = |help: &str| format!("[ALPHA] {help}");
        let registry = Registry::new();
        let requests = Opts::new(
            "kubelet_http_requests_total",
            alpha("Number of the http requests received since the server started"),
        );
        let durations = HistogramOpts::new(
            "kubelet_http_requests_duration_seconds",
            alpha("Duration in seconds to serve http requests"),
        );
        let under_way =
            Opts::new("kubelet_http_inflight_requests", alpha("Number of the inflight http requests"));
        let websockets = Opts::new(
            "kubelet_websocket_streaming_requests_total",
            alpha(
                "Total number of WebSocket streaming requests (exec/attach/portforward) received by the kubelet.",
            ),
        );
        let figures = Self {
            requests: IntCounterVec::new(requests, REQUEST_LABELS)?,
            // The library's default buckets are those of Go's.
            durations: HistogramVec::new(durations, REQUEST_LABELS)?,
            under_way: IntGaugeVec::new(under_way, REQUEST_LABELS)?,
            websockets: IntCounterVec::new(websockets, &["subresource"])?,
            registry,
        };
        figures.registry.register(Box::new(figures.requests.clone()))?;
        figures.registry.register(Box::new(figures.durations.clone()))?;
        figures.registry.register(Box::new(figures.under_way.clone()))?;
        figures.registry.register(Box::new(figures.websockets.clone()))?;
        Ok(figures)
    }
}

/// The names above are good ones, a test sees to it; without figures the ports work as well.
static FIGURES: LazyLock<Option<Figures>> = LazyLock::new(|| Figures::new().ok());

/// Counts a WebSocket client that is served here and not by the runtime: `exec`, `attach` or `portforward`.
pub fn websocket_request(subresource: &'static str) {
    if let Some(figures) = &*FIGURES {
        figures.websockets.with_label_values(&[subresource]).inc();
    }
}

/// The server's own figures, as Prometheus reads them.
pub fn text() -> String {
    text::write(&own())
}

fn own() -> Vec<MetricFamily> {
    FIGURES.as_ref().map(|figures| figures.registry.gather()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_names_are_good_ones() {
        assert!(super::FIGURES.is_some());
        super::websocket_request("exec");
        let text = super::text();
        let line = "\nkubelet_websocket_streaming_requests_total{subresource=\"exec\"} ";
        assert!(text.contains(line), "{text}");
    }
}
