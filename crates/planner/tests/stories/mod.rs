//! The life of whole pods, step by step: what happens to one, and what the plans begin in answer.

mod ends;
mod pulls;
mod removals;
mod restarts;

use crate::world::{Happening, Part, Sketch, World};
use crablet_planner::pod::{Action, plan};

const PLAIN: Part = Part {
    policy: None,
    rule: None,
    rules_others: false,
    startup: false,
    liveness: false,
    readiness: false,
    grace: None,
    pre_stop: false,
    post_start: false,
    sized: false,
    restarts_for: None,
};
const SIDECAR: Part = Part { policy: Some("Always"), ..PLAIN };

fn pod(policy: &'static str, init: &[Part], regular: &[Part]) -> World {
    World::new(&Sketch { init: init.to_vec(), regular: regular.to_vec(), ..Sketch::plain(0, policy) })
}

fn api_pod(policy: &'static str, init: &[Part], regular: &[Part]) -> World {
    let plain = Sketch::plain(0, policy);
    World::new(&Sketch { init: init.to_vec(), regular: regular.to_vec(), is_static: false, ..plain })
}

fn is_hook(action: &Action) -> bool {
    matches!(action, Action::PreStop { .. })
}

fn is_stop(action: &Action) -> bool {
    matches!(action, Action::StopContainer { .. })
}

#[test]
fn init_containers_run_one_after_the_other_and_sidecars_stay() {
    let gated = Part { startup: true, ..SIDECAR };
    let mut world = pod("Always", &[PLAIN, gated, PLAIN], &[PLAIN, PLAIN]);
    assert_eq!(world.settle(), ["sandbox 0", "start i0 0"]);
    world.exits("i0", 0);
    assert_eq!(world.settle(), ["start i1 0"]);
    assert!(world.settle().is_empty(), "the startup probe has not said anything");
    world.finds("i1", Some(true), None);
    assert_eq!(world.settle(), ["start i2 0"]);
    world.exits("i2", 0);
    assert_eq!(world.settle(), ["start c0 0", "start c1 0"]);
    assert_eq!(world.running(), ["c0", "c1", "i1"]);
}

#[test]
fn a_sidecar_that_ends_is_started_again_and_only_it() {
    let mut world = pod("Never", &[PLAIN, SIDECAR], &[PLAIN]);
    world.settle();
    world.exits("i0", 0);
    world.settle();
    assert_eq!(world.running(), ["c0", "i1"]);
    world.exits("i1", 0);
    assert_eq!(world.settle(), ["start i1 1"]);
    world.vanishes("i0");
    world.vanishes("i1");
    assert_eq!(world.settle(), ["start i1 2"]);
}

#[test]
fn a_sidecar_that_ends_as_soon_as_it_begins_holds_back_those_after_it() {
    let mut world = pod("Always", &[SIDECAR], &[PLAIN]);
    for _ in 0..10 {
        world.happen(Happening::Turn);
        world.happen(Happening::End { which: 0, well: true });
    }
    assert_eq!(world.running(), ["i0"], "it has not shown yet that it stays");
    world.exits("i0", 1);
    assert_eq!(world.settle(), ["sandbox 0", "start i0 0", "start i0 1", "start c0 0"]);
}

#[test]
fn a_sidecar_with_a_failed_startup_probe_is_stopped_with_the_grace_of_the_probe() {
    let mut world = pod("Always", &[Part { startup: true, grace: Some(7), ..SIDECAR }], &[PLAIN]);
    world.settle();
    world.finds("i0", Some(false), None);
    assert_eq!(world.settle(), ["stop i0 7 s", "start i0 1"]);
}

