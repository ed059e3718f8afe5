//! Cgroups in memory. They hold state, survive the agent's death, and can refuse to work.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use crablet_model::cgroup::Cgroup;
use crablet_model::cgroup::limits::{CgroupLimits, CgroupNow};

use crate::port::CgroupHost;

/// The root of all cgroups always exists.
#[derive(Default)]
pub struct FakeCgroups {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    made: BTreeMap<String, CgroupLimits>,
    failure: Option<String>,
    calls: u64,
}

impl FakeCgroups {
    /// What there is, by path, with what was set last.
    pub fn made(&self) -> BTreeMap<String, CgroupLimits> {
        self.lock().made.clone()
    }

    /// How often something was asked of the machine.
    pub fn calls(&self) -> u64 {
        self.lock().calls
    }

    /// From now on every change fails with this text; `None` lets them work again.
    pub fn fail_with(&self, failure: Option<&str>) {
        self.lock().failure = failure.map(str::to_string);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn asked(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.calls += 1;
        state
    }
}

impl State {
    fn works(&self) -> Result<(), String> {
        self.failure.clone().map_or(Ok(()), Err)
    }
}

#[async_trait]
impl CgroupHost for FakeCgroups {
    async fn check(&self, cgroup: &Cgroup) -> Result<(), String> {
        let path = cgroup.path();
        if path == "/" || self.asked().made.contains_key(&path) {
            return Ok(());
        }
        Err(format!("cgroup {} has some missing paths: /sys/fs/cgroup{path}", cgroup.quoted()))
    }

    async fn create(&self, cgroup: &Cgroup, limits: &CgroupLimits) -> Result<(), String> {
        let mut state = self.asked();
        state.works()?;
        let path = cgroup.path();
        let parents = path.char_indices().filter(|(at, c)| *c == '/' && *at > 0).map(|(at, _)| &path[..at]);
        for parent in parents {
            state.made.entry(parent.to_string()).or_default();
        }
        state.made.insert(path, limits.clone());
        Ok(())
    }

    async fn update(&self, cgroup: &Cgroup, limits: &CgroupLimits) -> Result<(), String> {
        let mut state = self.asked();
        state.works()?;
        let path = cgroup.path();
        let Some(made) = state.made.get_mut(&path) else {
            return Err(format!("the cgroup `{path}` does not exist"));
        };
        let old = std::mem::take(made);
        *made = CgroupLimits {
            cpu_shares: limits.cpu_shares.or(old.cpu_shares),
            cpu_quota: limits.cpu_quota.or(old.cpu_quota),
            cpu_period: limits.cpu_period.or(old.cpu_period),
            memory: limits.memory.or(old.memory),
            pids: limits.pids.or(old.pids),
            cpus: limits.cpus.clone().or(old.cpus),
            huge_pages: old.huge_pages.into_iter().chain(limits.huge_pages.clone()).collect(),
        };
        Ok(())
    }

    async fn now(&self, cgroup: &Cgroup) -> Result<CgroupNow, String> {
        let state = self.asked();
        let path = cgroup.path();
        let made = state.made.get(&path).ok_or_else(|| format!("the cgroup `{path}` does not exist"))?;
        Ok(CgroupNow {
            cpu_shares: made.cpu_shares.unwrap_or(1024),
            cpu_quota: made.cpu_quota.unwrap_or(-1),
            cpu_period: made.cpu_period.unwrap_or(100_000),
            memory: made.memory.unwrap_or(i64::MAX),
            memory_usage: 1 << 20,
        })
    }

    async fn remove(&self, cgroup: &Cgroup) -> Result<(), String> {
        let mut state = self.asked();
        state.works()?;
        let path = cgroup.path();
        let below = format!("{path}/");
        state.made.retain(|made, _| *made != path && !made.starts_with(&below));
        Ok(())
    }

    async fn children(&self, cgroup: &Cgroup) -> Result<Vec<String>, String> {
        let state = self.asked();
        let below = format!("{}/", cgroup.path().trim_end_matches('/'));
        let folders = state.made.keys().filter_map(|made| made.strip_prefix(&below));
        Ok(folders.filter(|folder| !folder.contains('/')).map(str::to_string).collect())
    }
}
