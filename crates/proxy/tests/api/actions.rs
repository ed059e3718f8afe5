//! What rules do.

use std::time::Duration;

use crablet_proxy::{Action, Cut, Failure, Gate, Matcher, Outcome, Rule};
use serde_json::json;

use super::support::*;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/a";

fn leases() -> Matcher {
    Matcher::path("/apis/coordination.k8s.io/**/leases/*").verb("update").user("system:node:*")
}

#[tokio::test]
async fn a_failed_request_never_reaches_the_api_server() {
    let mut bed = Bed::start().await;
    let failure = Failure::http(429, "too many").retry_after(7);
    bed.rules.add(Rule::new(leases(), Action::Fail(failure)).first(2).named("storm"));
    for protocol in PROTOCOLS {
        let client = bed.client(protocol).await;
        let failed = reply(client.send(request("PUT", LEASE, &[], "{}"))).await.unwrap();
        assert_eq!((failed.status.as_u16(), &failed.headers["retry-after"]), (429, &"7".parse().unwrap()));
        let status = failed.json();
        assert_eq!((&status["kind"], &status["reason"]), (&json!("Status"), &json!("TooManyRequests")));
        assert_eq!((&status["message"], &status["code"]), (&json!("too many"), &json!(429)));
        let line = bed.last_line().await;
        assert_eq!((line.outcome, line.status), (Some(Outcome::Failed), Some(429)));
        assert_eq!(line.rule.as_deref(), Some("storm"));
        // Another verb, on the same connection.
        let sent = client.get(LEASE);
        bed.upstream.next().await.json(&json!({}));
        assert_eq!(reply(sent).await.unwrap().status, 200);
    }
    let client = bed.client("h2").await;
    let sent = client.send(request("PUT", LEASE, &[], "{}"));
    bed.upstream.next().await.json(&json!({}));
    assert_eq!(reply(sent).await.unwrap().status, 200);
}

#[tokio::test]
async fn a_request_can_fail_after_it_was_done() {
    let mut bed = Bed::start().await;
    let failure = Failure::http(504, "too late");
    let matcher = Matcher::path("/api/v1/nodes").verb("create").field("/metadata/name", "a");
    bed.rules.add(Rule::new(matcher, Action::FailAfter(failure)));
    let client = bed.client("h2").await;
    let json = [("content-type", "application/json")];
    for (name, status) in [("b", 200), ("a", 504)] {
        let body = json!({ "metadata": { "name": name } });
        let sent = client.send(request("POST", "/api/v1/nodes", &json, body.to_string()));
        let seen = bed.upstream.next().await;
        assert_eq!(seen.body, body.to_string());
        seen.json(&json!({ "done": name }));
        assert_eq!(reply(sent).await.unwrap().status.as_u16(), status);
    }
    let line = bed.last_line().await;
    assert_eq!((line.outcome, line.status), (Some(Outcome::FailedAfter), Some(504)));
    assert_eq!(line.response, Some(json!({ "done": "a" })));
}

#[tokio::test]
async fn a_dropped_request_hangs_until_the_client_gives_up() {
    let mut bed = Bed::start().await;
    let rule = bed.rules.add(Rule::new(leases(), Action::Drop));
    for (count, protocol) in [1, 2].into_iter().zip(PROTOCOLS) {
        let client = bed.client(protocol).await;
        let dropped = client.send(request("PUT", LEASE, &[], "{}"));
        while bed.rules.fired(rule) < count {
            tokio::task::yield_now().await;
        }
        assert!(!dropped.is_finished());
        // HTTP/2 forgets one request, HTTP/1.1 needs the connection closed.
        dropped.abort();
        client.connection.abort();
        let line = bed.last_line().await;
        assert_eq!((line.outcome, line.status), (Some(Outcome::GivenUp), None));
    }
    assert!(bed.upstream.nothing_came());
}

#[tokio::test]
async fn a_cut_takes_the_whole_connection_and_no_other() {
    let mut bed = Bed::start().await;
    bed.rules.add(Rule::new(leases(), Action::Cut(Cut::Now)));
    for protocol in PROTOCOLS {
        let (client, other) = (bed.client(protocol).await, bed.client(protocol).await);
        assert!(reply(client.send(request("PUT", LEASE, &[], "{}"))).await.is_err());
        client.closed().await;
        assert_eq!(bed.last_line().await.outcome, Some(Outcome::Cut));
        assert!(bed.upstream.nothing_came());
        let sent = other.get(LEASE);
        bed.upstream.next().await.json(&json!({}));
        assert_eq!(reply(sent).await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn a_watch_can_be_cut_after_some_events_or_bytes() {
    let mut bed = Bed::start().await;
    let watches = || Matcher::path("/api/v1/pods").verb("watch");
    bed.rules.add(Rule::new(watches(), Action::Cut(Cut::AfterEvents(2))).first(2));
    bed.rules.add(Rule::new(watches(), Action::Cut(Cut::AfterBytes(5))));
    for (expected, events) in [("{1}\n{2}\n", 2), ("{1}\n{", 1)] {
        for protocol in PROTOCOLS {
            let client = bed.client(protocol).await;
            let sent = client.get("/api/v1/pods?watch=1");
            let stream = bed.upstream.next().await.stream("application/json");
            let mut body = soon(sent).await.unwrap().unwrap().into_body();
            stream.send("{1}\n{2").await;
            stream.send("}\n{3}\n").await;
            let mut got = Vec::new();
            while let Some(Ok(piece)) = piece(&mut body).await {
                got.extend_from_slice(&piece);
            }
            assert_eq!(String::from_utf8(got).unwrap(), expected);
            client.closed().await;
            stream.gone().await;
            let line = bed.last_line().await;
            assert_eq!((line.outcome, line.events), (Some(Outcome::Cut), Some(events)));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gates_hold_requests_and_answers() {
    let mut bed = Bed::start().await;
    let (before, after) = (Gate::new(), Gate::new());
    bed.rules.add(Rule::new(leases(), Action::Hold(before.clone())).first(1));
    bed.rules.add(Rule::new(leases(), Action::HoldAnswer(after.clone())));
    let client = bed.client("h2").await;
    let sent = client.send(request("PUT", LEASE, &[], "{}"));
    before.wait_arrived(1, SOON).unwrap();
    assert!(bed.upstream.nothing_came());
    before.release();
    bed.upstream.next().await.json(&json!({ "first": 1 }));
    assert_eq!(reply(sent).await.unwrap().json(), json!({ "first": 1 }));

    let sent = client.send(request("PUT", LEASE, &[], "{}"));
    bed.upstream.next().await.json(&json!({ "second": 2 }));
    after.wait_arrived(1, SOON).unwrap();
    assert!(!sent.is_finished());
    after.release();
    assert_eq!(reply(sent).await.unwrap().json(), json!({ "second": 2 }));
}

#[tokio::test]
async fn a_delayed_request_is_answered_all_the_same() {
    let mut bed = Bed::start().await;
    let rule = bed.rules.add(Rule::new(leases(), Action::Delay(Duration::from_millis(1))));
    let client = bed.client("http/1.1").await;
    let sent = client.send(request("PUT", LEASE, &[], "{}"));
    bed.upstream.next().await.json(&json!({}));
    assert_eq!(reply(sent).await.unwrap().status, 200);
    assert_eq!(bed.rules.fired(rule), 1);
}
