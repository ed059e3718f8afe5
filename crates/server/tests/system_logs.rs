//! `/logs/`: the node's log files, node log queries, and nothing outside the folder.

mod common;

use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use common::port::{build_around, settings};
use common::{Answer, ask};
use crablet_server::{AuthorizationMode, KubeletServerPorts, KubeletServerSettings};
use http_body_util::BodyExt;
use tower::ServiceExt;

struct Scene {
    folder: tempfile::TempDir,
    router: Router,
}

impl Scene {
    async fn new(journalctl: Option<&str>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let logs = folder.path().join("log");
        fs::create_dir_all(logs.join("sub")).expect("folders");
        fs::write(logs.join("messages"), "hello log\n").expect("a file");
        fs::write(logs.join("svc.log"), "of a service\n").expect("a file");
        fs::write(logs.join("sub/sub.log"), "deep\n").expect("a file");
        fs::write(logs.join("data.json"), "{}").expect("a file");
        fs::write(logs.join("binary"), b"\x7fELF\0").expect("a file");
        fs::write(logs.join("empty"), "").expect("a file");
        fs::write(logs.join("a b?<&>.log"), "").expect("a file");
        fs::write(folder.path().join("secret"), "secret").expect("a file");
        symlink("messages", logs.join("inside")).expect("a link");
        symlink("../secret", logs.join("outside")).expect("a link");
        let program = folder.path().join("journalctl");
        if let Some(script) = journalctl {
            fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("a program");
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a mode");
        }
        let settings = KubeletServerSettings {
            anonymous: true,
            authorization: AuthorizationMode::AlwaysAllow,
            system_log_query: true,
            ..settings()
        };
        let router = build_around(settings, |ports| KubeletServerPorts {
            system_log_folder: logs,
            journalctl: program,
            ..ports
        });
        Self { router: router.await.expect("a server").into_router(), folder }
    }

