//! Init containers, sidecars, ephemeral containers, probes and hooks.

use crablet_model::names::phase::{FAILED, PENDING, RUNNING, SUCCEEDED};
use crablet_model::runtime::{ContainerState, RuntimeHandler, SandboxState};
use serde_json::{Value, json};

use super::super::super::facts::{Probed, Session};
use super::super::super::memory::Failure;
use super::super::super::plan::OpKey;
use super::super::is_terminal;
use super::world::{World, exited, failed_pull, running};
use crablet_model::PodRef;

/// `i1` and `i2` are done one after the other, `s` stays, `c` is the work.
fn pod(policy: &str) -> World {
    let named = |name: &str| json!({"name": name, "image": "busybox"});
    World::new(json!({
        "restartPolicy": policy,
        "initContainers": [
            named("i1"),
            {"name": "s", "image": "busybox", "restartPolicy": "Always"},
            named("i2"),
        ],
        "containers": [named("c")],
    }))
    .sandbox(SandboxState::Ready)
}

/// The pod with these instances, newest first.
fn with(policy: &str, instances: &[(&str, ContainerState)]) -> World {
    instances.iter().fold(pod(policy), |world, (name, state)| world.instance(name, name, state.clone()))
}

fn decided(world: &World) -> Option<&'static str> {
    is_terminal(&world.facts(&PodRef::of(&world.pod)), &world.pod, &world.memory)
}

#[test]
fn containers_wait_for_their_turn() {
    let world = with("Always", &[("i1", running())]);
    let names = |list: &str| -> Vec<Value> {
        world.json()[list].as_array().expect("statuses").iter().map(|c| c["name"].clone()).collect()
    };
    assert_eq!(names("initContainerStatuses"), ["i1", "s", "i2"], "in the order of the specification");
    for name in ["s", "i2", "c"] {
        assert_eq!(world.named(name)["state"], json!({"waiting": {"reason": "PodInitializing"}}), "{name}");
    }
    assert_eq!(world.phase(), PENDING);
    let initialized = world.condition("Initialized");
    assert_eq!(initialized["reason"], "ContainersNotInitialized");
    assert_eq!(initialized["message"], "containers with incomplete status: [i1 s i2]");
    // Init containers that end are nothing that a pod could be ready by.
    assert_eq!(world.condition("Ready")["message"], "containers with unready status: [s c]");
}

#[test]
fn an_init_container_is_ready_once_it_has_done_its_work() {
    for (state, started, ready) in
        [(running(), true, false), (exited(0), false, true), (exited(1), false, false)]
    {
        let status = with("Always", &[("i1", state.clone())]).named("i1");
        assert_eq!((&status["started"], &status["ready"]), (&json!(started), &json!(ready)), "{state:?}");
    }
    let done = with("Always", &[("i2", exited(0)), ("s", running()), ("i1", exited(0))]);
    assert_eq!(done.condition("Initialized")["status"], "True");
    assert_eq!(done.phase(), PENDING, "the work has not begun");
}

