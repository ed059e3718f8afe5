//! Ends that come at a bad time, and runtimes that stand in their way.

use crablet_model::runtime::ContainerState;
use crablet_planner::pod::{Action, Memory, Outcome, Session, plan};

use super::{PLAIN, SIDECAR, is_hook, is_stop, pod};
use crate::world::{Happening, Part, World};

fn makes(action: &Action) -> bool {
    matches!(action, Action::CreateSandbox { .. } | Action::StartContainer { .. })
}

fn is_cleanup(action: &Action) -> bool {
    matches!(action, Action::Cleanup)
}

#[test]
fn an_end_does_not_wait_for_what_waits() {
    // For volumes, before the sandbox.
    let mut world = pod("Always", &[], &[PLAIN]);
    assert_eq!(world.settle_but(makes), ["sandbox 0"]);
    world.happen(Happening::Delete);
    world.settle_but(makes);
    assert!(world.is_gone());

    // For an object of the environment, before the container.
    let mut world = pod("Always", &[], &[PLAIN]);
    let starts = |a: &Action| matches!(a, Action::StartContainer { .. });
    assert_eq!(world.settle_but(starts), ["sandbox 0", "start c0 0"]);
    world.happen(Happening::Delete);
    assert_eq!(world.settle_but(starts), ["stop sandbox"]);
    assert!(world.is_gone());
}

#[test]
fn what_the_runtime_makes_just_now_is_waited_for_but_not_for_long() {
    let mut world = pod("Always", &[], &[PLAIN]);
    world.settle_but(makes);
    // It has waited long before that, which does not count.
    world.after(300).happen(Happening::Reaches { which: 0 });
    world.happen(Happening::Delete);
    world.after(9).settle_but(makes);
    assert!(!world.is_gone(), "the sandbox is on its way");
    world.after(1).settle_but(makes);
    assert!(world.is_gone());
}

#[test]
fn what_comes_late_is_tidied_away() {
    let mut world = pod("Always", &[], &[PLAIN]);
    world.settle_but(makes);
    world.happen(Happening::Reaches { which: 0 });
    world.happen(Happening::Delete);
    world.after(10).settle_but(|a| makes(a) || is_cleanup(a));
    world.finish(is_cleanup);
    // Everything seemed to be gone, and the agent had begun to forget the pod.
    world.happen(Happening::Late);
    assert_eq!(world.settle_but(is_cleanup), ["stop sandbox"]);
    world.finish(is_cleanup);
    world.settle();
    assert!(world.is_gone());
}

#[test]
fn who_is_to_be_stopped_is_told_at_once_and_once() {
    let hooked = Part { pre_stop: true, ..SIDECAR };
    let mut world = pod("Always", &[SIDECAR, hooked], &[PLAIN]);
    world.settle();
    world.happen(Happening::Delete);
    let first = plan(&world.facts());
    let events: Vec<_> = first.events.iter().map(|e| (e.reason.as_ref(), e.message.as_ref())).collect();
    // The others are told of by what is begun for them.
    assert_eq!(events, [("Killing", "Stopping container i0")]);
    world.settle_but(|a| is_hook(a) || is_stop(a));
    assert!(plan(&world.facts()).events.is_empty());
    world.finish(is_hook);
    world.finish(is_stop);
    world.settle_but(|a| is_stop(a) && named(a, "i1"));
    world.finish(is_stop);
    world.settle_but(is_stop);
    world.finish(
        |a| matches!(a, Action::StopContainer { message, .. } if message.is_empty() && named(a, "i0")),
    );
}

fn named(action: &Action, name: &str) -> bool {
    matches!(action, Action::StopContainer { container, .. } if container == name)
}

/// Begins what plans ask for and lets it go well, except what `refused` holds for.
fn refuses(world: &mut World, refused: impl Fn(&Action) -> bool + Copy) -> Vec<String> {
    let mut begun = world.settle_but(refused);
    while world.fail_first(refused) {
        begun.extend(world.settle_but(refused));
    }
    begun
}

