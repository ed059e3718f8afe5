//! Ends that somebody else decides on: verdicts of the node, restart rules, readiness gates.

use crablet_model::names::phase::{FAILED, PENDING, RUNNING};
use crablet_model::runtime::{PodRuntime, SandboxState};
use serde_json::{Value, json};

use super::super::super::facts::Verdict;
use super::super::is_terminal;
use super::world::{NOW, World, at, exited, running};
use crablet_model::PodRef;

fn verdict(reason: &str, disrupts: bool) -> Verdict {
    Verdict {
        reason: reason.to_owned(),
        message: format!("because of {reason}"),
        since: at(NOW),
        grace_seconds: None,
        disruption: disrupts.then(|| ("TerminationByKubelet".to_owned(), "it was in the way".to_owned())),
    }
}

#[test]
fn a_pod_that_was_not_admitted_says_why_and_nothing_else() {
    let mut world = World::one("Always").with(|w| w.memory.verdict = Some(verdict("OutOfcpu", false)));
    let expected = json!({
        "phase": "Failed", "reason": "OutOfcpu", "message": "because of OutOfcpu",
        "qosClass": "BestEffort", "observedGeneration": 3, "startTime": "2023-11-14T22:13:20Z",
    });
    assert_eq!(world.json(), expected);
    world.publish();
    assert_eq!(world.json(), expected, "the next life of the agent says the same");
    assert_eq!(world.made_static().json()["phase"], FAILED);
}

#[test]
fn a_pod_is_evicted_once_nothing_of_it_runs() {
    let mut world = World::one("Always").sandbox(SandboxState::Ready).instance("c", "id1", running());
    world.publish();
    let before = world.memory.status.clone();
    let mut world = world.with(|w| w.memory.verdict = Some(verdict("Evicted", true)));
    assert_eq!(
        is_terminal(&world.facts(&PodRef::of(&world.pod)), &world.pod, &world.memory),
        Some(FAILED),
        "it is to be stopped"
    );
    assert_eq!(Some(world.status()), before, "and goes on until then");
    world.publish();
    let mut world = world.stopped(143);
    let status = world.json();
    assert_eq!(
        (&status["phase"], &status["reason"], &status["message"]),
        (&json!("Failed"), &json!("Evicted"), &json!("because of Evicted"))
    );
    assert_eq!(world.container()["state"]["terminated"]["exitCode"], 143);
    assert_eq!(world.condition("Ready")["reason"], "PodFailed");
    let disrupted = world.condition("DisruptionTarget");
    assert_eq!(
        (&disrupted["reason"], &disrupted["message"]),
        (&json!("TerminationByKubelet"), &json!("it was in the way"))
    );
    world.publish();
    assert_eq!(world.condition("DisruptionTarget"), disrupted, "and stays with its time");
}

/// As upstream: what makes room for another is stopped, and its phase is what its containers make of that.
#[test]
fn a_pod_that_ends_well_when_the_node_stops_it_has_succeeded() {
    let cases = [("Preempting", 0, "Succeeded"), ("Preempting", 1, FAILED), ("DeadlineExceeded", 0, FAILED)];
    for (reason, code, phase) in cases {
        let mut world = World::one("Always").sandbox(SandboxState::Ready).instance("c", "id1", running());
        world.publish();
        let mut world = world.with(|w| w.memory.verdict = Some(verdict(reason, true)));
        world.publish();
        let mut world = world.stopped(code);
        let status = world.json();
        assert_eq!(status["phase"], phase, "{reason} {code}");
        let told = if phase == FAILED { json!(reason) } else { Value::Null };
        assert_eq!(status["reason"], told, "{reason} {code}");
        assert_eq!(world.condition("DisruptionTarget")["reason"], "TerminationByKubelet");
        world.publish();
        assert_eq!(world.json(), status, "and stays so");
    }
}

