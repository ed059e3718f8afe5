//! The whole agent under virtual time: thousands of bad nights, and proof that the checks would notice a bad agent.
//!
//! Nights of three families, by test: `the_agent_keeps_its_promises_through_bad_nights` on a node that stands alone,
//! `the_agent_keeps_its_promises_to_a_cluster` on one with an API server, and
//! `the_agent_keeps_its_promises_on_a_crowded_node` on one of those on which there is not room for all pods.
//!
//! `CRABLET_SIM_SEEDS=n` runs n nights instead of the usual number, and `CRABLET_SIM_FROM=n` others than the usual ones.
//! `CRABLET_SIM_SEED=n` replays one, with its story and everything that an outsider saw; name the test with it.
//! `CRABLET_SIM_ALL=1` goes on after a bad one and counts what breaks how often.

mod sim;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, Once};

use sim::cluster::api::Lie;
use sim::night::{self, Night};
use sim::story::Family;
use sim::world::Variant;
use sim::{Broken, mutants};

const SEEDS: u64 = 2_500;
const CLUSTER_SEEDS: u64 = 1_200;
const CROWDED_SEEDS: u64 = 800;
const THREADS: usize = 2;
/// How many lines of a failing night's trace are printed.
const TAIL: usize = 60;

fn env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}")))
}

/// Runs nights on all threads until one is refused, and returns it.
fn nights(
    seeds: std::ops::Range<u64>,
    variant: Variant,
    refuse: impl Fn(&Night) -> bool + Sync,
) -> Option<Night> {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(night::listen_for_panics);
    let next = AtomicU64::new(seeds.start);
    let stop = AtomicBool::new(false);
    let refused: Mutex<Option<Night>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let work = || {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let night = night::run(seed, variant);
                    if refuse(&night) {
                        stop.store(true, Ordering::Relaxed);
                        let mut refused = refused.lock().unwrap();
                        // The lower seed, so that the answer does not depend on which thread was faster.
                        if refused.as_ref().is_none_or(|other| night.story.seed < other.story.seed) {
                            *refused = Some(night);
                        }
                    }
                }
            };
            let builder = std::thread::Builder::new().name(format!("night {number}")).stack_size(8 << 20);
            builder.spawn_scoped(scope, work).expect("a thread");
        }
    });
    refused.into_inner().unwrap()
}

fn report(night: &Night, lines: usize) -> String {
    let Night { story, broken, trace, .. } = night;
    let mut text = format!("seed {}, a {:?} night of kind {:?}\n", story.seed, story.family, story.kind);
    for pod in &story.pods {
        text += &format!("  {pod:?}\n");
    }
    let skipped = trace.len().saturating_sub(lines);
    text += &format!("... {skipped} earlier lines; all of them with CRABLET_SIM_SEED={}\n", story.seed);
    for entry in &trace[skipped..] {
        text += &format!("{entry}\n");
    }
    for Broken { invariant, seen } in broken {
        text += &format!("broken: {invariant}: {seen}\n");
    }
    text
}

#[test]
fn the_agent_keeps_its_promises_through_bad_nights() {
    promises_are_kept(Variant::default(), SEEDS);
}

#[test]
fn the_agent_keeps_its_promises_to_a_cluster() {
    promises_are_kept(cluster(), CLUSTER_SEEDS);
}

fn cluster() -> Variant {
    Variant { family: Family::Cluster, ..Variant::default() }
}

#[test]
fn the_agent_keeps_its_promises_on_a_crowded_node() {
    promises_are_kept(crowded(), CROWDED_SEEDS);
}

fn crowded() -> Variant {
    Variant { family: Family::Crowded, ..Variant::default() }
}

fn promises_are_kept(variant: Variant, usual: u64) {
    if let Some(seed) = env("CRABLET_SIM_SEED") {
        let variant = Variant { trace_reads: true, ..variant };
        let night = nights(seed..seed + 1, variant, |_| true).expect("the night was run");
        println!("{}", report(&night, usize::MAX));
        assert!(night.broken.is_empty(), "seed {seed} breaks promises");
        return;
    }
    let count = env("CRABLET_SIM_SEEDS").unwrap_or(usual);
    let from = env("CRABLET_SIM_FROM").unwrap_or(0);
    let seeds = from..from + count;
    if env("CRABLET_SIM_ALL").is_some() {
        return count_broken_promises(seeds, variant);
    }
    let begun = std::time::Instant::now();
    let failed = nights(seeds, variant, |night| !night.broken.is_empty());
    if let Some(night) = failed {
        panic!("{}", report(&night, TAIL));
    }
    println!("{count} nights in {:?}", begun.elapsed());
}

