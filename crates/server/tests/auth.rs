//! Who somebody is, told in every way there is, over real TLS; and what goes on to those behind the gate.

mod common;
#[path = "common/streams.rs"]
mod streams;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use common::port::{Pair, Port, SOON, settings};
use crablet_server::{
    AccessAttributes, AuthorizationMode, Decision, KubeletServerPorts, KubeletServerSettings, Reviews,
    UserInfo,
};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose};
use tokio::io::AsyncWriteExt;

/// `jane`, in the form in which a WebSocket carries a token.
const JANE: &str = "base64url.bearer.authorization.k8s.io.amFuZQ";

/// Sends a request as it stands, and gives the head of the answer.
async fn head_of_answer(port: &Port, pair: Option<&Pair>, request: &str) -> String {
    let mut stream = port.connect(pair, "http/1.1").await.expect("a connection");
    stream.write_all(request.as_bytes()).await.expect("a request");
    tokio::time::timeout(SOON, streams::head_from(&mut stream)).await.expect("a timely answer")
}

fn upgrade(method: &str, headers: &[&str]) -> String {
    let more: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    format!(
        "{method} /exec/default/web/app?command=true&output=1 HTTP/1.1\r\nHost: node-1\r\nConnection: Upgrade\r\n\
         {more}\r\n"
    )
}

#[tokio::test]
async fn no_token_reaches_the_runtime() {
    let (runtime, seen) = streams::Runtime::start().await;
    let port =
        Port::start_around(settings(), |ports| KubeletServerPorts { containers: runtime, ..ports }).await;
    for user in ["jane", "kube-apiserver"] {
        port.cluster.allow(&format!("{user} create proxy"));
        port.cluster.allow(&format!("{user} get proxy"));
    }
    let certificate = port.authority.client("kube-apiserver", &[]);
    let websocket = format!("Sec-WebSocket-Protocol: {JANE}, v4.channel.k8s.io");
    let websocket = [
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        &websocket,
    ];
    for (pair, request) in [
        (None, upgrade("POST", &["Upgrade: SPDY/3.1", "Authorization: Bearer jane"])),
        // The certificate says who it is; the token is nobody's business then.
        (Some(&certificate), upgrade("POST", &["Upgrade: SPDY/3.1", "Authorization: Bearer jane"])),
        (None, upgrade("GET", &websocket)),
    ] {
        let answer = head_of_answer(&port, pair, &request).await;
        assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
        let forwarded = std::mem::take(&mut *seen.lock().expect("a lock")).to_ascii_lowercase();
        assert!(forwarded.contains("upgrade: "), "{forwarded}");
        for secret in ["jane", "amfuzq", "authorization"] {
            assert!(!forwarded.contains(secret), "{secret} in {forwarded}");
        }
        if request.starts_with("GET") {
            assert!(forwarded.contains("sec-websocket-protocol: v4.channel.k8s.io\r\n"), "{forwarded}");
        }
    }
}

#[tokio::test]
async fn a_bad_token_of_a_websocket_is_refused_even_where_anybody_may_come() {
    let port = Port::start(KubeletServerSettings {
        anonymous: true,
        authorization: AuthorizationMode::AlwaysAllow,
        ..settings()
    })
    .await;
    let status = async |protocols: &str| {
        let protocols = format!("Sec-WebSocket-Protocol: {protocols}");
        let answer = head_of_answer(&port, None, &upgrade("GET", &["Upgrade: websocket", &protocols])).await;
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    // `bad`, in base64.
    assert_eq!(status("base64url.bearer.authorization.k8s.io.YmFk, v4.channel.k8s.io").await, "401");
    assert_eq!(status("base64url.bearer.authorization.k8s.io.%%%, v4.channel.k8s.io").await, "401");
    assert_eq!(status(JANE).await, "401", "there is no other subprotocol");
    assert_ne!(status("v4.channel.k8s.io").await, "401", "nobody in particular");
}

#[tokio::test]
async fn nobody_can_pretend_to_be_somebody_else() {
    let port = Port::start(settings()).await;
    port.cluster.allow("admin get pods");
    let headers = [
        "Impersonate-User: admin",
        "Impersonate-Group: system:masters",
        "X-Remote-User: admin",
        "X-Remote-Group: system:masters",
    ];
    let request = |authorization: &str| {
        format!("GET /pods HTTP/1.1\r\nHost: node-1\r\n{authorization}{}\r\n\r\n", headers.join("\r\n"))
    };
    let answer = head_of_answer(&port, None, &request("Authorization: Bearer jane\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert!(port.cluster.access_seen.lock().expect("a lock").iter().all(|asked| asked.user.name == "jane"));
    let answer = head_of_answer(&port, None, &request("")).await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
}

#[tokio::test]
async fn a_certificate_must_be_a_clients_and_of_today() {
    let port =
        Port::start(KubeletServerSettings { authorization: AuthorizationMode::AlwaysAllow, ..settings() })
            .await;
    let pair = |name: Option<&str>, purpose: Option<ExtendedKeyUsagePurpose>, last_year: i32| {
        let mut params = CertificateParams::new([]).expect("parameters");
        params.distinguished_name = rcgen::DistinguishedName::new();
        if let Some(name) = name {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        params.extended_key_usages = purpose.into_iter().collect();
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(last_year, 1, 1);
        port.authority.sign(&params)
    };
    let client = || Some(ExtendedKeyUsagePurpose::ClientAuth);
    for (pair, status, what) in [
        (pair(Some("a"), client(), 2100), 200, "a client"),
        (pair(Some("a"), Some(ExtendedKeyUsagePurpose::ServerAuth), 2100), 401, "a server"),
        (pair(Some("a"), client(), 2001), 401, "of long ago"),
        (pair(None, client(), 2100), 401, "a client without a name"),
    ] {
        assert_eq!(port.ask(Some(&pair), None, "GET", "/healthz").await.0, status, "{what}");
    }
}

/// A cluster that does not answer.
struct Silent;

#[async_trait]
impl Reviews for Silent {
    async fn token_review(&self, _: &str) -> Result<Option<UserInfo>, String> {
        std::future::pending().await
    }

    async fn access_review(&self, _: &AccessAttributes) -> Result<Decision, String> {
        Ok(Decision::Allowed)
    }
}

/// Requests that wait for the cluster's word are bounded, and those with a certificate do not wait with them.
#[tokio::test]
async fn a_flood_of_tokens_is_turned_away_while_the_cluster_is_silent() {
    let silent = Arc::new(Silent);
    let port = Port::start_around(settings(), |ports| KubeletServerPorts { reviews: Some(silent), ..ports });
    let port = port.await;
    let mut answers = FuturesUnordered::new();
    for connection in 0..6 {
        let stream = port.connect(None, "h2").await.expect("a connection");
        let (sender, running) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("a client");
        tokio::spawn(running);
        for number in 0..250 {
            let request = hyper::Request::get("https://node-1/pods")
                .header("authorization", format!("Bearer token-{connection}-{number}"))
                .body(Empty::<Bytes>::new());
            let mut sender = sender.clone();
            answers.push(async move { sender.send_request(request.expect("a request")).await });
        }
    }
    for _ in 0..400 {
        let answer = tokio::time::timeout(SOON, answers.next()).await.expect("a timely answer");
        let answer = answer.expect("many").expect("an answer");
        assert_eq!(answer.status().as_u16(), 429);
        assert_eq!(answer.headers()["retry-after"], "1");
    }
    let certificate = port.authority.client("kube-apiserver", &[]);
    assert_eq!(port.ask(Some(&certificate), None, "GET", "/healthz").await.0, 200);
}