#[test]
fn a_pod_that_is_evicted_before_it_ran_has_lost_its_containers() {
    let mut world = World::one("Always").sandbox(SandboxState::Ready);
    world.publish();
    let mut world = world.with(|w| w.memory.verdict = Some(verdict("Evicted", true)));
    world.publish();
    let down = world.with(|w| w.runtime = PodRuntime::default());
    assert_eq!(down.phase(), FAILED);
    assert_eq!(down.container()["state"]["terminated"]["reason"], "ContainerStatusUnknown");
}

#[test]
fn conditions_tell_of_a_deadline_before_the_phase() {
    let mut world = World::one("Always").sandbox(SandboxState::Ready).instance("c", "id1", running());
    world.publish();
    let mut world = world.with(|w| w.memory.verdict = Some(verdict("DeadlineExceeded", false)));
    assert_eq!((world.phase().as_str(), &world.json()["reason"]), (RUNNING, &Value::Null));
    assert_eq!(world.condition("Ready")["reason"], "PodFailed");
    world.publish();
    let world = world.stopped(137);
    assert_eq!((world.phase().as_str(), &world.json()["reason"]), (FAILED, &json!("DeadlineExceeded")));
}

#[test]
fn a_verdict_does_not_change_what_had_ended_before() {
    let mut world = World::one("Never").sandbox(SandboxState::NotReady).instance("c", "id1", exited(0));
    world.publish();
    let published = world.memory.status.clone();
    let world = world.with(|w| w.memory.verdict = Some(verdict("Evicted", false)));
    assert_eq!(Some(world.status()), published);
}

/// What is said because of a verdict is said again by the next life of the agent, which nobody tells of it.
#[test]
fn a_verdict_comes_too_late_for_a_pod_that_has_failed() {
    let mut world = World::one("Never").sandbox(SandboxState::Ready).instance("c", "id1", running());
    world.plans();
    let mut world = world.stopped(1);
    world.plans();
    let said = world.json();
    assert_eq!(said["phase"], FAILED);
    world.verdict = Some(verdict("Preempting", true));
    world.plans();
    assert_eq!(world.json(), said);
    assert_eq!(world.memory.verdict, None);
}

#[test]
fn a_pod_that_was_asked_to_go_may_have_to_make_room_before_that() {
    let mut world = World::one("Always").sandbox(SandboxState::Ready).instance("c", "id1", running());
    world.plans();
    let mut world = world.ends();
    world.plans().verdict = Some(verdict("Preempting", true));
    world.plans().verdict = None;
    let mut world = world.stopped(143);
    for life in ["this one", "the next"] {
        let status = world.json();
        assert_eq!((&status["phase"], &status["reason"]), (&json!(FAILED), &json!("Preempting")), "{life}");
        assert_eq!(world.condition("DisruptionTarget")["reason"], "TerminationByKubelet", "{life}");
        world.plans().session = Default::default();
    }
}

#[test]
fn a_deadline_may_pass_while_a_pod_goes() {
    let ends_after = |seconds| {
        let mut world = World::one("Always").sandbox(SandboxState::Ready).instance("c", "id1", running());
        world.pod.spec.as_mut().expect("a spec").active_deadline_seconds = Some(seconds);
        world.plans();
        let mut world = world.ends();
        world.plans();
        let mut world = world.stopped(0);
        world.plans();
        (world.phase(), world.json()["reason"].clone())
    };
    assert_eq!(ends_after(5), (FAILED.to_owned(), json!("DeadlineExceeded")));
    assert_eq!(ends_after(500), ("Succeeded".to_owned(), Value::Null));
}