    async fn get(&self, target: &str, heads: &[&str]) -> Answer {
        ask(&self.router, "GET", target, heads, "").await
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

#[tokio::test]
async fn files_and_folders_are_shown_as_gos_file_server_shows_them() {
    let scene = Scene::new(None).await;
    let list = scene.get("/logs/", &[]).await;
    assert_eq!((list.status, list.header("content-type")), (200, "text/html; charset=utf-8"));
    assert!(!list.header("last-modified").is_empty());
    assert_eq!(
        list.text(),
        "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n\
         <a href=\"a%20b%3F%3C&%3E.log\">a b?&lt;&amp;&gt;.log</a>\n\
         <a href=\"binary\">binary</a>\n<a href=\"data.json\">data.json</a>\n<a href=\"empty\">empty</a>\n\
         <a href=\"inside\">inside</a>\n<a href=\"messages\">messages</a>\n<a href=\"outside\">outside</a>\n\
         <a href=\"sub/\">sub/</a>\n<a href=\"svc.log\">svc.log</a>\n</pre>\n"
    );
    for (target, status, kind, body) in [
        ("/logs/messages", 200, "text/plain; charset=utf-8", "hello log\n"),
        ("/logs/inside", 200, "text/plain; charset=utf-8", "hello log\n"),
        ("/logs/%2f%2fmessages", 200, "text/plain; charset=utf-8", "hello log\n"),
        ("/logs/data.json", 200, "application/json", "{}"),
        ("/logs/binary", 200, "application/octet-stream", "\x7fELF\0"),
        ("/logs/empty", 200, "text/plain; charset=utf-8", ""),
        ("/logs/nothing", 404, "text/plain; charset=utf-8", "404 page not found\n"),
        ("/logs/messages/x", 404, "text/plain; charset=utf-8", "404 page not found\n"),
        ("/logs/%2e%2e/secret", 404, "text/plain; charset=utf-8", "404 page not found\n"),
        ("/logs/..%2fsecret", 404, "text/plain; charset=utf-8", "404 page not found\n"),
        ("/logs/a%00b", 404, "text/plain; charset=utf-8", "404 page not found\n"),
        ("/logs/outside", 403, "text/plain; charset=utf-8", "403 Forbidden\n"),
    ] {
        let answer = scene.get(target, &[]).await;
        let found = (answer.status, answer.header("content-type"), answer.text());
        assert_eq!(found, (status, kind, body.to_owned()), "{target}");
    }
    for (target, location) in [
        ("/logs/sub", "sub/"),
        ("/logs/sub?x=1", "sub/?x=1"),
        ("/logs/messages/", "../messages"),
        ("/logs/sub/index.html", "./"),
    ] {
        let answer = scene.get(target, &[]).await;
        let found = (answer.status, answer.header("location"), answer.text());
        assert_eq!(found, (301, location, String::new()), "{target}");
    }
}

#[tokio::test]
async fn pieces_are_sent_and_what_is_known_is_not() {
    let scene = Scene::new(None).await;
    let invalid = "invalid range\n";
    for (range, status, content_range, body) in [
        ("bytes=2-4", 206, "bytes 2-4/10", "llo"),
        ("bytes=-3", 206, "bytes 7-9/10", "og\n"),
        ("bytes=6-", 206, "bytes 6-9/10", "log\n"),
        ("bytes=90-", 416, "bytes */10", "invalid range: failed to overlap\n"),
        ("bytes=0-9,0-9", 200, "", "hello log\n"),
        ("bytes=9-1", 416, "", invalid),
        ("lines=1-2", 416, "", invalid),
    ] {
        let answer = scene.get("/logs/messages", &[&format!("Range: {range}")]).await;
        let found = (answer.status, answer.header("content-range"), answer.text());
        assert_eq!(found, (status, content_range, body.to_owned()), "{range}");
    }
    let parts = scene.get("/logs/messages", &["Range: bytes=0-1,3-4"]).await;
    let boundary = parts.header("content-type").split_once("boundary=").expect("a boundary").1;
    assert_eq!(
        parts.text(),
        format!(
            "--{boundary}\r\nContent-Range: bytes 0-1/10\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nhe\r\n\
             --{boundary}\r\nContent-Range: bytes 3-4/10\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nlo\r\n\
             --{boundary}--\r\n"
        )
    );
    assert_eq!(parts.header("content-length"), parts.body.len().to_string());

    let changed = scene.get("/logs/messages", &[]).await.header("last-modified").to_owned();
    let (past, future) = ("Sun, 15 Nov 2015 00:00:00 GMT", "Sun, 15 Nov 2099 00:00:00 GMT");
    for (head, status) in [
        (format!("If-Modified-Since: {changed}"), 304),
        (format!("If-Modified-Since: {past}"), 200),
        (format!("If-Unmodified-Since: {past}"), 412),
        (format!("If-Unmodified-Since: {future}"), 200),
        ("If-None-Match: *".to_owned(), 304),
        ("If-None-Match: \"x\"".to_owned(), 200),
        ("If-Match: \"x\"".to_owned(), 412),
    ] {
        assert_eq!(scene.get("/logs/messages", &[&head]).await.status, status, "{head}");
    }
    let ranged = |if_range: &str| format!("If-Range: {if_range}");
    assert_eq!(scene.get("/logs/messages", &["Range: bytes=0-0", &ranged(&changed)]).await.status, 206);
    assert_eq!(scene.get("/logs/messages", &["Range: bytes=0-0", &ranged(past)]).await.status, 200);
    assert_eq!(scene.get("/logs/", &[&format!("If-Modified-Since: {future}")]).await.status, 304);
}

#[tokio::test]
async fn a_large_file_is_never_in_memory_as_a_whole() {
    let scene = Scene::new(None).await;
    // Mostly holes: reading it all would take as much memory as it says.
    let file = fs::File::create(scene.path("log/huge")).expect("a file");
    file.set_len(1 << 40).expect("a size");
    let request = Request::builder().uri("/logs/huge").body(Body::empty()).expect("a request");
    let answer = scene.router.clone().oneshot(request).await.expect("an answer");
    assert_eq!(answer.headers()["content-length"], (1_u64 << 40).to_string().as_str());
    let mut body = answer.into_body();
    for _ in 0..3 {
        let block = body.frame().await.expect("a frame").expect("a block").into_data().expect("bytes");
        assert!(!block.is_empty() && block.len() <= 64 << 10, "{}", block.len());
    }
}

/// Prints its arguments; knows two units.
const JOURNAL: &str = r#"
if [ "$1" = --field ]; then printf 'kubelet.service\ncrio.service\n'; exit 0; fi
printf '<%s>' "$@"; echo; echo problem >&2"#;

#[tokio::test]
async fn services_are_looked_up_in_the_journal_and_then_among_files() {
    let scene = Scene::new(Some(JOURNAL)).await;
    for (query, expected) in [
        ("query=kubelet", "<--utc><--no-pager><--output=short-precise><--unit=kubelet>\nproblem\n"),
        (
            "query=crio&query=kubelet&sinceTime=2024-01-02T03:04:05%2B02:00&untilTime=2024-11-12T13:14:15Z\
             &tailLines=5&pattern=a.*b&boot=-1",
            "<--utc><--no-pager><--output=short-precise><--since=2024-1-2 3:4:5><--until=2024-11-12 13:14:15>\
             <--pager-end><--lines=5><--unit=crio><--unit=kubelet><--grep=a.*b><--boot><-1>\nproblem\n",
        ),
        ("query=svc", "of a service\n"),
        ("query=messages&query=sub&query=nobody", "hello log\ndeep\n\nlog not found for nobody\n"),
        (
            "query=svc&query=kubelet",
            "<--utc><--no-pager><--output=short-precise><--unit=kubelet>\nproblem\nof a service\n",
        ),
        (
            "query=svc&tailLines=1",
            "\noptions present and query resolved to log files for [svc]\ntry without specifying options\n",
        ),
        ("query=outside", "\nerror getting log for outside: openat outside: path escapes from parent\n"),
    ] {
        let answer = scene.get(&format!("/logs/?{query}"), &[]).await;
        assert_eq!((answer.status, answer.text()), (200, expected.to_owned()), "{query}");
        assert_eq!(answer.header("content-type"), "text/plain;charset=UTF-8");
    }
    let file = scene.get("/logs/?query=sub/sub.log", &[]).await;
    assert_eq!((file.status, file.text().as_str()), (200, "deep\n"));

    let zipped = scene.get("/logs/?query=svc", &["Accept-Encoding: gzip"]).await;
    assert_eq!(zipped.header("content-encoding"), "gzip");
    let mut text = String::new();
    flate2::read::GzDecoder::new(zipped.body.as_slice()).read_to_string(&mut text).expect("a log");
    assert_eq!(text, "of a service\n");
    let choosy = scene.get("/logs/?query=svc", &["Accept-Encoding: gzip, deflate"]).await;
    assert_eq!((choosy.header("content-encoding"), choosy.text().as_str()), ("", "of a service\n"));
}

#[tokio::test]
async fn without_a_journal_there_are_only_files() {
    let scene = Scene::new(None).await;
    assert_eq!(scene.get("/logs/?query=svc", &[]).await.text(), "of a service\n");
    assert_eq!(scene.get("/logs/?query=kubelet", &[]).await.text(), "\nlog not found for kubelet\n");
    let broken = Scene::new(Some("echo kubelet.service; exit 1")).await;
    assert_eq!(broken.get("/logs/?query=kubelet", &[]).await.text(), "\nlog not found for kubelet\n");
}

#[tokio::test]
async fn queries_that_cannot_be_answered_are_refused_in_upstreams_words() {
    let scene = Scene::new(Some("touch \"$0.ran\"")).await;
    for (query, status, body) in [
        ("query=", 400, r#"query: Invalid value: [""]: may not be empty"#),
        ("sinceTime=x", 400, r#"sinceTime: Invalid value: "x": invalid time format"#),
        (
            "sinceTime=2024-1-1T00:00:00Z",
            400,
            r#"sinceTime: Invalid value: "2024-1-1T00:00:00Z": invalid time format"#,
        ),
        (
            "boot=x&tailLines=99999999999999999999",
            400,
            r#"[boot: Invalid value: "x": strconv.Atoi: parsing "x": invalid syntax, tailLines: Invalid value: "99999999999999999999": strconv.Atoi: parsing "99999999999999999999": value out of range]"#,
        ),
        ("pattern=x", 406, "query: Required value: cannot be empty with options"),
        ("query=a%20b", 406, r#"query: Invalid value: "a b": input contains unsupported characters"#),
        ("query=$(id)", 406, r#"query: Invalid value: "$(id)": input contains unsupported characters"#),
        ("query=a&query=b&query=c&query=d&query=e", 406, "query: Too many: 5: must have at most 4 items"),
        (
            "query=a&tailLines=100001",
            406,
            "tailLines: Invalid value: 100001: must be between 0 and 100000, inclusive",
        ),
        ("query=a&boot=1", 406, "boot: Invalid value: 1: must be less than 1"),
        (
            "query=a&sinceTime=2025-01-01T00:00:00Z&untilTime=2024-01-01T00:00:00Z",
            406,
            r#"untilTime: Invalid value: "2024-01-01T00:00:00Z": must be after `sinceTime`"#,
        ),
        (
            "query=a&pattern=(",
            406,
            r#"pattern: Invalid value: "(": error parsing regexp: missing closing ): `(`"#,
        ),
        (
            "query=a/b&query=c",
            406,
            r#"query: Invalid value: "[a/b], [c]": cannot specify a file and service"#,
        ),
        (
            "query=a/b&query=c/d",
            406,
            r#"query: Invalid value: ["a/b","c/d"]: cannot specify more than one file"#,
        ),
        (
            "query=./messages&boot=0",
            406,
            r#"query: Invalid value: ["./messages"]: cannot specify file with options"#,
        ),
        (
            "query=/messages",
            406,
            r#"query: Invalid value: ["/messages"]: statat /messages: path escapes from parent"#,
        ),
        (
            "query=../secret",
            406,
            r#"query: Invalid value: ["../secret"]: statat ../secret: path escapes from parent"#,
        ),
        (
            "query=./outside",
            406,
            r#"query: Invalid value: ["./outside"]: statat ./outside: path escapes from parent"#,
        ),
        ("query=./no", 406, r#"query: Invalid value: ["./no"]: statat ./no: no such file or directory"#),
        ("query=messages/", 406, r#"query: Invalid value: ["messages/"]: statat messages/: not a directory"#),
    ] {
        let answer = scene.get(&format!("/logs/?{query}"), &[]).await;
        assert_eq!((answer.status, answer.text()), (status, format!("{body}\n")), "{query}");
    }
    let elsewhere = scene.get("/logs/messages?query=svc", &[]).await;
    assert_eq!((elsewhere.status, elsewhere.text().as_str()), (406, "path not allowed in query mode\n"));
    assert_eq!(scene.get("/logs/messages?other=1", &[]).await.text(), "hello log\n");
    assert!(!scene.path("journalctl.ran").exists(), "nothing was run for any of it");
}

#[tokio::test]
async fn journalctl_ends_with_its_client() {
    let script = r#"
if [ "$1" = --field ]; then echo slow.service; exit 0; fi
echo $$ > "$0.pid"
echo begun
exec sleep 600"#;
    let scene = Scene::new(Some(script)).await;
    let request = Request::builder().uri("/logs/?query=slow").body(Body::empty()).expect("a request");
    let mut body = scene.router.clone().oneshot(request).await.expect("an answer").into_body();
    let first = tokio::time::timeout(Duration::from_secs(20), body.frame()).await.expect("a timely frame");
    assert_eq!(first.expect("a frame").expect("a piece").into_data().expect("bytes"), "begun\n");
    let pid = fs::read_to_string(scene.path("journalctl.pid")).expect("a number");
    let process = Path::new("/proc").join(pid.trim());
    assert!(process.exists());
    drop(body);
    let gone = async {
        // A process that was killed is kept by the kernel until its parent has heard of it.
        while fs::read_to_string(process.join("status")).is_ok_and(|status| !status.contains("State:\tZ")) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.expect("an end");
}
