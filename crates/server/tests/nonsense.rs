//! The whole main port under requests that nobody would send by accident: it does not panic, does not fail where upstream
//! would not, and shows no file from outside the folders that it may show.

mod common;

use std::os::unix::fs::symlink;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use common::port::{Shelf, build_around, settings};
use crablet_server::{AuthorizationMode, KubeletServerPorts, KubeletServerSettings, LogFile};
use http_body_util::{BodyExt, Limited};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tokio::sync::watch;
use tower::ServiceExt;

const CANARY: &str = "canary-in-a-coal-mine";
/// No answer to these requests is larger.
const MOST_BYTES: usize = 1 << 20;

/// Folders with a canary around them, and links that lead to it.
fn plant() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let outer = folder.path();
    let write = |name: &str, text: &str| std::fs::write(outer.join(name), text).expect("a file");
    std::fs::create_dir_all(outer.join("log/pods/app")).expect("folders");
    write("passwd", CANARY);
    write("log-secret", CANARY);
    write("log/messages", "hello\n");
    write("log/svc.log", "service\n");
    write("log/pods/app/0.log", "2024-01-01T00:00:00Z stdout F line\n");
    for (name, target) in [
        ("log/out", "../passwd"),
        ("log/far", "/etc/passwd"),
        ("log/up", ".."),
        ("log/svc", "../log-secret"),
        ("log/deep.log", "up/passwd"),
        ("log/pods/app/1.log", "../../../passwd"),
    ] {
        symlink(target, outer.join(name)).expect("a link");
    }
    folder
}

async fn router(folder: &tempfile::TempDir) -> Router {
    let shelf = Shelf::default();
    for (name, file) in [("app", "0.log"), ("planted", "1.log")] {
        let (_, ended) = watch::channel(true);
        let path = folder.path().join("log/pods/app").join(file);
        shelf.0.lock().expect("a lock").insert(name.to_owned(), LogFile { path, ended });
    }
    let open = KubeletServerSettings {
        anonymous: true,
        authorization: AuthorizationMode::AlwaysAllow,
        ..settings()
    };
    let server = build_around(open, |ports| KubeletServerPorts {
        logs: Arc::new(shelf),
        system_log_folder: folder.path().join("log"),
        ..ports
    });
    server.await.expect("a server").into_router()
}

fn segment() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(vec![
            "pods", "healthz", "ping", "logs", "run", "exec", "attach", "portForward", "containerLogs", "runningpods",
            "checkpoint", "configz", "flagz", "statusz", "debug", "pprof", "flags", "v", "cmdline", "heap", "stats",
            "summary", "metrics", "manifests", "default", "web", "app", "planted", "u1", "messages", "out", "far", "up",
            "svc", "passwd", "log-secret", "deep.log", "0.log",
        ]).prop_map(str::to_owned),
        2 => prop::sample::select(vec![
            "..", ".", "", "%2e%2e", "%2E", "..%2f", "%2f", "%5c", "..%5c", "%00", "%ff", "%zz", "%", "%252e%252e",
            "%c0%ae%c0%ae", "*", "~", "proc", "self", "root", "etc", "index.html", "a;b", "%0a", "%0d%0aX:1", "%7f",
        ]).prop_map(str::to_owned),
        1 => "[a-zA-Z0-9._~%-]{0,12}",
    ]
}

