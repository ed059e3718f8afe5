//! Scenarios: what workers publish and what the API server has, and what is said to it.

mod endings;
mod trouble;

use crablet_apiserver::fake::{Asked, Effect, FakeApiServer, Recorded, Where};
use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::*;

/// The agent's side of an API server that holds pods.
struct Rig {
    api: Arc<FakeApiServer>,
    statuses: Arc<Statuses>,
    _tasks: JoinSet<()>,
}

impl Rig {
    fn new() -> Self {
        let api = FakeApiServer::new(Arc::new(|| Timestamp::UNIX_EPOCH));
        let port: Arc<dyn ApiServer> = api.clone();
        Self::over(api, port)
    }

    fn over(api: Arc<FakeApiServer>, port: Arc<dyn ApiServer>) -> Self {
        let (statuses, mut tasks) = (Arc::new(Statuses::default()), JoinSet::new());
        tasks.spawn(statuses.clone().run(port));
        Self { api, statuses, _tasks: tasks }
    }

    /// A pod of this node, which the agent has seen.
    fn pod(&self, name: &str) -> PodRef {
        self.api.put("pods", pod(name));
        self.show(name)
    }

    /// The watch tells of the pod as it is now.
    fn show(&self, name: &str) -> PodRef {
        let pod = self.api.get("pods", "shop", name).expect("the pod");
        self.tell(&pod)
    }

    fn tell(&self, pod: &Value) -> PodRef {
        let pod: api::Pod = serde_json::from_value(pod.clone()).expect("a pod");
        let id = PodRef::of(&pod);
        let is_mirror =
            pod.metadata.annotations.iter().flatten().any(|(key, _)| key == "kubernetes.io/config.mirror");
        self.statuses.seen(&id, ApiCopy::of(&pod, is_mirror));
        id
    }

    fn publish(&self, id: &PodRef, status: Value) {
        self.say(id, false, status, false);
    }

    fn say(&self, id: &PodRef, is_static: bool, status: Value, released: bool) {
        let decoded: api::PodStatus = serde_json::from_value(status.clone()).expect("a status");
        let json: Arc<[u8]> = status.to_string().into_bytes().into();
        self.statuses.publish(id, is_static, &decoded, &json, released);
    }

    fn status(&self, name: &str) -> Value {
        self.api.get("pods", "shop", name).expect("the pod")["status"].clone()
    }

    /// What was said since the last time: verb and name, `delete web`.
    fn said(&self) -> Vec<String> {
        self.api.take_calls().iter().map(line).collect()
    }
}

fn line(call: &Recorded) -> String {
    let path = call.path.strip_prefix("/api/v1/namespaces/shop/pods/").expect("a pod of the shop");
    match (call.asked, path.strip_suffix("/status")) {
        (Asked::Call(Verb::StrategicPatch), Some(name)) => format!("patch {name}"),
        (Asked::Call(Verb::Delete), None) => format!("delete {path}"),
        other => panic!("{other:?} {path}"),
    }
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "shop"}, "spec": {"nodeName": "n1", "containers": []}})
}

/// Everything that can happen now has happened.
async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

