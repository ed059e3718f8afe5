use std::time::Duration;

use futures_util::StreamExt;

use super::*;
use crate::port::{Change, ErrorKind, Verb, WatchEvent};
use serde_json::json;

fn now() -> Now {
    Arc::new(|| Timestamp::from_second(1_700_000_000).unwrap())
}

fn pod(name: &str, node: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "ns"}, "spec": {"nodeName": node, "containers": []}})
}

async fn call(api: &FakeApiServer, verb: Verb, path: &str, body: Value) -> Result<Value, ApiError> {
    let call = Call::new(verb, Lane::Main, path).with_body(body.to_string());
    Ok(serde_json::from_slice(&api.call(call).await?).unwrap())
}

async fn watch(api: &FakeApiServer, path: &str) -> WatchStream {
    api.watch(WatchCall { path: path.to_owned(), lane: Lane::Main }).await.unwrap()
}

/// What is in the stream now: a letter for the change, and the object's name.
fn waiting(stream: &mut WatchStream) -> Vec<String> {
    let mut seen = Vec::new();
    while let Some(Some(line)) = futures_util::FutureExt::now_or_never(stream.next()) {
        seen.push(match line {
            Ok(WatchEvent { change, object }) => {
                let object: Value = serde_json::from_slice(&object).unwrap();
                format!("{change:?} {}", object["metadata"]["name"].as_str().unwrap_or_default())
            }
            Err(error) => format!("{:?}", error.kind),
        });
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn a_watch_with_a_selector_sees_objects_come_into_its_view_and_leave_it() {
    let api = FakeApiServer::new(now());
    api.put("pods", pod("old", "n1"));
    let mut stream =
        watch(&api, "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true").await;
    assert_eq!(waiting(&mut stream), ["Added old", "Bookmark "]);
    api.put("pods", pod("p", ""));
    api.put("pods", pod("other", "n2"));
    assert!(waiting(&mut stream).is_empty());
    api.put("pods", pod("p", "n1"));
    api.put("pods", json!({"metadata": {"name": "p", "namespace": "ns", "labels": {"a": "b"}}, "spec": {"nodeName": "n1"}}));
    api.delete("pods", "ns", "p");
    assert_eq!(waiting(&mut stream), ["Added p", "Modified p", "Deleted p"]);
    api.close_watches();
    assert!(stream.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_from_a_version_until_that_is_too_old() {
    let api = FakeApiServer::new(now());
    api.put("pods", pod("a", "n"));
    let list = call(&api, Verb::Get, "/api/v1/pods", Value::Null).await.unwrap();
    assert_eq!(list["items"][0].get("kind"), None);
    let version = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    api.put("pods", pod("b", "n"));
    let path = format!(
        "/api/v1/namespaces/ns/pods?resourceVersion={version}&timeoutSeconds=10&allowWatchBookmarks=true"
    );
    let mut stream = watch(&api, &path).await;
    assert_eq!(waiting(&mut stream), ["Added b"]);
    assert_eq!(stream.next().await.unwrap().unwrap().change, Change::Bookmark);
    assert!(stream.next().await.is_none());
    api.expire_versions();
    assert_eq!(waiting(&mut watch(&api, &path).await), ["Gone"]);
}

#[tokio::test(start_paused = true)]
async fn pods_are_deleted_in_two_steps_and_the_uid_guards_both() {
    let api = FakeApiServer::new(now());
    let uid = api.put("pods", pod("p", "n"))["metadata"]["uid"].clone();
    let path = "/api/v1/namespaces/ns/pods/p";
    api.delete_pod("ns", "p", None).unwrap();
    let dying = api.get("pods", "ns", "p").unwrap();
    assert_eq!(dying["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(dying["metadata"]["deletionTimestamp"], "2023-11-14T22:13:50Z");
    assert_eq!(dying["metadata"]["generation"], 2);
    let labelled =
        json!({"metadata": {"name": "p", "namespace": "ns", "labels": {"a": "b"}}, "spec": dying["spec"]});
    let labelled = api.put("pods", labelled);
    assert_eq!(labelled["metadata"]["deletionGracePeriodSeconds"], 30, "nobody brings a pod back to life");
    assert_eq!(labelled["status"]["phase"], "Pending");
    let wrong =
        call(&api, Verb::StrategicPatch, &format!("{path}/status"), json!({"metadata": {"uid": "x"}})).await;
    let wrong = wrong.unwrap_err();
    assert_eq!((wrong.kind, wrong.is_about_another()), (ErrorKind::Invalid, true), "{wrong}");
    let wrong = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": "x"}});
    assert_eq!(call(&api, Verb::Delete, path, wrong).await.unwrap_err().kind, ErrorKind::Conflict);
    let last = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
    call(&api, Verb::Delete, path, last).await.unwrap();
    assert!(api.pods().is_empty());
    assert!(call(&api, Verb::Get, path, Value::Null).await.unwrap_err().is_not_found());
}

#[tokio::test(start_paused = true)]
async fn the_status_subresource_changes_nothing_but_status_and_the_rest_never_changes_it() {
    let api = FakeApiServer::new(now());
    api.put("pods", pod("p", "n"));
    let path = "/api/v1/namespaces/ns/pods/p";
    let body = json!({"spec": {"nodeName": "other"}, "status": {"phase": "Running"}});
    let patched = call(&api, Verb::StrategicPatch, &format!("{path}/status"), body.clone()).await.unwrap();
    assert_eq!((&patched["spec"]["nodeName"], &patched["status"]["phase"]), (&json!("n"), &json!("Running")));
    let version = patched["metadata"]["resourceVersion"].clone();
    let again = call(&api, Verb::StrategicPatch, &format!("{path}/status"), body).await.unwrap();
    assert_eq!(again["metadata"]["resourceVersion"], version, "a patch that changes nothing is no change");
    let labelled = call(
        &api,
        Verb::MergePatch,
        path,
        json!({"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Failed"}}),
    );
    let labelled = labelled.await.unwrap();
    assert_eq!(
        (&labelled["metadata"]["labels"]["a"], &labelled["status"]["phase"]),
        (&json!("b"), &json!("Running"))
    );
    let stale = json!({"metadata": {"name": "p", "resourceVersion": version}});
    assert_eq!(call(&api, Verb::Put, path, stale).await.unwrap_err().kind, ErrorKind::Conflict);
}

#[tokio::test(start_paused = true)]
async fn weather_strikes_what_it_covers_and_as_often_as_it_was_told() {
    let api = FakeApiServer::new(now());
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let lease = json!({"metadata": {"name": "n"}, "spec": {}});
    api.fault_times(Where::call(Verb::Post, "/leases"), Effect::LostAnswer, 1);
    assert_eq!(call(&api, Verb::Post, leases, lease.clone()).await.unwrap_err().kind, ErrorKind::TimedOut);
    assert_eq!(
        call(&api, Verb::Post, leases, lease.clone()).await.unwrap_err().kind,
        ErrorKind::AlreadyExists
    );
    api.fault_times(Where::path("/leases/n"), Effect::Fail(503), 2);
    for kind in [Some(ErrorKind::Server), Some(ErrorKind::Server), None] {
        assert_eq!(
            call(&api, Verb::Get, &format!("{leases}/n"), Value::Null).await.err().map(|e| e.kind),
            kind
        );
    }
    let mut stream = watch(&api, "/api/v1/pods").await;
    api.outage();
    assert_eq!(waiting(&mut stream), ["Unreachable"]);
    assert_eq!(call(&api, Verb::Get, leases, Value::Null).await.unwrap_err().kind, ErrorKind::Unreachable);
    api.clear_faults();
    api.fault(Where::anywhere(), Effect::Slow(Duration::from_secs(60)));
    assert_eq!(call(&api, Verb::Get, leases, Value::Null).await.unwrap_err().kind, ErrorKind::TimedOut);
    assert_eq!(api.calls().len(), 8);
    assert_eq!(api.take_calls()[0].json(), lease);
}

#[tokio::test(start_paused = true)]
async fn tokens_are_for_pods_that_exist() {
    let api = FakeApiServer::new(now());
    let uid = api.put("pods", pod("p", "n"))["metadata"]["uid"].clone();
    let path = "/api/v1/namespaces/ns/serviceaccounts/default/token";
    let bound = |uid: &Value| json!({"spec": {"expirationSeconds": 600, "boundObjectRef": {"kind": "Pod", "name": "p", "uid": uid}}});
    let token = call(&api, Verb::Post, path, bound(&uid)).await.unwrap();
    assert!(token["status"]["token"].as_str().unwrap().starts_with("fake-token-ns-default-"));
    assert_eq!(token["status"]["expirationTimestamp"], "2023-11-14T22:23:20Z");
    assert_eq!(call(&api, Verb::Post, path, bound(&json!("x"))).await.unwrap_err().kind, ErrorKind::Conflict);
    api.delete("pods", "ns", "p");
    assert!(call(&api, Verb::Post, path, bound(&uid)).await.unwrap_err().is_not_found());
}

#[test]
fn an_object_of_the_whole_cluster_never_gets_a_namespace() {
    let api = FakeApiServer::new(now());
    let first = api.put("nodes", json!({"metadata": {"name": "n"}}));
    let second = api.put("nodes", json!({"metadata": {"name": "n", "labels": {"a": "b"}}}));
    assert_eq!(first["metadata"]["uid"], second["metadata"]["uid"]);
    assert_eq!(second["metadata"].get("namespace"), None);
}
