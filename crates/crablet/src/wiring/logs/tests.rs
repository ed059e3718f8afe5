//! Logs of a container in a fake runtime, under paused time.

use std::collections::BTreeMap;

use crablet_cri::fake::{Call, FakeImage, FakeRuntime, RuntimeSettings, What};
use crablet_model::PodRef;
use crablet_planner::pod::config::{self, ContainerInputs, EnvObjects, Placement};
use crablet_planner::pod::{NodeFacts, PreparedImage};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::*;

const SOME_TIME: Duration = Duration::from_millis(5500);

struct World {
    runtime: FakeRuntime,
    logs: FoundLogs,
    pod: PodRef,
    /// Of the container `main`, which runs, as the API has it.
    id: String,
}

impl World {
    /// The API server knows that the container runs; this agent has not looked yet.
    async fn new() -> Self {
        let settings = RuntimeSettings { trace_reads: true, ..RuntimeSettings::default() };
        let random = fastrand::Rng::with_seed(7);
        let runtime = FakeRuntime::new(settings, random, Arc::new(|| Timestamp::UNIX_EPOCH));
        runtime.put_image("app:1", FakeImage::present());
        let mut pod = json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "uid-1"},
            "spec": {"containers": [{"name": "main"}]},
        });
        let id = format!("containerd://{}", start(&runtime, &pod).await);
        pod["status"] = status(&id, &running());
        let view = Arc::new(View::default());
        let reference = PodRef::new("web", "default", "uid-1");
        view.set_pod(&reference, Some(pod.to_string().into_bytes().into()), true);
        let logs = FoundLogs { view, runtime: Arc::new(runtime.clone()) };
        Self { runtime, logs, pod: reference, id }
    }

    async fn follow(&self) -> watch::Receiver<bool> {
        self.logs.find("default", "web", "main", false).await.expect("a log").ended
    }

    fn say(&self, status: Value) {
        let status = serde_json::from_value(status).expect("a status");
        self.logs.view.set_status(&self.pod, &status);
    }

    /// How often the runtime was asked for a container.
    fn asked(&self) -> usize {
        let is_it = |what: &What| matches!(what, What::Called { call: Call::ContainerStatus, .. });
        self.runtime.read_trace(|trace| trace.iter().filter(|entry| is_it(&entry.what)).count())
    }
}

async fn start(runtime: &FakeRuntime, pod: &Value) -> String {
    let pod: api::Pod = serde_json::from_value(pod.clone()).expect("a pod");
    let (node, placement) = (NodeFacts::default(), Placement::default());
    let (sandbox, _) = config::sandbox_config(&pod, &node, 0, &placement).expect("a configuration");
    let sandbox_id = runtime.run_sandbox(&sandbox).await.expect("a sandbox");
    let image = PreparedImage { image_ref: "app:1".into(), uid: None, username: String::new() };
    let spec = pod.spec.as_ref().expect("a specification");
    let (_, container) = roster::find(spec, "main").expect("a container");
    let inputs = ContainerInputs {
        objects: &EnvObjects::default(),
        volumes: &BTreeMap::new(),
        sub_paths: &BTreeMap::new(),
        pod: &pod,
        container: &container,
        attempt: 0,
        image: &image,
        node: &node,
        pod_ips: &[],
        etc_hosts: None,
        termination_file: None,
        target_id: None,
        placement: &placement,
        image_volumes: &BTreeMap::new(),
    };
    let config = config::container_config(&inputs).expect("a configuration");
    let id = runtime.create_container(&sandbox_id, &config, &sandbox).await.expect("a container");
    runtime.start_container(&id).await.expect("a start");
    id
}

fn running() -> Value {
    json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}})
}

fn terminated(id: &str) -> Value {
    json!({"terminated": {"exitCode": 0, "containerID": id}})
}

fn status(id: &str, state: &Value) -> Value {
    json!({"phase": "Running", "containerStatuses": [{
        "name": "main", "image": "app:1", "imageID": "", "ready": true, "restartCount": 0,
        "containerID": id, "state": state,
    }]})
}

async fn ends(ended: &mut watch::Receiver<bool>) -> bool {
    timeout(Duration::from_secs(3), ended.wait_for(|ended| *ended)).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_log_is_followed_while_an_agent_that_has_just_started_knows_nothing() {
    let world = World::new().await;
    let mut ended = world.follow().await;
    sleep(SOME_TIME).await;
    assert!(!*ended.borrow());

    world.say(status(&world.id, &running()));
    sleep(Duration::from_secs(2)).await;
    let asked = world.asked();
    sleep(SOME_TIME).await;
    assert_eq!((*ended.borrow(), world.asked()), (false, asked), "the agent knows by itself now");

    world.say(status(&world.id, &terminated(&world.id)));
    assert!(ends(&mut ended).await);
    assert_eq!(world.asked(), asked);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_ended_while_no_agent_looked_is_not_followed() {
    let world = World::new().await;
    assert!(world.runtime.kill_container(&world.pod.uid, "main", 0));
    assert!(*world.follow().await.borrow());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_wanted_any_more_is_followed_to_its_end() {
    let world = World::new().await;
    world.say(status(&world.id, &running()));
    let mut ended = world.follow().await;
    let asked = world.asked();
    world.logs.view.set_pod(&world.pod, None, false);
    sleep(SOME_TIME).await;
    assert_eq!((*ended.borrow(), world.asked() - asked), (false, 5), "once a second");

    world.runtime.go_away();
    sleep(SOME_TIME).await;
    assert!(!*ended.borrow(), "containers outlive a runtime that is away");
    world.runtime.come_back();
    assert!(world.runtime.kill_container(&world.pod.uid, "main", 0));
    assert!(ends(&mut ended).await);
    let asked = world.asked();
    sleep(SOME_TIME).await;
    assert_eq!(world.asked(), asked, "nobody asks for nothing");
}

#[tokio::test(start_paused = true)]
async fn nobody_asks_once_nobody_listens() {
    let world = World::new().await;
    drop(world.follow().await);
    let asked = world.asked();
    sleep(SOME_TIME).await;
    assert_eq!(world.asked(), asked);
}

#[test]
fn a_status_tells_of_the_container_that_is_meant() {
    let mut restarted = status("new", &running());
    restarted["containerStatuses"][0]["lastState"] = terminated("old");
    for (said, id, known) in [
        (status("id", &running()), "id", Known::Runs),
        (status("id", &terminated("id")), "id", Known::Ended),
        (status("id", &json!({"waiting": {"reason": "CrashLoopBackOff"}})), "id", Known::Ended),
        (restarted.clone(), "old", Known::Ended),
        (restarted, "new", Known::Runs),
        // Of another pod that has the name now.
        (status("other", &running()), "id", Known::Nothing),
        (json!({"phase": "Pending"}), "id", Known::Nothing),
    ] {
        let status: api::PodStatus = serde_json::from_value(said.clone()).expect("a status");
        assert_eq!(told_of(&status, "main", id), known, "{said}");
    }
}
