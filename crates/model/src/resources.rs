//! From a container's resource requirements to the numbers that a runtime is given.

use std::collections::BTreeMap;

use crate::api::{Container, PodSpec, ResourceRequirements};
use crate::cgroup::effective::{below_pod_level, without_overhead};
use crate::cgroup::limits::page_size_name;
use crate::qos::QosClass;
use crate::quantity::Quantity;

pub const DEFAULT_CPU_PERIOD: i64 = 100_000;
const MIN_SHARES: i64 = 2;
const MAX_SHARES: i64 = 262_144;
const SHARES_PER_CPU: i64 = 1024;
const MIN_QUOTA: i64 = 1000;

const OOM_GUARANTEED: i64 = -997;
const OOM_BEST_EFFORT: i64 = 1000;

/// Linux numbers of one container. Zero means that nothing is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinuxResources {
    pub cpu_shares: i64,
    /// Microseconds per period; 0 is unlimited.
    pub cpu_quota: i64,
    /// Microseconds.
    pub cpu_period: i64,
    /// Bytes; 0 is unlimited.
    pub memory_limit: i64,
    pub oom_score_adj: i64,
    /// Out of memory, all processes of the cgroup die together instead of one of them.
    pub oom_group: bool,
}

/// What the node adds to a container's own requirements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRules {
    /// Bytes of memory that the node has.
    pub memory_capacity: i64,
    /// The period of CPU limits in microseconds; `None` when limits are not enforced.
    pub cpu_period: Option<i64>,
    /// Whether containers die as a whole when they are out of memory.
    pub oom_group: bool,
}

impl NodeRules {
    pub fn new(memory_capacity: i64) -> Self {
        Self { memory_capacity, cpu_period: Some(DEFAULT_CPU_PERIOD), oom_group: false }
    }
}

/// The numbers of one of the pod's containers.
///
/// `node_critical` is true for a critical pod whose priority class is `system-node-critical`.
pub fn container_resources(
    spec: &PodSpec,
    container: &Container,
    qos: QosClass,
    node_critical: bool,
    node: NodeRules,
) -> LinuxResources {
    let own = container.resources.as_ref();
    let pod = spec.resources.as_ref();
    let limit_of = |name| limit(own, name).filter(|amount| !amount.is_zero()).or_else(|| limit(pod, name));
    let asked = Asked {
        cpu_request: request(own, "cpu"),
        cpu_limit: limit_of("cpu"),
        memory_limit: limit_of("memory"),
    };
    let oom_score_adj = oom_score_adj(spec, container, qos, node_critical, node.memory_capacity);
    LinuxResources { oom_score_adj, ..asked.numbers(node) }
}

/// What the pod's containers need together, as the sandbox is told it.
pub fn sandbox_resources(spec: &PodSpec, node: NodeRules) -> LinuxResources {
    let (requests, limits) = without_overhead(spec);
    let asked = Asked {
        cpu_request: requests.get("cpu").copied(),
        cpu_limit: limits.get("cpu").copied(),
        memory_limit: limits.get("memory").copied(),
    };
    asked.numbers(node)
}

/// What the sandbox needs for itself: it is limited to what it asks for. Nothing where the pod's runtime class says nothing.
pub fn overhead_resources(spec: &PodSpec, node: NodeRules) -> LinuxResources {
    let Some(overhead) = spec.overhead.as_ref() else { return LinuxResources::default() };
    let amount = |name: &str| overhead.get(name).and_then(|text| Quantity::try_from(text).ok());
    let cpu = amount("cpu");
    Asked { cpu_request: cpu, cpu_limit: cpu, memory_limit: amount("memory") }.numbers(node)
}

#[derive(Default)]
struct Asked {
    cpu_request: Option<Quantity>,
    cpu_limit: Option<Quantity>,
    memory_limit: Option<Quantity>,
}

