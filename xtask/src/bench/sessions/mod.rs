//! `bench sessions`: what a kubelet pays for its clients, upstream's and Crablet one after the other and again. Each load is
//! measured on a kubelet that was just started, against the same kubelet without it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`load`] | the clients: followers of logs, sessions that wait or carry data |
//! | [`turn`] | one kubelet's turn |
//! | [`figures`], [`page`] | the numbers side by side, on the terminal and as `docs/benchmarks-sessions.md` |
//! | [`limit`] | a limit of the kernel that upstream runs into |

mod figures;
mod limit;
mod load;
mod page;
mod turn;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use crablet_testbed::cluster::{Cluster, ClusterOptions};
use crablet_testbed::{Flavor, guard, say};

use self::figures::Results;
use self::turn::Bench;
use crate::args::Args;
use crate::cluster::Which;

#[derive(Debug, Clone)]
pub struct Plan {
    pub rounds: usize,
    pub window: Duration,
    pub followers: usize,
    pub sessions: usize,
    pub only: Option<Which>,
}

pub fn run(mut args: Args) -> Result<ExitCode> {
    let plan = Plan {
        rounds: args.value("--rounds")?.unwrap_or(2).max(1),
        window: Duration::from_secs(args.value("--seconds")?.unwrap_or(20).max(1)),
        followers: args.value("--followers")?.unwrap_or(200).max(1),
        sessions: args.value("--sessions")?.unwrap_or(100).max(1),
        only: args.value("--only")?,
    };
    let binary = args.value::<PathBuf>("--binary")?;
    args.done()?;
    guard::install()?;
    let wanted = |which: &Which| plan.only.is_none_or(|only| only == *which);
    let mut subjects = Vec::new();
    for which in [Which::Upstream, Which::Crablet].into_iter().filter(wanted) {
        subjects.push((which, which.kubelet(binary.as_deref())?));
    }
    let _limit = limit::raise(plan.followers)?;
    say::step("starting a control plane and containerd");
    let cluster = Cluster::start(ClusterOptions::new(Flavor::Pinned))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut results = Results::default();
    let rounds = Bench { plan: &plan, cluster: &cluster, runtime: &runtime }.rounds(subjects, &mut results);
    drop(runtime);
    // What was measured before something went wrong may say why.
    figures::print(&plan, &results);
    rounds?;
    if plan.only.is_none() {
        page::write(&plan, &results)?;
    }
    say::step("removing everything");
    cluster.stop()?;
    Ok(ExitCode::SUCCESS)
}
