//! Reactions: one pod after the other on a node that has nothing else to do.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use crablet_testbed::process::{self, ProcessId};
use crablet_testbed::wait::{self, Deadline};
use rustix::process::Signal;

use super::pods;
use super::subject::Stage;

/// A slow machine is no failure; what takes longer is.
const LIMIT: Duration = Duration::from_secs(180);

/// Seconds, one for each pod.
#[derive(Debug, Clone, Default)]
pub struct Reactions {
    /// From the request to the event that says Running.
    pub running: Vec<f64>,
    /// From the end of the container's process to the event that says Succeeded.
    pub succeeded: Vec<f64>,
    /// From the request to the event that says that the pod is gone.
    pub gone: Vec<f64>,
}

pub async fn measure(stage: &Stage<'_>, count: usize) -> Result<Reactions> {
    let mut reactions = Reactions::default();
    for number in 0..count {
        resting(stage, &format!("{}-react-{number}", stage.node), &mut reactions).await?;
        ending(stage, &format!("{}-end-{number}", stage.node), &mut reactions).await?;
    }
    Ok(reactions)
}

/// Comes, runs, and is told to go.
async fn resting(stage: &Stage<'_>, name: &str, reactions: &mut Reactions) -> Result<()> {
    let asked = Instant::now();
    stage.api.create(pods::COLLECTION, &pods::resting(stage.node, name)).await?;
    let running = stage.pods.moment(name, LIMIT, |seen| seen.running).await?;
    reactions.running.push(since(asked, running, name, "did not run")?);
    let asked = Instant::now();
    stage.api.delete(&pods::path(name), None).await?;
    let gone = stage.pods.moment(name, LIMIT, |seen| seen.gone).await?;
    reactions.gone.push(since(asked, gone, name, "did not go")?);
    Ok(())
}

/// Comes, runs, and ends by itself.
async fn ending(stage: &Stage<'_>, name: &str, reactions: &mut Reactions) -> Result<()> {
    let mark = format!("mark-of-{name}");
    stage.api.create(pods::COLLECTION, &pods::ending(stage.node, name, &mark)).await?;
    if stage.pods.moment(name, LIMIT, |seen| seen.running).await?.is_none() {
        bail!("pod `{name}` did not run in {} s", LIMIT.as_secs());
    }
    let ended = tokio::task::spawn_blocking(move || end(&mark)).await??;
    let succeeded = stage.pods.moment(name, LIMIT, |seen| seen.succeeded).await?;
    reactions.succeeded.push(since(ended, succeeded, name, "did not succeed")?);
    stage.api.delete(&pods::path(name), None).await?;
    if stage.pods.moment(name, LIMIT, |seen| seen.gone).await?.is_none() {
        bail!("pod `{name}` did not go in {} s", LIMIT.as_secs());
    }
    Ok(())
}

fn since(from: Instant, to: Option<Instant>, name: &str, what: &str) -> Result<f64> {
    let to = to.with_context(|| format!("pod `{name}` {what} in {} s", LIMIT.as_secs()))?;
    Ok(to.saturating_duration_since(from).as_secs_f64())
}

/// Ends the process that has the mark in its command line; the moment at which the kernel says that it ended.
fn end(mark: &str) -> Result<Instant> {
    let deadline = Deadline::after(LIMIT);
    let mut found: Option<ProcessId> = None;
    // The shell is there a moment before it has told the kernel what it wants to do about signals.
    let is_marked = |it: &ProcessId| process::command_line(*it).iter().any(|word| word.contains(mark));
    wait::until(deadline, || {
        found = process::all().into_iter().find(|it| is_marked(it) && catches_term(*it));
        found.is_some()
    });
    let Some(found) = found else { bail!("no process of a container has `{mark}` in its command line") };
    found.signal(Signal::TERM);
    if !found.wait_gone(deadline) {
        bail!("the process with `{mark}` does not end");
    }
    Ok(Instant::now())
}

fn catches_term(it: ProcessId) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", it.pid)).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (Signal::TERM.as_raw() - 1)) != 0
}