impl Asked {
    fn numbers(&self, node: NodeRules) -> LinuxResources {
        // A request of zero is a request: only a missing one falls back to the limit.
        let asked = self.cpu_request.or(self.cpu_limit).map_or(0, |cpu| cpu.milli_value());
        let limit = self.cpu_limit.map_or(0, |cpu| cpu.milli_value());
        LinuxResources {
            cpu_shares: cpu_shares(asked),
            cpu_quota: node.cpu_period.map_or(0, |period| cpu_quota(limit, period)),
            cpu_period: node.cpu_period.unwrap_or(0),
            memory_limit: self.memory_limit.map_or(0, |memory| memory.value()),
            oom_score_adj: 0,
            oom_group: node.oom_group,
        }
    }
}

/// Bytes of huge pages by page size, for every size that the machine has: the container's limit, else the pod's, else none.
pub fn hugepage_limits(spec: &PodSpec, container: &Container, sizes: &[String]) -> Vec<(String, u64)> {
    let mut asked = BTreeMap::new();
    for resources in [spec.resources.as_ref(), container.resources.as_ref()].into_iter().flatten() {
        for (name, amount) in resources.limits.iter().flatten() {
            let size = name.strip_prefix("hugepages-").and_then(|size| Quantity::parse(size).ok());
            let size = size.and_then(|size| page_size_name(size.value()));
            if let (Some(size), Ok(amount)) = (size, Quantity::try_from(amount)) {
                asked.insert(size, u64::try_from(amount.value()).unwrap_or(0));
            }
        }
    }
    sizes.iter().map(|size| (size.clone(), asked.get(size).copied().unwrap_or(0))).collect()
}

/// A container's request of one resource, when it is given and parses.
pub fn request(resources: Option<&ResourceRequirements>, name: &str) -> Option<Quantity> {
    resources?.requests.as_ref()?.get(name).and_then(|text| Quantity::try_from(text).ok())
}

/// A container's limit of one resource, when it is given and parses.
pub fn limit(resources: Option<&ResourceRequirements>, name: &str) -> Option<Quantity> {
    resources?.limits.as_ref()?.get(name).and_then(|text| Quantity::try_from(text).ok())
}

pub fn cpu_shares(milli_cpu: i64) -> i64 {
    (milli_cpu.saturating_mul(SHARES_PER_CPU) / 1000).clamp(MIN_SHARES, MAX_SHARES)
}

/// Microseconds of CPU per period; 0 for no limit.
pub fn cpu_quota(milli_cpu: i64, period: i64) -> i64 {
    if milli_cpu <= 0 { 0 } else { (milli_cpu.saturating_mul(period) / 1000).max(MIN_QUOTA) }
}

/// The thousandths of a CPU for which these shares stand, rounded up; 0 for none.
pub fn milli_of_shares(shares: i64) -> i64 {
    if shares < MIN_SHARES {
        0
    } else {
        shares.saturating_mul(1000).saturating_add(SHARES_PER_CPU - 1) / SHARES_PER_CPU
    }
}

/// The thousandths of a CPU that a quota allows; 0 for no limit.
pub fn milli_of_quota(quota: i64, period: i64) -> i64 {
    if quota <= 0 || period <= 0 { 0 } else { quota.saturating_mul(1000) / period }
}

/// How willingly the kernel kills the container when the node is out of memory.
pub fn oom_score_adj(
    spec: &PodSpec,
    container: &Container,
    qos: QosClass,
    node_critical: bool,
    memory_capacity: i64,
) -> i64 {
    if node_critical || qos == QosClass::Guaranteed {
        return OOM_GUARANTEED;
    }
    if qos == QosClass::BestEffort {
        return OOM_BEST_EFFORT;
    }
    let memory_request =
        |container: &Container| request(container.resources.as_ref(), "memory").map_or(0, |q| q.value());
    let extra = pod_level_share(spec);
    let mut score = burstable_score(memory_request(container).saturating_add(extra), memory_capacity);
    if is_sidecar(spec, container) {
        // A sidecar must not die before the containers that need it.
        let smallest = spec.containers.iter().map(memory_request).min().unwrap_or(0);
        score = score.min(burstable_score(smallest.saturating_add(extra), memory_capacity));
    }
    // Below 3 would be as safe as a guaranteed container, 1000 as lost as one of best effort.
    match score.max(1000 + OOM_GUARANTEED) {
        OOM_BEST_EFFORT => OOM_BEST_EFFORT - 1,
        score => score,
    }
}

