//! One container.

use crablet_model::names::phase::{PENDING, RUNNING};
use crablet_model::runtime::{ContainerState, ContainerUser, PodRuntime, SandboxState};
use serde_json::{Value, json};

use super::super::super::facts::Session;
use super::super::super::memory::Failure;
use super::world::{NOW, World, at, crash_loops, exited, failed_pull, instance, running};

#[test]
fn a_crash_looping_container_waits_and_shows_its_last_end() {
    let world = World::one("Always").sandbox(SandboxState::Ready).instance("c", "id2", exited(1));
    let mut world = world.with(|w| crash_loops(w, "id1"));
    let expected = json!({
        "reason": "CrashLoopBackOff",
        "message": "back-off 10s restarting failed container=c pod=web_default(u1)",
    });
    assert_eq!(world.container()["state"]["waiting"], expected);
    assert_eq!(world.container()["lastState"]["terminated"]["exitCode"], 1);
    assert_eq!(world.container()["lastState"]["terminated"]["containerID"], "containerd://id2");
    assert_eq!((world.container()["ready"].clone(), world.phase().as_str()), (json!(false), RUNNING));
    world.publish();
    // The wait is over and the start begins: the container still waits, until the next instance is there.
    let world = world.with(|w| crash_loops(w, "id2"));
    assert_eq!(world.container()["state"]["waiting"], expected);
    let world = world.with(|w| w.runtime.containers.insert(0, instance("c", "id3", 2, running())));
    assert_eq!(world.container()["state"], json!({"running": {"startedAt": "2023-11-14T22:12:30Z"}}));
    assert_eq!(world.container()["lastState"]["terminated"]["containerID"], "containerd://id2");
}

#[test]
fn a_container_that_waited_when_its_pod_was_deleted_shows_its_end_as_the_last_one_too() {
    let world = World::one("Always").sandbox(SandboxState::Ready).instance("c", "id2", exited(1));
    let mut world = world.with(|w| crash_loops(w, "id1"));
    world.publish();
    let mut ending = world.ends();
    for turn in 0..2 {
        let status = ending.container();
        for state in ["state", "lastState"] {
            assert_eq!(status[state]["terminated"]["containerID"], "containerd://id2", "{state} {turn}");
        }
        ending.publish();
    }
}

#[test]
fn a_container_that_could_not_be_replaced_has_no_end_before_its_own() {
    let world = World::one("Never").sandbox(SandboxState::Ready).instance("c", "id1", exited(137));
    let mut world = world.with(|w| w.memory.replaced = [("c".to_owned(), "id1".to_owned())].into());
    assert_eq!(world.container()["lastState"]["terminated"]["containerID"], "containerd://id1");
    world.publish();
    let world = world.with(|w| w.memory.replaced.clear());
    assert_eq!(world.container()["state"]["terminated"]["exitCode"], 137);
    assert_eq!(world.container()["lastState"], json!({}));
}

#[test]
fn a_failed_pull_shows_itself_first_and_its_back_off_later() {
    let shown = |seconds_ago| {
        let world = World::one("Always").sandbox(SandboxState::Ready);
        let pull = failed_pull(seconds_ago);
        let world = world.with(|w| drop(w.memory.pulls.insert("busybox:latest".to_owned(), pull)));
        assert_eq!(world.phase(), PENDING);
        world.container()["state"]["waiting"].clone()
    };
    let own = json!({"reason": "ErrImagePull", "message": "no such host"});
    let back_off = json!({
        "reason": "ImagePullBackOff",
        "message": "Back-off pulling image \"busybox\": ErrImagePull: no such host",
    });
    for (seconds_ago, expected) in [(-5, &own), (0, &own), (9, &own), (10, &back_off), (30, &back_off)] {
        assert_eq!(&shown(seconds_ago), expected, "{seconds_ago} s after the failure");
    }
}

#[test]
fn a_long_back_off_is_not_hidden_behind_the_failure() {
    let back_off = "ImagePullBackOff";
    for (seconds_ago, expected) in [(11, "ErrImagePull"), (12, back_off), (140, back_off)] {
        let mut pull = failed_pull(seconds_ago);
        pull.delay_seconds = 300;
        let world = World::one("Always").sandbox(SandboxState::Ready);
        let world = world.with(|w| drop(w.memory.pulls.insert("busybox:latest".to_owned(), pull)));
        assert_eq!(world.container()["state"]["waiting"]["reason"], expected, "after {seconds_ago} s");
    }
}

