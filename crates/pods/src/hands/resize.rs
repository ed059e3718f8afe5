//! Other resources for what runs, and the books that are kept of them.

use std::collections::BTreeMap;

use crablet_cri::{CriError, ErrorKind};
use crablet_model::allocation::{Allocation, Sizes, actuated};
use crablet_model::cgroup::limits::{CgroupLimits, CgroupNow};
use crablet_model::quantity::Quantity;
use crablet_model::resources::{LinuxResources, cpu_quota, cpu_shares, milli_of_shares, overhead_resources};
use crablet_model::{api, roster};
use crablet_planner::pod::Outcome;
use crablet_planner::pod::config::{container_update, node_rules};
use crablet_planner::pod::resize::steps::{PodCgroup, Step, refusal, squeezed, steps};
use crablet_planner::pod::resize::{Change, Resize};

use super::{Hands, Operation};

impl Hands {
    /// Carries a resize out, and notes how far it came: the next try goes on from there.
    pub(super) async fn resize(&self, op: &Operation, resize: &Resize) -> Outcome {
        self.ledgers.allocated.save().await;
        let done = match op.pod.as_deref() {
            Some(pod) => self.resize_pod(op, pod, resize).await,
            None => Err("the pod has no specification".to_owned()),
        };
        self.ledgers.actuated.save().await;
        match done {
            Ok(()) => Outcome::Resized { digest: resize.digest },
            Err(message) => {
                tracing::error!(pod = op.id.object_ref(), podUID = %op.id.uid, error = message, "a pod could not be resized");
                Outcome::ResizeFailed { message }
            }
        }
    }

    async fn resize_pod(&self, op: &Operation, pod: &api::Pod, resize: &Resize) -> Result<(), String> {
        let spec = pod.spec.as_ref().ok_or("the pod has no specification")?;
        let cgroup = self.cgroups.compare(pod).await.map_err(|error| {
            format!("unable to get pod cgroup config for pod {:?}: {error}", op.id.to_string())
        })?;
        let compared = cgroup.as_ref().map(|(wanted, now)| PodCgroup { wanted, now });
        let usage = self.memory_usage(resize).await;
        if let Some(why) = refusal(resize, compared, &usage) {
            return Err(why);
        }
        let mut now = cgroup.as_ref().map(|(_, now)| *now).unwrap_or_default();
        for step in steps(resize, compared) {
            match step {
                Step::Pod(limits) => now = self.resize_cgroup(op, pod, resize, now, &limits).await?,
                Step::Container(change, sizes) => self.resize_container(op, spec, change, sizes).await?,
            }
        }
        self.ledgers.actuated.amend(&op.id.uid, |given| given.pod.clone_from(&spec.resources));
        self.cgroups.recount(pod).await;
        Ok(())
    }

    /// Of those whose memory limit gets smaller.
    async fn memory_usage<'a>(&self, resize: &'a Resize) -> BTreeMap<&'a str, Option<u64>> {
        let mut usage = BTreeMap::new();
        for change in squeezed(resize) {
            let used = self.runtime.memory_usage(&change.id).await;
            let used = used
                .inspect_err(|error| tracing::warn!(%error, container = change.container, "no memory usage"));
            usage.insert(change.container.as_str(), used.ok().flatten());
        }
        usage
    }

    /// The runtime hears of it first, and may object; where the kernel objects, the runtime is told that all is as before.
    async fn resize_cgroup(
        &self,
        op: &Operation,
        pod: &api::Pod,
        resize: &Resize,
        now: CgroupNow,
        limits: &CgroupLimits,
    ) -> Result<CgroupNow, String> {
        let then = CgroupNow {
            cpu_shares: limits.cpu_shares.unwrap_or(now.cpu_shares),
            cpu_quota: limits.cpu_quota.unwrap_or(now.cpu_quota),
            cpu_period: limits.cpu_period.unwrap_or(now.cpu_period),
            memory: limits.memory.unwrap_or(now.memory),
            ..now
        };
        let resource = if limits.memory.is_some() { "memory" } else { "cpu" };
        self.tell_sandbox(op, pod, &resize.sandbox_id, then).await.map_err(|error| {
            format!(
                "failed to notify runtime for UpdatePodSandboxResources (resource={resource}); resize rejected: \
                 updatePodSandboxResources failed for sanboxID {:?}: {}",
                resize.sandbox_id,
                error.with_code()
            )
        })?;
        if let Err(error) = self.cgroups.set(pod, limits).await {
            if let Err(error) = self.tell_sandbox(op, pod, &resize.sandbox_id, now).await {
                tracing::error!(%error, pod = op.id.object_ref(), "Failed to notify runtime to rollback UpdatePodSandboxResources");
            }
            return Err(error);
        }
        Ok(then)
    }

    async fn tell_sandbox(
        &self,
        op: &Operation,
        pod: &api::Pod,
        sandbox_id: &str,
        cgroup: CgroupNow,
    ) -> Result<(), CriError> {
        let spec = pod.spec.clone().unwrap_or_default();
        let overhead = overhead_resources(&spec, node_rules(&op.node));
        let resources = without_overhead(cgroup, &spec);
        match self.runtime.update_sandbox(sandbox_id, &overhead, &resources).await {
            // containerd 2.2 says it in words only.
            Err(error)
                if error.kind == ErrorKind::Unimplemented || error.message.contains("not implemented") =>
            {
                Ok(())
            }
            other => other,
        }
    }

    async fn resize_container(
        &self,
        op: &Operation,
        spec: &api::PodSpec,
        change: &Change,
        sizes: Sizes,
    ) -> Result<(), String> {
        let found = roster::find(spec, &change.container);
        let (_, container) = found.ok_or("the pod's specification does not name the container")?;
        let mut container = container.into_owned();
        let granted = actuated(spec, &container);
        // As it was granted where that is all of it: amounts are kept as they were written.
        let given = if sizes == change.to { granted } else { sizes.into_requirements(&granted) };
        container.resources = Some(given.clone());
        let update = container_update(spec, &container, &op.node);
        self.runtime.update_container(&change.id, &update).await.map_err(|error| error.with_code())?;
        let name = change.container.clone();
        self.ledgers.actuated.amend(&op.id.uid, |all| {
            all.containers.insert(name, given);
        });
        Ok(())
    }

    /// Before a pod's cgroup is made: what it is made for.
    pub(super) async fn note_pod(&self, op: &Operation, pod: &api::Pod) {
        self.adopt(op, pod);
        self.ledgers.save().await;
    }

    /// A pod of which nothing was noted has what it was granted.
    pub(super) fn adopt(&self, op: &Operation, pod: &api::Pod) {
        let Some(spec) = &pod.spec else { return };
        if self.ledgers.actuated.get(&op.id.uid).is_none() {
            self.ledgers.actuated.set(&op.id.uid, Allocation::actuated(spec));
        }
    }

    /// Before a container is made: what it is made with.
    pub(super) async fn note_container(&self, op: &Operation, pod: &api::Pod, container: &api::Container) {
        let Some(spec) = &pod.spec else { return };
        if op.role(&container.name) == roster::Role::Ephemeral {
            return;
        }
        let given = actuated(spec, container);
        self.ledgers.actuated.amend(&op.id.uid, |all| {
            all.containers.insert(container.name.clone(), given);
        });
        self.ledgers.save().await;
    }
}

