//! An agent and its children, from `/proc`: Crablet's keeper is a process of its own and counts as Crablet.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use crablet_testbed::process::{self, ProcessId};
use crablet_testbed::wait::Deadline;
use rustix::time::{ClockId, clock_gettime};

use crate::bench::measure::{field, read};

/// Ticks of `/proc/<pid>/stat` per second, on every Linux that there is.
const TICKS: f64 = 100.0;

pub struct Family(ProcessId);

/// What a window of time showed.
#[derive(Debug, Clone, Copy)]
pub struct Rest {
    pub rss_mib: f64,
    /// The most since its start.
    pub peak_mib: f64,
    pub pss_mib: f64,
    pub threads: f64,
    pub wakeups_per_second: f64,
    pub cpu_percent: f64,
    pub runtime_cpu_percent: f64,
}

impl Family {
    pub fn of(pid: u32) -> Result<Family> {
        ProcessId::of(pid).map(Family).context("the process is gone")
    }

    fn members(&self) -> Vec<u32> {
        process::with_descendants(&[self.0]).iter().map(|member| member.pid as u32).collect()
    }

    /// Seconds of CPU since its start, those of children that have ended included.
    pub fn cpu(&self) -> Result<f64> {
        let own = cpu_of(self.0.pid as u32).context("the agent ended while it was measured")?;
        // A child that ends just now is counted by its parent next time.
        let children = self.members().into_iter().skip(1).filter_map(cpu_of).sum::<f64>();
        Ok(own + children)
    }

    fn switches(&self) -> u64 {
        let tasks = |pid: u32| fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let of = |status: String| {
            let number = |name| field(&status, name).unwrap_or(0);
            number("voluntary_ctxt_switches:") + number("nonvoluntary_ctxt_switches:")
        };
        let texts = self.members().into_iter().flat_map(tasks);
        texts.filter_map(|task| fs::read_to_string(task.path().join("status")).ok()).map(of).sum()
    }

    /// Sum over the processes of a number in kibibytes or without a unit.
    fn sum(&self, file: &str, name: &str) -> Result<f64> {
        let mut sum = field(&read(self.0.pid as u32, file)?, name)? as f64;
        for child in self.members().into_iter().skip(1) {
            sum += read(child, file).ok().and_then(|text| field(&text, name).ok()).unwrap_or(0) as f64;
        }
        Ok(sum)
    }

    /// Lets the time pass; fails as soon as the agent ends.
    pub fn stay(&self, time: Duration) -> Result<()> {
        if self.0.wait_gone(Deadline::after(time)) {
            bail!("the agent ended while it was measured");
        }
        Ok(())
    }

    /// Watches it doing nothing, and `runtime` beside it: an agent that asks often makes the runtime work.
    pub fn rest(&self, window: Duration, runtime: u32) -> Result<Rest> {
        let runtime_cpu = || cpu_of(runtime).context("containerd ended");
        let started = Instant::now();
        let before = (self.cpu()?, self.switches(), runtime_cpu()?);
        self.stay(window)?;
        let after = (self.cpu()?, self.switches(), runtime_cpu()?);
        let seconds = started.elapsed().as_secs_f64();
        Ok(Rest {
            rss_mib: self.sum("status", "VmRSS:")? / 1024.0,
            peak_mib: self.sum("status", "VmHWM:")? / 1024.0,
            pss_mib: self.sum("smaps_rollup", "Pss:")? / 1024.0,
            threads: self.sum("status", "Threads:")?,
            wakeups_per_second: after.1.saturating_sub(before.1) as f64 / seconds,
            cpu_percent: (after.0 - before.0) / seconds * 100.0,
            runtime_cpu_percent: (after.2 - before.2) / seconds * 100.0,
        })
    }

    /// When it was started, to a hundredth of a second.
    pub fn started(&self) -> Instant {
        let uptime = clock_gettime(ClockId::Boottime);
        let uptime = uptime.tv_sec as f64 + uptime.tv_nsec as f64 / 1e9;
        let age = (uptime - self.0.started as f64 / TICKS).max(0.0);
        Instant::now().checked_sub(Duration::from_secs_f64(age)).unwrap_or_else(Instant::now)
    }
}

/// Seconds of CPU, with those of children that were waited for. The kernel keeps them exactly and tells hundredths.
pub fn cpu_of(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold both blanks and parentheses.
    let (_, after) = stat.rsplit_once(") ")?;
    let times = after.split_whitespace().skip(11).take(4).map(|ticks| ticks.parse::<f64>().unwrap_or(0.0));
    Some(times.sum::<f64>() / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_very_process_has_a_past() {
        let me = Family::of(std::process::id()).unwrap();
        assert!(me.started() <= Instant::now());
        assert!(me.sum("status", "VmRSS:").unwrap() > 0.0);
        assert!(me.cpu().unwrap() >= 0.0);
    }
}
