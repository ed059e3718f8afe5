//! The local socket, over a real socket.

mod common;

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::time::Duration;

use common::{Local, exchange};
use crablet_server::{BindError, LocalSocket};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

#[tokio::test]
async fn what_is_asked_is_answered() {
    let local = Local::start().await;
    for (method, target, body, status, expected) in [
        ("GET", "/healthz", "", 200, "ok"),
        ("GET", "/explain/default/web", "", 200, "[]"),
        ("GET", "/explain/default/nobody", "", 404, "there is no pod \"nobody\" in namespace \"default\"\n"),
        ("GET", "/pulls", "", 200, "{\"pulls\":[{\"image\":\"web:1\"}]}"),
        ("POST", "/pulls", "", 405, "405: Method Not Allowed"),
        ("GET", "/manifests", "", 200, "{\"manifests\":[]}\n"),
        ("PUT", "/manifests/web", "kind: Pod", 201, "{\"name\":\"web\",\"warnings\":[\"odd\"]}\n"),
        ("PUT", "/manifests/web", "kind: Pod # 2", 200, "{\"name\":\"web\",\"warnings\":[\"odd\"]}\n"),
        ("GET", "/manifests/web", "", 200, "kind: Pod # 2"),
        ("GET", "/manifests", "", 200, "{\"manifests\":[\"web\"]}\n"),
        ("DELETE", "/manifests/web", "", 200, "{\"name\":\"web\"}\n"),
        ("DELETE", "/manifests/web", "", 404, "there is no manifest \"web\"\n"),
        ("GET", "/manifests/web", "", 404, "there is no manifest \"web\"\n"),
        ("PUT", "/manifests/web", "wrong", 422, "spec.containers: Required value\n"),
        ("PUT", "/manifests/web", "full", 500, "cannot store the manifest: no space left\n"),
        ("GET", "/manifests/stuck", "", 500, "cannot read the manifest: input/output error\n"),
        ("DELETE", "/manifests/stuck", "", 500, "cannot remove the manifest: read-only file system\n"),
        ("POST", "/manifests/web", "x", 405, "405: Method Not Allowed"),
        ("GET", "/nothing", "", 404, "404 page not found\n"),
        ("GET", "/explain/default", "", 404, "404: Page Not Found"),
    ] {
        let found = local.ask(method, target, body.as_bytes()).await;
        assert_eq!(found, (status, expected.to_owned()), "{method} {target} {body}");
    }
}

#[tokio::test]
async fn names_that_are_no_file_names_are_refused() {
    let local = Local::start().await;
    let long = "a".repeat(254);
    for name in
        ["..", "%2e%2e", ".hidden", "a%2Fb", "..%2Fetc", "A", "a_b", "a%00", "a.", "-a", "%ff", "%20", &long]
    {
        let (status, body) = local.ask("PUT", &format!("/manifests/{name}"), b"kind: Pod").await;
        // `..` is cleaned away by a redirect.
        assert!((307..500).contains(&status), "{name}: {status} {body}");
    }
    let fits = "a".repeat(253);
    assert_eq!(local.ask("PUT", &format!("/manifests/{fits}"), b"kind: Pod").await.0, 201);
    assert_eq!(local.ask("GET", "/manifests", b"").await.1, format!("{{\"manifests\":[\"{fits}\"]}}\n"));
}