#[test]
fn the_phase_counts_init_containers_and_sidecars() {
    let done = [("i2", exited(0)), ("i1", exited(0))];
    let and = |more: &[(&'static str, ContainerState)]| -> Vec<_> {
        more.iter().cloned().chain(done.clone()).collect()
    };
    for (policy, instances, shown, at_last) in [
        ("Always", vec![("i1", exited(1))], PENDING, None),
        ("OnFailure", vec![("i1", exited(1))], PENDING, None),
        ("Never", vec![("i1", exited(1))], PENDING, Some(FAILED)),
        // It has failed, and is not called so while something runs.
        ("Never", vec![("i2", exited(1)), ("s", running()), ("i1", exited(0))], PENDING, Some(FAILED)),
        ("Always", and(&[("c", running()), ("s", running())]), RUNNING, None),
        ("Always", and(&[("c", exited(0)), ("s", running())]), RUNNING, None),
        // A sidecar that restarts in a pod at work changes nothing.
        ("Always", and(&[("c", running()), ("s", exited(1))]), RUNNING, None),
        // The work is done, and the sidecar is about to be stopped.
        ("Never", and(&[("c", exited(0)), ("s", running())]), RUNNING, Some(SUCCEEDED)),
        ("OnFailure", and(&[("c", exited(0)), ("s", running())]), RUNNING, Some(SUCCEEDED)),
        ("Never", and(&[("c", exited(3)), ("s", running())]), RUNNING, Some(FAILED)),
        // How a sidecar ends says nothing.
        ("Never", and(&[("c", exited(0)), ("s", exited(137))]), PENDING, Some(SUCCEEDED)),
    ] {
        let world = with(policy, &instances);
        assert_eq!((world.phase().as_str(), decided(&world)), (shown, at_last), "{policy} {instances:?}");
        if let Some(at_last) = at_last {
            assert_eq!(world.stopped(137).phase(), at_last, "{policy} {instances:?}");
        }
    }
}

#[test]
fn a_failed_init_container_is_told_by_conditions_before_the_phase() {
    let world = with("Never", &[("i2", exited(1)), ("s", running()), ("i1", exited(0))]);
    assert_eq!(world.condition("Ready")["reason"], "PodFailed");
    let mut world = world;
    world.publish();
    let down = world.stopped(137);
    assert_eq!(down.phase(), FAILED);
    assert_eq!(
        down.named("c")["state"],
        json!({"waiting": {"reason": "PodInitializing"}}),
        "it never had its turn"
    );
    assert_eq!(down.condition("Initialized")["message"], "containers with incomplete status: [s i2]");
}

#[test]
fn an_init_container_that_ran_out_of_memory_has_failed() {
    let out_of_memory = |policy: &str| {
        with(policy, &[("i1", exited(0))]).with(|w| {
            if let ContainerState::Exited(exit) = &mut w.runtime.containers[0].state {
                exit.reason = "OOMKilled".to_owned();
            }
        })
    };
    assert_eq!(decided(&out_of_memory("Never")), Some(FAILED));
    assert_eq!(out_of_memory("OnFailure").phase(), PENDING);
}

#[test]
fn a_container_that_is_replaced_does_not_end_the_pod() {
    let done = [("i2", exited(0)), ("i1", exited(0)), ("s", running())];
    let stopped: Vec<_> = [("c", exited(137))].into_iter().chain(done).collect();
    let replaced = |id: &str| {
        let entry = ("c".to_owned(), id.to_owned());
        with("Never", &stopped).with(|w| w.memory.replaced = [entry].into())
    };
    assert_eq!(decided(&replaced("c")), None);
    assert_eq!(decided(&replaced("an earlier one")), Some(FAILED));
}

/// Who measures the wait between an end and the next start takes both from statuses.
#[test]
fn a_restart_is_not_counted_before_it_is_one() {
    let done = [("i2", exited(0)), ("i1", exited(0)), ("s", running())];
    let old: Vec<_> = [("c", exited(1))].into_iter().chain(done).collect();
    let before = with("Always", &old).named("c");
    let created = || {
        let world = pod("Always").instance("c", "new", ContainerState::Created);
        old.iter().fold(world, |world, (name, state)| world.instance(name, name, state.clone()))
    };
    let starting = created().busy(OpKey::Start("c".to_owned())).named("c");
    assert_eq!(starting["state"], before["state"], "it is being started, and does not run yet");
    let stuck = created().named("c");
    let counts = [&starting, &stuck].map(|status| status["restartCount"].as_i64());
    assert_eq!(counts, [Some(9), Some(10)]);
}

/// The API server refuses every status in which such a container has left that end.
#[test]
fn an_end_that_would_be_the_last_is_not_told_of_a_container_that_is_replaced() {
    let done = [("i2", exited(0)), ("i1", exited(0)), ("s", running())];
    let stopped = |policy: &str, code: i32| {
        let all: Vec<_> = [("c", exited(code))].into_iter().chain(done.clone()).collect();
        with(policy, &all).with(|w| w.memory.replaced = [("c".to_owned(), "c".to_owned())].into())
    };
    for (policy, code) in [("OnFailure", 0), ("Never", 0), ("Never", 137)] {
        let status = stopped(policy, code).named("c");
        assert_eq!(status["state"], json!({"waiting": {"reason": "PodInitializing"}}), "{policy} {code}");
        assert_eq!(status["lastState"]["terminated"]["exitCode"], code, "{policy}");
        assert_eq!(stopped(policy, code).phase(), RUNNING, "{policy} {code}");
    }
    assert_eq!(stopped("Always", 0).named("c")["state"]["terminated"]["exitCode"], 0);
}

#[test]
fn only_what_has_its_turn_tells_why_it_waits() {
    let pull = |world: World| {
        world.with(|w| drop(w.memory.pulls.insert("busybox:latest".to_owned(), failed_pull(0))))
    };
    let reason = |world: &World, name: &str| world.named(name)["state"]["waiting"]["reason"].clone();
    let first = pull(pod("Always"));
    assert_eq!(reason(&first, "i1"), "ErrImagePull");
    assert_eq!(reason(&first, "c"), "PodInitializing", "the image is the same, the turn is not");
    let done = pull(with("Always", &[("i2", exited(0)), ("s", running()), ("i1", exited(0))]));
    assert_eq!(reason(&done, "c"), "ErrImagePull");
}

#[test]
fn an_init_container_that_was_forgotten_has_done_its_work_if_the_pod_is_at_work() {
    let lost = with("Always", &[("c", running()), ("s", running())]);
    let ended = json!({
        "exitCode": 0, "reason": "Completed",
        "message": "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally",
    });
    assert_eq!(lost.named("i1")["state"]["terminated"], ended);
    assert_eq!(lost.named("i1")["ready"], true);
    assert_eq!(lost.phase(), RUNNING);
    let without_sidecar = with("Always", &[("c", running())]);
    assert_eq!(
        without_sidecar.named("s")["state"],
        json!({"waiting": {"reason": "PodInitializing"}}),
        "a sidecar is to come back"
    );
    // What was published of one that was pruned is remembered.
    let mut known =
        with("Always", &[("c", running()), ("s", running()), ("i2", exited(0)), ("i1", exited(0))]);
    let before = known.named("i1");
    known.publish();
    let pruned = known.with(|w| w.runtime.containers.retain(|c| c.name != "i1"));
    assert_eq!(pruned.named("i1"), before);
}

#[test]
fn a_sidecar_that_ends_well_is_shown_as_ended_until_it_runs_again() {
    let shown = |code| {
        let world =
            with("Always", &[("c", running()), ("s", exited(code)), ("i2", exited(0)), ("i1", exited(0))]);
        let failure = Failure {
            reason: "PostStartHookError".to_owned(),
            message: "no".to_owned(),
            count: 1,
            failed_at: world.now,
            retry_at: world.now,
        };
        world.with(|w| drop(w.memory.failures.insert("s".to_owned(), failure))).named("s")["state"].clone()
    };
    assert_eq!(shown(0)["terminated"]["reason"], "Completed");
    assert_eq!(shown(1)["waiting"]["reason"], "PostStartHookError");
}

#[test]
fn a_pod_stays_initialized() {
    let mut world =
        with("Always", &[("c", running()), ("s", running()), ("i2", exited(0)), ("i1", exited(0))]);
    assert_eq!(world.condition("Initialized")["status"], "True");
    world.publish();
    // A new sandbox: everything begins again.
    let again = world.with(|w| w.runtime.containers.clear());
    assert_eq!(again.condition("Initialized")["status"], "True");
}

#[test]
fn an_ephemeral_container_is_shown_and_never_judged() {
    let mut spec = json!({"restartPolicy": "Always", "containers": [{"name": "c", "image": "busybox"}]});
    spec["ephemeralContainers"] = json!([{"name": "z", "image": "x"}, {"name": "e", "image": "tools"}]);
    let world = World::new(spec).sandbox(SandboxState::Ready).instance("e", "id2", running()).instance(
        "c",
        "id1",
        running(),
    );
    let names: Vec<_> = world.status().ephemeral_container_statuses.expect("statuses");
    assert_eq!(names.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["e", "z"], "sorted by name");
    assert_eq!((&world.named("e")["ready"], &world.named("e")["started"]), (&json!(false), &Value::Null));
    assert_eq!(world.named("z")["state"]["waiting"]["reason"], "ContainerCreating");
    assert_eq!(world.condition("Ready")["status"], "True");
    let mut gone = world.with(|w| w.runtime.containers[0].state = exited(1));
    assert!(
        gone.named("e")["state"]["terminated"].is_object(),
        "it is not started again, so it does not wait"
    );
    gone.publish();
    assert_eq!(gone.phase(), RUNNING);
}

#[test]
fn a_pod_is_not_called_finished_while_somebody_looks_at_it() {
    let spec = json!({
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "busybox"}],
        "ephemeralContainers": [{"name": "e", "image": "tools"}],
    });
    let mut world = World::new(spec).sandbox(SandboxState::Ready).instance("e", "id2", running()).instance(
        "c",
        "id1",
        running(),
    );
    world.publish();
    let mut done = world.with(|w| w.runtime.containers[1].state = exited(0));
    assert_eq!((done.phase().as_str(), decided(&done)), (RUNNING, Some(SUCCEEDED)));
    assert_eq!(done.condition("Ready")["reason"], "PodCompleted");
    done.publish();
    assert_eq!(done.stopped(137).phase(), SUCCEEDED);
}

