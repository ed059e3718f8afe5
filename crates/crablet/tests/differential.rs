//! Crablet and upstream's kubelet, one after the other on the same node of the same cluster, with the same pods from the
//! API server: what they ask the runtime for and the statuses that they report are compared field by field, and the
//! events that they tell users.
//!
//! Each file in `differential/pods` is a pod with one feature or odd corner; `differential/corpus.rs` says how it is
//! written. A difference that is meant is named in `alike/mod.rs` with its reason, nowhere else.
//!
//! Two hundred pods at once are more than a small machine bears without some of them being late: how often one has
//! crashed by then, or whether a container that dies at once is seen alive before, differs from run to run of the same
//! kubelet. So what differs is looked at again with only those pods. What two kubelets do differently, they do then too;
//! requests to the runtime and pods that never came where they should get no second look.

mod alike;
mod differential {
    pub mod corpus;
    pub mod handover;
    pub mod side;
    pub mod watch;
}
#[allow(dead_code, reason = "the order of calls is compared by the stories")]
#[path = "stories/runtime.rs"]
mod runtime;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, ensure};
use crablet_testbed::Flavor;
use crablet_testbed::cluster::{Cluster, ClusterOptions, Kubelet};
use serde_json::Value;

use differential::corpus::{self, Case};
use differential::handover;
use differential::side::{self, Seen};

/// Fewer, and somebody has lost some.
const LEAST: usize = 430;
/// More of them, and it is not chance that they differ at first.
const MOST_LOOKED_AT_AGAIN: usize = 20;

/// Each takes minutes and the whole machine.
static MACHINE: Mutex<()> = Mutex::new(());

#[test]
fn pods_of_a_cluster_have_the_same_status_and_ask_the_runtime_for_the_same() {
    run_if_asked_for(compare);
}

#[test]
fn a_kubelet_takes_over_the_others_pods_as_they_are() {
    run_if_asked_for(|| handover::both_ways(&crablet()));
}

fn run_if_asked_for(test: impl FnOnce() -> Result<()>) {
    if std::env::var("CRABLET_TEST_CORPUS").as_deref() != Ok("yes") {
        eprintln!("not run: the corpus is not under test (see CRABLET_TEST_CORPUS)");
        return;
    }
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(error) = test() {
        panic!("{error:?}");
    }
}

fn crablet() -> Kubelet {
    let built = PathBuf::from(env!("CARGO_BIN_EXE_crablet"));
    Kubelet::Crablet(std::env::var_os("CRABLET_TEST_BINARY").map_or(built, PathBuf::from))
}

fn compare() -> Result<()> {
    let cases = corpus::read()?;
    let chosen = std::env::var("CRABLET_TEST_PODS").ok();
    ensure!(chosen.is_some() || cases.len() >= LEAST, "{} pods; there were to be {LEAST}", cases.len());
    let chosen = |case: &Case| {
        chosen.as_ref().is_none_or(|parts| parts.split(',').any(|part| case.name.contains(part)))
    };
    let cases: Vec<Case> = cases.into_iter().filter(chosen).collect();

    let cluster = Cluster::start(ClusterOptions::new(Flavor::Pinned))?;
    let found = found(&cluster, cases.iter())?;
    let doubtful: Vec<&Case> = found.iter().filter(|one| one.may_be_chance()).map(|one| one.case).collect();
    let total = found.len();
    let mut certain: Vec<String> = Vec::new();
    if doubtful.len() <= MOST_LOOKED_AT_AGAIN {
        certain.extend(found.into_iter().filter(|one| !one.may_be_chance()).flat_map(Found::into_lines));
        if !doubtful.is_empty() {
            let again = self::found(&cluster, doubtful.into_iter())?;
            certain.extend(again.into_iter().flat_map(Found::into_lines));
        }
    } else {
        certain.extend(found.into_iter().flat_map(Found::into_lines));
    }
    cluster.stop()?;
    ensure!(
        certain.is_empty(),
        "crablet and upstream's kubelet differ in {} places:\n{}",
        certain.len(),
        certain.join("\n")
    );
    eprintln!("{} pods compared, {total} of them twice", cases.len());
    Ok(())
}

/// What was found about one pod, a line for each place.
struct Found<'a> {
    case: &'a Case,
    /// In the status and the events.
    told: Vec<String>,
    /// In the requests to the runtime, or that it did not come where it should.
    done: Vec<String>,
}

impl Found<'_> {
    fn may_be_chance(&self) -> bool {
        self.done.is_empty()
    }

    fn into_lines(self) -> Vec<String> {
        [self.done, self.told].concat()
    }
}

/// The pods with which the kubelets differ.
fn found<'a>(cluster: &Cluster, cases: impl Iterator<Item = &'a Case>) -> Result<Vec<Found<'a>>> {
    let cases: Vec<&Case> = cases.collect();
    let theirs = side::run(cluster, Kubelet::Upstream, &cases)?;
    let ours = side::run(cluster, crablet(), &cases)?;
    let found: Vec<Found<'_>> = cases
        .into_iter()
        .map(|case| differences(case, &ours, &theirs))
        .filter(|one| !one.told.is_empty() || !one.done.is_empty())
        .collect();
    for line in found.iter().flat_map(|one| one.done.iter().chain(&one.told)) {
        eprintln!("differs: {line}");
    }
    Ok(found)
}

fn differences<'a>(case: &'a Case, ours: &Seen, theirs: &Seen) -> Found<'a> {
    let (mut told, mut done) = (Vec::new(), Vec::new());
    let look = |what: &str, ours: &Value, theirs: &Value| -> Vec<String> {
        let found = alike::differences(what, ours, theirs);
        found.into_iter().map(|line| format!("{}: {what} {line}", case.name)).collect()
    };
    let sides = [("crablet", ours.has(case)), ("upstream's kubelet", theirs.has(case))];
    for (name, _) in sides.into_iter().filter(|(_, settled)| !settled) {
        done.push(format!("{}: with {name} it was never {:?}", case.name, case.until));
    }
    if done.is_empty() {
        told.extend(look("status", &ours.status(case), &theirs.status(case)));
    }
    let events = [("crablet", ours.events(case)), ("upstream's kubelet", theirs.events(case))];
    for (one, other) in [(&events[0], &events[1]), (&events[1], &events[0])] {
        let only = one.1.difference(&other.1);
        told.extend(only.map(|event| format!("{}: event of {} only: {event}", case.name, one.0)));
    }
    let (ours, theirs) = (ours.requests(case), theirs.requests(case));
    for key in ours.keys().chain(theirs.keys()).collect::<BTreeSet<_>>() {
        let of = |side: &side::Requests| side.get(key).cloned().unwrap_or_default();
        done.extend(look(key, &of(&ours), &of(&theirs)));
    }
    Found { case, told, done }
}
