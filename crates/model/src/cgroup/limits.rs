//! What a cgroup is allowed.

use std::collections::BTreeMap;

use super::effective::{Amounts, pod_limits, pod_requests};
use crate::api::PodSpec;
use crate::qos::QosClass;
use crate::quantity::Quantity;
use crate::resources::{cpu_quota, cpu_shares, limit};

const MIN_SHARES: i64 = 2;
const MAX_SHARES: i64 = 262_144;
/// What stands for "as many as there are" where huge pages are limited further down.
const UNBOUNDED: i64 = 1 << 62;

/// Settings of a cgroup; what is `None`, or zero where zero makes no sense, is left as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupLimits {
    pub cpu_shares: Option<i64>,
    /// Microseconds per period; -1 is unlimited.
    pub cpu_quota: Option<i64>,
    /// Microseconds.
    pub cpu_period: Option<i64>,
    /// Bytes; -1 is unlimited.
    pub memory: Option<i64>,
    pub pids: Option<i64>,
    /// CPUs as the kernel lists them: `0-3,8`.
    pub cpus: Option<String>,
    /// Bytes by page size, as the kernel's files name it: `2MB`.
    pub huge_pages: BTreeMap<String, i64>,
}

/// What the kernel says of a cgroup. What is not limited has the largest number there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupNow {
    pub cpu_shares: i64,
    /// Microseconds per period; -1 is unlimited.
    pub cpu_quota: i64,
    /// Microseconds.
    pub cpu_period: i64,
    /// Bytes.
    pub memory: i64,
    /// Bytes in use.
    pub memory_usage: i64,
}

/// What the node's configuration adds to what pods ask for.
#[derive(Clone, Debug)]
pub struct PodCgroupRules {
    /// Whether CPU limits are enforced.
    pub cpu_quota: bool,
    /// Microseconds.
    pub cpu_period: i64,
    /// Processes per pod; none when not above zero.
    pub pids: i64,
    /// The huge pages that the machine has: `2MB`.
    pub page_sizes: Vec<String>,
}

/// The settings of a pod's cgroup.
pub fn of_pod(spec: &PodSpec, class: QosClass, rules: &PodCgroupRules) -> CgroupLimits {
    let requests = pod_requests(spec);
    let is_set = |limits: &Amounts, name: &str| limits.get(name).is_some_and(|amount| !amount.is_zero());
    let (mut all_limit_cpu, mut all_limit_memory) = (true, true);
    let limits = pod_limits(spec, &mut |limits| {
        all_limit_cpu &= is_set(limits, "cpu");
        all_limit_memory &= is_set(limits, "memory");
    });
    let at_pod_level = |name| limit(spec.resources.as_ref(), name).is_some_and(|amount| !amount.is_zero());
    let guaranteed = class == QosClass::Guaranteed;
    let best_effort = class == QosClass::BestEffort;

    let mut settings = CgroupLimits {
        cpu_shares: Some(cpu_shares(if best_effort { 0 } else { milli(&requests, "cpu") })),
        pids: (rules.pids > 0).then_some(rules.pids),
        huge_pages: huge_pages(&requests, &rules.page_sizes),
        ..CgroupLimits::default()
    };
    if guaranteed || (!best_effort && (all_limit_cpu || at_pod_level("cpu"))) {
        let quota = cpu_quota(milli(&limits, "cpu"), rules.cpu_period);
        settings.cpu_quota = Some(if rules.cpu_quota { quota } else { -1 });
        settings.cpu_period = Some(rules.cpu_period);
    }
    if guaranteed || (!best_effort && (all_limit_memory || at_pod_level("memory"))) {
        settings.memory = Some(limits.get("memory").map_or(0, Quantity::value));
    }
    settings
}

/// The settings of the cgroups above pods that have nothing to do with CPU: huge pages are limited by pods alone.
pub fn above_pods(page_sizes: &[String]) -> CgroupLimits {
    let huge_pages = page_sizes.iter().map(|size| (size.clone(), UNBOUNDED)).collect();
    CgroupLimits { huge_pages, ..CgroupLimits::default() }
}

