//! What holds for every world, however odd.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use crablet_model::names::{condition, phase};
use crablet_model::runtime::{Container, ContainerState, Exit, PodRuntime, Sandbox, SandboxState};
use serde_json::{Value, json};

use super::super::super::facts::{Probed, Probes, Session, Verdict};
use super::super::super::memory::{Failure, Memory};
use super::super::{api, holds, is_static};
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
    let one = (select(vec!["a", "b", "first", "beside", "looking", "stranger"]), any::<u32>(), states());
    vec(one, 0..9).prop_map(|all| {
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
    let rules = || {
        option::of(select(vec!["Restart", "RestartAllContainers"])).prop_map(|action| {
            action.map(|action| json!([{"action": action, "exitCodes": {"operator": "In", "values": [1]}}]))
        })
    };
    let probe = || any::<bool>().prop_map(|there| there.then(|| json!({"exec": {"command": ["true"]}})));
    let container = (option::of(select(vec!["Always", "OnFailure", "Never"])), rules(), probe(), probe());
    let parts = subsequence(vec!["b", "a", "first", "beside", "looking"], 0..=5);
    let policy = select(vec!["Always", "OnFailure", "Never", "odd"]);
    (policy, parts, vec(container, 5), any::<bool>()).prop_map(|(policy, parts, containers, host_network)| {
        let mut lists = [vec![], vec![], vec![]];
        for (name, (own, rules, startup, readiness)) in parts.into_iter().zip(containers) {
            let mut container = json!({"name": name, "image": "busybox"});
            for (field, value) in
                [("restartPolicyRules", rules), ("startupProbe", startup), ("readinessProbe", readiness)]
            {
                if let Some(value) = value {
                    container[field] = value;
                }
            }
            let (list, own) = match name {
                "first" => (0, own.filter(|p| *p != "Always")),
                "beside" => (0, Some("Always")),
                "looking" => (2, None),
                _ => (1, own),
            };
            if let Some(own) = own {
                container["restartPolicy"] = json!(own);
            }
            lists[list].push(container);
        }
        let [init, regular, ephemeral] = lists;
        json!({
            "restartPolicy": policy, "hostNetwork": host_network,
            "initContainers": init, "containers": regular, "ephemeralContainers": ephemeral,
        })
    })
}

fn probes() -> impl Strategy<Value = Probes> {
    let result = || option::of(any::<bool>());
    let probed = (result(), result(), result()).prop_map(|(startup, liveness, readiness)| Probed {
        startup,
        liveness,
        readiness,
    });
    btree_map("id[0-8]", probed, 0..5).prop_map(Probes)
}

fn verdicts() -> impl Strategy<Value = Option<Verdict>> {
    let disruption = option::of(Just(("TerminationByKubelet".to_owned(), "evicted".to_owned())));
    let verdict =
        (select(vec!["Evicted", "DeadlineExceeded"]), disruption).prop_map(|(reason, disruption)| {
            let message = "no room".to_owned();
            Verdict { reason: reason.to_owned(), message, since: at(NOW), grace_seconds: None, disruption }
        });
    option::weighted(0.2, verdict)
}

fn worlds() -> impl Strategy<Value = World> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let texts = vec(("id[0-8]", "[a-z]{0,4}"), 0..3);
    (specs(), sandboxes(), containers(), memories(), flags, texts, probes(), verdicts()).prop_map(
        |(spec, sandboxes, containers, memory, (ends, is_static, loops, no_spec), texts, probes, verdict)| {
            let mut world = World::new(spec);
            world.runtime = PodRuntime { sandboxes, containers }.sorted();
            world.memory = Memory { verdict, ..memory };
            world.probes = probes;
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

/// All container statuses, with their names.
fn all(status: &api::PodStatus) -> impl Iterator<Item = &api::ContainerStatus> {
    let lists =
        [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
    lists.into_iter().flatten().flatten()
}

proptest! {
    /// A restart of the agent changes no pod's status: what was saved and what the runtime shows give it again, also
    /// before termination messages have been read once more.
    #[test]
    fn the_same_facts_give_the_published_status_again(first in worlds(), second in worlds()) {
        // A history: something was published before, of another world.
        let mut world = second;
        let before = World { pod: world.pod.clone(), ..first }.status();
        // Once all instances are gone this is told one last time, as something that is over.
        prop_assume!(!holds(Some(&before), condition::ALL_CONTAINERS_RESTARTING));
        world.memory.status = Some(before);
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
        for old in all(&before) {
            for new in all(&after).filter(|new| new.name == old.name) {
                prop_assert!(new.restart_count >= old.restart_count);
            }
        }
    }

    /// Others take a terminal phase for leave to use what the pod holds, and readiness for leave to send it work.
    #[test]
    fn nothing_is_said_too_early(world in worlds()) {
        let status = world.status();
        let mut sandboxes = world.runtime.sandboxes.iter();
        let is_up = !is_static(&world.pod) && sandboxes.any(|s| s.state == SandboxState::Ready);
        let runs = is_up || world.runtime.containers.iter().any(|c| c.state.is_running());
        prop_assert!(!runs || !status.phase.as_deref().is_some_and(phase::is_terminal));
        for container in all(&status) {
            let state = container.state.clone().unwrap_or_default();
            let states = [state.running.is_some(), state.waiting.is_some(), state.terminated.is_some()];
            prop_assert_eq!(states.into_iter().filter(|is| *is).count(), 1, "{:?}", container);
            prop_assert!(state.running.is_some() || container.started != Some(true));
            prop_assert!(!container.ready || container.started == Some(true) || state.terminated.is_some());
        }
        let holds = |kind: &str| {
            status.conditions.iter().flatten().any(|c| c.type_ == kind && c.status == "True")
        };
        prop_assert!(!holds("Ready") || holds("ContainersReady"));
        prop_assert!(!holds("ContainersReady") || status.container_statuses.iter().flatten().all(|c| c.ready));
    }

    #[test]
    fn a_status_survives_json(world in worlds()) {
        let status = world.status();
        let text = serde_json::to_string(&status).expect("json");
        prop_assert_eq!(serde_json::from_str::<api::PodStatus>(&text).expect("a status"), status);
    }
}