async fn seconds(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn the_newest_status_wins_and_one_patch_per_pod_is_under_way() {
    let rig = Rig::new();
    let (web, db) = (rig.pod("web"), rig.pod("db"));
    rig.api.fault(Where::path("/web/status"), Effect::Slow(Duration::from_secs(5)));
    rig.publish(&web, json!({"phase": "Pending", "message": "1"}));
    settle().await;
    for message in ["2", "3", "4"] {
        rig.publish(&web, json!({"phase": "Running", "message": message}));
        settle().await;
    }
    rig.publish(&db, json!({"phase": "Running"}));
    settle().await;
    assert_eq!(rig.said(), ["patch web", "patch db"], "a slow pod holds up no other");
    seconds(20).await;
    assert_eq!(rig.said(), ["patch web"], "what was overtaken is never sent");
    assert_eq!(rig.status("web"), json!({"phase": "Running", "message": "4"}));
    assert_eq!(rig.status("db"), json!({"phase": "Running"}));
}

#[tokio::test(start_paused = true)]
async fn what_somebody_waits_for_goes_first_and_calls_are_bounded() {
    let rig = Rig::new();
    let pods: Vec<PodRef> = (0..30).map(|n| rig.pod(&format!("p{n:02}"))).collect();
    rig.api.fault(Where::anywhere(), Effect::Slow(Duration::from_secs(1)));
    for id in &pods {
        rig.publish(id, json!({"phase": "Running"}));
    }
    rig.publish(&pods[28], json!({"phase": "Failed"}));
    rig.say(&pods[29], false, json!({"phase": "Succeeded"}), true);
    settle().await;
    let first = rig.said();
    assert_eq!(first[..2], ["patch p29", "patch p28"]);
    assert_eq!(first.len(), IN_FLIGHT);
    seconds(60).await;
    assert_eq!(first.len() + rig.said().len(), 30);
    assert!(pods[..28].iter().all(|id| rig.status(&id.name) == json!({"phase": "Running"})));
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_has_is_not_sent() {
    let rig = Rig::new();
    let theirs = json!({
        "phase": "Running", "startTime": "1970-01-01T00:00:00Z", "qosClass": "BestEffort", "message": "",
        "conditions": [
            {"type": "example.com/gate", "status": "True"},
            {"type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": "1970-01-01T00:00:00Z"},
        ],
    });
    let mut known = pod("web");
    known["status"] = theirs.clone();
    rig.api.put("pods", known);
    let web = rig.show("web");
    let ours = json!({
        "phase": "Running", "startTime": "1970-01-01T00:00:00Z",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z"}],
    });
    rig.publish(&web, ours.clone());
    seconds(3600).await;
    assert!(rig.said().is_empty(), "a restarted agent has nothing to say");

    let mut ready = ours;
    ready["conditions"][0]["status"] = json!("False");
    rig.publish(&web, ready.clone());
    settle().await;
    let calls = rig.api.take_calls();
    let body = json!({"metadata": {"uid": web.uid}, "status": {"conditions": [ready["conditions"][0]]}});
    assert_eq!((calls.len(), calls[0].json()), (1, body), "only what differs, for this pod only");
    let mut expected = theirs;
    expected["conditions"][1]["status"] = json!("False");
    assert_eq!(rig.status("web"), expected, "what others wrote stays");
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_changed_is_put_right() {
    let rig = Rig::new();
    let web = rig.pod("web");
    rig.publish(&web, json!({"phase": "Running", "podIP": "10.0.0.7"}));
    settle().await;
    let mut meddled = pod("web");
    meddled["status"] = json!({"phase": "Running", "podIP": "10.9.9.9"});
    rig.api.put("pods", meddled);
    rig.show("web");
    settle().await;
    assert_eq!(rig.said(), ["patch web", "patch web"]);
    assert_eq!(rig.status("web"), json!({"phase": "Running", "podIP": "10.0.0.7"}));
}

#[tokio::test(start_paused = true)]
async fn a_stale_event_does_not_hide_a_newer_answer() {
    let rig = Rig::new();
    let web = rig.pod("web");
    let before = rig.api.get("pods", "shop", "web").expect("the pod");
    rig.publish(&web, json!({"phase": "Running"}));
    settle().await;
    rig.tell(&before);
    settle().await;
    assert_eq!(rig.said(), ["patch web"], "what was written is not written again");
    rig.publish(&web, json!({"phase": "Pending"}));
    settle().await;
    assert_eq!(rig.status("web"), json!({"phase": "Pending"}), "it differs from what is there now");
}

#[tokio::test(start_paused = true)]
async fn another_pod_of_the_same_name_is_never_patched() {
    let rig = Rig::new();
    let old = rig.pod("web");
    rig.publish(&old, json!({"phase": "Running"}));
    settle().await;
    rig.said();
    rig.api.delete("pods", "shop", "web");
    let new = rig.pod("web");
    rig.publish(&old, json!({"phase": "Failed"}));
    seconds(60).await;
    assert!(rig.said().is_empty(), "the agent knows that the old pod is gone");
    rig.publish(&new, json!({"phase": "Pending", "reason": "new"}));
    settle().await;
    assert_eq!(rig.status("web"), json!({"phase": "Pending", "reason": "new"}));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_replaced_during_a_patch_is_safe_and_is_told_of() {
    for told_before_the_answer in [true, false] {
        let rig = Rig::new();
        let old = rig.pod("web");
        rig.api.fault_times(Where::path("/web/status"), Effect::Slow(Duration::from_secs(2)), 1);
        rig.publish(&old, json!({"phase": "Failed"}));
        settle().await;
        rig.api.delete("pods", "shop", "web");
        let new = rig.api.put("pods", pod("web"));
        if told_before_the_answer {
            rig.tell(&new);
        }
        seconds(5).await;
        assert_eq!(rig.status("web"), json!({"phase": "Pending"}));
        let new = if told_before_the_answer { PodRef::of(&decoded(&new)) } else { rig.show("web") };
        rig.publish(&new, json!({"phase": "Running"}));
        settle().await;
        assert_eq!(rig.status("web"), json!({"phase": "Running"}), "{told_before_the_answer}");
        assert_eq!(rig.said(), ["patch web", "patch web"]);
    }
}

fn decoded(pod: &Value) -> api::Pod {
    serde_json::from_value(pod.clone()).expect("a pod")
}

#[tokio::test(start_paused = true)]
async fn a_static_pods_status_goes_to_its_mirror() {
    let rig = Rig::new();
    let id = PodRef::new("web-n1", "shop", "5tat1c");
    let running = json!({"phase": "Running"});
    rig.say(&id, true, running.clone(), false);
    settle().await;
    // A pod that somebody else made under the name is not a mirror.
    rig.pod("web-n1");
    settle().await;
    assert!(rig.said().is_empty());
    rig.api.delete("pods", "shop", "web-n1");
    for _ in 0..2 {
        let mut mirror = pod("web-n1");
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "h1"});
        let uid = rig.api.put("pods", mirror)["metadata"]["uid"].clone();
        let mirror = rig.show("web-n1");
        settle().await;
        let calls = rig.api.take_calls();
        assert_eq!(calls.len(), 1);
        assert_eq!(calls[0].json(), json!({"metadata": {"uid": uid}, "status": running}));
        assert_eq!(rig.status("web-n1"), running);
        rig.api.delete("pods", "shop", "web-n1");
        rig.statuses.gone(&mirror);
        settle().await;
        assert!(rig.said().is_empty(), "without a mirror there is nobody to tell");
    }
}

#[tokio::test(start_paused = true)]
async fn a_mirror_that_is_replaced_during_a_patch_gets_the_same_status() {
    for told_before_the_answer in [true, false] {
        let rig = Rig::new();
        let id = PodRef::new("web-n1", "shop", "5tat1c");
        let mut mirror = pod("web-n1");
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "h1"});
        rig.api.put("pods", mirror.clone());
        rig.show("web-n1");
        rig.api.fault_times(Where::path("/web-n1/status"), Effect::Slow(Duration::from_secs(2)), 1);
        let running = json!({"phase": "Running"});
        rig.say(&id, true, running.clone(), false);
        settle().await;
        // Its manifest was edited: another mirror takes its place before the patch arrives.
        rig.api.delete("pods", "shop", "web-n1");
        rig.api.put("pods", mirror);
        if told_before_the_answer {
            rig.show("web-n1");
        }
        seconds(5).await;
        if !told_before_the_answer {
            rig.show("web-n1");
            settle().await;
        }
        assert_eq!(rig.status("web-n1"), running, "{told_before_the_answer}");
        assert_eq!(rig.said(), ["patch web-n1", "patch web-n1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_forgotten_is_not_spoken_of() {
    let rig = Rig::new();
    let (web, db) = (rig.pod("web"), rig.pod("db"));
    rig.publish(&web, json!({"phase": "Failed"}));
    rig.statuses.forget(&web.uid);
    settle().await;
    assert!(rig.said().is_empty());
    // One that comes back while its last word is on the way waits for the answer.
    rig.api.fault_times(Where::path("/db/status"), Effect::Slow(Duration::from_secs(3)), 1);
    rig.publish(&db, json!({"phase": "Failed"}));
    settle().await;
    rig.statuses.forget(&db.uid);
    rig.publish(&db, json!({"phase": "Running"}));
    settle().await;
    assert_eq!(rig.said(), ["patch db"]);
    seconds(10).await;
    assert_eq!(rig.status("db"), json!({"phase": "Running"}));
}