#[test]
fn a_failed_init_container_runs_again_or_takes_the_pod_with_it() {
    let cases: [(&str, Part, i32, &[&str], &str); 6] = [
        ("Always", PLAIN, 1, &["start i0 1"], "Pending"),
        ("OnFailure", PLAIN, 1, &["start i0 1"], "Pending"),
        ("Never", PLAIN, 1, &["stop sandbox", "release"], "Failed"),
        ("Never", Part { policy: Some("OnFailure"), ..PLAIN }, 1, &["start i0 1"], "Pending"),
        ("Always", Part { policy: Some("Never"), ..PLAIN }, 1, &["stop sandbox", "release"], "Failed"),
        (
            "Never",
            Part { policy: Some("Never"), rule: Some("Restart"), ..PLAIN },
            42,
            &["start i0 1"],
            "Pending",
        ),
    ];
    for (policy, part, code, expected, phase) in cases {
        let mut world = api_pod(policy, &[part, PLAIN], &[PLAIN]);
        world.settle();
        world.exits("i0", code);
        assert_eq!(world.settle(), expected, "{policy} {part:?}");
        assert_eq!(world.phase(), phase, "{policy} {part:?}");
    }
}

#[test]
fn an_init_container_out_of_memory_has_failed_even_with_code_0() {
    let mut world = pod("Always", &[PLAIN], &[PLAIN]);
    world.settle();
    world.happen(Happening::Exit { which: 0, code: 0, out_of_memory: true });
    assert_eq!(world.settle(), ["start i0 1"]);
}

#[test]
fn a_lost_init_container_is_stopped_and_runs_again() {
    let mut world = pod("Always", &[PLAIN], &[PLAIN]);
    world.settle();
    world.loses("i0");
    assert_eq!(world.settle(), ["stop i0 30 s", "start i0 2"], "the one that was lost counts");
}

#[test]
fn a_new_sandbox_begins_with_the_first_init_container() {
    let mut world = pod("Always", &[PLAIN, SIDECAR], &[PLAIN]);
    world.settle();
    world.exits("i0", 0);
    world.settle();
    world.happen(Happening::SandboxDies);
    let begun = world.settle();
    assert_eq!(begun, ["stop sandbox", "remove i0", "remove i1", "sandbox 1", "start i0 1"]);
    world.exits("i0", 0);
    world.settle();
    world.after(10);
    assert_eq!(world.running(), ["c0", "i1"]);
}

#[test]
fn sidecars_do_not_keep_a_pod_alive() {
    let hooked = Part { pre_stop: true, ..SIDECAR };
    let mut world = api_pod("OnFailure", &[hooked, SIDECAR], &[PLAIN]);
    world.settle();
    assert_eq!(world.running(), ["c0", "i0", "i1"]);
    world.exits("c0", 0);
    // The hook of the first runs at once; it is stopped after the second all the same.
    assert_eq!(world.settle(), ["stop i1 30 s", "hook i0 30 s", "stop i0 30 s", "stop sandbox", "release"]);
    assert_eq!(world.phase(), "Succeeded");
    assert!(world.after(1000).settle().is_empty());
}

#[test]
fn a_failed_liveness_probe_stops_a_container_and_its_policy_starts_it_again() {
    let probed = Part { liveness: true, pre_stop: true, grace: Some(9), ..PLAIN };
    let mut world = api_pod("OnFailure", &[], &[probed]);
    world.settle();
    world.finds("c0", None, Some(false));
    assert_eq!(world.settle_but(is_stop), ["hook c0 9 s", "stop c0 9 s"]);
    // It ends with 0, which would be the end of it had it ended by itself.
    world.exits("c0", 0);
    assert_eq!(world.settle(), ["start c0 1"]);
    assert_eq!(world.phase(), "Running");

    let mut world = api_pod("Never", &[], &[probed, PLAIN]);
    world.settle();
    world.finds("c0", None, Some(false));
    assert_eq!(world.settle(), ["hook c0 9 s", "stop c0 9 s"]);
    assert_eq!(world.running(), ["c1"]);
}

