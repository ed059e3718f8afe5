//! Figures of a process from `/proc`, over a window of time.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use crablet_testbed::Containerd;

use super::subjects::Running;

/// What was measured.
pub struct Figures {
    rss_kb: u64,
    pss_kb: u64,
    threads: u64,
    wakeups_per_second: f64,
    cpu_ms_per_minute: f64,
    runtime_cpu_ms_per_minute: f64,
    binary_bytes: u64,
}

pub struct Row {
    pub name: &'static str,
    pub value: f64,
    unit: &'static str,
}

impl Row {
    pub fn shown(&self) -> String {
        format!("{:.1} {}", self.value, self.unit).trim_end().to_owned()
    }
}

impl Figures {
    pub fn rows(&self) -> Vec<Row> {
        let row = |name, value, unit| Row { name, value, unit };
        vec![
            row("memory (RSS)", self.rss_kb as f64 / 1024.0, "MiB"),
            row("memory (PSS)", self.pss_kb as f64 / 1024.0, "MiB"),
            row("wake-ups per second", self.wakeups_per_second, ""),
            row("CPU time per minute", self.cpu_ms_per_minute, "ms"),
            // An agent that asks often makes the runtime work: that is a cost of the agent too.
            row("containerd's CPU per minute", self.runtime_cpu_ms_per_minute, "ms"),
            row("threads", self.threads as f64, ""),
            row("binary", self.binary_bytes as f64 / 1024.0 / 1024.0, "MiB"),
        ]
    }
}

pub fn over(
    window: Duration,
    running: &dyn Running,
    containerd: &Containerd,
    binary: &Path,
) -> Result<Figures> {
    let daemon = containerd.daemon_pid().context("containerd runs")?;
    let started = Instant::now();
    let (before, runtime_before) = (Sample::of(running.pid())?, Sample::of(daemon)?);
    running.stay(window)?;
    let (after, runtime_after) = (Sample::of(running.pid())?, Sample::of(daemon)?);
    let seconds = started.elapsed().as_secs_f64();
    let ms_per_minute = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e6 / seconds * 60.0;
    Ok(Figures {
        rss_kb: field(&read(running.pid(), "status")?, "VmRSS:")?,
        pss_kb: field(&read(running.pid(), "smaps_rollup")?, "Pss:")?,
        threads: field(&read(running.pid(), "status")?, "Threads:")?,
        wakeups_per_second: after.switches.saturating_sub(before.switches) as f64 / seconds,
        cpu_ms_per_minute: ms_per_minute(before.cpu_ns, after.cpu_ns),
        runtime_cpu_ms_per_minute: ms_per_minute(runtime_before.cpu_ns, runtime_after.cpu_ns),
        binary_bytes: fs::metadata(binary)?.len(),
    })
}

/// Sums over all threads. A thread that ends in the window takes its counts with it, so the figures are a lower bound;
/// idle agents hardly ever end one.
struct Sample {
    switches: u64,
    cpu_ns: u64,
}

impl Sample {
    fn of(pid: u32) -> Result<Sample> {
        let mut sample = Sample { switches: 0, cpu_ns: 0 };
        for task in fs::read_dir(format!("/proc/{pid}/task")).context("the process is gone")? {
            let task = task?.path();
            let Ok(status) = fs::read_to_string(task.join("status")) else { continue };
            sample.switches += field(&status, "voluntary_ctxt_switches:")?;
            sample.switches += field(&status, "nonvoluntary_ctxt_switches:")?;
            // Nanoseconds on a CPU; `stat` counts in hundredths of a second, too coarse for an idle process.
            let schedule = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
            sample.cpu_ns +=
                schedule.split(' ').next().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(sample)
    }
}

pub fn read(pid: u32, file: &str) -> Result<String> {
    fs::read_to_string(format!("/proc/{pid}/{file}"))
        .with_context(|| format!("cannot read `{file}` of {pid}"))
}

/// The number behind a name at the start of a line.
pub fn field(text: &str, name: &str) -> Result<u64> {
    let rest =
        text.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no `{name}`"))?;
    let number = rest.split_whitespace().next().context("an empty field")?;
    number.parse().with_context(|| format!("`{name}` is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_very_process_can_be_sampled() {
        let sample = Sample::of(std::process::id()).unwrap();
        assert!(sample.switches > 0);
        assert!(field(&read(std::process::id(), "status").unwrap(), "VmRSS:").unwrap() > 0);
    }
}