fn probed(startup: Option<bool>, readiness: Option<bool>) -> Probed {
    Probed { startup, readiness, liveness: None }
}

#[test]
fn probes_decide_what_has_started_and_what_is_ready() {
    let world = |role: &str, startup: bool, readiness: bool, results: Probed| {
        let mut container = json!({"name": "x", "image": "busybox"});
        let probe = json!({"exec": {"command": ["true"]}});
        for (wanted, field) in [(startup, "startupProbe"), (readiness, "readinessProbe")] {
            if wanted {
                container[field] = probe.clone();
            }
        }
        let spec = match role {
            "sidecar" => {
                container["restartPolicy"] = json!("Always");
                json!({"initContainers": [container], "containers": [{"name": "c", "image": "i"}]})
            }
            _ => json!({"containers": [container]}),
        };
        World::new(spec).sandbox(SandboxState::Ready).instance("x", "id1", running()).probed("id1", results)
    };
    for role in ["sidecar", "regular"] {
        for (startup, readiness, results, started, ready) in [
            (false, false, probed(None, None), true, true),
            (true, false, probed(None, None), false, false),
            (true, false, probed(Some(false), None), false, false),
            (true, false, probed(Some(true), None), true, true),
            (false, true, probed(None, None), true, false),
            (false, true, probed(None, Some(false)), true, false),
            (false, true, probed(None, Some(true)), true, true),
            (true, true, probed(None, Some(true)), false, false),
            (true, true, probed(Some(true), Some(true)), true, true),
        ] {
            let status = world(role, startup, readiness, results).named("x");
            let found = (&status["started"], &status["ready"]);
            assert_eq!(found, (&json!(started), &json!(ready)), "{role} {startup} {readiness} {results:?}");
        }
    }
    let waiting = world("sidecar", true, false, probed(None, None));
    assert_eq!(waiting.condition("Initialized")["message"], "containers with incomplete status: [x]");
    assert_eq!(waiting.phase(), PENDING);
}