/// What a pod adds to the CPU shares of its class.
pub fn cpu_request(spec: &PodSpec) -> i64 {
    milli(&pod_requests(spec), "cpu")
}

fn milli(amounts: &Amounts, name: &str) -> i64 {
    amounts.get(name).map_or(0, Quantity::milli_value)
}

/// Pages that are not asked for are not granted.
fn huge_pages(requests: &Amounts, page_sizes: &[String]) -> BTreeMap<String, i64> {
    let mut granted: BTreeMap<_, _> = page_sizes.iter().map(|size| (size.clone(), 0)).collect();
    for (name, amount) in requests {
        let size = name.strip_prefix("hugepages-").and_then(|size| Quantity::parse(size).ok());
        if let Some(size) = size.and_then(|size| page_size_name(size.value())) {
            let bytes: &mut i64 = granted.entry(size).or_default();
            *bytes = bytes.saturating_add(amount.value());
        }
    }
    granted
}

/// `2MB` for 2097152: how the kernel's files name a page size. `None` for what is no page size.
pub fn page_size_name(bytes: i64) -> Option<String> {
    const UNITS: [&str; 6] = ["B", "KB", "MB", "GB", "TB", "PB"];
    let (mut size, mut unit) = (bytes, 0);
    while size > 0 && size % 1024 == 0 && unit < UNITS.len() - 1 {
        size /= 1024;
        unit += 1;
    }
    (size > 0 && size <= 1024).then(|| format!("{size}{}", UNITS[unit]))
}

/// The weight of cgroup v2 for shares of v1, by the linear formula that upstream v1.36 uses for its own cgroups. Runtimes
/// use another one for containers; pods among each other need one and the same.
pub fn weight_of_shares(shares: i64) -> i64 {
    1 + (shares.clamp(MIN_SHARES, MAX_SHARES) - MIN_SHARES) * 9999 / (MAX_SHARES - MIN_SHARES)
}

