//! Cgroup v2: one hierarchy, in which each level enables controllers for the next.

use std::path::{Path, PathBuf};

use crablet_model::cgroup::limits::{CgroupLimits, CgroupNow, shares_of_weight, weight_of_shares};

use super::files::{levels, make, number, read, write};
use super::v1::{pids_text, set_huge_pages};

const NEEDED: [&str; 5] = ["cpu", "cpuset", "hugetlb", "memory", "pids"];
const DEFAULT_CPU_PERIOD: i64 = 100_000;

pub struct V2 {
    mount: PathBuf,
    /// What the kernel offers, in its order.
    offered: Vec<String>,
}

impl V2 {
    pub fn new(mount: PathBuf) -> Result<Self, String> {
        let offered = controllers(&mount)?;
        Ok(Self { mount, offered })
    }

    pub fn mount(&self) -> &Path {
        &self.mount
    }

    pub fn needs(&self, controller: &str) -> bool {
        NEEDED.contains(&controller) && self.offered.iter().any(|offered| offered == controller)
    }

    /// A folder is not enough: a cgroup of someone else's may lack controllers.
    pub fn check(&self, path: &str, name: &str) -> Result<(), String> {
        let folder = self.folder(path);
        let enabled = controllers(&folder)
            .map_err(|error| format!("could not read controllers for cgroup {name}: {error}"))?;
        let missing: Vec<_> = NEEDED
            .into_iter()
            .filter(|controller| {
                self.needs(controller) && !enabled.iter().any(|enabled| enabled == controller)
            })
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(format!("cgroup {name} has some missing controllers: {}", missing.join(", ")))
    }

    pub fn make(&self, path: &str) -> Result<(), String> {
        let mut parent = self.mount.clone();
        for folder in levels(&self.mount, path) {
            self.enable_controllers(&parent)?;
            make(&folder)?;
            parent = folder;
        }
        Ok(())
    }

    /// For the children of `folder`: all that the kernel offers, since runtimes use more than we do.
    fn enable_controllers(&self, folder: &Path) -> Result<(), String> {
        let all: Vec<_> = self.offered.iter().map(|controller| format!("+{controller}")).collect();
        if all.is_empty() || write(folder, "cgroup.subtree_control", &all.join(" ")).is_ok() {
            return Ok(());
        }
        for (controller, text) in self.offered.iter().zip(&all) {
            // One that we do not need may be refused.
            match write(folder, "cgroup.subtree_control", text) {
                Err(failed) if self.needs(controller) => return Err(failed.into()),
                _ => {}
            }
        }
        Ok(())
    }

    pub fn apply(&self, path: &str, limits: &CgroupLimits) -> Result<(), String> {
        let folder = self.folder(path);
        let folder = folder.as_path();
        if let Some(pids) = limits.pids {
            write(folder, "pids.max", &pids_text(pids))?;
        }
        if let Some(bytes) = limits.memory.filter(|bytes| *bytes != 0) {
            if bytes == -1 {
                match write(folder, "memory.swap.max", "max") {
                    Err(failed) if failed.is_missing() => {}
                    written => written?,
                }
            }
            write(folder, "memory.max", &if bytes == -1 { "max".to_string() } else { bytes.to_string() })?;
        }
        if let Some(shares) = limits.cpu_shares.filter(|shares| *shares != 0) {
            write(folder, "cpu.weight", &weight_of_shares(shares).to_string())?;
        }
        let (quota, period) = (limits.cpu_quota.unwrap_or(0), limits.cpu_period.unwrap_or(0));
        if quota != 0 || period != 0 {
            let quota = if quota > 0 { quota.to_string() } else { "max".to_string() };
            let period = if period == 0 { DEFAULT_CPU_PERIOD } else { period };
            write(folder, "cpu.max", &format!("{quota} {period}"))?;
        }
        if let Some(cpus) = limits.cpus.as_deref().filter(|cpus| !cpus.is_empty()) {
            write(folder, "cpuset.cpus", cpus)?;
        }
        set_huge_pages(folder, limits, "max")
    }

    pub fn now(&self, path: &str) -> Result<CgroupNow, String> {
        let folder = self.folder(path);
        let text = read(&folder, "cpu.max")?;
        let bad = || format!("cannot make sense of {text:?} in `{}`", folder.join("cpu.max").display());
        let (quota, period) = text.split_once(' ').ok_or_else(bad)?;
        Ok(CgroupNow {
            cpu_shares: shares_of_weight(number(&folder, "cpu.weight")?),
            cpu_quota: if quota == "max" { -1 } else { quota.parse().map_err(|_| bad())? },
            cpu_period: period.parse().map_err(|_| bad())?,
            memory: number(&folder, "memory.max")?,
            memory_usage: number(&folder, "memory.current")?,
        })
    }

    fn folder(&self, path: &str) -> PathBuf {
        self.mount.join(path.trim_start_matches('/'))
    }
}

fn controllers(folder: &Path) -> Result<Vec<String>, String> {
    Ok(read(folder, "cgroup.controllers")?.split_whitespace().map(str::to_string).collect())
}