#[test]
fn what_was_ready_stays_so_until_a_probe_says_otherwise() {
    let probe = json!({"exec": {"command": ["true"]}});
    let spec = json!({"containers": [
        {"name": "c", "image": "busybox", "startupProbe": probe, "readinessProbe": probe},
    ]});
    let mut world = World::new(spec)
        .sandbox(SandboxState::Ready)
        .instance("c", "id1", running())
        .probed("id1", probed(Some(true), Some(true)));
    world.publish();
    let published = world.memory.status.clone();
    let again = world.with(|w| (w.session, w.probes) = (Session::default(), Default::default()));
    assert_eq!(Some(again.status()), published, "the agent has just begun");
    let unready = again.clone().probed("id1", probed(None, Some(false)));
    assert_eq!(
        (&unready.container()["started"], &unready.container()["ready"]),
        (&json!(true), &json!(false))
    );
    let restarted = again.with(|w| w.runtime.containers[0].id = "id2".to_owned());
    assert_eq!(restarted.container()["started"], false, "another instance has to show it anew");
}

#[test]
fn a_container_comes_once_its_hook_has_ended() {
    let spec = json!({"restartPolicy": "Always", "containers": [{
        "name": "c", "image": "busybox",
        "lifecycle": {"postStart": {"exec": {"command": ["true"]}}},
    }]});
    let started = World::new(spec).sandbox(SandboxState::Ready).instance("c", "id1", running());
    let start = OpKey::Start("c".to_owned());
    let mut hooked = started.clone().busy(start.clone());
    assert_eq!(hooked.container()["state"], json!({"waiting": {"reason": "ContainerCreating"}}));
    assert_eq!((hooked.phase().as_str(), &hooked.container()["containerID"]), (PENDING, &Value::Null));
    hooked.publish();
    assert_eq!(hooked.clone().ends().phase(), RUNNING, "who ends it sees that it runs");
    let done = hooked.with(|w| w.session.ops.clear());
    assert_eq!((done.phase().as_str(), &done.container()["restartCount"]), (RUNNING, &json!(10)));

    // One that is started again shows what it waited for until then.
    let mut crashed = started.with(|w| w.runtime.containers[0].state = exited(1));
    crashed.publish();
    let before = crashed.container();
    let again = crashed.busy(start).with(|w| {
        w.runtime.containers.insert(0, super::world::instance("c", "id2", 11, running()));
    });
    assert_eq!(again.container(), before);
}