#[test]
fn a_pod_that_goes_before_its_turn_came_has_lost_only_what_had_begun() {
    let named = |name: &str| json!({"name": name, "image": "busybox"});
    let spec = json!({
        "restartPolicy": "Always",
        "initContainers": [named("i1"), named("i2"), named("i3")],
        "containers": [named("c")],
    });
    let mut world = World::new(spec).sandbox(SandboxState::Ready).instance("i2", "id2", running()).instance(
        "i1",
        "id1",
        exited(0),
    );
    world.publish();
    let ended = world.with(|w| w.runtime.containers.retain(|c| c.name == "i1")).stopped(137).ends();
    assert_eq!(ended.phase(), FAILED);
    assert_eq!(ended.named("i1")["state"]["terminated"]["exitCode"], 0);
    assert_eq!(ended.named("i2")["state"]["terminated"]["reason"], "ContainerStatusUnknown");
    for name in ["i3", "c"] {
        assert_eq!(ended.named(name)["state"]["waiting"]["reason"], "PodInitializing", "{name}");
    }
}

/// As upstream: the phase is the status manager's last word, and the conditions were written before it.
#[test]
fn a_pod_that_goes_before_it_ran_fails_with_the_conditions_that_it_had() {
    let mut world = World::one("Always").sandbox(SandboxState::Ready);
    world.publish();
    let mut gone = world.with(|w| w.runtime = PodRuntime::default()).ends();
    assert_eq!(gone.phase(), FAILED);
    assert_eq!(gone.container()["state"]["terminated"]["reason"], "ContainerStatusUnknown");
    for kind in ["Ready", "ContainersReady"] {
        let condition = gone.condition(kind);
        let told = (&condition["reason"], &condition["message"]);
        assert_eq!(told, (&json!("ContainersNotReady"), &json!("containers with unready status: [c]")));
    }
    let said = gone.json();
    gone.publish();
    assert_eq!(gone.json(), said, "and says the same ever after");
}

#[test]
fn a_container_goes_by_its_own_rules() {
    let own = |policy: &str, rules: Value, code: i32| {
        let mut container = json!({"name": "c", "image": "busybox", "restartPolicy": policy});
        container["restartPolicyRules"] = rules;
        let spec = json!({"restartPolicy": "Never", "containers": [container]});
        World::new(spec).sandbox(SandboxState::NotReady).instance("c", "id1", exited(code)).phase()
    };
    let rule = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]);
    for (policy, rules, code, expected) in [
        ("Always", json!([]), 0, RUNNING),
        ("OnFailure", json!([]), 1, RUNNING),
        ("Never", json!([]), 1, FAILED),
        ("Never", rule.clone(), 42, RUNNING),
        ("Never", rule, 1, FAILED),
    ] {
        assert_eq!(own(policy, rules, code), expected, "{policy} {code}");
    }
}

#[test]
fn all_containers_begin_afresh() {
    let rules = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]);
    let spec = json!({
        "restartPolicy": "Never",
        "initContainers": [{"name": "i", "image": "busybox"}],
        "containers": [
            {"name": "c", "image": "busybox", "restartPolicy": "Never", "restartPolicyRules": rules},
            {"name": "d", "image": "busybox"},
        ],
    });
    let restarting = |world: &World| world.condition("AllContainersRestarting");
    let mut world = World::new(spec)
        .sandbox(SandboxState::Ready)
        .instance("d", "id3", running())
        .instance("c", "id2", running())
        .instance("i", "id1", exited(0));
    assert_eq!(restarting(&world)["status"], "False");
    world.publish();
    let counts = |world: &World| ["i", "c", "d"].map(|name| world.named(name)["restartCount"].clone());
    let before = counts(&world);

    let mut called = world.with(|w| w.runtime.containers[1].state = exited(42));
    assert_eq!(
        (&restarting(&called)["status"], &restarting(&called)["reason"], &restarting(&called)["message"]),
        (
            &json!("True"),
            &json!("RestartAllContainersStarted"),
            &json!("container exited with restart policy rule")
        )
    );
    assert_eq!(called.phase(), RUNNING);
    called.publish();

    let mut cleaned = called.with(|w| w.runtime.containers.clear());
    for turn in 0..2 {
        assert_eq!((cleaned.phase().as_str(), &restarting(&cleaned)["status"]), (RUNNING, &json!("False")));
        for name in ["i", "c", "d"] {
            let status = cleaned.named(name);
            assert_eq!(status["state"]["waiting"]["reason"], "RestartingAllContainers", "{name} {turn}");
            assert_eq!(status["lastState"]["terminated"]["exitCode"], 137, "{name} {turn}");
        }
        let raised = before.clone().map(|n| json!(n.as_i64().expect("a count") + 1));
        assert_eq!(counts(&cleaned), raised, "counted once");
        cleaned.publish();
    }
    let again = cleaned.instance("i", "id4", running());
    assert_eq!(again.phase(), PENDING);
    assert_eq!(again.named("c")["state"]["waiting"]["reason"], "PodInitializing");
    assert_eq!(again.named("c")["lastState"]["terminated"]["reason"], "RestartingAllContainers");
    assert_eq!(again.condition("Initialized")["status"], "True");
}

