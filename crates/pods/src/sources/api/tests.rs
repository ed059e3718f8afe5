//! Scenarios: pods in an API server in memory, and what the registry is told of them.

use std::time::Duration;

use crablet_apiserver::fake::{Effect, FakeApiServer, Where};
use crablet_host::fake::SimClock;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout_at};

use super::super::testing::Heard;
use super::super::{DesiredPod, PodUpdate};
use super::*;

struct Rig {
    api: Arc<FakeApiServer>,
    node_known: watch::Sender<bool>,
    updates: mpsc::Receiver<PodUpdate>,
    last: Vec<DesiredPod>,
    _tasks: JoinSet<()>,
}

impl Rig {
    /// The source has not been told of the Node yet.
    fn waiting() -> Self {
        let api = FakeApiServer::new(Arc::new(|| Timestamp::UNIX_EPOCH));
        let (sender, updates) = mpsc::channel(50);
        let clock = Arc::new(SimClock::starting_at(Timestamp::UNIX_EPOCH));
        let outlet = Outlet::new(sender, clock, Arc::new(Heard::default()));
        let mut tasks = JoinSet::new();
        let cluster = Cluster::start(api.clone(), "n1", &mut tasks);
        let (node_known, known) = watch::channel(false);
        let source =
            ApiSource { api: api.clone(), node_name: "n1".to_owned(), cluster, node_known: known, seed: 7 };
        tasks.spawn(source.run(outlet));
        Self { api, node_known, updates, last: Vec::new(), _tasks: tasks }
    }

    /// At work, with no pods.
    async fn at_work() -> Self {
        let mut rig = Self::waiting();
        rig.node_known.send_replace(true);
        assert_eq!(rig.told().await, ["Add"], "it has spoken");
        rig
    }

    /// The updates until nothing comes for a second: `Add web`.
    async fn told(&mut self) -> Vec<String> {
        self.told_within(Duration::from_secs(1)).await
    }

    async fn told_within(&mut self, time: Duration) -> Vec<String> {
        let end = tokio::time::Instant::now() + time;
        let mut lines = Vec::new();
        while let Ok(Some(update)) = timeout_at(end, self.updates.recv()).await {
            assert_eq!(update.source, Source::Api);
            let names: Vec<_> = update.pods.iter().map(|pod| &*pod.id.name).collect();
            lines.push(format!("{:?} {}", update.op, names.join(" ")).trim_end().to_owned());
            self.last = update.pods;
        }
        lines
    }

    fn last_pod(&self) -> Value {
        serde_json::from_slice(&self.last[0].json).expect("a pod")
    }
}

fn pod(name: &str, image: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": image}]},
    })
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_before_the_node_has_been_looked_for() {
    let mut rig = Rig::waiting();
    rig.api.put("pods", pod("web", "a"));
    assert!(rig.told_within(Duration::from_secs(600)).await.is_empty());
    assert!(rig.api.calls().is_empty());
    rig.node_known.send_replace(true);
    assert_eq!(rig.told().await, ["Add web"]);
    let annotations = &rig.last_pod()["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/config.source"], "api");
    let seen = annotations["kubernetes.io/config.seen"].as_str().expect("a time");
    assert!(seen.starts_with("1970-01-01T00:10:0"), "{seen}");
}

