//! Images that cannot be had, and what becomes of those that wait for them.

use crablet_planner::pod::{Action, plan};
use jiff::SignedDuration;

use super::{PLAIN, pod};
use crate::world::{Happening, World};

fn is_image(action: &Action) -> bool {
    matches!(action, Action::EnsureImage { .. })
}

/// Each pull fails, and the next is made as soon as it may be, until that is so many seconds away.
fn fails_until_it_waits(world: &mut World, seconds: i64) {
    for _ in 0..10 {
        world.settle_but(is_image);
        assert!(world.fail_first(is_image), "a pull is under way");
        let waits = world.facts().memory.pulls["example.test/c0:1"].delay_seconds;
        if waits >= seconds {
            return;
        }
        world.after(waits);
    }
    panic!("it does not wait longer");
}

/// The seconds in which the image is looked for, in vain.
fn seconds(world: &mut World, count: i64) -> Vec<i64> {
    let looked = |second: &i64| {
        let begun = world.after(1).settle_but(is_image);
        let is_look = begun == ["look for c0"];
        assert!(is_look || begun.is_empty(), "{second}: {begun:?}");
        assert_eq!(world.fail_first(is_image), is_look, "{second}: nothing is pulled");
        is_look
    };
    (1..=count).filter(looked).collect()
}

#[test]
fn an_image_that_comes_while_its_pulls_wait_is_found() {
    let mut world = pod("Always", &[], &[PLAIN]);
    fails_until_it_waits(&mut world, 80);
    assert_eq!(seconds(&mut world, 45), [10, 20, 30, 40]);
    // A look changes nothing of the wait.
    assert_eq!(world.facts().memory.pulls["example.test/c0:1"].delay_seconds, 80);
    let wakes = plan(&world.facts()).wake_at.expect("somebody has to look at the clock");
    assert_eq!(wakes.duration_since(world.now()), SignedDuration::from_secs(5));
    assert_eq!(world.after(5).settle(), ["look for c0", "start c0 0"]);
    assert_eq!(world.running(), ["c0"]);
    assert!(world.facts().memory.pulls.is_empty());
}

#[test]
fn looks_do_not_put_off_the_next_pull() {
    let mut world = pod("Always", &[], &[PLAIN]);
    fails_until_it_waits(&mut world, 20);
    assert_eq!(seconds(&mut world, 19), [10]);
    assert!(world.after(1).settle_but(is_image).is_empty(), "it is no look");
    assert!(world.fail_first(is_image));
    assert_eq!(world.facts().memory.pulls["example.test/c0:1"].delay_seconds, 40);
}

#[test]
fn what_is_always_pulled_is_not_looked_for() {
    let mut world = pod("Always", &[], &[PLAIN]);
    world.always_pulls();
    fails_until_it_waits(&mut world, 80);
    assert_eq!(seconds(&mut world, 79), Vec::<i64>::new());
}

#[test]
fn a_clock_that_is_set_back_does_not_put_off_looks() {
    let mut world = pod("Always", &[], &[PLAIN]);
    fails_until_it_waits(&mut world, 80);
    assert_eq!(seconds(&mut world, 15), [10]);
    world.happen(Happening::SetBack { seconds: 3600 });
    assert_eq!(seconds(&mut world, 25), [11, 21], "from the turn on that saw it");
}

#[test]
fn an_image_that_is_no_longer_wanted_is_not_started() {
    let mut world = pod("Always", &[], &[PLAIN]);
    world.settle_but(is_image);
    world.edit();
    world.finish(is_image);
    let begun = plan(&world.facts()).actions;
    let [Action::EnsureImage { image, .. }] = &begun[..] else { panic!("{begun:?}") };
    assert_eq!(image, "example.test/other:2");
}

#[test]
fn containers_that_share_an_image_share_its_pulls() {
    let mut world = pod("Always", &[], &[PLAIN, PLAIN, PLAIN]);
    world.edit(); // all want the same now
    for delay in [10, 20, 40] {
        world.settle_but(is_image);
        assert!(world.fail_first(is_image));
        world.settle_but(is_image);
        assert!(!world.fail_first(is_image), "one pull for all of them");
        assert_eq!(world.facts().memory.pulls["example.test/other:2"].delay_seconds, delay);
        world.after(delay);
    }
    world.settle();
    assert_eq!(world.running(), ["c0", "c1", "c2"]);
}
