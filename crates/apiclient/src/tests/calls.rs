use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crablet_apiserver::{ApiServer, Call, ErrorKind, Lane, Verb};
use tokio::net::TcpListener;

use super::pki::Pki;
use super::server::{Answer, Server};
use super::{Home, soon, text};

const IDENTITY: &str = "{client-certificate: me.pem, client-key: me.pem}";

#[tokio::test]
async fn calls_say_what_they_are_and_who_we_are() {
    let pki = Pki::new();
    let server = Server::http2(&pki, |_| Answer::ok("{\"kind\":\"Pod\"}")).await;
    let home = Home::new(&pki);
    home.write("me.pem", &pki.client("system:node:n"));
    let client = home.client(&server.url(), IDENTITY);
    let path = "/api/v1/namespaces/d/pods/p/status?fieldManager=kubelet";
    let patch = Call::new(Verb::StrategicPatch, Lane::Main, path).with_body("{\"status\":{}}");
    let answer = soon("the patch", client.call(patch)).await.expect("an answer");
    assert_eq!(text(&answer), "{\"kind\":\"Pod\"}");
    soon("the get", client.call(Call::get(Lane::Main, "/api/v1/nodes/n"))).await.expect("an answer");
    let seen = server.seen();
    let header = |name| seen[0].headers.get(name).map(|value| value.to_str().expect("text"));
    assert_eq!((seen[0].method.as_str(), seen[0].path.as_str()), ("PATCH", path));
    assert_eq!(seen[0].body, "{\"status\":{}}");
    assert_eq!(header("content-type"), Some("application/strategic-merge-patch+json"));
    assert_eq!(header("accept"), Some("application/json"));
    assert_eq!(header("user-agent"), Some("crablet/test"));
    assert_eq!(header("accept-encoding"), Some("identity"));
    assert!(seen.iter().all(|seen| seen.http2 && seen.certificate.is_some()));
    assert_eq!(server.accepted(), 1, "both on one connection");
}

#[tokio::test]
async fn a_server_that_asks_for_time_gets_it() {
    let pki = Pki::new();
    let asked = AtomicUsize::new(0);
    let server =
        Server::http2(&pki, move |seen| match (seen.path.as_str(), asked.fetch_add(1, Ordering::SeqCst)) {
            ("/busy", 0) => Answer::Body(429, &[("retry-after", "1")], String::new()),
            ("/busy", 1) => Answer::Body(503, &[("retry-after", "0")], String::new()),
            ("/later", _) => Answer::Body(429, &[("retry-after", "60")], String::new()),
            ("/broken", _) => {
                Answer::Body(500, &[], "{\"reason\":\"InternalError\",\"message\":\"broken\"}".to_owned())
            }
            _ => Answer::ok("done"),
        })
        .await;
    let client = Home::new(&pki).client(&server.url(), "{token: t}");
    let busy = soon("the call", client.call(Call::get(Lane::Main, "/busy"))).await.expect("in the end");
    assert_eq!(text(&busy), "done");
    assert_eq!(server.seen().len(), 3);

    let later = soon("the call", client.call(Call::get(Lane::Main, "/later")))
        .await
        .expect_err("not within the deadline");
    assert_eq!((later.kind, later.retry_after), (ErrorKind::TooManyRequests, Some(Duration::from_secs(60))));
    let broken = soon("the call", client.call(Call::get(Lane::Main, "/broken")))
        .await
        .expect_err("no time was asked for");
    assert_eq!((broken.kind, broken.message.as_str()), (ErrorKind::Server, "broken"));
    assert_eq!(server.seen().len(), 5);
}

#[tokio::test]
async fn failures_name_what_was_asked_and_why_it_failed() {
    let pki = Pki::new();
    let home = Home::new(&pki);
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = closed.local_addr().expect("an address");
    drop(closed);
    let client = home.client(&format!("https://{address}"), "{token: s3cret}");
    let error =
        soon("the refusal", client.call(Call::get(Lane::Heartbeat, "/api"))).await.expect_err("refused");
    assert_eq!(error.kind, ErrorKind::Unreachable);
    assert_eq!(
        error.message,
        format!("Get \"https://{address}/api\": dial tcp {address}: connect: connection refused")
    );

    let stranger = Pki::new();
    let server = Server::http2(&stranger, |_| Answer::ok("")).await;
    let client = home.client(&server.url(), "{token: s3cret}");
    let error =
        soon("the handshake", client.call(Call::get(Lane::Main, "/api"))).await.expect_err("not trusted");
    assert!(error.message.ends_with("x509: certificate signed by unknown authority"), "{error}");

    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = silent.local_addr().expect("an address");
    let client = home.client(&format!("https://{address}"), "{token: s3cret}");
    let call = Call::get(Lane::Main, "/api").within(Duration::from_millis(50));
    let error = soon("the deadline", client.call(call)).await.expect_err("no answer");
    assert_eq!(error.kind, ErrorKind::TimedOut);
    assert_eq!(error.message, format!("Get \"https://{address}/api\": context deadline exceeded"));
}

#[tokio::test]
async fn an_answer_without_a_status_is_told_with_its_question() {
    let server = Server::plain(|_| Answer::Body(404, &[], "404 page not found".to_owned())).await;
    let client = Home::new(&Pki::new()).client(&format!("http://{}", server.address), "{}");
    let error =
        soon("the call", client.call(Call::get(Lane::Main, "/nothing"))).await.expect_err("not there");
    assert!(error.is_not_found());
    assert_eq!(error.message, format!("Get \"http://{}/nothing\": the server answered 404", server.address));
}
