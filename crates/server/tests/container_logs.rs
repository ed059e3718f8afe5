//! Logs as `kubectl logs` gets them, from real files over real TLS.

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use bytes::Bytes;
use common::port::{Pair, Port, SOON, Shelf, build_around, settings};
use crablet_server::{AuthorizationMode, KubeletServerPorts, KubeletServerSettings, LogFile};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::watch;
use tower::ServiceExt;

struct Scene {
    port: Port,
    client: Pair,
    path: PathBuf,
    ended: watch::Sender<bool>,
}

impl Scene {
    /// A container `app` with this log.
    async fn new(log: &str) -> Self {
        Self::with(log, KubeletServerSettings { authorization: AuthorizationMode::AlwaysAllow, ..settings() })
            .await
    }

    async fn with(log: &str, settings: KubeletServerSettings) -> Self {
        let port = Port::start(settings).await;
        let path = port.folder.path().join("0.log");
        fs::write(&path, log).expect("a log");
        let (ended, receiver) = watch::channel(false);
        let file = LogFile { path: path.clone(), ended: receiver };
        port.shelf.0.lock().expect("a lock").insert("app".to_owned(), file);
        let client = port.authority.client("kube-apiserver", &[]);
        Self { port, client, path, ended }
    }

    async fn ask(&self, target: &str) -> (u16, String) {
        self.port.ask(Some(&self.client), None, "GET", &format!("/containerLogs/default{target}")).await
    }

    async fn log(&self, query: &str) -> String {
        let (status, body) = self.ask(&format!("/web/app?{query}")).await;
        assert_eq!(status, 200, "{query}: {body}");
        body
    }

    async fn follow(&self, query: &str) -> Following {
        let target = format!("/containerLogs/default/web/app?follow=true&{query}");
        let answer = self.port.open(Some(&self.client), None, "GET", &target).await;
        assert_eq!(answer.status(), 200);
        Following { body: answer.into_body(), seen: Vec::new() }
    }

    fn append(&self, text: &str) {
        let mut file = OpenOptions::new().append(true).open(&self.path).expect("a log");
        file.write_all(text.as_bytes()).expect("a write");
    }
}

struct Following {
    body: Incoming,
    seen: Vec<u8>,
}

impl Following {
    async fn next(&mut self) -> Option<Bytes> {
        let frame = tokio::time::timeout(SOON, self.body.frame()).await.expect("a timely frame")?;
        frame.expect("a frame").into_data().ok()
    }

    /// Waits until exactly this has come since the last time.
    async fn sees(&mut self, expected: &str) {
        while self.seen.len() < expected.len() {
            let Some(bytes) = self.next().await else { break };
            self.seen.extend_from_slice(&bytes);
        }
        assert_eq!(String::from_utf8_lossy(&std::mem::take(&mut self.seen)), expected);
    }

    async fn ends(&mut self) {
        assert_eq!(self.next().await, None);
    }
}

fn line(second: u32, text: &str) -> String {
    format!("2024-01-01T00:00:{second:02}.000000000Z stdout F {text}\n")
}

#[tokio::test]
async fn a_log_is_cut_to_what_is_asked_for() {
    let log = [line(1, "one"), line(2, "two"), line(3, "three")].concat();
    let scene = Scene::new(&log).await;
    for (query, expected) in [
        ("", "one\ntwo\nthree\n"),
        ("tailLines=2", "two\nthree\n"),
        ("tailLines=0", ""),
        ("tailLines=99", "one\ntwo\nthree\n"),
        ("limitBytes=5", "one\nt"),
        ("tailLines=2&limitBytes=5", "two\nt"),
        ("sinceTime=2024-01-01T00:00:02Z", "two\nthree\n"),
        ("sinceSeconds=60", ""),
        ("tailLines=1&timestamps=true", "2024-01-01T00:00:03.000000000Z three\n"),
        ("stream=All", "one\ntwo\nthree\n"),
    ] {
        assert_eq!(scene.log(query).await, expected, "{query}");
    }
}

