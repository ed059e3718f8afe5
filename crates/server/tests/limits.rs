//! How much clients may send, hold and wait, on each of the ports.

mod common;
#[path = "common/streams.rs"]
mod streams;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use common::World;
use common::port::{AnyServer, Pair, Port, SOON, settings};
use crablet_server::{
    AuthorizationMode, KubeletServerPorts, KubeletServerSettings, LogFile, TlsSettings, healthz_router,
    read_only_router, serve_tcp,
};
use http_body_util::BodyExt;
use rustls::SupportedProtocolVersion;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

fn open_to_all() -> KubeletServerSettings {
    KubeletServerSettings { authorization: AuthorizationMode::AlwaysAllow, ..settings() }
}

async fn send(port: &Port, pair: &Pair, bytes: &[u8]) -> TlsStream<TcpStream> {
    let mut stream = port.connect(Some(pair), "http/1.1").await.expect("a connection");
    stream.write_all(bytes).await.expect("a request");
    stream
}

/// All that comes until the connection is closed.
async fn rest(mut stream: TlsStream<TcpStream>) -> String {
    let mut answer = Vec::new();
    // However it ends.
    let _ = tokio::time::timeout(SOON, stream.read_to_end(&mut answer)).await.expect("a timely end");
    String::from_utf8_lossy(&answer).into_owned()
}

/// `kubectl exec -- sh -c "$(cat script)"` sends the script in the query.
#[tokio::test]
async fn a_command_may_be_as_long_as_a_program_takes() {
    let port = Port::start(open_to_all()).await;
    let client = port.authority.client("kube-apiserver", &[]);
    for length in [60_000, 70_000, 130_000, 900_000] {
        let script = "x".repeat(length);
        let request = format!(
            "POST /run/default/web/app?cmd=sh+-c+{script} HTTP/1.1\r\nHost: node-1\r\nConnection: close\r\n\r\n"
        );
        let answer = rest(send(&port, &client, request.as_bytes()).await).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{}", &answer[..answer.len().min(200)]);
        assert!(answer.contains(&format!(r#"["sh", "-c", "{script}"]"#)), "{length} bytes arrive whole");
    }
}

#[tokio::test]
async fn a_head_may_be_as_long_as_upstreams_and_no_longer() {
    let port = Port::start(open_to_all()).await;
    let client = port.authority.client("kube-apiserver", &[]);
    let request = |length: usize| {
        let long = "x".repeat(length);
        format!("GET /healthz HTTP/1.1\r\nHost: node-1\r\nConnection: close\r\nX-Long: {long}\r\n\r\n")
    };
    let answer = rest(send(&port, &client, request(1_000_000).as_bytes()).await).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("ok"), "{answer}");

    let mut stream = port.connect(Some(&client), "http/1.1").await.expect("a connection");
    // It is cut off somewhere on the way.
    let _ = stream.write_all(request(3 << 20).as_bytes()).await;
    let answer = rest(stream).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    assert_eq!(port.ask(Some(&client), None, "GET", "/healthz").await.0, 200);
}

/// An API server has a connection for each of these: an ordinary day.
#[tokio::test]
async fn hundreds_of_logs_commands_and_ports_are_held_while_others_are_served() {
    let (containers, _) = streams::Runtime::start().await;
    let port = Port::start_around(open_to_all(), |ports| KubeletServerPorts { containers, ..ports }).await;
    let client = port.authority.client("kube-apiserver", &[]);
    let path = port.folder.path().join("app.log");
    std::fs::write(&path, "2024-01-02T03:04:05.000000000Z stdout F hello\n").expect("a file");
    let (running, ended) = watch::channel(false);
    port.shelf.0.lock().expect("a lock").insert("app".to_owned(), LogFile { path, ended });
    let (mut followed, mut upgraded) = (Vec::new(), Vec::new());
    for _ in 0..200 {
        let mut answer =
            port.open(Some(&client), None, "GET", "/containerLogs/default/web/app?follow=true").await;
        let first = tokio::time::timeout(SOON, answer.frame()).await.expect("a timely line");
        assert!(first.expect("a line").expect("a line").is_data());
        followed.push(answer);
    }
    for target in ["/exec/default/web/app?command=sh&input=1&output=1", "/portForward/default/web"] {
        for _ in 0..100 {
            let request = format!(
                "POST {target} HTTP/1.1\r\nHost: node-1\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
            );
            let mut stream = send(&port, &client, request.as_bytes()).await;
            let head = tokio::time::timeout(SOON, streams::head_from(&mut stream)).await;
            assert!(head.expect("a timely answer").starts_with("HTTP/1.1 101 "));
            upgraded.push(stream);
        }
    }
    assert_eq!(port.ask(Some(&client), None, "GET", "/healthz").await.0, 200);
    // The logs end when the container does.
    running.send_replace(true);
    for answer in followed {
        tokio::time::timeout(SOON, answer.into_body().collect())
            .await
            .expect("a timely end")
            .expect("an end");
    }
}

#[tokio::test]
async fn a_burst_of_clients_is_served_to_the_last_one() {
    let port = Port::start(settings()).await;
    port.cluster.allow("kube-apiserver get healthz");
    let client = port.authority.client("kube-apiserver", &[]);
    let asking = (0..400).map(|_| port.ask(Some(&client), None, "GET", "/healthz"));
    let answers = futures_util::future::join_all(asking).await;
    assert!(answers.iter().all(|answer| *answer == (200, "ok".to_owned())));
    assert_eq!(port.cluster.access_seen.lock().expect("a lock").len(), 1, "the cluster is asked once");
}

#[tokio::test]
async fn a_request_that_needs_another_protocol_is_refused_over_http2() {
    let port = Port::start(open_to_all()).await;
    let client = port.authority.client("kube-apiserver", &[]);
    let answers = port.ask_h2(&client, &["/exec/default/web/app", "/healthz"]).await;
    assert_eq!(answers[0].0, 400, "{answers:?}");
    assert_eq!(answers[1], (200, "ok".to_owned()));
}

/// What a client that offers only this comes to speak. `None`: no handshake.
async fn spoken(port: &Port, version: &'static SupportedProtocolVersion) -> Option<String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[version])
        .expect("a version")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer(provider)))
        .with_no_client_auth();
    let stream = TcpStream::connect(port.address).await.expect("a connection");
    let name = ServerName::try_from("node-1").expect("a name");
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
    stream.get_ref().1.negotiated_cipher_suite().map(|suite| format!("{:?}", suite.suite()))
}