#[test]
fn a_container_that_the_runtime_refuses_to_stop_holds_nobody_up() {
    let mut world = pod("Always", &[SIDECAR], &[PLAIN, PLAIN]);
    world.settle();
    world.happen(Happening::Delete);
    let refused = |a: &Action| named(a, "c0");
    assert_eq!(refuses(&mut world, refused), ["stop c1 30 s", "stop c0 30 s"]);
    let mut begun = Vec::new();
    for _ in 0..30 {
        begun.extend(refuses(world.after(1), refused));
    }
    // Who the sidecar was there for had its time: it ends, and the sandbox takes the last one with it.
    assert_eq!(begun[..2], ["stop c0 29 s", "stop c0 27 s"]);
    assert!(
        begun.contains(&"stop i0 2 s".to_owned()) && begun.contains(&"stop sandbox".to_owned()),
        "{begun:?}"
    );
    assert!(world.is_gone());
}

#[test]
fn a_container_that_the_runtime_refuses_to_remove_goes_with_its_sandbox() {
    let mut world = pod("Always", &[], &[PLAIN, PLAIN]);
    world.settle();
    world.happen(Happening::Delete);
    let refused = |a: &Action| matches!(a, Action::RemoveContainer { container, .. } if container == "c0");
    for _ in 0..10 {
        refuses(world.after(1), refused);
    }
    assert!(world.is_gone());
}

#[test]
fn what_lacks_an_object_is_tried_when_one_comes() {
    let now = "2027-01-15T08:00:00Z".parse().expect("a time");
    let (mut memory, mut session) = (Memory::default(), Session::default());
    let failed =
        |reason| Outcome::StartFailed { container: reason_of(reason), reason, message: "no".to_owned() };
    memory.absorb(&mut session, failed("CreateContainerConfigError"), now);
    memory.absorb(&mut session, failed("RunContainerError"), now);
    assert!(memory.waits_for_objects());
    memory.objects_came(true, now);
    let due = |memory: &Memory, name: &str| memory.failures[name].retry_at <= now;
    assert!(due(&memory, "CreateContainerConfigError"));
    assert!(!due(&memory, "RunContainerError"), "no object mends that");
}

fn reason_of(reason: &str) -> String {
    reason.to_owned()
}

#[test]
fn a_pull_that_fails_again_with_the_new_secret_waits_as_for_the_first_time() {
    let start: jiff::Timestamp = "2027-01-15T08:00:00Z".parse().expect("a time");
    let (mut memory, mut session) = (Memory::default(), Session::default());
    let mut failed = |memory: &mut Memory, now| {
        let (container, image) = ("c0".to_owned(), "example.test/app:1".to_owned());
        let (reason, message) = ("ErrImagePull".to_owned(), "no".to_owned());
        memory.absorb(
            &mut session,
            Outcome::ImageFailed { container, image, reason, message, pulled: true },
            now,
        );
        memory.pulls["example.test/app:1"].delay_seconds
    };
    assert_eq!([failed(&mut memory, start), failed(&mut memory, start)], [10, 20]);
    let now = start + jiff::SignedDuration::from_secs(4);
    memory.objects_came(false, now);
    assert!(memory.pulls["example.test/app:1"].retry_at() > now, "it is none that a pull could use");
    memory.objects_came(true, now);
    assert!(memory.pulls["example.test/app:1"].retry_at() <= now);
    assert_eq!(failed(&mut memory, now), 10);
}

#[test]
fn a_container_that_runs_after_the_end_began_is_stopped() {
    let mut world = pod("Always", &[], &[PLAIN]);
    let starts = |a: &Action| matches!(a, Action::StartContainer { .. });
    world.settle_but(starts);
    world.happen(Happening::Reaches { which: 0 });
    world.happen(Happening::Delete);
    world.settle_but(starts);
    world.finish(starts);
    assert!(
        world.facts().runtime.containers.iter().any(|c| matches!(c.state, ContainerState::Running { .. }))
    );
    assert_eq!(world.settle()[..2], ["stop c0 30 s", "stop sandbox"]);
    assert!(world.is_gone());
}