fn target() -> impl Strategy<Value = String> {
    // Most paths begin well: what is behind a door is looked at only by who finds the door.
    let begin = prop::sample::select(vec![
        "/",
        "/",
        "/logs/",
        "/logs/",
        "/logs/",
        "/logs/pods/",
        "/logs/up/",
        "/containerLogs/default/web/",
        "/containerLogs/default/web/planted",
        "/run/default/web/",
        "/checkpoint/default/web/",
        "/exec/default/web/",
        "/portForward/default/",
        "/debug/pprof/",
        "/manifests/",
        "/flagz",
        "/statusz",
        "/healthz",
    ]);
    let segments = prop::collection::vec(segment(), 0..4).prop_map(|segments| segments.join("/"));
    let path = (begin, segments).prop_map(|(begin, rest)| format!("{begin}{rest}"));
    let key = prop::sample::select(vec![
        "query",
        "sinceTime",
        "untilTime",
        "tailLines",
        "pattern",
        "boot",
        "follow",
        "previous",
        "timestamps",
        "limitBytes",
        "sinceSeconds",
        "stream",
        "cmd",
        "command",
        "timeout",
        "port",
        "exclude",
        "verbose",
        "pretty",
        "output",
        "input",
        "tty",
        "error",
    ]);
    let value = prop_oneof![
        prop::sample::select(vec![
            "",
            "1",
            "-1",
            "0",
            "svc",
            "../passwd",
            "/etc/passwd",
            "out",
            "up/passwd",
            "messages/",
            "2024-01-01T00:00:00Z",
            "99999999999999999999",
            "%ff",
            "a%00b",
            "(",
            "[",
            "a**",
            "%5c",
            "All",
            "Stderr",
            "true",
        ])
        .prop_map(str::to_owned),
        "[a-z0-9%().*+-]{0,10}",
    ];
    let pairs = prop::collection::vec((key, value).prop_map(|(key, value)| format!("{key}={value}")), 0..4);
    (path, pairs).prop_map(|(path, pairs)| match pairs.is_empty() {
        true => path,
        false => format!("{path}?{}", pairs.join("&")),
    })
}

fn head() -> impl Strategy<Value = (&'static str, String)> {
    let name = prop::sample::select(vec![
        "accept",
        "accept-encoding",
        "range",
        "if-range",
        "if-modified-since",
        "if-none-match",
        "if-match",
        "connection",
        "upgrade",
        "content-type",
        "user-agent",
        "sec-websocket-protocol",
        "authorization",
        "x-stream-protocol-version",
    ]);
    let value = prop_oneof![
        prop::sample::select(vec![
            "*/*",
            "gzip",
            "bytes=0-1,3-4",
            "bytes=-0",
            "bytes=0-0,0-0,0-0,0-0",
            "bytes=9-1",
            "text/html",
            "Upgrade",
            "SPDY/3.1",
            "websocket",
            "application/json;as=Flagz;v=v1beta1;g=config.k8s.io",
            "*",
            "\"x\"",
            "W/\"x\", *",
            "v5.channel.k8s.io",
            "curl/8",
            "Sun, 15 Nov 2037 00:00:00 GMT",
        ])
        .prop_map(str::to_owned),
        "[ -~]{0,20}",
    ];
    (name, value)
}

#[test]
fn whatever_is_asked_nothing_breaks_and_nothing_leaks() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let folder = plant();
    let router = runtime.block_on(router(&folder));
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let config = Config { cases: 20_000, failure_persistence: None, ..Config::default() };
    let method =
        prop::sample::select(vec!["GET", "GET", "GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "BREW"]);
    let cases = (method, target(), prop::collection::vec(head(), 0..4));
    let opened = std::cell::Cell::new(0);
    let outcome = TestRunner::new_with_rng(config, rng).run(&cases, |(method, target, heads)| {
        let mut request = Request::builder().method(method).uri(&target);
        for (name, value) in &heads {
            request = request.header(*name, value);
        }
        // What is no request at all does not come this far.
        let Ok(request) = request.body(Body::from("4")) else { return Ok(()) };
        let (status, body) = runtime.block_on(async {
            let answer = router.clone().oneshot(request).await.expect("an answer");
            let status = answer.status().as_u16();
            let body = Limited::new(answer.into_body(), MOST_BYTES).collect();
            let body = tokio::time::timeout(std::time::Duration::from_secs(20), body).await.expect("an end");
            (status, body.expect("a small body").to_bytes())
        });
        if target.starts_with("/logs/") && matches!(status, 200 | 206 | 403) {
            opened.set(opened.get() + 1);
        }
        let text = String::from_utf8_lossy(&body);
        prop_assert!(!text.contains(CANARY) && !text.contains("root:x:"), "{method} {target}: {text}");
        if status >= 500 {
            // The runtime of this world says no to these; and upstream's file server has no better word for long names.
            let known = [
                "no exec",
                "no attach",
                "no forward",
                "container not found",
                "checkpointing of",
                "Upgrade request required",
            ];
            prop_assert!(
                known.iter().any(|known| text.contains(known)),
                "{method} {target}: {status} {text}"
            );
        }
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(opened.get() > 500, "only {} requests came as far as a file", opened.get());
}