#[tokio::test(start_paused = true)]
async fn a_pods_life_is_told_step_by_step() {
    let mut rig = Rig::at_work().await;
    let mut elsewhere = pod("other", "a");
    elsewhere["spec"]["nodeName"] = json!("n2");
    rig.api.put("pods", elsewhere);
    let mut unbound = pod("web", "a");
    unbound["spec"]["nodeName"] = json!("");
    rig.api.put("pods", unbound);
    assert_eq!(rig.told().await, [""; 0], "pods of others are nobody's business here");
    rig.api.put("pods", pod("web", "a"));
    assert_eq!(rig.told().await, ["Add web"]);
    rig.api.put("pods", pod("web", "b"));
    assert_eq!(rig.told().await, ["Update web"]);
    assert_eq!(rig.last_pod()["spec"]["containers"][0]["image"], "b");
    let mut running = pod("web", "b");
    running["status"] = json!({"phase": "Running"});
    rig.api.put("pods", running.clone());
    assert_eq!(rig.told().await, [""; 0], "what this agent wrote is no news");
    rig.api.delete_pod("shop", "web", Some(5)).expect("a deletion");
    assert_eq!(rig.told().await, ["Delete web"]);
    assert_eq!(rig.last_pod()["metadata"]["deletionGracePeriodSeconds"], 5);
    rig.api.delete_pod("shop", "web", Some(2)).expect("a deletion");
    assert_eq!(rig.told().await, ["Delete web"], "somebody is in a hurry");
    assert_eq!(rig.last_pod()["metadata"]["deletionGracePeriodSeconds"], 2);
    rig.api.delete("pods", "shop", "web");
    assert_eq!(rig.told().await, ["Remove web"]);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_somebody_else_declares_is_news() {
    let mut rig = Rig::at_work().await;
    rig.api.put("pods", pod("web", "a"));
    rig.told().await;
    let mut failed = pod("web", "a");
    failed["status"] = json!({"phase": "Failed", "reason": "DeadlineExceeded"});
    rig.api.put("pods", failed);
    assert_eq!(rig.told().await, ["Reconcile web"]);
    assert_eq!(rig.last_pod()["status"]["phase"], "Failed");
}

#[tokio::test(start_paused = true)]
async fn what_others_say_at_a_readiness_gate_is_news() {
    let mut rig = Rig::at_work().await;
    let gated = |conditions: serde_json::Value| {
        let mut pod = pod("web", "a");
        pod["spec"]["readinessGates"] = json!([{"conditionType": "example.com/gate"}]);
        pod["status"] = json!({"phase": "Running", "conditions": conditions});
        pod
    };
    let (ready, gate) = (
        json!({"type": "Ready", "status": "False"}),
        |status: &str| json!({"type": "example.com/gate", "status": status}),
    );
    rig.api.put("pods", gated(json!([])));
    rig.told().await;
    rig.api.put("pods", gated(json!([ready])));
    assert_eq!(rig.told().await, [""; 0], "what this agent wrote is no news");
    for status in ["False", "True"] {
        rig.api.put("pods", gated(json!([ready, gate(status)])));
        assert_eq!(rig.told().await, ["Reconcile web"]);
        assert_eq!(rig.last_pod()["status"]["conditions"][1]["status"], status);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_pod_that_shrinks_has_given_back_is_news() {
    let mut rig = Rig::at_work().await;
    let requests = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let sized = |asks: &str, has: &str| {
        let mut pod = pod("web", "a");
        pod["spec"]["containers"][0]["resources"] = requests(asks);
        pod["status"] = json!({"containerStatuses": [{"name": "c", "image": "a", "imageID": "", "ready": true,
            "restartCount": 0, "resources": requests(has)}]});
        pod
    };
    rig.api.put("pods", sized("300m", "300m"));
    rig.told().await;
    rig.api.put("pods", sized("100m", "300m"));
    assert_eq!(rig.told().await, ["Update web"]);
    rig.api.put("pods", sized("100m", "100m"));
    assert_eq!(rig.told().await, ["Reconcile web"]);
    let status = &rig.last_pod()["status"]["containerStatuses"][0];
    assert_eq!(status["resources"]["requests"]["cpu"], "100m");
}

#[tokio::test(start_paused = true)]
async fn a_pod_made_again_under_its_name_is_another_pod() {
    let mut rig = Rig::at_work().await;
    let first = rig.api.put("pods", pod("web", "a"))["metadata"]["uid"].clone();
    rig.told().await;
    rig.api.delete("pods", "shop", "web");
    rig.api.put("pods", pod("web", "a"));
    assert_eq!(rig.told().await, ["Remove web", "Add web"]);
    assert_ne!(json!(rig.last[0].id.uid), first);
    // The same while the watch was broken and its history lost.
    rig.api.break_watches();
    rig.api.delete("pods", "shop", "web");
    rig.api.put("pods", pod("web", "a"));
    rig.api.expire_versions();
    assert_eq!(rig.told_within(Duration::from_secs(60)).await, ["Remove web", "Add web"]);
}

#[tokio::test(start_paused = true)]
async fn mirrors_are_no_pods_to_run() {
    let mut rig = Rig::waiting();
    let mut mirror = pod("etcd-n1", "a");
    mirror["metadata"]["annotations"] =
        json!({"kubernetes.io/config.mirror": "h1", "kubernetes.io/config.source": "file"});
    rig.api.put("pods", mirror.clone());
    rig.node_known.send_replace(true);
    assert_eq!(rig.told().await, ["Add"]);
    mirror["metadata"]["labels"] = json!({"a": "b"});
    rig.api.put("pods", mirror.clone());
    rig.api.delete("pods", "shop", "etcd-n1");
    mirror["metadata"]["name"] = json!("late-n1");
    rig.api.put("pods", mirror);
    assert_eq!(rig.told().await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_understood_holds_up_no_other() {
    let mut rig = Rig::waiting();
    let odd = || json!({"metadata": {"name": "odd", "namespace": "shop"}, "spec": {"nodeName": "n1", "containers": "x"}});
    rig.api.put("pods", odd());
    rig.api.put("pods", pod("web", "a"));
    rig.node_known.send_replace(true);
    assert_eq!(rig.told().await, ["Add web"]);
    let mut spoilt = odd();
    spoilt["metadata"]["name"] = json!("web");
    rig.api.put("pods", spoilt);
    rig.api.put("pods", pod("db", "a"));
    assert_eq!(rig.told().await, ["Add db"], "what runs of the other goes on");
    rig.api.put("pods", pod("web", "b"));
    rig.api.put("pods", pod("odd", "a"));
    assert_eq!(rig.told().await, ["Update web", "Add odd"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_understood_any_more_goes_when_it_is_deleted() {
    let mut rig = Rig::at_work().await;
    rig.api.put("pods", pod("web", "a"));
    assert_eq!(rig.told().await, ["Add web"]);
    let mut spoilt = pod("web", "a");
    spoilt["spec"]["containers"] = json!("x");
    rig.api.put("pods", spoilt);
    assert_eq!(rig.told().await, [""; 0]);
    rig.api.delete("pods", "shop", "web");
    assert_eq!(rig.told().await, ["Remove web"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_asks_for_too_much_comes_with_the_reason() {
    let mut rig = Rig::at_work().await;
    let mut asking = pod("web", "a");
    asking["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "gpu"}]);
    rig.api.put("pods", asking);
    assert_eq!(rig.told().await, ["Add web"]);
    let refused = rig.last[0].refused.as_deref().expect("a refusal");
    assert!(refused.contains("spec.resourceClaims"), "{refused}");
    rig.api.put("pods", pod("db", "a"));
    rig.told().await;
    assert_eq!(rig.last[0].refused, None);
}

#[tokio::test(start_paused = true)]
async fn pods_stay_during_an_outage_and_the_rest_is_told_after_it() {
    for history_is_lost in [false, true] {
        let mut rig = Rig::at_work().await;
        for name in ["gone", "kept"] {
            rig.api.put("pods", pod(name, "a"));
        }
        rig.told().await;
        rig.api.outage();
        rig.api.delete("pods", "shop", "gone");
        rig.api.put("pods", pod("new", "a"));
        assert!(rig.told_within(Duration::from_secs(3600)).await.is_empty());
        let tries = rig.api.take_calls().len();
        assert!(tries < 400, "{tries} tries in an hour");
        if history_is_lost {
            rig.api.expire_versions();
        }
        rig.api.clear_faults();
        let told = rig.told_within(Duration::from_secs(120)).await;
        assert_eq!(told, ["Remove gone", "Add new"], "{history_is_lost}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_at_the_start_is_waited_for() {
    let mut rig = Rig::waiting();
    rig.api.set_streaming_lists(false);
    rig.api.put("pods", pod("web", "a"));
    rig.api.fault_times(Where::anywhere(), Effect::Fail(503), 4);
    rig.node_known.send_replace(true);
    let first = rig.told().await;
    assert!(first.is_empty(), "a source that could not ask has not spoken: {first:?}");
    assert_eq!(rig.told_within(Duration::from_secs(120)).await, ["Add web"]);
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(rig.api.watches("pods"), 1);
    rig.api.put("pods", pod("web", "b"));
    assert_eq!(rig.told().await, ["Update web"]);
    assert_eq!(rig.last_pod()["spec"]["containers"][0]["image"], "b");
}
