//! Cgroups of this machine.
//!
//! | module | what it is |
//! |---|---|
//! | [`hierarchies`] | where cgroups are mounted, and which version |
//! | [`v1`], [`v2`] | making cgroups, and writing their settings, in either version |
//! | [`removal`] | killing what runs in a cgroup and removing it |
//! | [`systemd`] | slices: asked of systemd first, then finished in files as with the other driver |
//! | [`files`] | reading and writing the kernel's little files |
//!
//! A call on a cgroup can hang in the kernel. So each runs on a thread of its own, is given up after a while, and only a
//! few may be under way: a stuck one costs a thread, never the agent.

mod files;
mod hierarchies;
mod removal;
mod systemd;
mod v1;
mod v2;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use crablet_model::cgroup::limits::{CgroupLimits, CgroupNow, page_size_name};
use crablet_model::cgroup::{Cgroup, CgroupDriver};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tracing::{error, warn};

use crate::port::CgroupHost;
use hierarchies::Hierarchies;
use removal::Left;
use systemd::Systemd;

/// How long one call on the kernel's files may take.
const CALL_LIMIT: Duration = Duration::from_secs(10);
/// How long a removal waits for killed processes to go.
const REMOVAL_LIMIT: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Calls under way at the same time.
const CALLS: usize = 4;

pub struct LinuxCgroups {
    hierarchies: Arc<Hierarchies>,
    systemd: Systemd,
    slots: Arc<Semaphore>,
}

impl LinuxCgroups {
    /// Finds the cgroups of this machine. Reads two files of the kernel's, once.
    pub fn find() -> Result<Self, String> {
        Ok(Self::new(Hierarchies::find()?, Systemd::of_machine()))
    }

    fn new(hierarchies: Hierarchies, systemd: Systemd) -> Self {
        Self { hierarchies: Arc::new(hierarchies), systemd, slots: Arc::new(Semaphore::new(CALLS)) }
    }

    /// 1 or 2.
    pub fn version(&self) -> u8 {
        if self.hierarchies.is_unified() { 2 } else { 1 }
    }

    async fn on_files<T: Send + 'static>(
        &self,
        what: &str,
        work: impl FnOnce(&Hierarchies) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let deadline = Instant::now() + CALL_LIMIT;
        let too_late = || format!("cannot {what}: no answer from the kernel within {CALL_LIMIT:?}");
        let slot = timeout_at(deadline, self.slots.clone().acquire_owned()).await.map_err(|_| too_late())?;
        let hierarchies = self.hierarchies.clone();
        let call = tokio::task::spawn_blocking(move || {
            // Given back when the call really ends, not when it is given up.
            let _slot = slot;
            work(&hierarchies)
        });
        match timeout_at(deadline, call).await {
            Ok(Ok(done)) => done,
            Ok(Err(died)) => Err(format!("cannot {what}: {died}")),
            Err(_) => Err(too_late()),
        }
    }

    /// Writes settings: with systemd's driver first as unit properties, so that systemd does not undo them.
    async fn apply(&self, cgroup: &Cgroup, limits: &CgroupLimits) -> Result<(), String> {
        let mut limits = limits.clone();
        if !self.hierarchies.has_huge_pages() {
            limits.huge_pages.clear();
        }
        if cgroup.driver() == CgroupDriver::Systemd {
            self.systemd.set(cgroup, &mut limits, self.hierarchies.is_unified()).await?;
        }
        let path = cgroup.path();
        self.on_files("set up the cgroup", move |all| all.apply(&path, &limits)).await
    }
}

#[async_trait]
impl CgroupHost for LinuxCgroups {
    async fn check(&self, cgroup: &Cgroup) -> Result<(), String> {
        let (path, name) = (cgroup.path(), cgroup.quoted());
        self.on_files("look for the cgroup", move |all| all.check(&path, &name)).await
    }

    async fn create(&self, cgroup: &Cgroup, limits: &CgroupLimits) -> Result<(), String> {
        let by_systemd = cgroup.driver() == CgroupDriver::Systemd;
        if by_systemd {
            self.systemd.start(cgroup, self.hierarchies.is_unified()).await?;
        }
        let path = cgroup.path();
        self.on_files("make the cgroup", move |all| all.make(&path, by_systemd)).await?;
        if let Err(error) = self.apply(cgroup, limits).await {
            error!(cgroup = %cgroup.path(), error, "Failed to set up a new cgroup");
        }
        Ok(())
    }

    async fn update(&self, cgroup: &Cgroup, limits: &CgroupLimits) -> Result<(), String> {
        self.apply(cgroup, limits).await
    }

    async fn now(&self, cgroup: &Cgroup) -> Result<CgroupNow, String> {
        let path = cgroup.path();
        self.on_files("read the cgroup", move |all| all.now(&path)).await
    }

    async fn remove(&self, cgroup: &Cgroup) -> Result<(), String> {
        let path = cgroup.path();
        if path == "/" {
            return Err("the root cgroup cannot be removed".to_string());
        }
        let deadline = Instant::now() + REMOVAL_LIMIT;
        let mut pause = FIRST_PAUSE;
        let mut unit_is_stopped = cgroup.driver() != CgroupDriver::Systemd;
        loop {
            let place = path.clone();
            // systemd removes the cgroup with its slice, and only once nothing runs in it.
            let removes = unit_is_stopped;
            let left = self
                .on_files("remove the cgroup", move |all| removal::round(&all.folders(&place), removes))
                .await?;
            match left {
                Left::Nothing => return Ok(()),
                Left::Empty if !unit_is_stopped => {
                    if let Err(error) = self.systemd.stop(cgroup).await {
                        // What we made in files goes all the same.
                        warn!(unit = cgroup.unit(), error, "Failed to stop a slice");
                    }
                    unit_is_stopped = true;
                    continue;
                }
                Left::Empty => {}
                Left::Processes(_) if Instant::now() < deadline => {}
                Left::Processes(ids) => {
                    return Err(format!(
                        "`{path}` still has the processes {ids:?}, {REMOVAL_LIMIT:?} after SIGKILL"
                    ));
                }
            }
            if Instant::now() >= deadline {
                return Err(format!("`{path}` is busy, and stayed so for {REMOVAL_LIMIT:?}"));
            }
            // Nothing tells when the kernel has let go of a dead process.
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn children(&self, cgroup: &Cgroup) -> Result<Vec<String>, String> {
        let path = cgroup.path();
        self.on_files("list the cgroup", move |all| {
            let mut found = BTreeSet::new();
            for folder in all.folders(&path) {
                let names = files::children(&folder)
                    .map_err(|e| format!("cannot list `{}`: {e}", folder.display()))?;
                found.extend(names);
            }
            Ok(found.into_iter().collect())
        })
        .await
    }
}

/// The sizes of huge pages that this machine has, as cgroup files name them: `2MB`.
pub fn huge_page_sizes() -> Vec<String> {
    let Ok(names) = files::children(&PathBuf::from("/sys/kernel/mm/hugepages")) else { return Vec::new() };
    let kib = |name: &String| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<i64>().ok();
    names.iter().filter_map(kib).filter_map(|kib| page_size_name(kib.checked_mul(1024)?)).collect()
}

#[cfg(test)]
mod tests;
