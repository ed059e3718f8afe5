//! Without rules: the API server sees who asks and what, and clients see its answers.

use crablet_proxy::{ApiProxy, Error, Identity, Outcome, Phase};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::support::*;

const SPOOFED: [(&str, &str); 4] = [
    ("x-remote-user", "system:admin"),
    ("x-remote-group", "system:masters"),
    ("x-remote-extra-scopes", "all"),
    ("X-Remote-Uid", "1"),
];

#[tokio::test]
async fn a_certificate_becomes_headers_of_the_front_proxy() {
    let mut bed = Bed::start().await;
    for protocol in PROTOCOLS {
        let client = bed.client(protocol).await;
        let sent = client.send(request("POST", "/api/v1/nodes?dryRun=All", &SPOOFED, "a body"));
        let seen = bed.upstream.next().await;
        assert!(seen.from_front_proxy);
        assert_eq!(seen.header("x-remote-user"), [NODE]);
        assert_eq!(seen.header("x-remote-group"), ["system:nodes"]);
        let extra = seen.header("x-remote-extra-authentication.kubernetes.io%2fcredential-id");
        assert!(matches!(extra[..], [extra] if extra.starts_with("X509SHA256=") && extra.len() == 75));
        assert!(seen.header("x-remote-extra-scopes").is_empty() && seen.header("x-remote-uid").is_empty());
        assert_eq!(seen.head.uri.path_and_query().unwrap(), "/api/v1/nodes?dryRun=All");
        assert_eq!((seen.head.method.as_str(), &seen.body[..]), ("POST", &b"a body"[..]));
        assert_eq!(seen.header("host"), ["localhost"]);
        seen.json(&json!({ "answer": protocol }));
        let reply = reply(sent).await.unwrap();
        assert_eq!(
            (reply.json(), &reply.headers["x-from"]),
            (json!({ "answer": protocol }), &"upstream".parse().unwrap())
        );
    }
}

#[tokio::test]
async fn without_a_certificate_a_token_is_passed_on_and_nothing_is_claimed() {
    let mut bed = Bed::start().await;
    // The pools of connections with and without the front proxy's certificate are not mixed up.
    let node = bed.client("h2").await;
    for protocol in PROTOCOLS {
        let client = bed.connect(protocol, None).await.unwrap();
        let mut headers = SPOOFED.to_vec();
        headers.push(("authorization", "Bearer abcdef.0123456789abcdef"));
        let sent = client.send(request("GET", "/api/v1/pods", &headers, ""));
        let seen = bed.upstream.next().await;
        assert!(!seen.from_front_proxy);
        assert_eq!(seen.header("authorization"), ["Bearer abcdef.0123456789abcdef"]);
        assert!(!seen.head.headers.keys().any(|name| name.as_str().starts_with("x-remote-")));
        seen.json(&json!({}));
        reply(sent).await.unwrap();
        assert_eq!(bed.last_line().await.user, "system:bootstrap:abcdef");

        let sent = node.get("/api/v1/pods");
        let seen = bed.upstream.next().await;
        assert!(seen.from_front_proxy);
        seen.json(&json!({}));
        reply(sent).await.unwrap();
    }
}

#[tokio::test]
async fn a_strangers_certificate_is_refused() {
    let bed = Bed::start().await;
    let stranger = bed.pki.stranger.client(NODE, "system:nodes");
    // With TLS 1.3 the client hears of it after its own handshake.
    if let Ok(client) = bed.connect("http/1.1", Some(&stranger)).await {
        assert!(reply(client.get("/api/v1/nodes")).await.is_err());
    }
    assert_eq!(bed.record.last_call(), 0);
}

#[tokio::test]
async fn watches_flow_live_and_are_recorded_at_both_ends() {
    let mut bed = Bed::start().await;
    for protocol in PROTOCOLS {
        let client = bed.client(protocol).await;
        let sent = client.get("/api/v1/pods?watch=1&fieldSelector=x");
        let stream = bed.upstream.next().await.stream("application/json");
        let mut body = soon(sent).await.unwrap().unwrap().into_body();
        let call = bed.record.last_call();
        let start = soon(bed.record.next(|line| line.call == call)).await;
        assert_eq!((start.phase, start.status, start.outcome), (Phase::Start, Some(200), None));
        for event in ["{\"type\":\"ADDED\"}\n", "{\"type\":\"DELETED\"}\n"] {
            stream.send(event).await;
            // The next one is not even sent yet.
            assert_eq!(piece(&mut body).await.unwrap().unwrap(), event);
        }
        drop(stream);
        assert!(soon(body.collect()).await.unwrap().to_bytes().is_empty());
        let end = bed.last_line().await;
        assert_eq!((end.phase, end.outcome, end.events), (Phase::End, Some(Outcome::Answered), Some(2)));
        assert_eq!(end.response_body.as_ref().unwrap().bytes, 36);
    }
}

#[tokio::test]
async fn a_watch_that_is_given_up_is_given_up_at_the_api_server() {
    let mut bed = Bed::start().await;
    for protocol in PROTOCOLS {
        let client = bed.client(protocol).await;
        let sent = client.get("/api/v1/pods?watch=1");
        let stream = bed.upstream.next().await.stream("application/json");
        let mut body = soon(sent).await.unwrap().unwrap().into_body();
        stream.send("{}\n").await;
        assert!(piece(&mut body).await.unwrap().is_ok());
        drop(body);
        if protocol == "http/1.1" {
            client.connection.abort();
        }
        stream.gone().await;
        let end = bed.last_line().await;
        assert_eq!((end.outcome, end.events), (Some(Outcome::GivenUp), Some(1)));
    }
}