#[tokio::test]
async fn refusals_are_worded_as_upstreams() {
    let scene = Scene::new("").await;
    for (target, status, body) in [
        ("/web/app?tailLines=x", 400, r#"{"message": "Unable to decode query."}"#),
        ("/web/app?tailLines=-1", 422, r#"{"message": "Invalid request."}"#),
        ("/gone/app", 404, r#"pod "gone" does not exist"#),
        ("/gone/app?stream=Stdout", 404, r#"pod "gone" does not exist"#),
        ("/web/nope", 404, r#"container "nope" not found in pod "web""#),
        ("/web/early", 400, r#"container "early" in pod "web" is waiting to start: ContainerCreating"#),
        ("/web/app?previous=true", 400, r#"previous terminated container "app" in pod "web" not found"#),
        ("/web/lost", 200, "unable to retrieve container logs for containerd://abc"),
        (
            "/web/app?stream=Stdout",
            400,
            "unable to return the given log stream: \"Stdout\". Please enable PodLogsQuerySplitStreams feature gate in kubelet",
        ),
        ("/web", 404, "404: Page Not Found"),
    ] {
        assert_eq!(scene.ask(target).await, (status, body.to_owned()), "{target}");
    }
    let posted = scene.port.ask(Some(&scene.client), None, "POST", "/containerLogs/default/web/app").await;
    assert_eq!(posted, (405, "405: Method Not Allowed".to_owned()));

    // The head of the answer is sent before the file is looked at.
    fs::write(&scene.path, "root:x:0:0\n").expect("a file");
    let secret = scene.log("").await;
    assert_eq!(secret, "failed to get parse function: unsupported log format");
    fs::remove_file(&scene.path).expect("a file");
    assert!(scene.log("").await.starts_with("failed to open log file"));
    std::os::unix::fs::symlink("/proc/version", &scene.path).expect("a link");
    assert!(scene.log("follow=1").await.starts_with("failed to open log file"));
}

#[tokio::test]
async fn streams_are_told_apart_where_the_gate_is_on() {
    let both = format!("{}2024-01-01T00:00:02Z stderr F two\n", line(1, "one"));
    let on = KubeletServerSettings {
        authorization: AuthorizationMode::AlwaysAllow,
        split_log_streams: true,
        ..settings()
    };
    let scene = Scene::with(&both, on).await;
    assert_eq!(scene.log("stream=Stderr").await, "two\n");
    assert_eq!(scene.log("stream=Stdout").await, "one\n");
    assert_eq!(scene.log("").await, "one\ntwo\n");
}

#[tokio::test]
async fn a_log_is_followed_across_rotation_to_the_containers_end() {
    let scene = Scene::new(&[line(1, "one"), line(2, "two")].concat()).await;
    let mut following = scene.follow("tailLines=1").await;
    following.sees("two\n").await;
    scene.append(&line(3, "three"));
    following.sees("three\n").await;
    // A line that comes in pieces.
    let split = line(4, "four");
    scene.append(&split[..20]);
    scene.append(&split[20..]);
    following.sees("four\n").await;

    // As the kubelet rotates: the runtime still writes to the renamed file for a moment.
    let rotated = scene.path.with_extension("log.20240101-000000");
    let mut old = OpenOptions::new().append(true).open(&scene.path).expect("the old file");
    fs::rename(&scene.path, &rotated).expect("a rename");
    old.write_all(line(5, "five").as_bytes()).expect("a write");
    drop(File::create(&scene.path).expect("a new file"));
    old.write_all(line(6, "six").as_bytes()).expect("a write");
    scene.append(&line(7, "seven"));
    following.sees("five\nsix\nseven\n").await;
    scene.append(&line(8, "eight"));
    following.sees("eight\n").await;

    // Another container's log in the folder means nothing.
    fs::write(scene.path.with_file_name("1.log"), line(9, "other")).expect("a log");
    scene.append(&line(9, "last"));
    scene.ended.send_replace(true);
    following.sees("last\n").await;
    following.ends().await;
}

#[tokio::test]
async fn following_ends_at_once_where_the_container_has_ended_or_enough_was_sent() {
    let scene = Scene::new(&[line(1, "one"), line(2, "two")].concat()).await;
    let mut limited = scene.follow("limitBytes=9").await;
    limited.sees("one\ntwo\n").await;
    scene.append(&line(3, "three"));
    limited.sees("t").await;
    limited.ends().await;

    scene.ended.send_replace(true);
    assert_eq!(scene.log("follow=true").await, "one\ntwo\nthree\n");
}

#[tokio::test]
async fn a_client_that_leaves_is_not_followed_for() {
    let scene = Scene::new(&line(1, "one")).await;
    let mut following = scene.follow("").await;
    following.sees("one\n").await;
    assert_eq!(scene.ended.receiver_count(), 2);
    drop(following);
    let gone = async {
        while scene.ended.receiver_count() > 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, gone).await.expect("an end");
}

#[tokio::test]
async fn huge_lines_and_huge_logs_come_through_whole() {
    let huge = "x".repeat(5 << 20);
    let log = [line(1, "one"), line(2, &huge), line(3, "three")].concat();
    let scene = Scene::new(&log).await;
    let body = scene.log("").await;
    assert!(body == format!("one\n{huge}\nthree\n"), "{} bytes", body.len());
    assert_eq!(scene.log("tailLines=2&limitBytes=3").await, "xxx");

    // Parts of a line are joined; only its beginning has a time.
    let part = |text: &str| format!("2024-01-01T00:00:05Z stdout P {text}\n");
    fs::write(&scene.path, [part("a"), part("b"), line(6, "c"), line(7, "d")].concat()).expect("a log");
    assert_eq!(scene.log("").await, "abc\nd\n");
    assert_eq!(
        scene.log("timestamps=1").await,
        "2024-01-01T00:00:05.000000000Z abc\n2024-01-01T00:00:07.000000000Z d\n"
    );
}

#[tokio::test]
async fn a_slow_reader_holds_up_nobody_and_no_memory() {
    let text = "y".repeat(1000);
    let log: String = (0..20_000).map(|_| line(1, &text)).collect();
    let scene = Scene::new(&log).await;
    // Nobody reads this one.
    let _slow = scene.follow("").await;
    assert_eq!(scene.log("tailLines=1").await.len(), 1001);
    assert_eq!(scene.log("").await.len(), 20_000 * 1001);
    assert_eq!(
        scene.port.ask_h2(&scene.client, &["/containerLogs/default/web/app?tailLines=3"]).await[0].1.len(),
        3 * 1001
    );
}

#[tokio::test]
async fn two_hundred_follow_with_one_watch() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("0.log");
    fs::write(&path, line(1, "one")).expect("a log");
    let (ended, receiver) = watch::channel(false);
    let shelf = Shelf::default();
    let file = LogFile { path: path.clone(), ended: receiver };
    shelf.0.lock().expect("a lock").insert("app".to_owned(), file);
    let open = KubeletServerSettings {
        anonymous: true,
        authorization: AuthorizationMode::AlwaysAllow,
        ..settings()
    };
    let server = build_around(open, |ports| KubeletServerPorts { logs: Arc::new(shelf), ..ports });
    let router = server.await.expect("a server").into_router();

    let mut bodies = Vec::new();
    for _ in 0..200 {
        let target = "/containerLogs/default/web/app?follow=true";
        let request = Request::builder().uri(target).body(Body::empty()).expect("a request");
        bodies.push(router.clone().oneshot(request).await.expect("an answer").into_body());
    }
    let mut everybody_sees = async |expected: &str| {
        for body in &mut bodies {
            let frame = tokio::time::timeout(SOON, body.frame()).await.expect("a timely frame");
            assert_eq!(frame.expect("a frame").expect("a piece").into_data().expect("bytes"), expected);
        }
    };
    everybody_sees("one\n").await;
    let mut log = OpenOptions::new().append(true).open(&path).expect("a log");
    log.write_all(line(2, "two").as_bytes()).expect("a write");
    everybody_sees("two\n").await;
    // Rotated: a new file of the same name.
    fs::rename(&path, path.with_extension("log.20240101-000000")).expect("a rename");
    fs::write(&path, line(3, "three")).expect("a log");
    everybody_sees("three\n").await;

    let links = fs::read_dir("/proc/self/fd")
        .expect("files")
        .filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    let instances = links.filter(|link| link.to_string_lossy().contains("inotify")).count();
    // Tests beside this one have theirs.
    assert!((1..50).contains(&instances), "{instances} inotify instances");
    ended.send_replace(true);
    for body in &mut bodies {
        assert!(tokio::time::timeout(SOON, body.frame()).await.expect("a timely end").is_none());
    }
}