#[test]
fn what_is_told_of_a_stop_is_told_once() {
    let hooked = Part { liveness: true, pre_stop: true, ..PLAIN };
    let mut world = pod("Always", &[], &[hooked, Part { liveness: true, ..PLAIN }]);
    world.settle();
    world.finds("c0", None, Some(false));
    world.finds("c1", None, Some(false));
    let facts = world.facts();
    let messages: Vec<String> = plan(&facts)
        .actions
        .into_iter()
        .filter_map(|action| match action {
            Action::PreStop { message, .. } | Action::StopContainer { message, .. } => Some(message),
            _ => None,
        })
        .collect();
    let told = |name: &str| format!("Container {name} failed liveness probe, will be restarted");
    assert_eq!(messages, [told("c0"), told("c1")]);
    world.settle_but(is_stop);
    let silent = |action: &Action| matches!(action, Action::StopContainer { container, message, .. } if container == "c0" && message.is_empty());
    world.finish(silent);
}

#[test]
fn what_ran_in_a_lost_sandbox_network_runs_on_in_the_next() {
    // It heeds the signal and ends with 0, which is not the end of its work.
    let mut world = api_pod("OnFailure", &[], &[PLAIN]);
    world.settle();
    world.loses_address();
    assert_eq!(world.settle(), ["stop c0 30 s", "stop sandbox", "sandbox 1", "start c0 1"]);
}

/// The seconds in which a pod says that it waits for the network, of as many as are told.
fn tells_of_network(world: &mut World, seconds: i64) -> Vec<i64> {
    const TEXT: &str =
        "network is not ready: container runtime network not ready: cni plugin not initialized";
    let mut told = Vec::new();
    for second in 0..seconds {
        for event in plan(&world.facts()).events {
            assert_eq!((&*event.reason, &*event.message), ("NetworkNotReady", TEXT));
            told.push(second);
        }
        world.happen(Happening::Turn);
        world.after(1);
    }
    told
}

#[test]
fn a_pod_that_waits_for_the_network_says_so_again_and_again() {
    let mut world = pod("Always", &[], &[PLAIN]);
    world.happen(Happening::Network { ready: false });
    assert_eq!(tells_of_network(&mut world, 100), [0, 1, 3, 7, 15, 31, 61, 91]);
    let wakes = plan(&world.facts()).wake_at.expect("somebody has to look at the clock");
    assert!(wakes.duration_since(world.now()).as_secs() <= 30);

    // The next time is another time.
    world.happen(Happening::Network { ready: true });
    assert_eq!(world.settle(), ["sandbox 0", "start c0 0"]);
    world.happen(Happening::Network { ready: false });
    assert!(plan(&world.facts()).events.is_empty(), "it has a sandbox");
    world.sandbox_vanishes();
    assert_eq!(tells_of_network(&mut world, 4), [0, 1, 3]);

    let mut of_host = World::new(&Sketch { host_network: true, ..Sketch::plain(1, "Always") });
    of_host.happen(Happening::Network { ready: false });
    assert!(plan(&of_host.facts()).events.is_empty());
    assert_eq!(of_host.settle(), ["sandbox 0", "start c0 0"]);
}

#[test]
fn a_changed_definition_restarts_whatever_the_policy() {
    let mut world = api_pod("Never", &[], &[PLAIN]);
    world.settle();
    world.edit();
    assert_eq!(world.settle(), ["stop c0 30 s", "start c0 1"]);
}

#[test]
fn a_sidecar_is_not_started_again_while_the_last_work_is_being_stopped() {
    let hooked = Part { pre_stop: true, liveness: true, ..PLAIN };
    let mut world = api_pod("Never", &[SIDECAR], &[hooked]);
    world.settle();
    world.finds("c0", None, Some(false));
    assert_eq!(world.settle_but(is_hook), ["hook c0 30 s"]);
    world.exits("i0", 0);
    assert!(world.settle_but(is_hook).is_empty(), "it would have nobody to serve");
    world.finish(is_hook);
    assert_eq!(world.settle(), ["stop c0 30 s", "stop sandbox", "release"]);
    assert_eq!(world.phase(), "Failed");
}

