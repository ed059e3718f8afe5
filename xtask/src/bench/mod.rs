//! `bench idle`: what an agent costs while its pods just run. Nothing is asserted: figures of one machine on one day.

mod measure;
mod subjects;
mod traces;

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, bail};
use crablet_testbed::{Containerd, Flavor, StartOptions, cache, guard, packages, say};

use self::measure::Figures;
use self::subjects::{CrabletSubject, Subject, UpstreamSubject};
use crate::args::Args;
use crate::{table, workspace};

/// Work that follows a start (image lists, first status rounds) must be over before the window opens.
const SETTLE: Duration = Duration::from_secs(15);

struct Plan {
    pods: usize,
    window: Duration,
    flavor: Flavor,
    upstream: Option<PathBuf>,
}

pub fn run(mut args: Args) -> Result<ExitCode> {
    match args.command().as_deref() {
        Some("idle") => {}
        _ => bail!("there is one bench: `cargo xtask bench idle`"),
    }
    let plan = Plan {
        pods: args.value("--pods")?.unwrap_or(50),
        window: Duration::from_secs(args.value("--seconds")?.unwrap_or(60)),
        flavor: args.value::<Runtime>("--runtime")?.map_or(Flavor::Pinned, |runtime| runtime.0),
        upstream: args.value("--upstream")?.or_else(cached_upstream),
    };
    args.done()?;
    guard::install()?;
    packages::ensure_runtime()?;
    say::step("building crablet");
    let crablet = measure_subject(&plan, &CrabletSubject { binary: workspace::build_crablet()? })?;
    let upstream = match &plan.upstream {
        Some(binary) => Some(measure_subject(&plan, &UpstreamSubject { binary: binary.clone() })?),
        None => None,
    };
    print_report(&plan, &crablet, upstream.as_ref());
    Ok(ExitCode::SUCCESS)
}

struct Runtime(Flavor);

#[derive(Debug, thiserror::Error)]
#[error("it is one of `pinned` and `debian`")]
struct UnknownRuntime;

impl FromStr for Runtime {
    type Err = UnknownRuntime;

    fn from_str(text: &str) -> Result<Runtime, UnknownRuntime> {
        Flavor::ALL.into_iter().find(|flavor| flavor.name() == text).map(Runtime).ok_or(UnknownRuntime)
    }
}

/// Upstream's kubelet, if someone built it into the cache: `<cache>/kube*/bin/kubelet`.
fn cached_upstream() -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(cache::dir().ok()?)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("kube")))
        .map(|path| path.join("bin/kubelet"))
        .filter(|path| path.is_file())
        .collect();
    found.sort();
    found.pop()
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

fn print_report(plan: &Plan, crablet: &Figures, upstream: Option<&Figures>) {
    let mut rows = vec![vec![format!("IDLE, {} PODS", plan.pods), "CRABLET".into()]];
    rows.extend(crablet.rows().into_iter().map(|row| vec![row.name.into(), row.shown()]));
    if let Some(upstream) = upstream {
        rows[0].extend(["UPSTREAM".into(), "RATIO".into()]);
        for (row, (ours, theirs)) in rows[1..].iter_mut().zip(crablet.rows().iter().zip(upstream.rows())) {
            row.push(theirs.shown());
            row.push(if ours.value > 0.0 {
                format!("1 : {:.1}", theirs.value / ours.value)
            } else {
                "-".into()
            });
        }
    }
    println!("\n{}", table::render(&rows));
    if upstream.is_none() {
        say::note("hint: `--upstream PATH` measures upstream's kubelet beside it");
    }
}
