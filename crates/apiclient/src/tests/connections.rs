use std::time::Duration;

use crablet_apiserver::{ApiServer, Call, ErrorKind, Lane};
use futures_util::StreamExt;
use futures_util::future::join_all;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::sync::mpsc;

use super::pki::Pki;
use super::relay::Relay;
use super::server::{Answer, Server};
use super::watches::{begin, watches};
use super::{Home, soon, text};

fn der(pem: &str) -> Option<Vec<u8>> {
    Some(CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate").to_vec())
}

#[tokio::test]
async fn lanes_do_not_share_connections() {
    let pki = Pki::new();
    let server = Server::http2(&pki, |_| Answer::ok("{}")).await;
    let client = Home::new(&pki).client(&server.url(), "{token: t}");
    for lane in [Lane::Heartbeat, Lane::Main, Lane::Events, Lane::Objects, Lane::Heartbeat] {
        soon("a call", client.call(Call::get(lane, "/api"))).await.expect("an answer");
    }
    let connections: Vec<_> = server.seen().iter().map(|seen| seen.connection).collect();
    assert_eq!(connections, [1, 2, 2, 3, 1], "only events travel with the main lane");
}

#[tokio::test]
async fn a_new_certificate_is_shown_and_the_old_connections_are_left() {
    let pki = Pki::new();
    let (_send, lines) = mpsc::channel(1);
    let handler = watches(vec![lines]);
    let server =
        Server::http2(
            &pki,
            move |seen| if seen.path.contains("watch=true") { handler(seen) } else { Answer::ok("{}") },
        )
        .await;
    let home = Home::new(&pki);
    let (old, new) = (pki.client("old"), pki.client("new"));
    home.write("me.pem", &old);
    let client = home.client(&server.url(), "{client-certificate: me.pem, client-key: me.pem}");
    let mut events = begin(&client, Lane::Main, "/api/v1/pods").await;
    soon("a call", client.call(Call::get(Lane::Heartbeat, "/api"))).await.expect("an answer");
    server.open_connections(2).await;

    client.set_client_certificate(new.as_bytes()).expect("a certificate");
    assert_eq!(soon("the end of the watch", events.next()).await, None);
    server.open_connections(0).await;
    soon("a call", client.call(Call::get(Lane::Main, "/api"))).await.expect("an answer");
    let seen: Vec<_> = server.seen().into_iter().map(|seen| seen.certificate).collect();
    assert_eq!(seen, [der(&old), der(&old), der(&new)]);

    let error = client.set_client_certificate(pki.ca.as_bytes()).expect_err("no key");
    assert_eq!(error.to_string(), "the client certificate: there is no private key with it");
    client.set_client_certificate(new.as_bytes()).expect("the same again");
    server.open_connections(1).await;
}

#[tokio::test]
async fn a_heartbeat_that_fails_twice_dials_anew() {
    let pki = Pki::new();
    let server = Server::http2(&pki, |_| Answer::ok("{}")).await;
    let relay = Relay::to(server.address).await;
    let client = Home::new(&pki).client(&format!("https://{}", relay.address), "{token: t}");
    let beat = || client.call(Call::get(Lane::Heartbeat, "/api").within(Duration::from_millis(300)));
    soon("a heartbeat", client.call(Call::get(Lane::Heartbeat, "/api"))).await.expect("an answer");
    relay.die();
    for _ in 0..2 {
        assert_eq!(soon("a heartbeat", beat()).await.expect_err("dead").kind, ErrorKind::TimedOut);
    }
    soon("a heartbeat", client.call(Call::get(Lane::Heartbeat, "/api"))).await.expect("on a new connection");
    assert_eq!(server.accepted(), 2);
}

#[tokio::test]
async fn without_http2_there_is_a_connection_for_each_request_under_way() {
    let pki = Pki::new();
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| mpsc::channel(1)).unzip();
    let handler = watches(receivers);
    let server =
        Server::http1(
            &pki,
            move |seen| if seen.path.contains("watch=true") { handler(seen) } else { Answer::ok("{}") },
        )
        .await;
    let home = Home::new(&pki);
    home.write("me.pem", &pki.client("me"));
    let client = home.client(&server.url(), "{client-certificate: me.pem, client-key: me.pem}");
    let mut streams = join_all((0..3).map(|_| begin(&client, Lane::Main, "/api/v1/pods"))).await;
    let answer = soon("a call", client.call(Call::get(Lane::Main, "/api"))).await.expect("an answer");
    assert_eq!(text(&answer), "{}");
    for send in &senders {
        send.send("{\"type\":\"ADDED\",\"object\":{}}\n".to_owned()).await.expect("a reader");
    }
    for events in &mut streams {
        assert!(soon("an event", events.next()).await.expect("an event").is_ok());
    }
    assert_eq!(server.accepted(), 4);
    let seen = server.seen();
    assert!(seen.iter().all(|seen| !seen.http2 && seen.certificate.is_some()));
    assert_eq!(seen[0].headers["host"], server.address.to_string().as_str());
    client.set_client_certificate(pki.client("other").as_bytes()).expect("a certificate");
    for events in &mut streams {
        assert_eq!(soon("the end", events.next()).await, None);
    }
    drop(streams);
    server.open_connections(0).await;
}

#[tokio::test]
async fn many_calls_at_once_share_few_connections() {
    let pki = Pki::new();
    let server = Server::http2(&pki, |_| Answer::ok("{}")).await;
    let client = Home::new(&pki).client(&server.url(), "{token: t}");
    let calls = (0..200).map(|_| client.call(Call::get(Lane::Main, "/api")));
    for answer in soon("the calls", join_all(calls)).await {
        answer.expect("an answer");
    }
    assert!(server.accepted() <= 3, "{} connections for 200 calls", server.accepted());
    server.open_connections(1).await;
}

#[tokio::test]
async fn a_server_that_was_away_is_found_again() {
    let pki = Pki::new();
    let (_send, lines) = mpsc::channel(1);
    let handler = watches(vec![lines]);
    let server =
        Server::http2(
            &pki,
            move |seen| if seen.path.contains("watch=true") { handler(seen) } else { Answer::ok("{}") },
        )
        .await;
    let client = Home::new(&pki).client(&server.url(), "{token: t}");
    let mut events = begin(&client, Lane::Main, "/api/v1/pods").await;
    server.drop_connections();
    let error = soon("the failure", events.next()).await.expect("an event").expect_err("lost");
    assert_eq!(error.kind, ErrorKind::Unreachable);
    soon("a call", client.call(Call::get(Lane::Main, "/api"))).await.expect("an answer");
    assert_eq!(server.accepted(), 2);
}
