//! `test`: everything that must hold, stage by stage, with one summary at the end.

mod invariants;
mod programs;
mod sources;
mod tally;
mod targets;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use crablet_testbed::guard::{self, Group};
use crablet_testbed::{Flavor, cluster, csi, packages, pinned, say, scratch};

use self::programs::Ground;
use self::tally::Tally;
use self::targets::Only;
use crate::args::Args;
use crate::{table, workspace};

pub fn run(mut args: Args) -> Result<ExitCode> {
    let only: Option<Only> = args.value("--only")?;
    args.done()?;
    guard::install()?;
    let mut report = Report::default();
    let mut tally = Tally::default();
    let mut runtimes = String::from("none");
    let mut clusters = false;
    if only.is_none_or(Only::needs_runtime) {
        report.stage("packages", packages::ensure_runtime);
        runtimes = prepare_runtimes(&mut report);
        clusters = prepare_clusters(&mut report);
        report.stage("csi-sanity", || csi::sanity::ensure().map(drop));
    }
    if only.is_none() {
        report.stage("format", || cargo(&["fmt", "--all", "--check"]));
        report.stage("lints", || cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]));
        report.stage("invariants", invariants::check);
    }
    let ground = Ground { runtimes, clusters };
    match only {
        Some(only) => {
            report.stage("tests", || ground.run(only, &mut tally));
        }
        None => {
            if report.stage("test programs", || cargo(&["test", "--workspace", "--no-run"])) {
                report.stage("tests", || ground.run_all(&mut tally));
            }
        }
    }
    // A test that was killed (by a time limit, by hand) could not clean up after itself.
    scratch::sweep()?;
    println!("\n{}", report.render());
    println!("{tally}");
    let all_well = report.all_passed() && tally.failed == 0;
    Ok(if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Which runtimes the tests are told to use: as the environment says, or both; a pinned one that cannot be built is a
/// failed stage, and the tests still run on the other.
fn prepare_runtimes(report: &mut Report) -> String {
    let wanted = std::env::var("CRABLET_TEST_RUNTIMES").unwrap_or_else(|_| "debian,pinned".into());
    let mut names: Vec<&str> = wanted.split(',').map(str::trim).collect();
    if names.contains(&Flavor::Pinned.name())
        && !report.stage("pinned runtime", || pinned::ensure().map(drop))
    {
        say::note("hint: `CRABLET_TEST_RUNTIMES=debian cargo xtask test` leaves it out");
        names.retain(|name| *name != Flavor::Pinned.name());
    }
    names.join(",")
}

/// Whether the tests may start clusters: as the environment says, or yes; a control plane that cannot be built is a
/// failed stage, and the other tests still run.
fn prepare_clusters(report: &mut Report) -> bool {
    let wanted = std::env::var("CRABLET_TEST_CLUSTER").map_or(true, |wanted| wanted == "yes");
    wanted && report.stage("control plane", cluster::prepare)
}

fn cargo(args: &[&str]) -> Result<()> {
    let mut child = workspace::cargo().args(args).spawn().context("cannot run `cargo`")?;
    let _group = Group::of(&child);
    let status = child.wait()?;
    if !status.success() {
        bail!("`cargo {}` failed", args[0]);
    }
    Ok(())
}

/// What each stage came to.
#[derive(Default)]
struct Report {
    stages: Vec<(&'static str, Duration, Result<()>)>,
}

impl Report {
    /// Runs a stage and notes its time; says whether it passed. A failure does not stop the later stages: one run
    /// tells all.
    fn stage(&mut self, name: &'static str, work: impl FnOnce() -> Result<()>) -> bool {
        say::step(name);
        let started = Instant::now();
        let result = work();
        if let Err(error) = &result {
            // After Ctrl-C every stage fails, and none of it is worth showing.
            guard::let_it_finish();
            eprintln!("error: {error:#}");
        }
        let passed = result.is_ok();
        self.stages.push((name, started.elapsed(), result));
        passed
    }

    fn all_passed(&self) -> bool {
        self.stages.iter().all(|(_, _, result)| result.is_ok())
    }

    fn render(&self) -> String {
        let heading = ["STAGE", "RESULT", "SECONDS"].map(String::from).to_vec();
        let row = |(name, time, result): &(&str, Duration, Result<()>)| {
            let word = if result.is_ok() { "ok" } else { "FAILED" };
            vec![name.to_string(), word.into(), format!("{:.1}", time.as_secs_f32())]
        };
        table::render(&std::iter::once(heading).chain(self.stages.iter().map(row)).collect::<Vec<_>>())
    }
}
