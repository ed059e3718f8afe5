//! `bench node`: the same work on upstream's kubelet and on Crablet, in one cluster, one after the other and again.
//!
//! | module | what it holds |
//! |---|---|
//! | [`subject`] | one kubelet's turn |
//! | [`burst`], [`reactions`], [`family`], [`machine`] | what is measured: many pods at once, one at a time, the process at rest, everything else |
//! | [`floor`] | the same calls to the runtime without any kubelet |
//! | [`api`], [`observer`], [`audit`] | the API server: asked, watched with a stopwatch, and its own account |
//! | [`pods`], [`crowd`] | the pods, and doing many things at once |
//! | [`figures`], [`report`], [`page`] | the numbers side by side, as a table and as `docs/benchmarks.md` |

mod api;
mod audit;
mod burst;
mod crowd;
pub(super) mod family;
mod figures;
mod floor;
mod machine;
mod observer;
pub(super) mod page;
mod pods;
mod reactions;
mod report;
mod subject;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use crablet_testbed::cluster::{Cluster, ClusterOptions};
use crablet_testbed::{Flavor, guard, say};

use self::api::Api;
use self::figures::Results;
use self::floor::Bare;
use self::subject::Bench;
use crate::args::Args;
use crate::cluster::Which;

/// As many as a node takes unless it is told otherwise; more would be refused.
const MOST_PODS: usize = 110;

#[derive(Debug, Clone)]
pub struct Plan {
    pub rounds: usize,
    pub pods: usize,
    pub idle: Duration,
    pub reactions: usize,
    pub only: Option<Which>,
    /// How many pods the bare client works on at a time.
    pub at_once: usize,
}

pub fn run(mut args: Args) -> Result<ExitCode> {
    let plan = Plan {
        rounds: args.value("--rounds")?.unwrap_or(2).max(1),
        pods: args.value("--pods")?.unwrap_or(MOST_PODS),
        idle: Duration::from_secs(args.value("--idle")?.unwrap_or(60).max(1)),
        reactions: args.value("--reactions")?.unwrap_or(20).max(1),
        only: args.value("--only")?,
        at_once: args.value("--at-once")?.unwrap_or(crowd::IN_FLIGHT).max(1),
    };
    // A build that is at hand already, instead of a release build.
    let binary = args.value::<PathBuf>("--binary")?;
    args.done()?;
    if !(1..=MOST_PODS).contains(&plan.pods) {
        bail!("`--pods` is from 1 to {MOST_PODS}");
    }
    guard::install()?;
    let wanted = |which: &Which| plan.only.is_none_or(|only| only == *which);
    let mut subjects = Vec::new();
    for which in [Which::Upstream, Which::Crablet].into_iter().filter(wanted) {
        subjects.push((which, which.kubelet(binary.as_deref())?));
    }
    note_load();
    say::step("starting a control plane and containerd");
    let cluster = Cluster::start(ClusterOptions { audit: true, ..ClusterOptions::new(Flavor::Pinned) })?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut results = Results::default();
    let rounds = {
        let _inside = runtime.enter();
        let (api, bare) = (Api::new(&cluster)?, Bare::new(&cluster, plan.at_once));
        let bench = Bench { plan: &plan, cluster: &cluster, runtime: &runtime, api, bare };
        bench.rounds(subjects, &mut results)
    };
    drop(runtime);
    // What was measured before something went wrong may say why.
    if !results.turns.is_empty() {
        report::print(&plan, &results);
    }
    rounds?;
    if plan.only.is_none() {
        page::write(&plan, &results)?;
    }
    say::step("removing everything");
    cluster.stop()?;
    Ok(ExitCode::SUCCESS)
}

/// Somebody else's work on the machine is in every figure.
fn note_load() {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0);
    if load > 0.5 {
        say::note(format!(
            "the machine is busy (load {load:.1}): the figures will be worse than they should be"
        ));
    }
}