fn burstable_score(memory_request: i64, memory_capacity: i64) -> i64 {
    if memory_capacity <= 0 {
        return OOM_BEST_EFFORT;
    }
    let share = i128::from(memory_request) * 1000 / i128::from(memory_capacity);
    OOM_BEST_EFFORT - share.min(1000) as i64
}

/// What each container gets of a pod-level memory request beyond what the containers ask for together.
fn pod_level_share(spec: &PodSpec) -> i64 {
    let Some(pod) = request(spec.resources.as_ref(), "memory") else { return 0 };
    let own = below_pod_level(spec).get("memory").map_or(0, Quantity::value);
    let count = spec.containers.len() + spec.init_containers.as_ref().map_or(0, Vec::len);
    pod.value().saturating_sub(own).max(0) / count.max(1) as i64
}

fn is_sidecar(spec: &PodSpec, container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
        && spec.init_containers.iter().flatten().any(|init| init.name == container.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qos::qos_class;
    use proptest::prelude::*;

    const GIB: i64 = 1 << 30;

    fn numbers(resources: &str) -> LinuxResources {
        let resources: serde_json::Value = serde_json::from_str(resources).expect("json");
        let spec: PodSpec = serde_json::from_value(
            serde_json::json!({"containers": [{"name": "c", "resources": resources}]}),
        )
        .expect("a spec");
        container_resources(&spec, &spec.containers[0], qos_class(&spec), false, NodeRules::new(4 * GIB))
    }

    #[test]
    fn numbers_of_one_container() {
        for (resources, shares, quota, memory, oom) in [
            ("{}", 2, 0, 0, 1000),
            (r#"{"requests":{"cpu":"0"}}"#, 2, 0, 0, 1000),
            (r#"{"requests":{"cpu":"500m"}}"#, 512, 0, 0, 999),
            (r#"{"limits":{"cpu":"500m"}}"#, 512, 50_000, 0, 999),
            (r#"{"requests":{"cpu":"0"},"limits":{"cpu":"1"}}"#, 2, 100_000, 0, 999),
            (r#"{"limits":{"cpu":"1m"}}"#, 2, 1000, 0, 999),
            (r#"{"requests":{"cpu":"1000"}}"#, 262_144, 0, 0, 999),
            (r#"{"requests":{"memory":"1Gi"}}"#, 2, 0, 0, 750),
            (r#"{"requests":{"memory":"4Gi"}}"#, 2, 0, 0, 3),
            (r#"{"requests":{"memory":"400Gi"}}"#, 2, 0, 0, 3),
            (r#"{"requests":{"memory":"1Gi"},"limits":{"memory":"2Gi"}}"#, 2, 0, 2 * GIB, 750),
            (
                r#"{"requests":{"cpu":"2","memory":"1Gi"},"limits":{"cpu":"2","memory":"1Gi"}}"#,
                2048,
                200_000,
                GIB,
                -997,
            ),
        ] {
            let expected = LinuxResources {
                cpu_shares: shares,
                cpu_quota: quota,
                cpu_period: DEFAULT_CPU_PERIOD,
                memory_limit: memory,
                oom_score_adj: oom,
                oom_group: false,
            };
            assert_eq!(numbers(resources), expected, "{resources}");
        }
    }

    #[test]
    fn a_node_critical_pod_is_as_safe_as_a_guaranteed_one() {
        let spec: PodSpec =
            serde_json::from_value(serde_json::json!({"containers": [{"name": "c"}]})).expect("a spec");
        assert_eq!(oom_score_adj(&spec, &spec.containers[0], QosClass::BestEffort, true, GIB), -997);
    }

    #[test]
    fn without_enforcement_neither_quota_nor_period_is_set() {
        let spec: PodSpec = serde_json::from_value(
            serde_json::json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]}),
        )
        .expect("a spec");
        let rules = NodeRules { cpu_period: None, ..NodeRules::new(GIB) };
        let numbers = container_resources(&spec, &spec.containers[0], QosClass::Burstable, false, rules);
        assert_eq!((numbers.cpu_quota, numbers.cpu_period, numbers.cpu_shares), (0, 0, 1024));
    }

    #[test]
    fn the_sandbox_is_told_the_sum() {
        let spec: PodSpec = serde_json::from_value(serde_json::json!({"containers": [
            {"name": "a", "resources": {"requests": {"cpu": "250m"}, "limits": {"memory": "1Gi"}}},
            {"name": "b", "resources": {"requests": {"cpu": "250m"}, "limits": {"memory": "1Gi"}}},
            {"name": "c"},
        ]}))
        .expect("a spec");
        let numbers = sandbox_resources(&spec, NodeRules::new(GIB));
        assert_eq!((numbers.cpu_shares, numbers.cpu_quota, numbers.memory_limit), (512, 0, 2 * GIB));
    }

    #[test]
    fn a_sidecar_is_no_more_likely_to_die_than_its_pods_smallest_container() {
        let spec: PodSpec = serde_json::from_value(serde_json::json!({
            "containers": [{"name": "a", "resources": {"requests": {"memory": "1Gi"}}}],
            "initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "i"}],
        }))
        .expect("a spec");
        let init = spec.init_containers.as_ref().expect("init containers");
        assert_eq!(oom_score_adj(&spec, &init[0], QosClass::Burstable, false, 4 * GIB), 750);
        assert_eq!(oom_score_adj(&spec, &init[1], QosClass::Burstable, false, 4 * GIB), 999);
    }

    #[test]
    fn what_a_pod_has_beyond_its_largest_phase_is_everybodys() {
        let spec: PodSpec = serde_json::from_value(serde_json::json!({
            "resources": {"requests": {"memory": "1Gi"}},
            "containers": [{"name": "a", "resources": {"requests": {"memory": "256Mi"}}}],
            "initContainers": [{"name": "i", "resources": {"requests": {"memory": "512Mi"}}}],
        }))
        .expect("a spec");
        // (1024 - max(256, 512)) / 2 = 256 each.
        assert_eq!(oom_score_adj(&spec, &spec.containers[0], QosClass::Burstable, false, 4 * GIB), 875);
        let init = spec.init_containers.as_ref().expect("init containers");
        assert_eq!(oom_score_adj(&spec, &init[0], QosClass::Burstable, false, 4 * GIB), 813);
    }

    proptest! {
        #[test]
        fn shares_and_quota_stay_in_their_ranges(milli: i64, period in 1_000..1_000_000_i64) {
            prop_assert!((2..=262_144).contains(&cpu_shares(milli)));
            let quota = cpu_quota(milli, period);
            prop_assert!(quota == 0 || quota >= 1000);
        }

        #[test]
        fn a_burstable_score_lies_between_the_other_classes(request in 0..i64::MAX, capacity: i64) {
            let spec: PodSpec = serde_json::from_value(serde_json::json!({
                "containers": [{"name": "c", "resources": {"requests": {"memory": request.to_string()}}}],
            })).unwrap();
            let score = oom_score_adj(&spec, &spec.containers[0], QosClass::Burstable, false, capacity);
            prop_assert!((3..=999).contains(&score));
        }
    }
}
