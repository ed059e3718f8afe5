//! `bench idle`: what an agent costs while its pods just run. Nothing is asserted: figures of one machine on one day.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use crablet_testbed::{Containerd, Flavor, StartOptions, guard, kube, packages, say};

use super::measure::{self, Figures};
use super::subjects::{CrabletSubject, Subject, UpstreamSubject};
use crate::args::Args;
use crate::runtime::Runtime;
use crate::{table, workspace};

/// Work that follows a start (image lists, first status rounds) must be over before the window opens.
const SETTLE: Duration = Duration::from_secs(15);

struct Plan {
    pods: usize,
    window: Duration,
    flavor: Flavor,
    upstream: PathBuf,
}

pub fn run(mut args: Args) -> Result<ExitCode> {
    let mut plan = Plan {
        pods: args.value("--pods")?.unwrap_or(50),
        window: Duration::from_secs(args.value("--seconds")?.unwrap_or(60)),
        flavor: args.value::<Runtime>("--runtime")?.map_or(Flavor::Pinned, |runtime| runtime.0),
        upstream: args.value("--upstream")?.unwrap_or_default(),
    };
    args.done()?;
    guard::install()?;
    if plan.upstream.as_os_str().is_empty() {
        plan.upstream = kube::ensure(&[kube::KUBELET])?.join(kube::KUBELET.name);
    }
    packages::ensure_runtime()?;
    say::step("building crablet");
    let crablet = measure_subject(&plan, &CrabletSubject { binary: workspace::build_crablet()? })?;
    let upstream = measure_subject(&plan, &UpstreamSubject { binary: plan.upstream.clone() })?;
    print_report(&plan, &crablet, &upstream);
    Ok(ExitCode::SUCCESS)
}

/// A fresh runtime for each, so that one's leavings are not the other's work.
fn measure_subject(plan: &Plan, subject: &dyn Subject) -> Result<Figures> {
    say::step(format!(
        "{}: starting {} pods on containerd ({})",
        subject.name(),
        plan.pods,
        plan.flavor.name()
    ));
    let containerd = Containerd::start(StartOptions::new(plan.flavor))?;
    let running = subject.start(&containerd, plan.pods)?;
    say::note(format!("all run; settling for {} s", SETTLE.as_secs()));
    running.stay(SETTLE)?;
    say::note(format!("measuring for {} s", plan.window.as_secs()));
    let figures = measure::over(plan.window, running.as_ref(), &containerd, subject.binary())?;
    say::note("removing everything");
    drop(running);
    containerd.stop()?;
    Ok(figures)
}

fn print_report(plan: &Plan, crablet: &Figures, upstream: &Figures) {
    let heading = [format!("IDLE, {} PODS", plan.pods), "CRABLET".into(), "UPSTREAM".into(), "RATIO".into()];
    let mut rows = vec![heading.to_vec()];
    for (ours, theirs) in crablet.rows().iter().zip(upstream.rows()) {
        let ratio =
            if ours.value > 0.0 { format!("1 : {:.1}", theirs.value / ours.value) } else { "-".into() };
        rows.push(vec![ours.name.into(), ours.shown(), theirs.shown(), ratio]);
    }
    println!("\n{}", table::render(&rows));
}