/// What is left for the pod's containers. As upstream, the numbers are the kernel's, with -1 for no limit.
fn without_overhead(cgroup: CgroupNow, spec: &api::PodSpec) -> LinuxResources {
    let mut left = LinuxResources {
        cpu_shares: cgroup.cpu_shares,
        cpu_quota: cgroup.cpu_quota,
        cpu_period: cgroup.cpu_period,
        // What cgroup v2 calls `max`; the largest number of v1 is smaller, and told as it is.
        memory_limit: if cgroup.memory == i64::MAX { -1 } else { cgroup.memory },
        ..LinuxResources::default()
    };
    let overhead = |name: &str| Quantity::try_from(spec.overhead.as_ref()?.get(name)?).ok();
    if let Some(cpu) = overhead("cpu") {
        let milli = cpu.milli_value();
        left.cpu_quota = left.cpu_quota.saturating_sub(cpu_quota(milli, cgroup.cpu_period));
        left.cpu_shares = cpu_shares(milli_of_shares(cgroup.cpu_shares).saturating_sub(milli));
    }
    if let Some(memory) = overhead("memory") {
        left.memory_limit = left.memory_limit.saturating_sub(memory.value());
    }
    left
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const MIB: i64 = 1 << 20;

    /// Shares, quota, period and memory that the runtime is told.
    fn told(cgroup: CgroupNow, overhead: Value) -> (i64, i64, i64, i64) {
        let spec = json!({"containers": [], "overhead": overhead});
        let spec: api::PodSpec = serde_json::from_value(spec).expect("a spec");
        let left = without_overhead(cgroup, &spec);
        (left.cpu_shares, left.cpu_quota, left.cpu_period, left.memory_limit)
    }

    #[test]
    fn the_runtime_is_told_what_the_kernel_has() {
        let free = CgroupNow {
            cpu_shares: 2,
            cpu_quota: -1,
            cpu_period: 100_000,
            memory: i64::MAX,
            memory_usage: 0,
        };
        assert_eq!(told(free, json!({})), (2, -1, 100_000, -1));
        let in_v1 = CgroupNow { memory: 9_223_372_036_854_771_712, ..free };
        assert_eq!(told(in_v1, json!({})), (2, -1, 100_000, 9_223_372_036_854_771_712));
    }

    #[test]
    fn what_the_sandbox_needs_is_not_the_containers() {
        let limited = CgroupNow {
            cpu_shares: 512,
            cpu_quota: 50_000,
            cpu_period: 100_000,
            memory: 64 * MIB,
            memory_usage: 0,
        };
        let overhead = json!({"cpu": "250m", "memory": "16Mi"});
        assert_eq!(told(limited, overhead), (256, 25_000, 100_000, 48 * MIB));
        assert_eq!(told(limited, json!({"memory": "16Mi"})), (512, 50_000, 100_000, 48 * MIB));
    }
}