#[test]
fn containers_end_after_their_hooks_and_sidecars_last() {
    let hooked = Part { pre_stop: true, ..PLAIN };
    let mut world = pod("Always", &[SIDECAR, Part { pre_stop: true, ..SIDECAR }], &[hooked, PLAIN]);
    world.settle();
    world.happen(Happening::Delete);
    assert_eq!(
        world.settle_but(|a| is_hook(a) || is_stop(a)),
        ["stop c1 30 s", "hook c0 30 s", "hook i1 30 s"]
    );
    world.after(4).finish(is_hook);
    assert_eq!(world.settle_but(|a| is_hook(a) || is_stop(a)), ["stop c0 26 s"]);
    world.finish(is_stop);
    world.finish(is_stop);
    assert!(world.settle_but(is_hook).is_empty(), "the hook of the second sidecar runs");
    world.after(4).finish(is_hook);
    let rest = world.settle();
    assert_eq!(rest[..3], ["stop i1 22 s", "stop i0 22 s", "stop sandbox"]);
    assert!(world.is_gone());
}

#[test]
fn nobody_waits_longer_than_the_grace() {
    let hooked = Part { pre_stop: true, ..PLAIN };
    let mut world = pod("Always", &[SIDECAR], &[hooked]);
    world.settle();
    world.happen(Happening::Delete);
    let hangs = |a: &Action| is_hook(a) || is_stop(a);
    assert_eq!(world.settle_but(hangs), ["hook c0 30 s"]);
    world.happen(Happening::Hurry { grace: 5 });
    assert!(world.after(4).settle_but(hangs).is_empty());
    // The hook overruns; the sidecar does not wait for those who had their time either.
    assert_eq!(world.after(1).settle_but(hangs), ["stop c0 2 s", "stop i0 2 s"]);
}

#[test]
fn a_stop_under_way_is_shortened() {
    let mut world = pod("Always", &[], &[PLAIN]);
    world.settle();
    world.happen(Happening::Delete);
    assert_eq!(world.settle_but(is_stop), ["stop c0 30 s"]);
    world.happen(Happening::Hurry { grace: 5 });
    assert_eq!(world.after(2).settle_but(is_stop), ["stop c0 3 s"]);
    assert!(world.settle_but(is_stop).is_empty());
}

#[test]
fn an_end_does_not_wait_for_a_hook_after_a_start() {
    let hooked = Part { post_start: true, ..PLAIN };
    let mut world = pod("Always", &[], &[hooked]);
    let starts = |a: &Action| matches!(a, Action::StartContainer { .. });
    assert_eq!(world.settle_but(starts), ["sandbox 0", "start c0 0"]);
    world.happen(Happening::Runs { which: 0 });
    world.happen(Happening::Delete);
    assert_eq!(world.settle_but(starts)[..2], ["stop c0 30 s", "stop sandbox"]);
    assert!(world.is_gone());
}

#[test]
fn a_failed_hook_after_a_start_is_followed_by_a_restart_with_back_off() {
    let hooked = Part { post_start: true, ..PLAIN };
    let mut world = pod("Always", &[], &[hooked]);
    let starts = |a: &Action| matches!(a, Action::StartContainer { .. });
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.extend(world.settle_but(starts));
        world.happen(Happening::Runs { which: 0 });
        world.happen(Happening::End { which: 0, well: false });
        seen.extend(world.settle_but(starts));
        world.after(9);
        seen.extend(world.settle_but(starts));
        world.after(1);
    }
    seen.retain(|begun| begun.starts_with("start"));
    assert_eq!(seen, ["start c0 0", "start c0 1", "start c0 2"]);
}

