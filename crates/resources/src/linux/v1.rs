//! Cgroup v1: a hierarchy per controller.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crablet_model::cgroup::limits::{CgroupLimits, CgroupNow};
use rustix::io::Errno;

use super::files::{self, levels, make, number, read, write};

const REQUIRED: [&str; 4] = ["cpu", "cpuacct", "cpuset", "memory"];
/// A cgroup exists when it does in each of these that is mounted.
const CHECKED: [&str; 7] = ["cpu", "cpuacct", "cpuset", "hugetlb", "memory", "pids", "systemd"];

pub struct V1 {
    mounts: BTreeMap<&'static str, PathBuf>,
}

impl V1 {
    pub fn new(mounts: BTreeMap<&'static str, PathBuf>) -> Result<Self, String> {
        let missing: Vec<_> = REQUIRED.into_iter().filter(|name| !mounts.contains_key(name)).collect();
        if !missing.is_empty() {
            return Err(format!(
                "system validation failed - Following Cgroup subsystem not mounted: [{}]",
                missing.join(" ")
            ));
        }
        Ok(Self { mounts })
    }

    pub fn has(&self, controller: &str) -> bool {
        self.mounts.contains_key(controller)
    }

    /// Each place once: controllers may share a hierarchy.
    pub fn mounts(&self) -> BTreeSet<&PathBuf> {
        self.mounts.values().collect()
    }

    pub fn check(&self, path: &str, name: &str) -> Result<(), String> {
        let folders = CHECKED.iter().filter_map(|controller| self.folder(controller, path));
        let missing: Vec<_> =
            folders.filter(|folder| !folder.exists()).map(|folder| folder.display().to_string()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(format!("cgroup {name} has some missing paths: {}", missing.join(", ")))
    }

    pub fn make(&self, path: &str, by_systemd: bool) -> Result<(), String> {
        for (controller, mount) in &self.mounts {
            if *controller == "systemd" && by_systemd {
                continue;
            }
            let mut parent = mount.clone();
            for folder in levels(mount, path) {
                make(&folder)?;
                if *controller == "cpuset" {
                    inherit_cpuset(&parent, &folder)?;
                }
                parent = folder;
            }
        }
        Ok(())
    }

    pub fn apply(&self, path: &str, limits: &CgroupLimits) -> Result<(), String> {
        let folder = |controller: &str| {
            self.folder(controller, path).ok_or_else(|| {
                format!("cannot set up the cgroup `{path}`: the controller `{controller}` is not mounted")
            })
        };
        if let Some(cpus) = limits.cpus.as_deref().filter(|cpus| !cpus.is_empty()) {
            write(&folder("cpuset")?, "cpuset.cpus", cpus)?;
        }
        if let Some(memory) = limits.memory.filter(|bytes| *bytes != 0) {
            set_memory(&folder("memory")?, memory)?;
        }
        set_cpu(&folder("cpu")?, limits)?;
        if let Some(pids) = limits.pids {
            write(&folder("pids")?, "pids.max", &pids_text(pids))?;
        }
        if !limits.huge_pages.is_empty() {
            set_huge_pages(&folder("hugetlb")?, limits, "limit_in_bytes")?;
        }
        Ok(())
    }

    pub fn now(&self, path: &str) -> Result<CgroupNow, String> {
        let folder = |controller: &str| {
            self.folder(controller, path).ok_or_else(|| {
                format!("cannot read the cgroup `{path}`: the controller `{controller}` is not mounted")
            })
        };
        let (cpu, memory) = (folder("cpu")?, folder("memory")?);
        Ok(CgroupNow {
            cpu_shares: number(&cpu, "cpu.shares")?,
            cpu_quota: number(&cpu, "cpu.cfs_quota_us")?,
            cpu_period: number(&cpu, "cpu.cfs_period_us")?,
            memory: number(&memory, "memory.limit_in_bytes")?,
            memory_usage: number(&memory, "memory.usage_in_bytes")?,
        })
    }

    fn folder(&self, controller: &str, path: &str) -> Option<PathBuf> {
        Some(self.mounts.get(controller)?.join(path.trim_start_matches('/')))
    }
}

/// A new cpuset is empty, and no process may enter it before it has CPUs and memory nodes.
fn inherit_cpuset(parent: &Path, folder: &Path) -> Result<(), String> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if read(folder, file)?.is_empty() {
            write(folder, file, &read(parent, file)?)?;
        }
    }
    Ok(())
}

fn set_memory(folder: &Path, bytes: i64) -> Result<(), String> {
    if bytes == -1 && folder.join("memory.memsw.limit_in_bytes").exists() {
        // Memory cannot be limited less than memory with swap.
        write(folder, "memory.memsw.limit_in_bytes", "-1")?;
    }
    match write(folder, "memory.limit_in_bytes", &bytes.to_string()) {
        Err(failed) if failed.is(Errno::BUSY) => {
            let usage = read(folder, "memory.usage_in_bytes")?;
            let peak = read(folder, "memory.max_usage_in_bytes")?;
            Err(format!("unable to set memory limit to {bytes} (current usage: {usage}, peak usage: {peak})"))
        }
        written => Ok(written?),
    }
}

fn set_cpu(folder: &Path, limits: &CgroupLimits) -> Result<(), String> {
    if let Some(shares) = limits.cpu_shares.filter(|shares| *shares != 0) {
        write(folder, "cpu.shares", &shares.to_string())?;
    }
    let quota = limits.cpu_quota.filter(|quota| *quota != 0);
    let set_period = |period: i64| write(folder, "cpu.cfs_period_us", &period.to_string());
    let mut period_is_late = None;
    if let Some(period) = limits.cpu_period.filter(|period| *period != 0) {
        match set_period(period) {
            // The old quota over the new period may be more than the parent has; the new quota first, then.
            Err(failed) if failed.is(Errno::INVAL) && quota.is_some() => period_is_late = Some(period),
            written => written?,
        }
    }
    if let Some(quota) = quota {
        write(folder, "cpu.cfs_quota_us", &quota.to_string())?;
    }
    if let Some(period) = period_is_late {
        set_period(period)?;
    }
    Ok(())
}

/// Nobody can live with no process at all, and systemd has no word for it: upstream's library writes 1 for 0.
pub fn pids_text(pids: i64) -> String {
    if pids < 0 { "max".to_string() } else { pids.max(1).to_string() }
}

/// Both what is used and what is reserved; kernels before 5.7 do not know reservations.
pub fn set_huge_pages(folder: &Path, limits: &CgroupLimits, file: &str) -> Result<(), String> {
    for (size, bytes) in &limits.huge_pages {
        let bytes = bytes.to_string();
        files::write(folder, &format!("hugetlb.{size}.{file}"), &bytes)?;
        match files::write(folder, &format!("hugetlb.{size}.rsvd.{file}"), &bytes) {
            Err(failed) if failed.is_missing() => {}
            written => written?,
        }
    }
    Ok(())
}
