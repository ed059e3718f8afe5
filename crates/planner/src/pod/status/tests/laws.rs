//! What holds for every world, however odd.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crablet_model::names::phase;
use crablet_model::runtime::{Container, ContainerState, Exit, PodRuntime, Sandbox, SandboxState};
use serde_json::{Value, json};

use super::super::super::facts::Session;
use super::super::super::memory::{Failure, Memory};
use super::super::api;
use super::world::{NOW, World, at, crash_loops, failed_pull, instance, sandbox};

fn states() -> impl Strategy<Value = ContainerState> {
    // Far enough apart that no back-off ends within the seconds that a test lets pass.
    let time = || (-20..20_i64).prop_map(|n| at(NOW + 50 * n));
    prop_oneof![
        Just(ContainerState::Created),
        Just(ContainerState::Unknown),
        time().prop_map(|started_at| ContainerState::Running { started_at }),
        (prop_oneof![Just(0), Just(1), any::<i32>()], "[a-zü]{0,8}", option::of(time()), time()).prop_map(
            |(code, message, started_at, finished_at)| {
                ContainerState::Exited(Exit {
                    code,
                    reason: "Error".to_owned(),
                    message,
                    started_at,
                    finished_at,
                })
            }
        ),
    ]
}

fn sandboxes() -> impl Strategy<Value = Vec<Sandbox>> {
    let one = (any::<bool>(), 0..3_u32, any::<bool>(), any::<bool>());
    vec(one, 0..4).prop_map(|all| {
        let make = |(i, (ready, attempt, has_ip, host_network)): (usize, (bool, u32, bool, bool))| {
            let state = if ready { SandboxState::Ready } else { SandboxState::NotReady };
            let mut made = Sandbox { host_network, ..sandbox(&format!("s{i}"), attempt, state) };
            if !has_ip {
                made.ips.clear();
            }
            made
        };
        all.into_iter().enumerate().map(make).collect()
    })
}

fn containers() -> impl Strategy<Value = Vec<Container>> {
    let one = (prop_oneof![Just("a"), Just("b"), Just("stranger")], any::<u32>(), states());
    vec(one, 0..7).prop_map(|all| {
        let make = |(i, (name, count, state)): (usize, (&str, u32, _))| {
            instance(name, &format!("id{i}"), count, state)
        };
        all.into_iter().enumerate().map(make).collect()
    })
}

/// Reasons to wait whose wording does not change within the seconds that a test lets pass.
fn memories() -> impl Strategy<Value = Memory> {
    let failure = (any::<bool>(), "[a-z]{0,5}").prop_map(|(there, message)| {
        there.then(|| {
            let reason = "RunContainerError".to_owned();
            (
                "a".to_owned(),
                Failure { reason, message, count: 1, failed_at: at(NOW), retry_at: at(NOW + 10) },
            )
        })
    });
    let pull = option::of(prop_oneof![Just(-100), Just(100)])
        .prop_map(|ago| ago.map(|ago| ("busybox:latest".to_owned(), failed_pull(ago))));
    (failure, pull).prop_map(|(failure, pull)| Memory {
        failures: failure.into_iter().collect(),
        pulls: pull.into_iter().collect(),
        ..Memory::default()
    })
}

fn specs() -> impl Strategy<Value = Value> {
    let policy = prop_oneof![Just("Always"), Just("OnFailure"), Just("Never"), Just("odd")];
    (policy, 0..3_usize, any::<bool>()).prop_map(|(policy, count, host_network)| {
        let named = ["b", "a"].iter().take(count).map(|n| json!({"name": n, "image": "busybox"}));
        json!({"restartPolicy": policy, "hostNetwork": host_network, "containers": named.collect::<Vec<_>>()})
    })
}

fn worlds() -> impl Strategy<Value = World> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let texts = vec(("id[0-6]", "[a-z]{0,4}"), 0..3);
    (specs(), sandboxes(), containers(), memories(), flags, texts).prop_map(
        |(spec, sandboxes, containers, memory, (ends, is_static, loops, no_spec), texts)| {
            let mut world = World::new(spec);
            world.runtime = PodRuntime { sandboxes, containers }.sorted();
            world.memory = memory;
            world.session.termination_messages = texts.into_iter().collect();
            if loops && world.pod.spec.as_ref().is_some_and(|s| !s.containers.is_empty()) {
                crash_loops(&mut world, "id0");
            }
            if no_spec && !loops {
                world.pod.spec = None;
            }
            let world = if ends { world.ends() } else { world };
            if is_static { world.made_static() } else { world }
        },
    )
}

proptest! {
    /// A restart of the agent changes no pod's status: what was saved and what the runtime shows give it again, also
    /// before termination messages have been read once more.
    #[test]
    fn the_same_facts_give_the_published_status_again(first in worlds(), second in worlds()) {
        // A history: something was published before, of another world.
        let mut world = second;
        world.memory.status = Some(World { pod: world.pod.clone(), ..first }.status());
        world.publish();
        let published = world.memory.status.clone();
        prop_assert_eq!(Some(world.status()), published.clone());
        world.publish().session = Session::default();
        prop_assert_eq!(Some(world.status()), published);
    }

    #[test]
    fn what_was_told_is_not_taken_back(first in worlds(), second in worlds()) {
        let before = World { pod: second.pod.clone(), ..first }.status();
        let mut world = second;
        world.memory.status = Some(before.clone());
        let after = world.status();
        prop_assert_eq!(&after.start_time, &before.start_time);
        if before.phase.as_deref().is_some_and(phase::is_terminal) {
            prop_assert_eq!(&after.phase, &before.phase);
        }
        for (old, new) in before.container_statuses.iter().flatten().zip(after.container_statuses.iter().flatten()) {
            prop_assert!(new.restart_count >= old.restart_count);
        }
    }

    #[test]
    fn a_status_survives_json(world in worlds()) {
        let status = world.status();
        let text = serde_json::to_string(&status).expect("json");
        prop_assert_eq!(serde_json::from_str::<api::PodStatus>(&text).expect("a status"), status);
    }
}
