//! Scenarios: a pod, what the runtime shows and what is remembered in; the status out.

mod containers;
mod ends;
mod laws;
mod resources;
mod roles;
mod world;

use crablet_model::PodRef;
use crablet_model::names::phase::{FAILED, PENDING, RUNNING, SUCCEEDED};
use crablet_model::runtime::{ContainerState, ContainerUser, PodRuntime, Sandbox};
use serde_json::{Value, json};

use super::super::facts::Operation;
use super::super::plan::{OpKey, Urgency, plan};
use super::*;
use world::{World, exited, failed_pull, running, sandbox};

#[test]
fn a_running_pod_says_everything_that_is_known_of_it() {
    let world = World::new(json!({
        "restartPolicy": "Always",
        "containers": [
            {"name": "c", "image": "busybox", "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "500m"}}},
        ],
    }))
    .sandbox(SandboxState::Ready)
    .instance("c", "id1", running())
    .with(|w| {
        let user = ContainerUser { uid: 1, gid: 2, supplemental_groups: vec![2, 3] };
        w.runtime.containers[0].user = Some(user);
        w.runtime.containers[0].restart_count = 0;
    });
    let condition = |kind: &str| json!({"type": kind, "status": "True", "observedGeneration": 3, "lastTransitionTime": "2023-11-14T22:13:20Z"});
    assert_eq!(
        world.json(),
        json!({
            "phase": "Running",
            "qosClass": "Burstable",
            "allocatedResources": {"cpu": "500m"},
            "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "500m"}},
            "observedGeneration": 3,
            "startTime": "2023-11-14T22:13:20Z",
            "podIP": "10.0.0.7",
            "podIPs": [{"ip": "10.0.0.7"}],
            "conditions": [
                condition("PodReadyToStartContainers"),
                condition("Initialized"),
                condition("Ready"),
                condition("ContainersReady"),
                condition("PodScheduled"),
            ],
            "containerStatuses": [{
                "name": "c",
                "image": "docker.io/library/busybox:latest",
                "imageID": "sha256:abc",
                "containerID": "containerd://id1",
                "state": {"running": {"startedAt": "2023-11-14T22:12:30Z"}},
                "lastState": {},
                "ready": true,
                "started": true,
                "restartCount": 0,
                "allocatedResources": {"cpu": "500m"},
                "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "500m"}},
                "user": {"linux": {"uid": 1, "gid": 2, "supplementalGroups": [2, 3]}},
            }],
        })
    );
}

#[test]
fn a_new_pod_is_pending_and_names_what_is_not_ready() {
    let world = World::new(json!({"containers": [{"name": "b", "image": "i"}, {"name": "a", "image": "i"}]}));
    assert_eq!(world.phase(), PENDING);
    let ready = world.condition("Ready");
    assert_eq!(ready["status"], "False");
    assert_eq!(ready["reason"], "ContainersNotReady");
    assert_eq!(ready["message"], "containers with unready status: [b a]");
    assert_eq!(world.condition("PodReadyToStartContainers")["status"], "False");
    assert_eq!(world.condition("Initialized")["status"], "True");
    let names: Vec<_> =
        world.status().container_statuses.expect("statuses").into_iter().map(|s| s.name).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(
        world.container(),
        json!({
            "name": "a", "image": "i", "imageID": "", "ready": false, "started": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ContainerCreating"}}, "lastState": {},
        })
    );
}

#[test]
fn the_phase_follows_upstreams_table() {
    use ContainerState::Created;
    let run = |policy: &str, states: &[Option<ContainerState>]| {
        let names = ["a", "b"];
        let specs: Vec<_> =
            names.iter().take(states.len()).map(|n| json!({"name": n, "image": "i"})).collect();
        let mut world =
            World::new(json!({"restartPolicy": policy, "containers": specs})).sandbox(SandboxState::NotReady);
        for (name, state) in names.iter().zip(states) {
            if let Some(state) = state {
                world = world.instance(name, name, state.clone());
            }
        }
        world.phase()
    };
    for (policy, states, expected) in [
        ("Always", vec![None], PENDING),
        ("Always", vec![Some(Created)], PENDING),
        ("Always", vec![Some(running()), None], PENDING),
        ("Always", vec![Some(running()), Some(exited(1))], RUNNING),
        ("Always", vec![Some(exited(0)), Some(exited(1))], RUNNING),
        ("OnFailure", vec![Some(exited(0)), Some(exited(1))], RUNNING),
        ("OnFailure", vec![Some(exited(0)), Some(exited(0))], SUCCEEDED),
        ("Never", vec![Some(exited(0)), Some(running())], RUNNING),
        ("Never", vec![Some(exited(0)), Some(exited(1))], FAILED),
        ("Never", vec![Some(exited(0))], SUCCEEDED),
        ("Never", vec![], PENDING),
    ] {
        assert_eq!(run(policy, &states), expected, "{policy} {states:?}");
    }
}

#[test]
fn conditions_of_a_finished_pod_say_how_it_finished() {
    for (code, reason, initialized) in
        [(0, "PodCompleted", json!("PodCompleted")), (1, "PodFailed", Value::Null)]
    {
        let world = World::one("Never").sandbox(SandboxState::NotReady).instance("c", "id1", exited(code));
        assert_eq!(world.condition("Ready")["reason"], reason);
        assert_eq!(world.condition("ContainersReady")["reason"], reason);
        assert_eq!(world.condition("Initialized")["reason"], initialized);
        let id = PodRef::of(&world.pod);
        let expected = if code == 0 { SUCCEEDED } else { FAILED };
        assert_eq!(is_terminal(&world.facts(&id), &world.pod, &world.memory), Some(expected));
    }
}

#[test]
fn a_pod_that_ends_turns_terminal_once_nothing_runs_or_starts() {
    let up = World::one("Always").sandbox(SandboxState::Ready).instance("c", "id1", exited(0)).ends();
    assert_eq!(up.phase(), PENDING, "its sandbox is still there, and nobody was told that it runs");
    let stopped = up.stopped(0);
    assert_eq!(stopped.phase(), SUCCEEDED);
    let busy = stopped.clone().with(|w| {
        let operation = Operation { since: w.now, grace_seconds: None, with_runtime: false, image: None };
        w.session.ops.insert(OpKey::Start("c".to_owned()), operation);
    });
    assert_eq!(busy.phase(), RUNNING);
    assert_eq!(World::one("Always").instance("c", "id1", running()).ends().phase(), RUNNING);
    assert_eq!(World::one("Always").instance("c", "id1", exited(143)).ends().phase(), FAILED);
    assert_eq!(stopped.made_static().phase(), RUNNING, "a static pod is never forced");
}

/// Upstream's status manager holds a terminal phase back in the same way: whoever sees one sees no sandbox.
#[test]
fn a_finished_pod_is_called_so_once_its_sandbox_is_down() {
    for (code, expected) in [(0, SUCCEEDED), (1, FAILED)] {
        let mut world = World::one("Never").sandbox(SandboxState::Ready).instance("c", "id1", running());
        world.publish();
        let mut ended = world.with(|w| w.runtime.containers[0].state = exited(code));
        assert_eq!(ended.phase(), RUNNING, "{code}");
        assert_eq!(ended.container()["state"]["terminated"]["exitCode"], code, "what ended is told at once");
        assert_eq!(ended.condition("Ready")["status"], "False", "{code}");
        ended.publish();
        let mut down = ended.stopped(code);
        let said = (down.phase(), down.condition("PodReadyToStartContainers")["status"].clone());
        assert_eq!(said, (expected.to_owned(), json!("False")));
        down.publish();
        assert_eq!(down.ends().phase(), expected, "and whoever deletes it then changes nothing");
    }
}

#[test]
fn only_steps_on_the_way_may_be_told_later() {
    let urgency = |world: &World| plan(&world.facts(&PodRef::of(&world.pod))).urgency;
    let fleeting = |world: &World| urgency(world) == Urgency::Soon;
    let busy = |key: OpKey| {
        move |w: &mut World| {
            let operation =
                Operation { since: w.now, grace_seconds: Some(30), with_runtime: false, image: None };
            w.session.ops.insert(key, operation);
        }
    };
    let fresh = World::one("Always").with(|w| w.node.network_ready = true);
    assert!(!fleeting(&fresh), "that the node has the pod is told at once");
    let mut waiting = fresh;
    waiting.publish();
    assert!(!fleeting(&waiting), "nothing is new");

    let on_its_way = waiting.sandbox(SandboxState::Ready).with(|w| {
        w.runtime.sandboxes[0].ips = vec![[10, 0, 0, 9].into()];
        w.session.taken_over = true;
    });
    assert!(fleeting(&on_its_way), "the sandbox is there, and the image is looked for");
    let starting = on_its_way.clone().with(busy(OpKey::Start("c".to_owned())));
    assert!(fleeting(&starting));
    let failed =
        on_its_way.clone().with(|w| w.memory.pulls = [("busybox:latest".to_owned(), failed_pull(1))].into());
    assert!(!fleeting(&failed), "why a container waits is told at once");
    let mut runs = on_its_way.instance("c", "id1", running());
    assert!(!fleeting(&runs), "that it runs is told at once");

    runs.publish();
    let crashed = runs.clone().with(|w| w.runtime.containers[0].state = exited(1));
    assert!(!fleeting(&crashed), "so is the end of a container in a pod that goes on");
    let deleted = runs.ends().with(|w| w.pod.metadata.generation = Some(4));
    assert_eq!(urgency(&deleted), Urgency::WithTheNext, "who deleted it knows");
    let ended = crashed.ends();
    assert!(fleeting(&ended), "its sandbox is being stopped");
    let down = ended.with(|w| {
        w.runtime.sandboxes[0].state = SandboxState::NotReady;
        w.session.stopped_sandboxes.insert("s1".to_owned());
    });
    assert!(fleeting(&down.clone().with(busy(OpKey::Release))));
    assert!(!fleeting(&down.with(|w| w.session.released = true)), "that all is over is told at once");
}

#[test]
fn a_pod_that_is_gone_without_having_started_has_failed() {
    let world = World::one("Always").ends();
    assert_eq!(world.phase(), FAILED);
    assert_eq!(
        world.container()["state"]["terminated"],
        json!({
            "exitCode": 137, "reason": "ContainerStatusUnknown",
            "message": "The container could not be located when the pod was terminated",
        })
    );
    let mut world = World::one("Always").made_static();
    world.publish();
    assert_eq!(world.ends().phase(), PENDING, "a static pod is never forced");
}

#[test]
fn a_terminal_phase_is_never_taken_back() {
    let mut world = World::one("Never").instance("c", "id1", exited(0));
    world.publish();
    let world = world.with(|w| w.runtime = PodRuntime::default()).instance("c", "id2", running());
    assert_eq!(world.phase(), SUCCEEDED);
}

#[test]
fn reason_and_message_live_as_long_as_the_phase() {
    let mut world = World::one("Always").sandbox(SandboxState::Ready).instance("c", "id1", running());
    world.publish();
    let world = world.with(|w| {
        let status = w.memory.status.as_mut().expect("a status");
        status.reason = Some("NodeLost".to_owned());
        status.message = Some("gone".to_owned());
    });
    assert_eq!((&world.json()["reason"], &world.json()["message"]), (&json!("NodeLost"), &json!("gone")));
    let world = world.with(|w| w.runtime.containers[0].state = ContainerState::Created);
    assert_eq!((world.phase().as_str(), &world.json()["reason"]), (PENDING, &Value::Null));
}

#[test]
fn transition_times_change_with_the_status_only() {
    let mut world = World::one("Always").sandbox(SandboxState::Ready);
    world.publish();
    let world = world.instance("c", "id1", running());
    assert_eq!(world.condition("Ready")["lastTransitionTime"], "2023-11-14T22:13:23Z");
    assert_eq!(world.condition("PodScheduled")["lastTransitionTime"], "2023-11-14T22:13:20Z");
    assert_eq!(world.json()["startTime"], "2023-11-14T22:13:20Z");
}

#[test]
fn addresses_come_from_the_ready_sandbox_and_outlive_it() {
    let mut world = World::one("Always").sandbox(SandboxState::Ready).with(|w| {
        w.runtime.sandboxes[0].ips =
            ["fd00::1", "10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().expect("an address")).to_vec();
    });
    let both = json!([{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]);
    assert_eq!(world.json()["podIPs"], both);
    world.publish();
    world.runtime.sandboxes[0].state = SandboxState::NotReady;
    world.runtime.sandboxes[0].ips.clear();
    assert_eq!((&world.json()["podIP"], &world.json()["podIPs"]), (&json!("10.0.0.1"), &both));
    assert_eq!(world.json()["hostIP"], Value::Null);
    world.runtime.sandboxes.insert(0, Sandbox { ips: Vec::new(), ..sandbox("s2", 1, SandboxState::Ready) });
    assert_eq!(world.json()["podIPs"], Value::Null, "a new sandbox that has no address yet");
}

#[test]
fn a_pod_in_the_nodes_network_has_the_nodes_addresses() {
    let mut world = World::new(json!({"hostNetwork": true, "containers": [{"name": "c", "image": "i"}]}));
    world.node.host_ips = ["fd00::1", "192.0.2.1"].map(|ip| ip.parse().expect("an address")).to_vec();
    let status = world.json();
    assert_eq!((&status["hostIP"], &status["podIP"]), (&json!("fd00::1"), &json!("fd00::1")));
    assert_eq!(status["hostIPs"], json!([{"ip": "fd00::1"}, {"ip": "192.0.2.1"}]));
    assert_eq!(status["podIPs"], status["hostIPs"]);
}

#[test]
fn a_sandbox_is_ready_for_containers_only_if_none_has_to_be_made() {
    let ready = |change: fn(&mut Vec<Sandbox>)| {
        let mut world = World::one("Always").sandbox(SandboxState::Ready);
        change(&mut world.runtime.sandboxes);
        world.condition("PodReadyToStartContainers")["status"] == "True"
    };
    assert!(ready(|_| {}));
    assert!(ready(|all| all.push(sandbox("s0", 0, SandboxState::NotReady))));
    assert!(!ready(|all| all.push(sandbox("s0", 0, SandboxState::Ready))));
    assert!(!ready(|all| all.insert(0, sandbox("s2", 1, SandboxState::NotReady))));
    assert!(!ready(|all| all[0].ips.clear()));
    assert!(!ready(|all| all[0].host_network = true));
    assert!(!ready(Vec::clear));
}