/// The shares that [`weight_of_shares`] gives this weight, or those just above.
pub fn shares_of_weight(weight: i64) -> i64 {
    (weight.clamp(1, 10_000) - 1) * (MAX_SHARES - MIN_SHARES) / 9999 + MIN_SHARES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qos::qos_class;
    use serde_json::{Value, json};

    const MIB: i64 = 1 << 20;

    fn rules() -> PodCgroupRules {
        PodCgroupRules { cpu_quota: true, cpu_period: 100_000, pids: -1, page_sizes: Vec::new() }
    }

    fn settings(spec: Value, rules: &PodCgroupRules) -> CgroupLimits {
        let spec: PodSpec = serde_json::from_value(spec).expect("a pod spec");
        of_pod(&spec, qos_class(&spec), rules)
    }

    /// One container's resources: requests and limits of cpu and memory, empty for none.
    fn resources(requests: (&str, &str), limits: (&str, &str)) -> Value {
        let list = |(cpu, memory): (&str, &str)| {
            let all = [("cpu", cpu), ("memory", memory)].into_iter().filter(|(_, amount)| !amount.is_empty());
            all.map(|(name, amount)| (name.to_string(), json!(amount))).collect::<serde_json::Map<_, _>>()
        };
        json!({"name": "c", "resources": {"requests": list(requests), "limits": list(limits)}})
    }

    const NONE: (&str, &str) = ("", "");
    const SMALL: (&str, &str) = ("100m", "100Mi");
    const LARGE: (&str, &str) = ("200m", "200Mi");

    #[test]
    fn numbers_of_pods_are_upstreams() {
        let plain = |containers: &[Value]| json!({"containers": containers});
        let with_init =
            |containers: &[Value], init: &[Value]| json!({"containers": containers, "initContainers": init});
        let pod_level =
            |own: Value, container: Value| json!({"resources": own["resources"], "containers": [container]});
        let bare = || json!({"name": "c"});
        // Shares, quota, memory in MiB.
        for (what, spec, shares, quota, memory) in [
            ("best effort", plain(&[resources(NONE, NONE)]), 2, None, None),
            ("no limits", plain(&[resources(SMALL, NONE)]), 102, None, None),
            ("limits", plain(&[resources(SMALL, LARGE)]), 102, Some(20_000), Some(200)),
            ("one without", plain(&[resources(SMALL, LARGE), resources(SMALL, NONE)]), 204, None, None),
            ("guaranteed", plain(&[resources(SMALL, SMALL)]), 102, Some(10_000), Some(100)),
            (
                "an init container without limits",
                with_init(&[resources(SMALL, SMALL)], &[resources(SMALL, NONE)]),
                102,
                None,
                None,
            ),
            ("pod level requests", pod_level(resources(SMALL, NONE), bare()), 102, None, None),
            (
                "pod level requests over a container's",
                pod_level(resources(SMALL, NONE), resources(("10m", "50Mi"), NONE)),
                102,
                None,
                None,
            ),
            ("pod level limits", pod_level(resources(SMALL, LARGE), bare()), 102, Some(20_000), Some(200)),
            (
                "pod level requests, container limits",
                pod_level(resources(("200m", "300Mi"), NONE), resources(LARGE, LARGE)),
                204,
                Some(20_000),
                Some(200),
            ),
            (
                "pod level guaranteed",
                pod_level(resources(SMALL, SMALL), bare()),
                102,
                Some(10_000),
                Some(100),
            ),
        ] {
            let expected = CgroupLimits {
                cpu_shares: Some(shares),
                cpu_quota: quota,
                cpu_period: quota.map(|_| 100_000),
                memory: memory.map(|mib: i64| mib * MIB),
                ..CgroupLimits::default()
            };
            assert_eq!(settings(spec, &rules()), expected, "{what}");
        }
    }

    #[test]
    fn the_node_decides_about_quota_period_and_processes() {
        let spec = || json!({"containers": [resources(SMALL, SMALL)]});
        let off = settings(spec(), &PodCgroupRules { cpu_quota: false, pids: 100, ..rules() });
        assert_eq!((off.cpu_quota, off.cpu_period, off.pids), (Some(-1), Some(100_000), Some(100)));
        let tuned = settings(spec(), &PodCgroupRules { cpu_period: 5_000, pids: 0, ..rules() });
        assert_eq!((tuned.cpu_quota, tuned.cpu_period, tuned.pids), (Some(1_000), Some(5_000), None));
    }

    #[test]
    fn huge_pages_that_are_not_asked_for_are_not_granted() {
        let spec = json!({"containers": [
            {"name": "a", "resources": {"requests": {"hugepages-2Mi": "4Mi"}, "limits": {"hugepages-2Mi": "4Mi"}}},
            {"name": "b", "resources": {"requests": {"hugepages-2Mi": "2Mi"}}},
        ]});
        let rules = PodCgroupRules { page_sizes: vec!["1GB".into(), "2MB".into()], ..rules() };
        let expected = BTreeMap::from([("1GB".to_string(), 0), ("2MB".to_string(), 6 * MIB)]);
        assert_eq!(settings(spec, &rules).huge_pages, expected);
        assert_eq!(above_pods(&rules.page_sizes).huge_pages["1GB"], 1 << 62);
    }

    #[test]
    fn conversions_are_upstreams() {
        for (shares, weight) in [(0, 1), (2, 1), (102, 4), (1024, 39), (262_144, 10_000), (i64::MAX, 10_000)]
        {
            assert_eq!(weight_of_shares(shares), weight, "{shares}");
        }
        for (weight, shares) in [(0, 2), (1, 2), (39, 998), (10_000, 262_144)] {
            assert_eq!(shares_of_weight(weight), shares, "{weight}");
        }
        for (bytes, name) in [(2 * MIB, "2MB"), (1 << 30, "1GB"), (64 << 10, "64KB"), (16 << 30, "16GB")] {
            assert_eq!(page_size_name(bytes).as_deref(), Some(name));
        }
        assert_eq!((page_size_name(0), page_size_name(3000), page_size_name(-2048)), (None, None, None));
    }
}
