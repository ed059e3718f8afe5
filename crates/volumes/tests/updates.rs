//! Volumes follow what they show, without anybody asking.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{Agent, UID, pod};
use crablet_apiserver::{ObjectKey, ObjectKind};
use crablet_host::fake::{FileFault, FileFaultKind};
use crablet_model::PodRef;
use crablet_volumes::fake::FakeVolumeHost;
use serde_json::json;

const ROOT: &str = "/r";

fn start() -> (Agent, FakeVolumeHost) {
    let host = FakeVolumeHost::default();
    (Agent::start(Path::new(ROOT), Arc::new(host.clone())), host)
}

fn path(plugin: &str, file: &str) -> String {
    format!("{ROOT}/pods/{UID}/volumes/kubernetes.io~{plugin}/v/{file}")
}

/// Time is paused: it passes only when nothing else is left to do.
async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_changed_object_is_shown_within_a_second() {
    let (agent, host) = start();
    agent.objects.config_map("map", json!({ "a": "1", "b": "x" }));
    let pod = pod(json!([{ "name": "v", "configMap": { "name": "map", "defaultMode": 0o644 } }]));
    agent.volumes.set_up(&pod).await.unwrap();
    agent.objects.config_map("map", json!({ "a": "2" }));
    pass(1).await;
    assert_eq!(host.content(path("configmap", "a")).unwrap(), b"2");
    assert_eq!(host.content(path("configmap", "b")), None);
    // Taken down, it is left alone.
    agent.volumes.tear_down(&PodRef::of(&pod)).await.unwrap();
    agent.objects.config_map("map", json!({ "a": "3" }));
    pass(1).await;
    assert_eq!(host.content(path("configmap", "a")), None);
}

#[tokio::test(start_paused = true)]
async fn an_optional_object_is_shown_when_it_appears_even_if_changes_were_lost() {
    let (agent, host) = start();
    let pod = pod(
        json!([{ "name": "v", "secret": { "secretName": "s", "defaultMode": 0o644, "optional": true } }]),
    );
    agent.volumes.set_up(&pod).await.unwrap();
    agent.objects.put(ObjectKind::Secret, "s", Some(json!({ "data": { "k": "eA==" } })));
    // More changes than the channel holds, before the task had a turn.
    for number in 0..20 {
        let name = Arc::from(format!("other-{number}"));
        let key = ObjectKey { kind: ObjectKind::Secret, namespace: Arc::from("ns"), name };
        agent.objects.tell_nobody(key);
    }
    pass(1).await;
    assert_eq!(host.content(path("secret", "k")).unwrap(), b"x");
}

#[tokio::test(start_paused = true)]
async fn a_changed_pod_is_shown() {
    let (agent, host) = start();
    let items = json!([{ "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" } }]);
    let mut pod = pod(json!([{ "name": "v", "downwardAPI": { "defaultMode": 0o644, "items": items } }]));
    agent.volumes.set_up(&pod).await.unwrap();
    assert_eq!(host.content(path("downward-api", "labels")).unwrap(), b"app=\"web\"");
    pod.metadata.labels = Some([("app".to_owned(), "db".to_owned())].into());
    agent.volumes.pod_changed(serde_json::to_vec(&pod).unwrap().into(), &PodRef::of(&pod));
    pass(1).await;
    assert_eq!(host.content(path("downward-api", "labels")).unwrap(), b"app=\"db\"");
}

#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_in_time_and_failures_are_said_and_retried() {
    let (agent, host) = start();
    let sources = json!([{ "serviceAccountToken": { "path": "token", "expirationSeconds": 3600 } }]);
    let pod = pod(json!([{ "name": "v", "projected": { "defaultMode": 0o644, "sources": sources } }]));
    agent.volumes.set_up(&pod).await.unwrap();
    let token = || String::from_utf8(host.content(path("projected", "token")).unwrap()).unwrap();
    pass(2870).await;
    assert_eq!(token(), "token-1");
    pass(20).await;
    assert_eq!(token(), "token-2");

    agent.objects.cluster.tokens.lock().unwrap().refused = true;
    pass(3600).await;
    assert_eq!(token(), "token-2", "the old one is better than none");
    let said = "FailedMount MountVolume.SetUp failed for volume \"v\" : failed to fetch token: forbidden";
    let told = agent.events.texts();
    assert!(told.iter().all(|text| text == said), "{told:?}");
    assert!((4..8).contains(&told.len()), "every two minutes in a quarter of an hour: {}", told.len());
    agent.objects.cluster.tokens.lock().unwrap().refused = false;
    pass(130).await;
    assert_eq!(token(), "token-3");
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_fails_is_tried_again_and_shows_the_last_change() {
    let (agent, host) = start();
    agent.objects.config_map("map", json!({ "a": "1" }));
    let pod = pod(json!([{ "name": "v", "configMap": { "name": "map", "defaultMode": 0o644 } }]));
    agent.volumes.set_up(&pod).await.unwrap();
    host.add_fault(FileFault::on("write_payload", "/v", FileFaultKind::Errno(5)).times(4));
    agent.objects.config_map("map", json!({ "a": "2" }));
    pass(1).await;
    assert_eq!(host.content(path("configmap", "a")).unwrap(), b"1", "what is shown stays");
    agent.objects.config_map("map", json!({ "a": "3" }));
    pass(30).await;
    assert_eq!(host.content(path("configmap", "a")).unwrap(), b"3");
    assert_eq!(agent.events.texts().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_change_during_the_set_up_is_shown_after_it() {
    let (agent, host) = start();
    agent.objects.config_map("map", json!({ "a": "1" }));
    let pod = pod(json!([{ "name": "v", "configMap": { "name": "map", "defaultMode": 0o644 } }]));
    let slow = FileFaultKind::Slow(Duration::from_secs(5));
    host.add_fault(FileFault::on("write_payload", "/v", slow).times(1));
    let set_up = agent.volumes.set_up(&pod);
    let change = async {
        pass(2).await;
        agent.objects.config_map("map", json!({ "a": "2" }));
    };
    tokio::join!(set_up, change).0.unwrap();
    pass(1).await;
    assert_eq!(host.content(path("configmap", "a")).unwrap(), b"2");
}

#[tokio::test(start_paused = true)]
async fn a_stuck_pod_delays_no_other() {
    let (agent, host) = start();
    agent.objects.config_map("map", json!({ "a": "1" }));
    let stuck = pod(json!([{ "name": "v", "configMap": { "name": "map", "defaultMode": 0o644 } }]));
    let mut other = stuck.clone();
    other.metadata.uid = Some("other".to_owned());
    agent.volumes.set_up(&stuck).await.unwrap();
    agent.volumes.set_up(&other).await.unwrap();
    host.add_fault(FileFault::on("write_payload", UID, FileFaultKind::Hang).times(1));
    agent.objects.config_map("map", json!({ "a": "2" }));
    pass(1).await;
    let of_other = path("configmap", "a").replace(UID, "other");
    assert_eq!(host.content(of_other).unwrap(), b"2");
    assert_eq!(host.content(path("configmap", "a")).unwrap(), b"1");
    pass(62).await;
    assert_eq!(host.content(path("configmap", "a")).unwrap(), b"2");
}
