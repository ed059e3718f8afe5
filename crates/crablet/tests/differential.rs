//! Crablet and upstream's kubelet, one after the other on the same node of the same cluster, with the same pods from the
//! API server: what they ask the runtime for and the statuses that they report are compared field by field, and the
//! events that they tell users.
//!
//! Each file in `differential/pods` is a pod with one feature or odd corner; `differential/corpus.rs` says how it is
//! written. A difference that is meant is named in `alike/mod.rs` with its reason, nowhere else.

mod alike;
mod differential {
    pub mod corpus;
    pub mod side;
    pub mod watch;
}

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use crablet_testbed::Flavor;
use crablet_testbed::cluster::{Cluster, ClusterOptions, Kubelet};
use serde_json::Value;

use differential::corpus::{self, Case};
use differential::side::{self, Seen};

/// Fewer, and somebody has lost some.
const LEAST: usize = 390;

#[test]
fn pods_of_a_cluster_have_the_same_status_and_ask_the_runtime_for_the_same() {
    // Takes minutes and the whole machine, so that it is asked for by name.
    if std::env::var("CRABLET_TEST_CORPUS").as_deref() != Ok("yes") {
        eprintln!("not run: the corpus is not under test (see CRABLET_TEST_CORPUS)");
        return;
    }
    if let Err(error) = compare() {
        panic!("{error:?}");
    }
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
    let theirs = side::run(&cluster, Kubelet::Upstream, &cases)?;
    let ours = side::run(&cluster, Kubelet::Crablet(env!("CARGO_BIN_EXE_crablet").into()), &cases)?;
    let differences: Vec<String> = cases.iter().flat_map(|case| differences(case, &ours, &theirs)).collect();
    cluster.stop()?;
    ensure!(
        differences.is_empty(),
        "crablet and upstream's kubelet differ in {} places:\n{}",
        differences.len(),
        differences.join("\n")
    );
    eprintln!("{} pods compared", cases.len());
    Ok(())
}

/// One line for each place.
fn differences(case: &Case, ours: &Seen, theirs: &Seen) -> Vec<String> {
    let mut lines = Vec::new();
    let look = |what: &str, ours: &Value, theirs: &Value| -> Vec<String> {
        let found = alike::differences(what, ours, theirs);
        found.into_iter().map(|line| format!("{}: {what} {line}", case.name)).collect()
    };
    let sides = [("crablet", ours.has(case)), ("upstream's kubelet", theirs.has(case))];
    for (name, _) in sides.into_iter().filter(|(_, settled)| !settled) {
        lines.push(format!("{}: with {name} it was never {:?}", case.name, case.until));
    }
    if lines.is_empty() {
        lines.extend(look("status", &ours.status(case), &theirs.status(case)));
    }
    let told = [("crablet", ours.events(case)), ("upstream's kubelet", theirs.events(case))];
    for (name, one, other) in [(told[0].0, &told[0].1, &told[1].1), (told[1].0, &told[1].1, &told[0].1)] {
        let only = one.difference(other);
        lines.extend(only.map(|event| format!("{}: event of {name} only: {event}", case.name)));
    }
    let (ours, theirs) = (ours.requests(case), theirs.requests(case));
    for key in ours.keys().chain(theirs.keys()).collect::<BTreeSet<_>>() {
        let of = |side: &side::Requests| side.get(key).cloned().unwrap_or_default();
        lines.extend(look(key, &of(&ours), &of(&theirs)));
    }
    lines
}