#[test]
fn an_ephemeral_container_runs_once_beside_whatever_the_others_do() {
    let sketch = Sketch { ephemeral: 1, init: vec![PLAIN], ..Sketch::plain(1, "Always") };
    let mut world = World::new(&sketch);
    assert_eq!(world.settle(), ["sandbox 0", "start e0 0", "start i0 0"]);
    world.exits("e0", 1);
    assert!(world.settle().is_empty());
    world.vanishes("e0");
    assert!(world.settle().is_empty());
    world.happen(Happening::AgentRestarts { took_effect: true });
    assert!(world.settle().is_empty());
}

#[test]
fn a_rule_starts_everything_afresh() {
    let asks = Part { policy: Some("Never"), rule: Some("RestartAllContainers"), ..PLAIN };
    let hooked = Part { pre_stop: true, ..PLAIN };
    let mut world = api_pod("Never", &[PLAIN, SIDECAR], &[asks, hooked]);
    world.settle();
    world.exits("i0", 0);
    world.settle();
    assert_eq!(world.running(), ["c0", "c1", "i1"]);
    world.exits("c0", 42);
    assert_eq!(
        world.settle(),
        ["stop c1 2 s", "reset c1", "reset i0", "stop i1 2 s", "reset i1", "reset c0", "start i0 1"]
    );
    world.exits("i0", 0);
    assert_eq!(world.settle(), ["start i1 1", "start c0 1", "start c1 1"]);
    assert_eq!(world.phase(), "Running");
    world.exits("c0", 1);
    world.exits("c1", 0);
    world.settle();
    assert_eq!(world.phase(), "Failed");
}

#[test]
fn a_deadline_ends_a_pod_within_its_own_grace() {
    let sketch = Sketch { deadline: Some(60), is_static: false, ..Sketch::plain(1, "Always") };
    let mut world = World::new(&sketch);
    world.settle();
    assert!(plan(&world.facts()).wake_at.is_some(), "somebody has to look at the clock");
    assert!(world.after(59).settle().is_empty());
    assert_eq!(world.after(1).settle(), ["stop c0 30 s", "stop sandbox", "release"]);
    assert_eq!((world.phase(), world.reason()), ("Failed", "DeadlineExceeded"));
    world.happen(Happening::AgentRestarts { took_effect: true });
    assert_eq!(world.settle(), ["stop sandbox", "release"]);
    assert_eq!((world.phase(), world.reason()), ("Failed", "DeadlineExceeded"));
}

#[test]
fn what_the_node_refuses_is_never_begun() {
    let mut world = World::new(&Sketch { is_static: false, ..Sketch::plain(1, "Always") });
    world.happen(Happening::Evicted { grace: None });
    assert_eq!(world.settle(), ["release"]);
    assert_eq!((world.phase(), world.reason()), ("Failed", "Evicted"));
}

#[test]
fn an_evicted_pod_has_the_time_that_the_node_gives_it() {
    let mut world = World::new(&Sketch { is_static: false, ..Sketch::plain(1, "Always") });
    world.settle();
    world.happen(Happening::Evicted { grace: Some(4) });
    assert_eq!(world.settle_but(is_stop), ["stop c0 4 s"]);
    // A deletion that would give it more does not.
    world.happen(Happening::Delete);
    assert!(world.after(1).settle_but(is_stop).is_empty());
}

#[test]
fn what_is_replaced_is_started_again_also_if_the_first_try_fails() {
    let mut world = api_pod("Never", &[], &[PLAIN]);
    world.settle();
    world.edit();
    let starts = |a: &Action| matches!(a, Action::StartContainer { .. });
    assert_eq!(world.settle_but(starts), ["stop c0 30 s", "start c0 1"]);
    // The agent dies between the creation and the start of the new instance, which then does not start.
    world.happen(Happening::AgentRestarts { took_effect: false });
    let starts = |a: &Action| matches!(a, Action::StartCreated { .. });
    assert_eq!(world.settle_but(starts), ["start created c0"]);
    world.happen(Happening::End { which: 0, well: false });
    world.settle();
    assert_eq!(world.after(10).settle(), ["remove c0", "start c0 2"]);
    assert_eq!(world.phase(), "Running");
}
