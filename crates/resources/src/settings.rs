//! What the node's configuration says about cgroups.

use std::time::Duration;

use crablet_model::cgroup::CgroupDriver;
use crablet_model::cgroup::limits::{CgroupLimits, PodCgroupRules, above_pods};
use crablet_model::resources::cpu_shares;

#[derive(Clone, Debug)]
pub struct CgroupSettings {
    /// Without it no cgroup is made, and runtimes put containers where they like.
    pub per_qos: bool,
    /// `cgroupRoot`: the cgroup in which all others are made. It must exist.
    pub root: String,
    pub driver: CgroupDriver,
    /// Processes per pod; not limited when not above zero.
    pub pod_pids_limit: i64,
    /// Whether CPU limits are enforced.
    pub cpu_quota: bool,
    pub cpu_period: Duration,
    /// What all pods together may use: the node's allocatable amounts where `enforceNodeAllocatable` has `pods`, else its
    /// capacity. `None` leaves it to the kernel, whose default CPU share is low.
    pub allocatable: Option<NodeLimits>,
    /// The huge pages that the machine has, as [`crate::linux::huge_page_sizes`] finds them: `2MB`.
    pub page_sizes: Vec<String>,
}

/// Amounts for all pods together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeLimits {
    /// Bytes.
    pub memory: i64,
    pub milli_cpu: i64,
    /// Processes; `None` where the kernel's own limit is unknown.
    pub pids: Option<i64>,
    /// All CPUs, as the kernel lists them: `0-3`. Without them systemd takes the cpuset controller away from pods.
    pub cpus: Option<String>,
}

impl CgroupSettings {
    pub(crate) fn pod_rules(&self) -> PodCgroupRules {
        PodCgroupRules {
            cpu_quota: self.cpu_quota,
            cpu_period: i64::try_from(self.cpu_period.as_micros()).unwrap_or(i64::MAX),
            pids: self.pod_pids_limit,
            page_sizes: self.page_sizes.clone(),
        }
    }

    pub(crate) fn kubepods_limits(&self) -> CgroupLimits {
        let free = above_pods(&self.page_sizes);
        match &self.allocatable {
            None => free,
            Some(node) => CgroupLimits {
                memory: Some(node.memory),
                cpu_shares: Some(cpu_shares(node.milli_cpu)),
                pids: node.pids,
                cpus: node.cpus.clone(),
                ..free
            },
        }
    }
}