fn count_broken_promises(seeds: std::ops::Range<u64>, variant: Variant) {
    let begun = std::time::Instant::now();
    let found: Mutex<BTreeMap<&str, Vec<u64>>> = Mutex::default();
    let count = seeds.end - seeds.start;
    nights(seeds, variant, |night| {
        for invariant in night.broken.iter().map(|broken| broken.invariant).collect::<BTreeSet<_>>() {
            found.lock().unwrap().entry(invariant).or_default().push(night.story.seed);
        }
        false
    });
    for (invariant, mut seeds) in found.into_inner().unwrap() {
        seeds.sort();
        println!("{:>6} nights break: {invariant}; seeds {:?}", seeds.len(), &seeds[..seeds.len().min(10)]);
    }
    println!("{count} nights in {:?}", begun.elapsed());
}

#[test]
fn a_seed_is_always_the_same_night() {
    for (seed, variant) in
        (0..20).flat_map(|seed| [Variant::default(), cluster(), crowded()].map(|variant| (seed, variant)))
    {
        let night = || nights(seed..seed + 1, variant, |_| true).expect("the night was run");
        let (first, second) = (night(), night());
        let difference = first.trace.iter().zip(&second.trace).position(|(a, b)| a != b);
        if let Some(line) = difference {
            panic!("seed {seed} differs at line {line}:\n{}\n{}", first.trace[line], second.trace[line]);
        }
        assert_eq!((first.trace.len(), first.steps), (second.trace.len(), second.steps), "seed {seed}");
    }
}

/// A broken agent must break one of these promises within this many nights, on one of which the real one keeps it.
fn must_be_caught(variant: Variant, promises: &[&str]) {
    const WITHIN: u64 = 300;
    let breaks = |night: &Night| night.broken.iter().any(|broken| promises.contains(&broken.invariant));
    let caught = nights(0..WITHIN, variant, |night| {
        let right = Variant { family: variant.family, ..Variant::default() };
        breaks(night) && !breaks(&night::run(night.story.seed, right))
    });
    let night = caught.unwrap_or_else(|| panic!("not noticed within {WITHIN} nights"));
    println!("caught by seed {}", night.story.seed);
}

fn mutant(plan: crablet_pods::PlanFn) -> Variant {
    Variant { plan, ..Variant::default() }
}

const COMES_TO: &str = "wanted pods come to what they should";
const REMAINS: &str = "nothing is left of a pod that nobody wants";
const RESIZED: &str = "resizes come to what they should";
const BACK_OFF: &str = "restarts wait for their back-off";

#[test]
fn an_agent_whose_restart_counts_stand_still_is_caught() {
    must_be_caught(mutant(mutants::attempt_is_always_zero), &[COMES_TO, "restart counts never fall"]);
}

#[test]
fn an_agent_that_ends_nothing_is_caught() {
    must_be_caught(mutant(mutants::never_ends), &[REMAINS]);
}

#[test]
fn an_agent_without_back_off_is_caught() {
    must_be_caught(mutant(mutants::no_back_off), &[BACK_OFF]);
}

#[test]
fn an_agent_that_starts_a_second_instance_is_caught() {
    must_be_caught(mutant(mutants::second_instance), &["one live instance per container"]);
}

#[test]
fn an_agent_that_makes_a_second_sandbox_is_caught() {
    must_be_caught(mutant(mutants::second_sandbox), &["one ready sandbox per pod"]);
}

#[test]
fn an_agent_that_stops_healthy_containers_is_caught() {
    must_be_caught(mutant(mutants::stops_the_healthy), &["healthy containers are left alone"]);
}

#[test]
fn an_agent_without_grace_is_caught() {
    must_be_caught(mutant(mutants::no_grace), &["grace periods are kept"]);
}

#[test]
fn an_agent_that_waits_for_no_init_container_is_caught() {
    must_be_caught(mutant(mutants::impatient), &["containers begin in order"]);
}

#[test]
fn an_agent_that_stops_sidecars_first_is_caught() {
    let promise = "sidecars end after those that need them";
    must_be_caught(mutant(mutants::forgets_who_needs_whom), &[promise]);
}

#[test]
fn an_agent_that_restarts_what_should_rest_is_caught() {
    must_be_caught(mutant(mutants::always_restarts), &["restart policies are kept"]);
}

#[test]
fn an_agent_that_leaves_folders_behind_is_caught() {
    must_be_caught(mutant(mutants::no_clean_up), &[REMAINS]);
}

#[test]
fn an_agent_that_reuses_sandbox_names_is_caught() {
    must_be_caught(mutant(mutants::sandbox_attempt_is_always_zero), &[COMES_TO]);
}

