use std::sync::Mutex;
use std::time::Duration;

use crablet_apiserver::{ApiServer, Change, ErrorKind, Lane, WatchCall, WatchStream};
use futures_util::StreamExt;
use tokio::sync::mpsc;

use super::pki::Pki;
use super::relay::Relay;
use super::server::{Answer, Server};
use super::{Home, soon, text};
use crate::ApiClient;

pub async fn begin(client: &ApiClient, lane: Lane, path: &str) -> WatchStream {
    soon("the watch", client.watch(WatchCall { path: path.to_owned(), lane })).await.expect("a watch")
}

/// Hands out one watch after the other.
pub fn watches(
    receivers: Vec<mpsc::Receiver<String>>,
) -> impl Fn(&super::server::Seen) -> Answer + Send + Sync {
    let receivers = Mutex::new(receivers);
    move |_| match receivers.lock().expect("watches").pop() {
        Some(lines) => Answer::Watch(lines),
        None => Answer::Body(500, &[], String::new()),
    }
}

#[tokio::test]
async fn events_come_as_they_are_sent_and_the_stream_ends_with_them() {
    let pki = Pki::new();
    let (send, lines) = mpsc::channel(8);
    let server = Server::http2(&pki, watches(vec![lines])).await;
    let client = Home::new(&pki).client(&server.url(), "{token: t}");
    let mut events = begin(&client, Lane::Main, "/api/v1/pods?timeoutSeconds=300").await;
    assert_eq!(server.seen()[0].path, "/api/v1/pods?timeoutSeconds=300&watch=true");
    // An object in two frames, and two in one.
    for piece in [
        "{\"type\":\"ADDED\",\"obj",
        "ect\":{\"n\":1}}\n",
        "{\"type\":\"MODIFIED\",\"object\":{\"n\":2}}\n{\"type\":\"BOOKMARK\",\"object\":{}}\n",
    ] {
        send.send(piece.to_owned()).await.expect("a reader");
    }
    let mut told = Vec::new();
    for _ in 0..3 {
        let event = soon("an event", events.next()).await.expect("an event").expect("no error");
        told.push((event.change, text(&event.object).to_owned()));
    }
    let wanted = [(Change::Added, "{\"n\":1}"), (Change::Modified, "{\"n\":2}"), (Change::Bookmark, "{}")];
    assert_eq!(told, wanted.map(|(change, object)| (change, object.to_owned())));
    drop(send);
    assert_eq!(soon("the end", events.next()).await, None);
}

#[tokio::test]
async fn a_watch_that_is_too_old_says_so() {
    let pki = Pki::new();
    let (send, lines) = mpsc::channel(8);
    let server = Server::http2(&pki, watches(vec![lines])).await;
    let client = Home::new(&pki).client(&server.url(), "{token: t}");
    let mut events = begin(&client, Lane::Main, "/api/v1/pods").await;
    let status =
        "{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\",\"message\":\"too old resource version\"}";
    send.send(format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n")).await.expect("a reader");
    let error = soon("the error", events.next()).await.expect("an event").expect_err("an error");
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Gone, "too old resource version"));
    assert_eq!(soon("the end", events.next()).await, None);
    let refused = client.watch(WatchCall { path: "/api/v1/pods".to_owned(), lane: Lane::Main });
    assert_eq!(soon("the refusal", refused).await.err().map(|error| error.kind), Some(ErrorKind::Server));
}

#[tokio::test]
async fn hundreds_of_watches_are_spread_over_connections() {
    let pki = Pki::new();
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..120).map(|_| mpsc::channel(1)).unzip();
    let server = Server::http2(&pki, watches(receivers)).await;
    let client = Home::new(&pki).client(&server.url(), "{token: t}");
    let mut streams = Vec::new();
    for number in 0..120 {
        streams.push(begin(&client, Lane::Objects, &format!("/api/v1/secrets?name={number}")).await);
    }
    for send in &senders {
        send.send("{\"type\":\"ADDED\",\"object\":{}}\n".to_owned()).await.expect("a reader");
    }
    for events in &mut streams {
        let event = soon("an event", events.next()).await.expect("an event").expect("no error");
        assert_eq!(event.change, Change::Added);
    }
    assert_eq!(server.accepted(), 2);
    // Those on the second connection end, and it is not kept.
    streams.truncate(90);
    server.open_connections(1).await;
}

#[tokio::test]
async fn a_dead_way_is_noticed_and_left() {
    let pki = Pki::new();
    let (_send, lines) = mpsc::channel(1);
    let (alive, more) = mpsc::channel(1);
    let server = Server::http2(&pki, watches(vec![more, lines])).await;
    let relay = Relay::to(server.address).await;
    let client = Home::new(&pki).pinging_client(&format!("https://{}", relay.address), "{token: t}", 50);
    let mut events = begin(&client, Lane::Main, "/api/v1/pods").await;
    relay.die();
    let error = soon("the failure", events.next()).await.expect("an event").expect_err("lost");
    assert_eq!(error.kind, ErrorKind::Unreachable);
    assert!(
        error.message.starts_with(&format!("Get \"https://{}/api/v1/pods?watch=true\": ", relay.address)),
        "{error}"
    );
    let mut events = begin(&client, Lane::Main, "/api/v1/pods").await;
    alive.send("{\"type\":\"ADDED\",\"object\":{}}\n".to_owned()).await.expect("a reader");
    assert!(soon("an event", events.next()).await.expect("an event").is_ok());
}

#[tokio::test]
async fn a_watch_that_the_server_forgot_to_end_is_given_up() {
    let pki = Pki::new();
    let (_send, lines) = mpsc::channel(1);
    let server = Server::http2(&pki, watches(vec![lines])).await;
    // A clock that jumps would leave a ping no time.
    let client = Home::new(&pki).pinging_client(&server.url(), "{token: t}", 3_600_000);
    let mut events = begin(&client, Lane::Main, "/api/v1/pods?timeoutSeconds=60").await;
    tokio::time::pause();
    let error = tokio::time::timeout(Duration::from_secs(91), events.next()).await.expect("in time");
    assert_eq!(error.expect("an event").expect_err("too late").kind, ErrorKind::TimedOut);
}
