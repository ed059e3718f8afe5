//! Figures about requests, as Prometheus gets them. All in one test: figures are the process's.

mod common;
#[path = "common/streams.rs"]
mod streams;

use std::sync::Arc;

use bytes::Bytes;
use common::World;
use common::port::{Port, SOON, settings};
use crablet_server::{
    AuthorizationMode, KubeletServerPorts, KubeletServerSettings, LogFile, PodView, metrics, read_only_router,
};
use http_body_util::BodyExt;
use prometheus::IntCounter;
use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tower::ServiceExt;

/// The value of a series of requests; `None` if there is none.
fn figure(name: &str, method: &str, path: &str, server: &str, long: bool) -> Option<f64> {
    let text = metrics::text();
    let series = format!(
        "{name}{{long_running=\"{long}\",method=\"{method}\",path=\"{path}\",server_type=\"{server}\"}} "
    );
    text.lines().find_map(|line| line.strip_prefix(&series)).map(|value| value.parse().expect("a number"))
}

fn under_way(method: &str, path: &str, long: bool) -> Option<f64> {
    figure("kubelet_http_inflight_requests", method, path, "readwrite", long)
}

async fn until_over(method: &str, path: &str, long: bool) {
    let over = async {
        while under_way(method, path, long) != Some(0.0) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, over).await.expect("its end is noticed");
}

/// Has figures of its own.
struct Counting;

fn counted(name: &str, count: u64) -> Vec<MetricFamily> {
    let counter = IntCounter::new(name, "help").expect("a counter");
    counter.inc_by(count);
    counter.collect()
}

impl PodView for Counting {
    fn pods_json(&self) -> Vec<Bytes> {
        Vec::new()
    }

    fn summary_json(&self) -> Bytes {
        Bytes::new()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }

    fn explain_json(&self, _: &str, _: &str) -> Option<Bytes> {
        None
    }

    fn health(&self) -> Result<(), String> {
        Ok(())
    }

    fn figures(&self) -> Vec<MetricFamily> {
        counted("other_rooms_total", 7)
    }

    fn probe_figures(&self) -> Vec<MetricFamily> {
        counted("prober_probe_total", 1)
    }
}

#[tokio::test]
async fn requests_are_counted_under_upstreams_names() {
    let settings = KubeletServerSettings { authorization: AuthorizationMode::AlwaysAllow, ..settings() };
    let (containers, _) = streams::Runtime::start().await;
    let port = Port::start_around(settings, |ports| KubeletServerPorts { containers, ..ports }).await;
    let client = port.authority.client("kube-apiserver", &[]);
    for (method, target) in [
        ("GET", "/healthz"),
        ("GET", "/healthz/ping"),
        ("POST", "/exec/default/web/app"),
        ("GET", "/portForward/default/web"),
        ("BREW", "/some/where"),
    ] {
        port.ask(Some(&client), None, method, target).await;
    }
    // Refusals count too.
    assert_eq!(port.ask(None, None, "GET", "/healthz").await.0, 401);

    let total = |method, path, long| figure("kubelet_http_requests_total", method, path, "readwrite", long);
    assert_eq!(total("GET", "healthz", false), Some(3.0));
    assert_eq!(total("POST", "exec", true), Some(1.0));
    assert_eq!(total("GET", "portForward", false), Some(1.0));
    assert_eq!(total("other", "other", false), Some(1.0));
    let took = figure("kubelet_http_requests_duration_seconds_count", "GET", "healthz", "readwrite", false);
    assert_eq!(took, Some(3.0));

    let request = hyper::Request::get("/pods").body(axum::body::Body::empty()).expect("a request");
    let router = read_only_router(Arc::new(World::default()));
    let answer = router.oneshot(request).await.expect("an answer");
    answer.into_body().collect().await.expect("a body");
    assert_eq!(figure("kubelet_http_requests_total", "GET", "pods", "readonly", false), Some(1.0));

    // All of them can be read where pods are told of, with those of other rooms.
    for (path, shown) in
        [("/metrics", "kubelet_http_requests_total{"), ("/metrics/probes", "prober_probe_total ")]
    {
        let request = hyper::Request::get(path).body(axum::body::Body::empty()).expect("a request");
        let answer = read_only_router(Arc::new(Counting)).oneshot(request).await.expect("an answer");
        assert_eq!(answer.headers()["content-type"], metrics::CONTENT_TYPE);
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        let text = String::from_utf8_lossy(&body);
        assert!(text.contains(shown), "{path}: {text}");
        assert_eq!(text.contains("other_rooms_total 7"), path == "/metrics", "{text}");
    }

    // A log that is followed is under way until it ends.
    let path = port.folder.path().join("app.log");
    std::fs::write(&path, "2024-01-02T03:04:05.000000000Z stdout F hello\n").expect("a file");
    let (running, ended) = watch::channel(false);
    port.shelf.0.lock().expect("a lock").insert("app".to_owned(), LogFile { path, ended });
    let answer = port.open(Some(&client), None, "GET", "/containerLogs/default/web/app?follow=true").await;
    assert_eq!(under_way("GET", "containerLogs", false), Some(1.0));
    running.send_replace(true);
    answer.into_body().collect().await.expect("an end");
    until_over("GET", "containerLogs", false).await;

    // So is a command, for as long as its connection is another protocol's.
    let mut stream = port.connect(Some(&client), "http/1.1").await.expect("a connection");
    let request = "POST /exec/default/web/app?command=true&output=1 HTTP/1.1\r\nHost: node-1\r\n\
                   Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";
    stream.write_all(request.as_bytes()).await.expect("a request");
    assert!(streams::head_from(&mut stream).await.starts_with("HTTP/1.1 101 "));
    assert_eq!(under_way("POST", "exec", true), Some(1.0));
    drop(stream);
    until_over("POST", "exec", true).await;

    let text = metrics::text();
    for line in [
        "# HELP kubelet_http_requests_total [ALPHA] Number of the http requests received since the server started",
        "# TYPE kubelet_http_requests_total counter",
        "# TYPE kubelet_http_requests_duration_seconds histogram",
        "# TYPE kubelet_http_inflight_requests gauge",
    ] {
        assert!(text.lines().any(|known| known == line), "{line}\n{text}");
    }
    let buckets: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("kubelet_http_requests_duration_seconds_bucket"))
        .filter(|line| line.contains("path=\"healthz\""))
        .filter_map(|line| line.split("le=\"").nth(1)?.split('"').next())
        .collect();
    assert_eq!(
        buckets,
        ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf"]
    );
}