#[test]
fn an_agent_that_makes_up_transitions_is_caught() {
    let promises = ["transition times tell of transitions", "a restart changes no status"];
    must_be_caught(mutant(mutants::transitions_are_now), &promises);
}

#[test]
fn an_agent_that_forgets_what_it_published_is_caught() {
    let promises =
        ["a start time stays", "a restart changes no status", "transition times tell of transitions"];
    must_be_caught(mutant(mutants::no_memory), &promises);
}

#[test]
fn a_disk_that_forgets_is_caught() {
    let promises = [BACK_OFF, "a restart changes no status", "a start time stays"];
    must_be_caught(Variant { forgetful_disk: true, ..Variant::default() }, &promises);
}

#[test]
fn an_agent_that_knows_no_deadline_is_caught() {
    must_be_caught(mutant(mutants::no_deadline), &[COMES_TO]);
}

#[test]
fn an_agent_that_knows_no_rules_is_caught() {
    must_be_caught(mutant(mutants::no_rules), &[COMES_TO]);
}

#[test]
fn an_agent_that_restarts_one_instead_of_all_is_caught() {
    must_be_caught(mutant(mutants::begins_alone), &[COMES_TO]);
}

#[test]
fn an_agent_that_ignores_probes_is_caught() {
    must_be_caught(mutant(mutants::ignores_probes), &[COMES_TO]);
}

#[test]
fn an_agent_that_waits_for_no_startup_probe_is_caught() {
    must_be_caught(mutant(mutants::believes_all_started), &["containers begin in order"]);
}

#[test]
fn an_agent_that_begins_no_ephemeral_container_is_caught() {
    must_be_caught(cluster_mutant(mutants::no_debuggers), &["ephemeral containers begin"]);
}

#[test]
fn an_agent_that_runs_ephemeral_containers_twice_is_caught() {
    must_be_caught(cluster_mutant(mutants::debugs_again), &["restart policies are kept"]);
}

fn cluster_mutant(plan: crablet_pods::PlanFn) -> Variant {
    Variant { plan, ..cluster() }
}

fn lying(lie: Lie) -> Variant {
    Variant { lie: Some(lie), ..cluster() }
}

const LET_GO: &str = "a pod is let go only when nothing of it is left";

#[test]
fn an_agent_that_lets_pods_go_while_they_run_is_caught() {
    must_be_caught(cluster_mutant(mutants::lets_go_early), &[LET_GO]);
}

#[test]
fn an_agent_that_lets_pods_go_with_their_volumes_is_caught() {
    must_be_caught(cluster_mutant(mutants::never_releases), &[LET_GO]);
}

#[test]
fn an_agent_that_forgets_volumes_when_it_starts_is_caught() {
    must_be_caught(cluster_mutant(mutants::never_takes_over), &["volumes show what is true"]);
}

#[test]
fn an_agent_that_revives_the_finished_is_caught() {
    must_be_caught(cluster_mutant(mutants::revives_the_finished), &["a final phase is final"]);
}

#[test]
fn an_agent_that_chatters_is_caught() {
    must_be_caught(cluster_mutant(mutants::chatters), &["writes are few"]);
}

#[test]
fn lost_mirrors_are_noticed() {
    must_be_caught(lying(Lie::LosesMirrors), &["mirrors are there for static pods and for nothing else"]);
}

#[test]
fn lost_conditions_are_noticed() {
    must_be_caught(lying(Lie::LosesConditions), &["conditions of others stay"]);
}

#[test]
fn lost_statuses_are_noticed() {
    must_be_caught(lying(Lie::LosesStatuses), &["the API shows what is true"]);
}

#[test]
fn pods_that_stay_are_noticed() {
    must_be_caught(lying(Lie::KeepsPods), &["deleted pods go from the API"]);
}

#[test]
fn a_machine_that_boasts_is_noticed() {
    let variant = Variant { boastful_machine: true, ..crowded() };
    must_be_caught(variant, &["no more is granted than there is"]);
}

#[test]
fn a_disk_that_forgets_what_was_granted_is_noticed() {
    let promises = ["a restart changes no status", "no more is granted than there is", RESIZED];
    must_be_caught(Variant { forgetful_ledger: true, ..crowded() }, &promises);
}

#[test]
fn an_agent_that_gives_nothing_of_what_was_granted_is_caught() {
    must_be_caught(Variant { plan: mutants::never_resizes, ..crowded() }, &[RESIZED]);
}

#[test]
fn an_agent_that_restarts_for_every_resize_is_caught() {
    let plan = mutants::restarts_for_any_size;
    must_be_caught(Variant { plan, ..crowded() }, &["healthy containers are left alone"]);
}
