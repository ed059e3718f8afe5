//! What the record says.

use crablet_proxy::{ApiKey, Salt};
use http::StatusCode;
use serde_json::{Value, json};

use super::support::*;

const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test]
async fn a_request_is_one_line_and_is_there_with_its_answer() {
    let mut bed = Bed::start().await;
    let client = bed.client("h2").await;
    let patch =
        [("content-type", "application/strategic-merge-patch+json"), ("user-agent", "kubelet/v1.36.4")];
    let path = "/api/v1/namespaces/ns/pods/web/status?fieldManager=kubelet";
    let sent = client.send(request("PATCH", path, &patch, r#"{"status":{"phase":"Running"}}"#));
    bed.upstream.next().await.json(&json!({ "kind": "Pod" }));
    reply(sent).await.unwrap();
    let log = bed.log();
    let mut line: Value = serde_json::from_str(log.trim_end()).unwrap();
    for changing in ["time", "duration_ms"] {
        assert!(line.as_object_mut().unwrap().remove(changing).is_some());
    }
    let expected = json!({
        "call": 1,
        "phase": "call",
        "user": NODE,
        "verb": "patch",
        "path": "/api/v1/namespaces/ns/pods/web/status",
        "query": "fieldManager=kubelet",
        "namespace": "ns",
        "resource": "pods",
        "subresource": "status",
        "name": "web",
        "user_agent": "kubelet/v1.36.4",
        "protocol": "HTTP/2.0",
        "request_body": { "content_type": "application/strategic-merge-patch+json", "bytes": 30 },
        "request": { "status": { "phase": "Running" } },
        "status": 200,
        "response_body": { "content_type": "application/json", "bytes": 14 },
        "response": { "kind": "Pod" },
        "outcome": "answered",
    });
    assert_eq!(line, expected);
}

#[tokio::test]
async fn requests_are_counted_by_who_and_what() {
    let mut bed = Bed::start().await;
    let (node, nobody) = (bed.client("h2").await, bed.connect("h2", None).await.unwrap());
    for client in [&node, &node, &nobody] {
        let sent = client.send(request("PATCH", "/api/v1/nodes/a/status", &[], ""));
        bed.upstream.next().await.json(&json!({}));
        reply(sent).await.unwrap();
    }
    let sent = node.get("/healthz");
    bed.upstream.next().await.answer(StatusCode::OK, "text/plain", "ok");
    reply(sent).await.unwrap();
    let key = |user: &str, verb: &str, resource: &str, subresource: &str| ApiKey {
        user: user.into(),
        verb: verb.into(),
        resource: resource.into(),
        subresource: subresource.into(),
    };
    let counts: Vec<_> = bed.record.counts().into_iter().collect();
    assert_eq!(
        counts,
        [
            (key("system:anonymous", "patch", "nodes", "status"), 1),
            (key(NODE, "get", "/healthz", ""), 1),
            (key(NODE, "patch", "nodes", "status"), 2),
        ]
    );
}

#[tokio::test]
async fn no_secret_is_ever_written() {
    let mut bed = Bed::start().await;
    let client = bed.connect("h2", None).await.unwrap();
    let bearer = ("authorization", "Bearer s3cret.s3cret");
    let secret = json!({ "kind": "Secret", "data": { "kept": "s3cret" } });
    for (method, path, content_type, body, answer) in [
        ("POST", "/api/v1/namespaces/a/secrets", "application/json", secret.clone(), secret.clone()),
        ("GET", "/api/v1/secrets", "", json!({}), json!({ "kind": "SecretList", "items": [secret] })),
        (
            "PATCH",
            "/api/v1/namespaces/a/secrets/b",
            "application/json-patch+json",
            json!([{ "op": "add", "path": "/data/kept", "value": "s3cret" }]),
            json!({}),
        ),
        (
            "POST",
            "/api/v1/namespaces/a/serviceaccounts/b/token",
            "application/json",
            json!({ "spec": { "audiences": ["kept"] } }),
            json!({ "status": { "token": "s3cret" } }),
        ),
        (
            "POST",
            "/apis/authentication.k8s.io/v1/tokenreviews",
            "application/json",
            json!({ "spec": { "token": "s3cret" } }),
            json!({ "kept": 1 }),
        ),
    ] {
        let headers = [bearer, ("content-type", content_type)];
        let sent = client.send(request(method, path, &headers, body.to_string()));
        bed.upstream.next().await.json(&answer);
        // The client gets it untouched.
        assert_eq!(reply(sent).await.unwrap().json(), answer);
    }
    let log = bed.log();
    assert_eq!((log.contains("s3cret"), log.matches("kept").count()), (false, 6), "{log}");
    assert!(log.contains(&Salt::new("test").hash(b"s3cret")));
}

#[tokio::test]
async fn what_is_no_json_is_recorded_by_its_length() {
    let mut bed = Bed::start().await;
    let client = bed.client("h2").await;
    let protobuf = "application/vnd.kubernetes.protobuf";
    let sent = client.send(request("POST", "/api/v1/nodes", &[("content-type", protobuf)], "k8s\0s3cret"));
    bed.upstream.next().await.answer(StatusCode::CREATED, protobuf, "k8s\0");
    assert_eq!(reply(sent).await.unwrap().body, "k8s\0");
    let line = bed.last_line().await;
    assert_eq!((line.request_body.content_type.as_str(), line.request_body.bytes), (protobuf, 10));
    let answer = line.response_body.as_ref().unwrap();
    assert_eq!((answer.content_type.as_str(), answer.bytes), (protobuf, 4));
    assert!(line.request.is_none() && line.response.is_none() && !bed.log().contains("s3cret"));

    // JSON that is none.
    let sent = client.send(request("POST", "/api/v1/nodes", &[JSON], "{s3cret"));
    bed.upstream.next().await.answer(StatusCode::BAD_REQUEST, "application/json", "");
    assert_eq!(reply(sent).await.unwrap().status, 400);
    assert!(!bed.log().contains("s3cret"));
}

#[tokio::test]
async fn events_of_a_protobuf_watch_are_counted() {
    let mut bed = Bed::start().await;
    let client = bed.client("h2").await;
    let sent = client.get("/api/v1/pods?watch=true");
    let stream = bed.upstream.next().await.stream("application/vnd.kubernetes.protobuf;stream=watch");
    stream.send(vec![0, 0, 0, 2, 1, 2, 0, 0, 0, 1]).await;
    stream.send(vec![9]).await;
    drop(stream);
    assert_eq!(reply(sent).await.unwrap().body.len(), 11);
    assert_eq!(bed.last_line().await.events, Some(2));
}