#[test]
fn a_failed_pull_of_an_image_that_is_a_volume_is_told_of_those_who_mount_it() {
    let mounts = json!([{"name": "art", "mountPath": "/art"}]);
    let world = World::new(json!({
        "restartPolicy": "Always",
        "containers": [
            {"name": "c", "image": "busybox", "volumeMounts": mounts},
            {"name": "d", "image": "busybox"},
        ],
        "volumes": [{"name": "art", "image": {"reference": "r.io/art"}}],
    }));
    let world = world.sandbox(SandboxState::Ready);
    let pull = failed_pull(30);
    let world = world.with(|w| drop(w.memory.pulls.insert("r.io/art:latest".to_owned(), pull)));
    let message = "Back-off pulling image \"r.io/art\": ErrImagePull: no such host";
    let waiting = json!({"reason": "ImagePullBackOff", "message": message});
    assert_eq!(world.container()["state"]["waiting"], waiting);
    let all = serde_json::to_value(world.status().container_statuses).unwrap();
    assert_eq!(all[1]["state"]["waiting"]["reason"], "ContainerCreating");
}

#[test]
fn a_failed_start_is_told_only_of_a_container_that_should_start() {
    let failure = Failure {
        reason: "CreateContainerError".to_owned(),
        message: "disk full".to_owned(),
        count: 1,
        failed_at: at(NOW),
        retry_at: at(NOW + 10),
    };
    let failed = |policy: &str, state: Option<ContainerState>| {
        let world = World::one(policy).sandbox(SandboxState::Ready);
        let world = world.with(|w| drop(w.memory.failures.insert("c".to_owned(), failure.clone())));
        match state {
            Some(state) => world.instance("c", "id1", state),
            None => world,
        }
    };
    let waiting = json!({"waiting": {"reason": "CreateContainerError", "message": "disk full"}});
    assert_eq!(failed("Always", None).container()["state"], waiting);
    assert_eq!(failed("Always", Some(ContainerState::Created)).container()["state"], waiting);
    assert_eq!(failed("Always", Some(exited(1))).container()["state"], waiting);
    assert_eq!(failed("Always", Some(exited(1))).container()["lastState"]["terminated"]["exitCode"], 1);
    assert!(failed("Never", Some(exited(1))).container()["state"]["terminated"].is_object());
    assert!(failed("Always", Some(running())).container()["state"]["running"].is_object());
    let ending = failed("Always", None).sandbox(SandboxState::Ready).ends();
    assert_eq!(ending.container()["state"]["waiting"]["reason"], "ContainerCreating");
}

#[test]
fn the_message_of_an_end_joins_the_runtimes_and_the_containers() {
    for (runtime, file, expected) in [
        ("", None, Value::Null),
        ("", Some(""), Value::Null),
        ("oom", None, json!("oom")),
        ("oom", Some(""), json!("oom")),
        ("", Some("bye"), json!("bye")),
        ("oom", Some("bye"), json!("oom: bye")),
    ] {
        let mut world = World::one("Never").instance("c", "id1", exited(1)).with(|w| {
            if let ContainerState::Exited(exit) = &mut w.runtime.containers[0].state {
                exit.message = runtime.to_owned();
            }
            w.session.termination_messages.extend(file.map(|text| ("id1".to_owned(), text.to_owned())));
        });
        assert_eq!(world.container()["state"]["terminated"]["message"], expected, "{runtime:?} {file:?}");
        // The next life of the agent has not read the file yet, or finds it gone.
        world.publish().session = Session::default();
        assert_eq!(
            world.container()["state"]["terminated"]["message"],
            expected,
            "{runtime:?} {file:?} again"
        );
    }
}

#[test]
fn long_messages_share_the_room_of_the_pod() {
    let specs: Vec<_> = ["c", "d", "e"].iter().map(|n| json!({"name": n, "image": "i"})).collect();
    let world = World::new(json!({"restartPolicy": "Never", "containers": specs}))
        .instance("c", "id1", exited(1))
        .with(|w| drop(w.session.termination_messages.insert("id1".to_owned(), "ü".repeat(5000))));
    let message = world.container()["state"]["terminated"]["message"].as_str().map(str::len);
    assert_eq!(message, Some(4096));
}

#[test]
fn a_message_is_cut_within_a_character_and_stays_so() {
    let specs: Vec<_> = ["c", "d", "e"].iter().map(|n| json!({"name": n, "image": "i"})).collect();
    let mut world = World::new(json!({"restartPolicy": "Never", "containers": specs}))
        .instance("c", "id1", exited(1))
        .with(|w| drop(w.session.termination_messages.insert("id1".to_owned(), "€".repeat(5000))));
    // 4096 bytes: one is left of the character that does not fit.
    let expected = json!("€".repeat(1365) + "\u{fffd}");
    assert_eq!(world.container()["state"]["terminated"]["message"], expected);
    world.publish().session = Session::default();
    assert_eq!(world.container()["state"]["terminated"]["message"], expected);
}

