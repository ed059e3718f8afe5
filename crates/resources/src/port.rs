//! What is asked of the machine about cgroups.

use async_trait::async_trait;
use crablet_model::cgroup::Cgroup;
use crablet_model::cgroup::limits::{CgroupLimits, CgroupNow};

/// Every call ends within a bounded time, whatever the kernel or systemd does. Errors are sentences for people.
#[async_trait]
pub trait CgroupHost: Send + Sync {
    /// Whether the cgroup is there with all that pods need; if not, what is missing.
    async fn check(&self, cgroup: &Cgroup) -> Result<(), String>;

    /// Makes the cgroup, and those above it. A setting that the kernel refuses is logged: as upstream has it, a cgroup
    /// that is there is worth more than none.
    async fn create(&self, cgroup: &Cgroup, limits: &CgroupLimits) -> Result<(), String>;

    async fn update(&self, cgroup: &Cgroup, limits: &CgroupLimits) -> Result<(), String>;

    /// What holds for the cgroup now.
    async fn now(&self, cgroup: &Cgroup) -> Result<CgroupNow, String>;

    /// Kills what runs in the cgroup and below it, and removes both. No cgroup is fine.
    async fn remove(&self, cgroup: &Cgroup) -> Result<(), String>;

    /// The folders directly below the cgroup, in whatever hierarchy. No cgroup has none.
    async fn children(&self, cgroup: &Cgroup) -> Result<Vec<String>, String>;
}
