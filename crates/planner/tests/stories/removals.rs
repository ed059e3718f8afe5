//! What somebody removes behind the agent's back: what is left of containers, running ones, whole sandboxes.
//!
//! Upstream goes by what the runtime still has. What it has nothing of is started, unless the pod has come to its end:
//! counted on, and without a back-off. The one difference is a container that has ended for good in a pod that goes on:
//! upstream starts it once more when it next looks at the pod, and we do not.

use super::{PLAIN, SIDECAR, pod};
use crate::world::{Happening, Part, World};

const POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];

fn nothing() -> [String; 0] {
    []
}

/// A pod at work: its init containers have done theirs.
fn runs(policy: &'static str, init: &[Part], regular: &[Part]) -> World {
    let mut world = pod(policy, init, regular);
    for _ in 0..=init.len() {
        world.settle();
        for (index, _) in init.iter().enumerate().filter(|(_, part)| part.policy.is_none()) {
            let name = format!("i{index}");
            if world.running().contains(&name.as_str()) {
                world.exits(&name, 0);
            }
        }
    }
    world.settle();
    world
}

/// The container ends badly twice: the second time it has to wait.
fn waits(world: &mut World, container: &str) {
    for _ in 0..2 {
        world.exits(container, 1);
        world.settle();
    }
    assert!(!world.running().contains(&container), "{container} waits");
}

#[test]
fn what_ran_is_started_again_if_the_pod_goes_on() {
    // Beside one that runs on, as nobody knows how it ended: whatever the policy.
    for policy in POLICIES {
        let mut world = runs(policy, &[], &[PLAIN, PLAIN]);
        for attempt in 1..3 {
            world.vanishes("c0");
            assert_eq!(world.settle(), [format!("start c0 {attempt}")], "{policy}");
            assert_eq!(world.phase(), "Running", "{policy}");
        }
    }
    // Alone, where the policy allows it.
    for (policy, begins, phase) in [
        ("Always", vec!["start c0 1"], "Running"),
        ("OnFailure", vec!["start c0 1"], "Running"),
        ("Never", vec!["stop sandbox", "release"], "Failed"),
    ] {
        let mut world = runs(policy, &[], &[PLAIN]);
        world.vanishes("c0");
        assert_eq!((world.settle(), world.phase()), (owned(&begins), phase), "{policy}");
    }
}

#[test]
fn what_waits_to_be_started_again_waits_no_longer() {
    for policy in ["Always", "OnFailure"] {
        for regular in [&[PLAIN, PLAIN][..], &[PLAIN]] {
            let mut world = runs(policy, &[], regular);
            waits(&mut world, "c0");
            world.vanishes("c0");
            assert_eq!(world.settle(), ["start c0 2"], "{policy}");
        }
    }
}

#[test]
fn what_has_ended_for_good_is_not_begun_again() {
    for (policy, code) in [("OnFailure", 0), ("Never", 0), ("Never", 3)] {
        let mut world = runs(policy, &[], &[PLAIN, PLAIN]);
        world.exits("c0", code);
        assert_eq!(world.settle(), nothing(), "{policy}");
        world.vanishes("c0");
        assert_eq!(world.after(100).settle(), nothing(), "{policy}");
        assert_eq!((world.running(), world.phase()), (vec!["c1"], "Running"), "{policy}");
        // The next life of the agent has the same opinion.
        world.happen(Happening::AgentRestarts { took_effect: true });
        assert_eq!(world.settle(), nothing(), "{policy}");
        world.exits("c1", 0);
        assert_eq!(world.settle(), ["stop sandbox", "release"], "{policy}");
        assert_eq!(world.phase(), if code == 0 { "Succeeded" } else { "Failed" }, "{policy}");
    }
}

#[test]
fn a_pod_that_is_over_stays_so_whatever_is_removed() {
    for (policy, code) in [("OnFailure", 0), ("Never", 0), ("Never", 3)] {
        for also_sandbox in [false, true] {
            let mut world = runs(policy, &[PLAIN, SIDECAR], &[PLAIN]);
            world.exits("c0", code);
            world.settle();
            let phase = world.phase().to_owned();
            ["c0", "i0", "i1"].iter().for_each(|name| world.vanishes(name));
            if also_sandbox {
                world.sandbox_vanishes();
            }
            assert_eq!(world.settle(), nothing(), "{policy}");
            assert_eq!(world.phase(), phase, "{policy}");
        }
    }
}

