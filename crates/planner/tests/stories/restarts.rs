//! What becomes of containers between an end and the next start, and of those that get none.

use crablet_planner::pod::{Action, Memory, Outcome, Session};

use super::{PLAIN, SIDECAR, api_pod, is_stop, pod};
use crate::world::{Happening, Part, Sketch, World};

/// Only what is started.
fn starts(begun: Vec<String>) -> Vec<String> {
    begun.into_iter().filter(|begun| begun.starts_with("start")).collect()
}

#[test]
fn a_back_off_is_forgotten_ten_minutes_after_the_last_restart() {
    let mut world = pod("Always", &[], &[PLAIN]);
    world.settle();
    // Until the wait is as long as it gets.
    for _ in 0..7 {
        world.exits("c0", 1);
        world.settle();
        world.after(300).settle();
    }
    assert_eq!(world.running(), ["c0"]);
    // It runs for a while, and waits for the rest of the time.
    world.after(400).exits("c0", 1);
    assert!(starts(world.settle()).is_empty());
    assert!(starts(world.after(200).settle()).is_empty(), "ten minutes have not passed");
    assert_eq!(starts(world.after(1).settle()), ["start c0 8"]);
    world.exits("c0", 1);
    world.settle();
    assert!(starts(world.after(9).settle()).is_empty());
    assert_eq!(starts(world.after(1).settle()), ["start c0 9"], "the first wait is the shortest");
}

#[test]
fn who_runs_for_less_than_ten_minutes_and_waits_for_less_goes_on_where_it_was() {
    let mut world = pod("Always", &[], &[PLAIN]);
    world.settle();
    for _ in 0..2 {
        world.exits("c0", 1);
        world.settle();
        world.after(10).settle();
    }
    world.after(500).exits("c0", 1);
    assert!(starts(world.settle()).is_empty());
    assert!(starts(world.after(19).settle()).is_empty());
    assert_eq!(starts(world.after(1).settle()), ["start c0 3"]);
}

#[test]
fn what_is_replaced_has_one_try_to_get_its_image() {
    let pulls = |a: &Action| matches!(a, Action::EnsureImage { .. });
    for (policy, code, phase) in
        [("Never", 137, "Failed"), ("Never", 0, "Succeeded"), ("OnFailure", 0, "Succeeded")]
    {
        let mut world = api_pod(policy, &[], &[PLAIN]);
        world.settle();
        world.edit();
        assert_eq!(world.settle_but(is_stop), ["stop c0 30 s"]);
        world.exits("c0", code);
        world.settle_but(pulls);
        assert_eq!(world.phase(), "Running", "{policy} {code}");
        assert!(world.fail_first(pulls));
        assert_eq!(world.settle(), ["stop sandbox", "release"], "{policy} {code}");
        assert_eq!(world.phase(), phase, "{policy} {code}");
    }

    // Its policy alone has it tried again.
    let mut world = api_pod("OnFailure", &[], &[PLAIN]);
    world.settle();
    world.edit();
    world.settle_but(is_stop);
    world.exits("c0", 137);
    world.settle_but(pulls);
    assert!(world.fail_first(pulls));
    assert!(world.settle().is_empty());
    assert_eq!(world.after(10).settle(), ["start c0 1"]);
}

#[test]
fn the_rest_of_a_pod_goes_on_without_what_could_not_be_replaced() {
    let pulls = |a: &Action| matches!(a, Action::EnsureImage { .. });
    let mut world = api_pod("Never", &[], &[PLAIN, PLAIN]);
    world.settle();
    world.happen(Happening::Edited { which: 0 });
    world.settle_but(pulls);
    assert!(world.fail_first(pulls));
    world.settle();
    assert_eq!(world.running(), ["c1"]);
    assert!(starts(world.after(1000).settle()).is_empty());
    assert_eq!(world.phase(), "Running");
}

#[test]
fn a_start_that_comes_to_no_instance_is_the_only_try() {
    let now = "2027-01-15T08:00:00Z".parse().expect("a time");
    let cases =
        [("CreateContainerConfigError", false), ("CreateContainerError", false), ("RunContainerError", true)];
    for (reason, stays) in cases {
        let (mut memory, mut session) = (Memory::default(), Session::default());
        memory.replaced.insert("c0".to_owned(), "old".to_owned());
        let failed = Outcome::StartFailed { container: "c0".to_owned(), reason, message: "no".to_owned() };
        memory.absorb(&mut session, failed, now);
        assert_eq!(memory.replaced.contains_key("c0"), stays, "{reason}");
    }
}

#[test]
fn without_grace_hooks_run_only_in_a_pod_that_has_come_to_its_end() {
    let hooked = Part { pre_stop: true, liveness: true, ..PLAIN };
    let without = |policy, init: &[Part], regular: &[Part]| {
        let (init, regular) = (init.to_vec(), regular.to_vec());
        World::new(&Sketch { grace: 0, is_static: false, init, regular, ..Sketch::plain(0, policy) })
    };
    let mut world = without("Always", &[], &[hooked]);
    world.settle();
    world.loses_address();
    assert_eq!(world.settle(), ["stop c0 2 s", "stop sandbox", "sandbox 1", "start c0 1"]);

    // It fails for good, and its pod with it.
    let mut world = without("Never", &[], &[hooked]);
    world.settle();
    world.finds("c0", None, Some(false));
    assert_eq!(world.settle(), ["stop c0 2 s", "stop sandbox", "release"]);

    // The work is done, and who accompanied it has the least time that there is.
    let mut world = without("OnFailure", &[Part { pre_stop: true, ..SIDECAR }], &[PLAIN]);
    world.settle();
    world.exits("c0", 0);
    assert_eq!(world.settle(), ["hook i0 1 s", "stop i0 2 s", "stop sandbox", "release"]);
}
