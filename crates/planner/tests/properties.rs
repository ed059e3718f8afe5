//! The planner's promises, on random pods, random starting points and random luck.
//!
//! A small world carries plans out: every operation succeeds or fails as a generated list of luck says, containers end
//! by themselves, sandboxes die, the agent forgets its session. No runtime, no clock: the world is a value.

mod mutants;
mod stories;
mod world;

use crablet_planner::pod::{Facts, plan};
use proptest::prelude::*;
use world::{Happening, Sketch, World, any_happening, any_world};

fn config() -> ProptestConfig {
    // As many as the environment asks for: a fixed number would hide what it says.
    let cases = std::env::var_os("PROPTEST_CASES").map_or(2048, |_| ProptestConfig::default().cases);
    ProptestConfig { cases, max_shrink_iters: 2048, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_same_facts_give_the_same_plan(mut world in any_world(), story in proptest::collection::vec(any_happening(), 0..60)) {
        for happening in story {
            world.happen(happening);
            let facts = world.facts();
            prop_assert_eq!(plan(&facts), plan(&facts));
        }
    }

    #[test]
    fn a_plan_carried_out_to_the_end_reaches_a_fixed_point(mut world in any_world(), story in proptest::collection::vec(any_happening(), 0..60)) {
        for happening in story {
            world.happen(happening);
        }
        world.calm_down();
        let rest = world.run_until_quiet();
        prop_assert!(rest.is_ok(), "{}", rest.unwrap_err());
        if world.is_gone() {
            return Ok(());
        }
        // Nothing more to do, and saying so again changes nothing.
        let facts = world.facts();
        let again = plan(&facts);
        prop_assert!(again.actions.is_empty(), "{:?}", again.actions);
        let memory = again.memory.clone();
        let later = Facts { memory: &memory, ..facts };
        prop_assert_eq!(plan(&later).memory, again.memory);
    }

    #[test]
    fn a_pod_that_may_run_runs_in_the_end(mut world in any_world(), story in proptest::collection::vec(any_happening(), 0..60)) {
        for happening in story {
            if !matches!(happening, Happening::Delete | Happening::DeleteInApi) {
                world.happen(happening);
            }
        }
        world.calm_down();
        let rest = world.run_until_quiet();
        prop_assert!(rest.is_ok(), "{}", rest.unwrap_err());
        prop_assert!(world.is_as_wanted(), "{world:#?}");
    }

    #[test]
    fn a_deleted_pod_always_ends(mut world in any_world(), story in proptest::collection::vec(any_happening(), 0..60)) {
        for happening in story {
            world.happen(happening);
        }
        world.happen(Happening::DeleteInApi);
        world.happen(Happening::Delete);
        world.calm_down();
        let (begun, was_set_back) = (world.now(), world.was_set_back());
        let rest = world.run_until_quiet();
        prop_assert!(rest.is_ok(), "{}", rest.unwrap_err());
        // A deleted pod of the API server is let go, and then gone.
        prop_assert!(world.is_gone() || world.is_released(), "{world:#?}");
        world.happen(Happening::LeavesApi);
        let rest = world.run_until_quiet();
        prop_assert!(rest.is_ok(), "{}", rest.unwrap_err());
        prop_assert!(world.is_gone(), "{world:#?}");
        // Within its grace, and some time for what the runtime refused before.
        let took = world.now().duration_since(begun).as_secs();
        prop_assert!(was_set_back || took <= 40 + 30, "it took {took} s: {world:#?}");
    }

    // What that is, `world::laws` says.
    #[test]
    fn no_story_breaks_what_the_world_watches(mut world in any_world(), story in proptest::collection::vec(any_happening(), 0..120)) {
        for happening in story {
            world.happen(happening);
        }
        prop_assert!(world.broken.is_empty(), "{:?}\n{world:#?}", world.broken);
    }
}

/// A property says nothing about what no story comes to.
#[test]
fn the_stories_reach_everything() {
    let seen = std::cell::RefCell::new(std::collections::BTreeSet::new());
    let stories = (any_world(), proptest::collection::vec(any_happening(), 60..120));
    let config = ProptestConfig { cases: 2048, failure_persistence: None, ..ProptestConfig::default() };
    let told = proptest::test_runner::TestRunner::new(config).run(&stories, |(mut world, story)| {
        for happening in story {
            world.happen(happening);
        }
        world.calm_down();
        let _ = world.run_until_quiet(); // other tests judge that
        seen.borrow_mut().append(&mut world.seen);
        Ok(())
    });
    told.expect("nothing is judged here");
    let seen = seen.into_inner();
    let missed: Vec<String> = everything().into_iter().filter(|kind| !seen.contains(kind)).collect();
    assert!(missed.is_empty(), "no story comes to {missed:?}; they come to {seen:?}");
}

fn everything() -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for kind in world::seen::OPERATIONS {
        all.push(format!("{kind} works"));
        // A hook that fails has ended all the same.
        all.push(format!("{kind} fails"));
        all.push(format!("dies in {kind}"));
    }
    for role in ["Init", "Sidecar", "Regular"] {
        all.extend(["starts", "restarts"].map(|what| format!("{role} {what}")));
    }
    let happenings = [
        "Turn",
        "End",
        "Reaches",
        "Late",
        "Runs",
        "Exit",
        "Probed",
        "SandboxDies",
        "Lose",
        "Vanish",
        "AgentRestarts",
        "Wait",
        "Evicted",
        "Delete",
        "Hurry",
        "DeleteInApi",
        "LeavesApi",
        "Revived",
        "Edited",
        "Resized",
        "RoomComes",
        "Debugged",
        "Network",
        "SetBack",
        "Crash",
        "ObjectsCame",
    ];
    let rest = [
        "dies too early",
        "dies too late",
        "Ephemeral starts",
        "all begin afresh",
        "backs off",
        "verdict Evicted",
        "verdict DeadlineExceeded",
        "phase Pending",
        "phase Running",
        "phase Succeeded",
        "phase Failed",
        "asks: Granted",
        "asks: Deferred",
        "asks: Infeasible",
        "resize in progress",
        "resize has failed",
        "stop for liveness",
        "stop for startup",
        "stop for its size",
        "stop for a sidecar's turn",
        "stop for a shorter grace",
        "gives up CreateSandbox",
        "gives up Image",
        "gives up Start",
        "gives up Resize",
    ];
    all.extend(happenings.into_iter().chain(rest).map(str::to_owned));
    all
}

/// Found by chance in a run of the property above, so kept: the instance was never seen by an inspection, and the next
/// try to start one failed.
#[test]
fn an_instance_that_vanished_unseen_keeps_its_restart_count() {
    use Happening::{End, Turn, Vanish, Wait};
    let (well, badly) = (End { which: 0, well: true }, End { which: 0, well: false });
    let mut world = World::new(&Sketch::plain(1, "Always"));
    let story = [
        Turn,
        well,
        Turn,
        well,
        Turn,
        well,
        Vanish { which: 0 },
        Turn,
        well,
        Turn,
        badly,
        Wait { seconds: 10 },
        Turn,
        well,
        Turn,
        well,
    ];
    for happening in story {
        world.happen(happening);
    }
    assert!(world.broken.is_empty(), "{:?}\n{world:#?}", world.broken);
}