#[tokio::test]
async fn one_connection_carries_as_many_watches_as_the_api_server_allows() {
    let mut bed = Bed::start().await;
    let client = bed.client("h2").await;
    let sent: Vec<_> = (0..100).map(|_| client.get("/api/v1/configmaps?watch=1")).collect();
    let mut streams = Vec::new();
    for _ in 0..100 {
        streams.push(bed.upstream.next().await.stream("application/json"));
    }
    let mut bodies = Vec::new();
    for sent in sent {
        bodies.push(soon(sent).await.unwrap().unwrap().into_body());
    }
    for stream in &streams {
        stream.send("{}\n").await;
    }
    for body in &mut bodies {
        assert_eq!(piece(body).await.unwrap().unwrap(), "{}\n");
    }
}

#[tokio::test]
async fn long_and_unknown_bodies_pass_in_both_directions() {
    let mut bed = Bed::start_with(|options| options.body_limit = 1000).await;
    let long = vec![b'x'; 3 << 20];
    for protocol in PROTOCOLS {
        let client = bed.client(protocol).await;
        let sent = client.send(request(
            "POST",
            "/api/v1/pods",
            &[("content-type", "application/json")],
            long.clone(),
        ));
        let seen = bed.upstream.next().await;
        assert!(seen.body == long);
        seen.answer(http::StatusCode::CREATED, "application/json", long.clone());
        let reply = reply(sent).await.unwrap();
        assert!(reply.status == 201 && reply.body == long);
        let line = bed.last_line().await;
        assert_eq!((line.request_body.bytes, line.response_body.as_ref().unwrap().bytes), (3 << 20, 3 << 20));
        assert_eq!((&line.request, &line.response), (&None, &None));
    }
}

#[tokio::test]
async fn an_upgrade_is_bytes_in_both_directions() {
    let mut bed = Bed::start().await;
    let client = bed.client("http/1.1").await;
    let headers = [("connection", "Upgrade"), ("upgrade", "SPDY/3.1")];
    let path = "/api/v1/namespaces/a/pods/b/exec?command=sh";
    let response = soon(client.send(request("POST", path, &headers, ""))).await.unwrap().unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["upgrade"]),
        (101, &"SPDY/3.1".parse().unwrap())
    );
    assert_eq!(response.headers()["x-seen-user"], NODE);
    let mut stream = TokioIo::new(soon(hyper::upgrade::on(response)).await.unwrap());
    for word in ["hello", "again"] {
        stream.write_all(word.as_bytes()).await.unwrap();
        let mut answer = [0; 5];
        soon(stream.read_exact(&mut answer)).await.unwrap();
        assert_eq!(answer, word.to_ascii_uppercase().as_bytes());
    }
    stream.shutdown().await.unwrap();
    drop(stream);
    let end = bed.last_line().await;
    assert_eq!((end.phase, end.status, end.subresource.as_str()), (Phase::End, Some(101), "exec"));
    assert_eq!((end.request_body.bytes, end.response_body.as_ref().unwrap().bytes), (10, 10));
    assert!(bed.upstream.nothing_came());
}

#[tokio::test]
async fn without_an_api_server_there_is_no_connection_either() {
    let mut bed = Bed::start().await;
    let address = bed.upstream.address.to_string();
    for protocol in PROTOCOLS {
        let client = bed.client(protocol).await;
        let sent = client.get("/api/v1/pods");
        let _seen = bed.upstream.next().await;
        bed.upstream.die().await;
        assert!(reply(sent).await.is_err());
        client.closed().await;
        let line = bed.last_line().await;
        assert_eq!(line.outcome, Some(Outcome::Broken));
        assert!(line.error.is_some());

        let client = bed.client(protocol).await;
        assert!(reply(client.get("/api/v1/pods")).await.is_err());
        client.closed().await;

        let front_proxy = bed.front_proxy.clone();
        bed.upstream = Upstream::start(&bed.pki, &front_proxy, &address).await;
        let client = bed.client(protocol).await;
        let sent = client.get("/api/v1/pods");
        bed.upstream.next().await.json(&json!({}));
        assert_eq!(reply(sent).await.unwrap().status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_synchronous_face_stops_when_it_is_dropped() {
    let pki = super::pki::Pki::new();
    let front_proxy = pki.front_proxies.client("front-proxy", "proxies");
    let mut upstream = Upstream::start(&pki, &front_proxy, "127.0.0.1:0").await;
    let folder = tempfile::tempdir().unwrap();
    let good = options(&pki, front_proxy, &upstream, folder.path());
    let proxy = ApiProxy::start(&good).unwrap();
    let node = pki.cluster.client(NODE, "system:nodes");
    let client = Client::connect(&pki, proxy.address(), "h2", Some(&node)).await.unwrap();
    let sent = client.get("/api/v1/nodes/a");
    upstream.next().await.json(&json!({}));
    assert_eq!(reply(sent).await.unwrap().status, 200);
    let line = proxy.record().wait("a get", SOON, |line| line.verb == "get").unwrap();
    assert_eq!((line.user.as_str(), line.name.as_str()), (NODE, "a"));
    assert_eq!(proxy.record().count(|key| key.user == NODE && key.resource == "nodes"), 1);

    let sent = client.get("/api/v1/nodes/a");
    let _seen = upstream.next().await;
    drop(proxy);
    assert!(reply(sent).await.is_err());
    client.closed().await;

    // What is wrong with the settings is said.
    let mut bad = good.clone();
    bad.serving = Identity { certificate: b"nothing".to_vec(), ..bad.serving };
    let error = ApiProxy::start(&bad).err().unwrap();
    assert_eq!(error.to_string(), "the serving certificate is not usable: there is no certificate in it");
    let mut bad = good.clone();
    bad.upstream = "not an address".into();
    assert!(matches!(ApiProxy::start(&bad), Err(Error::Upstream(_))));
}
