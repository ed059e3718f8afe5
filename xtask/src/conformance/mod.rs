//! `conformance`: upstream's own specs as judges of a kubelet, ours or theirs, and what came of it.
//!
//! [`options`] is what is asked for, [`judge`] runs it, [`progress`] is what is seen meanwhile, [`kept`] what is left
//! for the one who looks for a cause, [`results`] what is remembered of both kubelets, [`history`] of whole runs, [`page`] the document made of it.

mod facts;
mod history;
mod judge;
mod kept;
mod options;
mod page;
mod progress;
mod reasons;
mod results;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use crablet_testbed::process::output_of;
use crablet_testbed::suites::report::{Report, State};
use crablet_testbed::{guard, say, scratch};
use serde_json::Value;

use self::judge::Verdict;
use self::options::Options;
use self::results::{Results, table_name};
use crate::args::Args;
use crate::cluster::Which;
use crate::{table, workspace};

/// As many names as are worth a screen.
const SHOWN: usize = 20;

pub fn run(mut args: Args) -> Result<ExitCode> {
    if args.flag("--report") {
        args.done()?;
        return page::write(&Folders::find()?);
    }
    let options = Options::take(&mut args)?;
    args.done()?;
    guard::install()?;
    let folders = Folders::find()?;
    let folder = folders.own.join("runs").join(options.name());
    let _alone = folders.lock(&options.name(), Wait::No)?;
    // A run that was killed may still write into that folder.
    scratch::sweep()?;
    judge::fresh_folder(&folder)?;
    let verdict = judge::judge(&options, &folder)?;
    let failed = kept::failures(&verdict.report, &folder)?;
    remember(&folders, &options, &verdict)?;
    for (name, log) in &failed {
        println!("failed: {name}\n        {}", log.display());
    }
    show(&folders, &options, &verdict.report)?;
    say::note(format!("logs of the suite, the kubelet and all else: `{}`", folder.display()));
    verdict_on(&verdict.report)
}

/// Whether to wait for another one's lock.
enum Wait {
    Yes,
    No,
}

/// Where results are.
pub struct Folders {
    /// Of this checkout's own runs.
    pub own: PathBuf,
    /// The kept ones, part of the documentation.
    pub kept: PathBuf,
    pub page: PathBuf,
}

impl Folders {
    fn find() -> Result<Folders> {
        let mut command = workspace::cargo();
        command.args(["metadata", "--no-deps", "--format-version", "1"]);
        let metadata: Value = serde_json::from_str(&output_of(&mut command)?)?;
        let target = metadata["target_directory"].as_str().context("cargo names no target folder")?;
        let docs = workspace::root().join("docs");
        Ok(Folders {
            own: PathBuf::from(target).join("conformance"),
            kept: docs.join("conformance"),
            page: docs.join("conformance.md"),
        })
    }

    /// Held while a kind of run is under way, or while the results are changed; let go when dropped or when we die.
    fn lock(&self, name: &str, wait: Wait) -> Result<fs::File> {
        fs::create_dir_all(&self.own)?;
        let path = self.own.join(format!("{name}.lock"));
        let file = fs::File::create(&path).with_context(|| format!("cannot make `{}`", path.display()))?;
        match wait {
            Wait::Yes => file.lock().with_context(|| format!("cannot lock `{}`", path.display()))?,
            Wait::No if file.try_lock().is_err() => bail!("another run of `{name}` is under way"),
            Wait::No => {}
        }
        Ok(file)
    }

    /// All that is known: this checkout's runs over the kept ones.
    fn results(&self) -> Results {
        Results::read(&self.kept).overlaid(Results::read(&self.own))
    }
}

fn remember(folders: &Folders, options: &Options, verdict: &Verdict) -> Result<()> {
    // What proxies were part of is not the kubelet's own result.
    if verdict.report.specs.is_empty() || options.record {
        return Ok(());
    }
    let _lock = folders.lock("results", Wait::Yes)?;
    let mut own = Results::read(&folders.own);
    own.take(options, &verdict.report, verdict.facts.clone());
    own.write(&folders.own)?;
    if options.whole {
        let known = folders.results().tables.remove(&table_name(options)).unwrap_or_default();
        history::note(&folders.own, options, &verdict.report, &known, verdict.facts.get("minutes"))?;
    }
    Ok(())
}

/// This run, and what is known of both kubelets by now.
fn show(folders: &Folders, options: &Options, report: &Report) -> Result<()> {
    let count = |state| report.count(state).to_string();
    let heading = ["SUITE", "RUNTIME", "KUBELET", "PASSED", "FAILED", "SKIPPED"].map(String::from).to_vec();
    let run = [options.suite.name(), options.flavor.name(), options.which.name()].map(String::from);
    let counts = [count(State::Passed), count(State::Failed), count(State::Skipped)];
    println!("\n{}", table::render(&[heading, run.into_iter().chain(counts).collect()]));
    let name = table_name(options);
    let results = folders.results();
    let Some(known) = results.tables.get(&name) else { return Ok(()) };
    if known.ran(Which::Upstream) && known.ran(Which::Crablet) {
        let to_mend = known.ours_to_mend();
        println!("upstream passes, crablet fails: {} of `{name}`", to_mend.len());
        for spec in to_mend.iter().take(SHOWN) {
            println!("  {spec}");
        }
        if to_mend.len() > SHOWN {
            println!("  and {} more", to_mend.len() - SHOWN);
        }
    }
    say::note(format!("both kubelets side by side: `{}`", folders.own.join(format!("{name}.tsv")).display()));
    Ok(())
}

/// Success is when something ran and nothing failed.
fn verdict_on(report: &Report) -> Result<ExitCode> {
    if let Some(failure) = report.suite_failures.first() {
        let reason = failure.message.lines().next().unwrap_or_default();
        bail!("the suite itself failed in `{}`: {reason}", failure.name);
    }
    if report.specs.is_empty() {
        bail!("no spec ran: {}", report.reasons.join(", "));
    }
    if report.count(State::Failed) > 0 { Ok(ExitCode::FAILURE) } else { Ok(ExitCode::SUCCESS) }
}