#[test]
fn who_is_stopped_because_all_begin_afresh_does_not_end_the_pod() {
    let rules = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]);
    let spec = json!({
        "restartPolicy": "Never",
        "initContainers": [
            {"name": "s", "image": "i", "restartPolicy": "Always", "restartPolicyRules": rules},
        ],
        "containers": [{"name": "c", "image": "i"}],
    });
    let stopped = |code| {
        let world = World::new(spec.clone()).sandbox(SandboxState::NotReady);
        world.instance("c", "id2", exited(137)).instance("s", "id1", exited(code))
    };
    assert_eq!(stopped(42).phase(), RUNNING);
    assert_eq!(stopped(1).phase(), FAILED);
}

#[test]
fn others_may_hold_a_pods_readiness_back() {
    let spec = json!({
        "restartPolicy": "Always",
        "readinessGates": [{"conditionType": "example.com/a"}, {"conditionType": "example.com/b"}],
        "containers": [{"name": "c", "image": "busybox"}],
    });
    let gated = |conditions: Value| {
        let world = World::new(spec.clone()).sandbox(SandboxState::Ready).instance("c", "id1", running());
        world.with(|w| {
            let status = json!({"conditions": conditions});
            w.pod.status = Some(serde_json::from_value(status).expect("a status"));
        })
    };
    let (a, b) = (json!({"type": "example.com/a", "status": "True"}), "example.com/b");
    for (conditions, expected) in [
        (
            json!([]),
            "corresponding condition of pod readiness gate \"example.com/a\" does not exist., corresponding condition of pod readiness gate \"example.com/b\" does not exist.",
        ),
        (
            json!([a, {"type": b, "status": "False"}]),
            "the status of pod readiness gate \"example.com/b\" is not \"True\", but False",
        ),
        (json!([a, {"type": b, "status": "True"}]), ""),
    ] {
        let world = gated(conditions);
        let ready = world.condition("Ready");
        assert_eq!(world.condition("ContainersReady")["status"], "True");
        if expected.is_empty() {
            assert_eq!(ready["status"], "True");
        } else {
            assert_eq!(
                (&ready["reason"], &ready["message"]),
                (&json!("ReadinessGatesNotReady"), &json!(expected))
            );
        }
    }
    let unready = gated(json!([])).with(|w| w.runtime.containers[0].state = exited(1));
    assert_eq!(unready.condition("Ready")["reason"], "ContainersNotReady", "containers come first");
}

/// It knew of no containers, and the next one makes up none.
#[test]
fn a_pod_that_another_agent_refused_stays_as_that_one_left_it() {
    let told = json!({
        "phase": "Failed", "reason": "OutOfcpu", "message": "no room",
        "qosClass": "BestEffort", "observedGeneration": 3, "startTime": "2023-11-14T22:13:20Z",
    });
    let world = World::one("Always")
        .with(|w| w.memory.status = Some(serde_json::from_value(told.clone()).expect("a status")));
    assert_eq!(world.json(), told);
}