#[test]
fn with_its_sandbox_a_pod_loses_its_past() {
    for policy in ["Always", "OnFailure"] {
        let mut world = runs(policy, &[PLAIN, SIDECAR], &[PLAIN, PLAIN]);
        if policy == "OnFailure" {
            world.exits("c0", 0);
            world.settle();
        }
        world.after(5).sandbox_vanishes();
        assert_eq!(world.settle(), ["sandbox 0", "start i0 1"], "{policy}");
        world.exits("i0", 0);
        assert_eq!(world.settle(), ["start i1 1", "start c0 1", "start c1 1"], "{policy}");
    }
    let mut world = runs("Never", &[], &[PLAIN, PLAIN]);
    world.exits("c0", 0);
    world.settle();
    world.after(5).sandbox_vanishes();
    assert_eq!((world.settle(), world.phase()), (owned(&["release"]), "Failed"));
}

#[test]
fn an_init_container_has_its_work_behind_it_while_a_container_runs() {
    for policy in POLICIES {
        let mut world = runs(policy, &[PLAIN, PLAIN], &[PLAIN, PLAIN]);
        ["i0", "i1"].iter().for_each(|name| world.vanishes(name));
        assert_eq!(world.settle(), nothing(), "{policy}");
        world.exits("c0", 0);
        let again = if policy == "Always" { owned(&["start c0 1"]) } else { Vec::new() };
        assert_eq!(world.settle(), again, "{policy}");
    }
}

#[test]
fn an_init_container_runs_again_if_nobody_can_tell_that_it_ran() {
    // The last one tells of those before it.
    let cases: [(&[&str], &[&str]); 3] = [(&["i0", "i1"], &["i0", "i1"]), (&["i0"], &[]), (&["i1"], &["i1"])];
    for policy in ["Always", "OnFailure"] {
        for (removed, again) in cases {
            let mut world = runs(policy, &[PLAIN, PLAIN], &[PLAIN]);
            waits(&mut world, "c0");
            removed.iter().for_each(|name| world.vanishes(name));
            for name in again {
                assert_eq!(world.settle(), [format!("start {name} 1")], "{policy} {removed:?}");
                world.exits(name, 0);
            }
            assert_eq!(world.settle(), nothing(), "{policy} {removed:?}: its back-off goes on");
            assert_eq!(world.after(10).settle(), ["start c0 2"], "{policy} {removed:?}");
        }
    }
}

#[test]
fn a_running_init_container_that_is_removed_has_failed() {
    for (policy, begins, phase) in [
        ("Always", vec!["start i0 1"], "Pending"),
        ("OnFailure", vec!["start i0 1"], "Pending"),
        ("Never", vec!["stop sandbox", "release"], "Failed"),
    ] {
        let mut world = pod(policy, &[PLAIN], &[PLAIN]);
        world.settle();
        world.vanishes("i0");
        assert_eq!((world.settle(), world.phase()), (owned(&begins), phase), "{policy}");
    }
}

#[test]
fn a_sidecar_is_started_again_wherever_it_went() {
    for policy in POLICIES {
        let mut world = runs(policy, &[SIDECAR], &[PLAIN]);
        world.vanishes("i0");
        assert_eq!(world.settle(), ["start i0 1"], "{policy}");
        waits(&mut world, "i0");
        world.vanishes("i0");
        assert_eq!(world.settle(), ["start i0 3"], "{policy}: without a back-off");
    }
}

/// As upstream: the pod has begun while a regular container is there, and has to begin again without.
#[test]
fn a_container_is_started_again_after_the_sidecar_that_it_was_started_after() {
    let mut world = runs("Always", &[SIDECAR], &[PLAIN]);
    waits(&mut world, "c0");
    world.after(5);
    waits(&mut world, "i0");
    assert_eq!(world.after(6).settle(), nothing(), "the sidecar still waits");
    assert_eq!(world.after(5).settle(), ["start i0 2", "start c0 2"]);

    let gated = Part { startup: true, ..SIDECAR };
    let mut world = pod("Always", &[gated], &[PLAIN]);
    world.settle();
    world.finds("i0", Some(true), None);
    world.settle();
    world.exits("c0", 1);
    world.vanishes("i0");
    assert_eq!(world.settle(), ["start i0 1"]);
    world.finds("i0", Some(true), None);
    assert_eq!(world.settle(), ["start c0 1"]);

    // Beside one that runs, nobody waits for it.
    let mut world = runs("Always", &[SIDECAR], &[PLAIN, PLAIN]);
    waits(&mut world, "c0");
    world.after(5);
    waits(&mut world, "i0");
    assert_eq!(world.after(6).settle(), ["start c0 2"]);
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
