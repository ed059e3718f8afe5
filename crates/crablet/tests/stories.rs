//! What becomes of pods over time, told twice: by upstream's kubelet and by Crablet, one after the other on the same node
//! of the same cluster. The corpus compares where single pods get to; here things happen to them on the way: they are
//! deleted, edited, killed, taken apart behind the kubelet's back, and the kubelet is stopped and comes back.
//!
//! Each file in `stories/tales` is a story; `stories/tale.rs` says how it is written, `stories/account.rs` what is
//! compared. A difference that is meant is named in `alike/mod.rs`, or in the story itself, with its reason.

#[allow(dead_code, reason = "requests to the runtime are compared by the corpus")]
mod alike;
#[path = "differential"]
mod differential {
    #![allow(dead_code, reason = "the corpus has more words than are needed here")]
    pub mod corpus;
    pub mod watch;
}
mod stories {
    pub mod account;
    pub mod news;
    pub mod runtime;
    pub mod tale;
    pub mod teller;
}

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use crablet_testbed::Flavor;
use crablet_testbed::cluster::{Cluster, ClusterOptions, Kubelet};
use serde_json::Value;

use stories::account::Told;
use stories::tale::{self, Tale};
use stories::teller;

/// Fewer, and somebody has lost some.
const LEAST: usize = 120;
/// More of them, and it is not chance that they differ.
const MOST_TOLD_AGAIN: usize = 20;

#[test]
fn what_happens_to_pods_happens_with_both_kubelets() {
    if is_asked_for()
        && let Err(error) = compare()
    {
        panic!("{error:?}");
    }
}

/// Takes minutes and the whole machine.
fn is_asked_for() -> bool {
    let asked = std::env::var("CRABLET_TEST_CORPUS").as_deref() == Ok("yes");
    if !asked {
        eprintln!("not run: the stories are not under test (see CRABLET_TEST_CORPUS)");
    }
    asked
}

fn crablet() -> Kubelet {
    let built = PathBuf::from(env!("CARGO_BIN_EXE_crablet"));
    Kubelet::Crablet(std::env::var_os("CRABLET_TEST_BINARY").map_or(built, PathBuf::from))
}

fn compare() -> Result<()> {
    let tales = tale::read()?;
    let chosen = std::env::var("CRABLET_TEST_PODS").ok();
    ensure!(chosen.is_some() || tales.len() >= LEAST, "{} stories; there were to be {LEAST}", tales.len());
    let chosen = |tale: &Tale| {
        chosen.as_ref().is_none_or(|parts| parts.split(',').any(|part| tale.name.contains(part)))
    };
    let tales: Vec<Tale> = tales.into_iter().filter(chosen).collect();

    let cluster = Cluster::start(ClusterOptions::new(Flavor::Pinned))?;
    let told = both(&cluster, &tales)?;
    let mut found = found(&tales, &told);
    // Among dozens of others a story may come too late for what it is about. Told again by fewer, it does not.
    let doubtful: Vec<Tale> =
        tales.iter().filter(|tale| found.iter().any(|(name, _)| *name == tale.name)).cloned().collect();
    if (1..=MOST_TOLD_AGAIN).contains(&doubtful.len()) {
        for (_, line) in &found {
            eprintln!("differs: {line}");
        }
        let told = (
            teller::tell(&cluster, &Kubelet::Upstream, &doubtful)?,
            teller::tell(&cluster, &crablet(), &doubtful)?,
        );
        found = self::found(&doubtful, &told);
    }
    cluster.stop()?;
    let lines: Vec<String> = found.into_iter().map(|(_, line)| line).collect();
    ensure!(
        lines.is_empty(),
        "crablet and upstream's kubelet differ in {} places:\n{}",
        lines.len(),
        lines.join("\n")
    );
    eprintln!("{} stories compared, {} of them twice", tales.len(), doubtful.len());
    Ok(())
}

/// Names of stories, each with a line for a place where they differ.
fn found(tales: &[Tale], (theirs, ours): &(Told, Told)) -> Vec<(String, String)> {
    let lines = tales.iter().flat_map(|tale| {
        let found = differences(tale, ours, theirs).into_iter();
        found.map(|line| (tale.name.clone(), line))
    });
    lines.collect()
}

/// Told by upstream's kubelet and by Crablet. With `CRABLET_TEST_KEPT=<folder>` what upstream's told last time is taken
/// from there, where it is, and kept there.
fn both(cluster: &Cluster, tales: &[Tale]) -> Result<(Told, Told)> {
    let kept =
        std::env::var_os("CRABLET_TEST_KEPT").map(|folder| PathBuf::from(folder).join("upstream.json"));
    let known = kept.as_ref().filter(|path| path.exists());
    let known: Option<Told> =
        known.map(|path| Ok::<_, anyhow::Error>(serde_json::from_slice(&fs::read(path)?)?)).transpose()?;
    let theirs = match known {
        Some(known) => known,
        None => teller::tell(cluster, &Kubelet::Upstream, tales)?,
    };
    if let Some(path) = &kept {
        fs::write(path, serde_json::to_vec_pretty(&theirs)?)?;
    }
    let ours = teller::tell(cluster, &crablet(), tales)?;
    if let Some(path) = &kept {
        fs::write(path.with_file_name("crablet.json"), serde_json::to_vec_pretty(&ours)?)?;
    }
    Ok((theirs, ours))
}

/// One line for each place.
fn differences(tale: &Tale, ours: &Told, theirs: &Told) -> Vec<String> {
    let of = |side: &Told| side.get(&tale.name).cloned().unwrap_or_default();
    let (ours, theirs) = (of(ours), of(theirs));
    let keys: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    let mut lines = Vec::new();
    for key in keys {
        let of = |side: &stories::account::Aspects| side.get(key).cloned().unwrap_or(Value::Null);
        let found = alike::differences(key, &of(&ours), &of(&theirs));
        let found = found.into_iter().filter(|line| !tale.is_chance(key, line));
        lines.extend(found.map(|line| format!("{}: {key} {line}", tale.name)));
        if key == "failure" && of(&ours) == of(&theirs) {
            lines.push(format!("{}: with both: {}", tale.name, of(&ours)));
        }
    }
    lines
}