#[test]
fn a_container_that_never_started_began_at_the_zero_of_time() {
    let world = World::one("Never").instance("c", "id1", exited(128)).with(|w| {
        if let ContainerState::Exited(exit) = &mut w.runtime.containers[0].state {
            exit.started_at = None;
        }
    });
    assert_eq!(
        world.container()["state"]["terminated"],
        json!({
            "exitCode": 128, "reason": "Error", "containerID": "containerd://id1",
            "startedAt": "1970-01-01T00:00:00Z", "finishedAt": "2023-11-14T22:13:15Z",
        })
    );
}

#[test]
fn a_container_that_ran_and_is_gone_counts_as_restarted() {
    let mut world = World::one("Always").sandbox(SandboxState::Ready).instance("c", "id1", running());
    world.publish();
    let mut world = world.with(|w| w.runtime.containers.clear());
    let gone = json!({
        "exitCode": 137, "reason": "ContainerStatusUnknown",
        "message": "The container could not be located when the pod was deleted.  The container used to be Running",
    });
    for _ in 0..2 {
        assert_eq!(world.container()["state"], json!({"waiting": {"reason": "ContainerCreating"}}));
        assert_eq!(world.container()["lastState"]["terminated"], gone);
        assert_eq!(world.container()["restartCount"], 11);
        assert_eq!(world.phase(), RUNNING);
        world.publish();
    }
}

#[test]
fn a_container_in_an_unknown_state_that_ran_has_ended() {
    let mut world = World::one("Always").sandbox(SandboxState::Ready).instance("c", "id1", running());
    world.publish();
    let mut world = world.with(|w| w.runtime.containers[0].state = ContainerState::Unknown);
    for _ in 0..2 {
        assert_eq!(world.container()["state"]["terminated"]["reason"], "ContainerStatusUnknown");
        assert_eq!(world.container()["restartCount"], 11);
        world.publish();
    }
    let never_ran = World::one("Always").instance("c", "id1", ContainerState::Unknown);
    assert_eq!(never_ran.container()["state"], json!({"waiting": {}}));
}

#[test]
fn an_ended_container_is_remembered_when_the_runtime_forgets_it() {
    let mut world = World::one("Never").sandbox(SandboxState::NotReady).instance("c", "id1", exited(3));
    world.publish();
    let published = world.memory.status.clone().expect("a status");
    let world = world.with(|w| w.runtime = PodRuntime::default());
    assert_eq!(world.status(), published);
}

#[test]
fn the_restart_count_never_falls() {
    let mut world = World::one("Always").instance("c", "id1", running());
    world.publish();
    let world = world.with(|w| w.runtime.containers[0].restart_count = 0);
    assert_eq!(world.container()["restartCount"], 10);
}

#[test]
fn the_last_end_outlives_the_instance_that_ended() {
    let mut world = World::one("Always").sandbox(SandboxState::Ready).instance("c", "id1", exited(3));
    world.publish();
    let mut world = world.with(|w| w.runtime.containers[0] = instance("c", "id2", 11, running()));
    for _ in 0..2 {
        assert_eq!(world.container()["lastState"]["terminated"]["containerID"], "containerd://id1");
        world.publish();
    }
    let world = world.with(|w| w.runtime.containers[0].state = exited(4));
    assert_eq!(world.container()["state"]["terminated"]["containerID"], "containerd://id2");
    assert_eq!(world.container()["lastState"]["terminated"]["containerID"], "containerd://id1");
}

#[test]
fn whose_an_instance_is_stays_known_while_it_is_removed() {
    let mut world = World::one("Never").sandbox(SandboxState::Ready).instance("c", "id1", running());
    let user = ContainerUser { uid: 1, gid: 2, supplemental_groups: vec![2] };
    world.runtime.containers[0].user = Some(user);
    world.publish();
    let forgotten = world.with(|w| {
        w.runtime.containers[0].user = None;
        w.runtime.containers[0].state = exited(1);
    });
    assert_eq!(forgotten.container()["user"]["linux"]["uid"], 1);
    let another = forgotten.with(|w| w.runtime.containers[0].id = "id2".to_owned());
    assert_eq!(another.container()["user"], Value::Null);
}