#[test]
fn mounts_are_told_with_their_modes() {
    let world = World::new(json!({"containers": [{"name": "c", "image": "i", "volumeMounts": [
        {"name": "a", "mountPath": "/a"},
        {"name": "b", "mountPath": "/b", "readOnly": true},
        {"name": "d", "mountPath": "/d", "readOnly": true, "recursiveReadOnly": "IfPossible"},
    ]}]}));
    assert_eq!(world.container()["volumeMounts"][2]["recursiveReadOnly"], "Disabled", "it is not possible");
    let able = RuntimeHandler { recursive_read_only_mounts: true, ..RuntimeHandler::default() };
    let world = world.with(|w| w.node.runtime_handlers = vec![able]);
    assert_eq!(
        world.container()["volumeMounts"],
        json!([
            {"name": "a", "mountPath": "/a"},
            {"name": "b", "mountPath": "/b", "readOnly": true, "recursiveReadOnly": "Disabled"},
            {"name": "d", "mountPath": "/d", "readOnly": true, "recursiveReadOnly": "Enabled"},
        ])
    );
    let seen = world.instance("c", "id1", running());
    assert_eq!(seen.container()["volumeMounts"][1]["recursiveReadOnly"], "Disabled");
}

#[test]
fn a_mount_is_as_recursive_as_the_handler_of_the_runtime_class_can() {
    let handler = |name: &str, recursive_read_only_mounts| RuntimeHandler {
        name: name.to_owned(),
        recursive_read_only_mounts,
        ..RuntimeHandler::default()
    };
    let mode = |world: &World| world.container()["volumeMounts"][0]["recursiveReadOnly"].clone();
    let meaning = |world: &World, name: Option<&str>| {
        world.clone().with(|w| w.session.runtime_handler = name.map(str::to_owned))
    };
    let world = World::new(json!({"runtimeClassName": "hardened", "containers": [{"name": "c", "image": "i",
        "volumeMounts": [{"name": "a", "mountPath": "/a", "readOnly": true, "recursiveReadOnly": "Enabled"}],
    }]}));
    let handlers = vec![handler("runc", true), handler("old", false), handler("hardened", false)];
    let world = world.with(|w| w.node.runtime_handlers = handlers);
    assert_eq!(mode(&world), "Disabled", "nobody knows what the class means");
    assert_eq!(mode(&meaning(&world, Some("old"))), "Disabled");
    let mut able = meaning(&world, Some("runc"));
    assert_eq!(mode(&able), "Enabled");
    able.publish();
    assert_eq!(mode(&meaning(&able, None)), "Enabled", "what was told stays until something else is known");
}

#[test]
fn the_pod_asks_for_what_its_containers_ask_for_at_most() {
    let asks = |cpu: &str, memory: &str| json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}});
    let world = World::new(json!({
        "overhead": {"cpu": "1m", "memory": "1M"},
        "initContainers": [
            {"name": "i", "image": "i", "resources": asks("900m", "1M")},
            {"name": "s", "image": "i", "restartPolicy": "Always", "resources": asks("30m", "10M")},
        ],
        "containers": [{"name": "c", "image": "i", "resources": asks("333m", "100M")}],
    }));
    let status = world.json();
    assert_eq!(status["allocatedResources"], json!({"cpu": "901m", "memory": "111M"}));
    assert_eq!(
        status["resources"],
        json!({"limits": {"memory": "111M"}, "requests": {"cpu": "901m", "memory": "111M"}})
    );
}