#[tokio::test]
async fn a_manifest_has_a_largest_size() {
    let local = Local::start().await;
    let largest = vec![b' '; 10 << 20];
    assert_eq!(local.ask("PUT", "/manifests/web", &largest).await.0, 201);
    let too_large = vec![b' '; (10 << 20) + 1];
    let found = local.ask("PUT", "/manifests/web", &too_large).await;
    assert_eq!(found, (413, "the manifest is larger than 10 MiB\n".to_owned()));
    let chunks = "a00001\r\n".to_owned() + &" ".repeat(0xa0_0001) + "\r\n0\r\n\r\n";
    let head =
        "PUT /manifests/web HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answer = exchange(&local.path, (head.to_owned() + &chunks).as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test]
async fn watching_gives_a_line_at_once_and_the_latest_after_changes() {
    let local = Local::start().await;
    let mut stream = UnixStream::connect(&local.path).await.expect("a connection");
    stream.write_all(b"GET /watch HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("a request");
    let mut lines = BufReader::new(stream).lines();
    let mut next = async || loop {
        let line = lines.next_line().await.expect("a line").expect("not the end");
        // What is not JSON is the head of the answer and the sizes of chunks.
        if line.starts_with('{') {
            return line;
        }
    };
    assert_eq!(next().await, r#"{"version":0}"#);
    local.world.change();
    assert_eq!(next().await, r#"{"version":1}"#);
    for _ in 0..1000 {
        local.world.change();
    }
    let mut seen = 0;
    while next().await != r#"{"version":1001}"# {
        seen += 1;
    }
    assert!(seen <= 2, "a storm becomes few lines, not {seen}");

    // The stream ends when the client goes.
    assert_eq!(local.world.changed.receiver_count(), 1);
    drop(lines);
    while local.world.changed.receiver_count() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn the_socket_is_private_and_goes_with_the_server() {
    let local = Local::start().await;
    let found = std::fs::symlink_metadata(&local.path).expect("a file");
    assert!(found.file_type().is_socket());
    assert_eq!(found.permissions().mode() & 0o7777, 0o600);
    let folder = local.path.parent().expect("a folder");
    assert_eq!(std::fs::read_dir(folder).expect("entries").count(), 1, "nothing is left beside the socket");

    // A watcher does not hold up the end.
    let mut stream = UnixStream::connect(&local.path).await.expect("a connection");
    stream.write_all(b"GET /watch HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("a request");
    let mut byte = [0];
    stream.read_exact(&mut byte).await.expect("an answer");
    local.stop.send(()).expect("a server");
    let ended = tokio::time::timeout(Duration::from_secs(5), local.serving);
    ended.await.expect("a timely end").expect("no panic");
    assert!(!local.path.exists());
}

#[tokio::test]
async fn a_leftover_socket_is_replaced_and_anything_else_is_not() {
    let local = Local::start().await;
    assert!(matches!(LocalSocket::bind(&local.path).await, Err(BindError::InUse { .. })));
    assert_eq!(local.ask("GET", "/healthz", b"").await.0, 200, "the living one is not disturbed");

    let leftover = local.path.with_file_name("leftover");
    drop(std::os::unix::net::UnixListener::bind(&leftover).expect("a socket"));
    LocalSocket::bind(&leftover).await.expect("the place of the leftover");

    let file = local.path.with_file_name("file");
    std::fs::write(&file, "precious").expect("a file");
    assert!(matches!(LocalSocket::bind(&file).await, Err(BindError::NotASocket { .. })));
    assert_eq!(std::fs::read(&file).expect("a file"), b"precious");

    let long = local.path.with_file_name("x".repeat(120));
    assert!(matches!(LocalSocket::bind(&long).await, Err(BindError::Io { .. })));
}

#[tokio::test]
async fn nonsense_is_answered_or_hung_up_on() {
    let local = Local::start().await;
    let huge = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(1 << 20));
    for bytes in [
        "\0\0\0\0",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "get healthz http/1.1\r\n\r\n",
        "PUT /manifests/web HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "PUT /manifests/web HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "PUT /manifests/web HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        &huge,
    ] {
        let answer = exchange(&local.path, bytes.as_bytes()).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{:.40}: {answer}", bytes);
    }
    assert_eq!(local.ask("GET", "/healthz", b"").await, (200, "ok".to_owned()));
}

#[tokio::test]
async fn more_connections_than_allowed_wait_their_turn() {
    let local = Local::start().await;
    let mut idle = Vec::new();
    for _ in 0..64 {
        idle.push(UnixStream::connect(&local.path).await.expect("a connection"));
    }
    let asking = local.ask("GET", "/healthz", b"");
    tokio::pin!(asking);
    assert!(tokio::time::timeout(Duration::from_millis(100), &mut asking).await.is_err());
    idle.pop();
    assert_eq!(asking.await.0, 200);
}