#[tokio::test]
async fn only_what_the_configuration_allows_is_spoken() {
    use rustls::version::{TLS12, TLS13};
    let usual = Port::start(open_to_all()).await;
    assert!(spoken(&usual, &TLS12).await.is_some());
    assert!(spoken(&usual, &TLS13).await.is_some());

    let tls = TlsSettings { min_version: "VersionTLS13".to_owned(), ..TlsSettings::default() };
    let strict = Port::start(KubeletServerSettings { tls, ..open_to_all() }).await;
    assert_eq!(spoken(&strict, &TLS12).await, None);
    assert!(spoken(&strict, &TLS13).await.is_some());

    let suite = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256";
    let tls = TlsSettings { cipher_suites: vec![suite.to_owned()], ..TlsSettings::default() };
    let picky = Port::start(KubeletServerSettings { tls, ..open_to_all() }).await;
    assert_eq!(spoken(&picky, &TLS12).await.as_deref(), Some(suite));
    assert!(spoken(&picky, &TLS13).await.is_some(), "those of 1.3 are not chosen, as in Go");
}

#[tokio::test(start_paused = true)]
async fn a_head_that_does_not_end_is_not_waited_for() {
    let port = Port::start(open_to_all()).await;
    let client = port.authority.client("kube-apiserver", &[]);
    for begun in ["", "GET /healthz HTTP/1.1\r\nHost: node-1\r\nX-Slow: ", "GET /hea"] {
        let answer = rest_of_time(send(&port, &client, begun.as_bytes()).await).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
}

/// As [`rest`], without a deadline: time passes by itself here.
async fn rest_of_time(mut stream: impl AsyncReadExt + Unpin) -> String {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

async fn plain(router: axum::Router) -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    (address, tokio::spawn(async move { serve_tcp(listener, router, std::future::pending()).await }))
}

fn plain_routers() -> [axum::Router; 2] {
    [read_only_router(Arc::new(World::default())), healthz_router(Arc::new(World::default()))]
}

#[tokio::test]
async fn those_who_send_slowly_keep_nobody_away_from_the_plain_ports() {
    for router in plain_routers() {
        let (address, serving) = plain(router).await;
        let mut slow = Vec::new();
        for number in 0..300 {
            let mut stream = TcpStream::connect(address).await.expect("a connection");
            let part = if number % 2 == 0 { "" } else { "GET /healthz HTTP/1.1\r\nHost: " };
            // The oldest ones are cut off on the way.
            let _ = stream.write_all(part.as_bytes()).await;
            slow.push(stream);
        }
        for _ in 0..3 {
            let mut stream = TcpStream::connect(address).await.expect("a connection");
            let request = "GET /healthz HTTP/1.1\r\nHost: node-1\r\nConnection: close\r\n\r\n";
            stream.write_all(request.as_bytes()).await.expect("a request");
            let answer = tokio::time::timeout(SOON, rest_of_time(stream)).await.expect("a timely answer");
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        }
        serving.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_stays_on_the_plain_ports_for_ever() {
    for router in plain_routers() {
        let (address, serving) = plain(router).await;
        for begun in ["", "GET /healthz HTTP/1.1\r\nHost: "] {
            let mut stream = TcpStream::connect(address).await.expect("a connection");
            stream.write_all(begun.as_bytes()).await.expect("a part of a request");
            let waited = tokio::time::timeout(Duration::from_secs(3600), rest_of_time(stream)).await;
            assert!(waited.is_ok(), "{begun:?} is waited for");
        }
        serving.abort();
    }
}
