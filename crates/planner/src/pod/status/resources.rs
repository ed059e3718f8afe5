//! What the pod as a whole asks for and may use.
//!
//! | the pod | what its status shows |
//! |---|---|
//! | is one of a manifest, or has not run | what its containers add up to |
//! | has begun to run | the same, as upstream, until it is looked at again |
//! | runs, or has run | what its cgroup has, and what the specification says of the pod as a whole |
//!
//! Upstream looks at a pod again when something happens to it, and after a minute or a little more if nothing does. The
//! cgroup is not read: what it has follows from what it was given, and from how the kernel counts.

use std::collections::BTreeMap;

use crablet_model::allocation::{Allocation, Sizes};
use crablet_model::api;
use crablet_model::cgroup::effective::{Amounts, pod_requests, without_overhead};
use crablet_model::cgroup::limits::{self, PodCgroupRules, shares_of_weight, weight_of_shares};
use crablet_model::hash::fnv1a_64;
use crablet_model::names::phase as phases;
use crablet_model::qos::qos_class;
use crablet_model::quantity::{Format, Quantity};
use crablet_model::resources::{DEFAULT_CPU_PERIOD, milli_of_quota, milli_of_shares};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

use super::super::facts::{CgroupKind, Facts, NodeFacts};
use super::super::memory::{Memory, later};
use super::states::terminated;
use super::{is_static, sizes};

/// The kernel limits memory in pages of this size; what is less than a page is lost.
const PAGE: i64 = 4096;

/// Upstream looks at each pod again after a minute, and up to half of that later.
const FIRST_LOOK_SECONDS: i64 = 60;
const LOOK_SPREAD_SECONDS: u64 = 31;
/// Of a probe that does not say how often it asks.
const DEFAULT_PERIOD_SECONDS: i32 = 10;

type List = BTreeMap<String, Amount>;

/// What a pod of this status shows.
pub(super) fn of(
    facts: &Facts<'_>,
    pod: &api::Pod,
    memory: &Memory,
    status: &api::PodStatus,
) -> Option<api::ResourceRequirements> {
    let spec = pod.spec.as_ref()?;
    let given = given(facts, spec, memory);
    let spec = given.as_ref().unwrap_or(spec);
    let shows_cgroup = match Stage::of(pod, spec, status) {
        Stage::HasNotRun => false,
        Stage::Runs { looked_at_again } => looked_at_again <= facts.now,
        Stage::HasRun => true,
    };
    Some(if shows_cgroup { of_cgroup(spec, facts.node) } else { added_up(spec) })
}

/// When it will show something else, though nothing happens to the pod.
pub(in super::super) fn due(facts: &Facts<'_>, pod: &api::Pod, status: &api::PodStatus) -> Option<Timestamp> {
    let spec = pod.spec.as_ref()?;
    let Stage::Runs { looked_at_again } = Stage::of(pod, spec, status) else { return None };
    let changes = looked_at_again > facts.now && of_cgroup(spec, facts.node) != added_up(spec);
    changes.then_some(looked_at_again)
}

enum Stage {
    HasNotRun,
    Runs { looked_at_again: Timestamp },
    HasRun,
}

impl Stage {
    /// Upstream goes by the phase that the API server has, and a manifest has none.
    fn of(pod: &api::Pod, spec: &api::PodSpec, status: &api::PodStatus) -> Self {
        let regular = status.container_statuses.as_deref().unwrap_or_default();
        match status.phase.as_deref() {
            _ if is_static(pod) => Self::HasNotRun,
            Some(phases::RUNNING) => {
                let happened = pod.metadata.generation.is_some_and(|generation| generation > 1)
                    || regular.iter().any(has_ended);
                let last = regular.iter().filter_map(started_at).max();
                let by_itself = last.map(|last| later(last, FIRST_LOOK_SECONDS + lot(pod)));
                let of = |name: &str| regular.iter().find(|status| status.name == name);
                let probed = spec.containers.iter().filter_map(|c| first_answer(c, of(&c.name)?));
                let looked_at_again = by_itself.into_iter().chain(probed).min().filter(|_| !happened);
                Self::Runs { looked_at_again: looked_at_again.unwrap_or(Timestamp::MIN) }
            }
            Some(phase) if phases::is_terminal(phase) && regular.iter().any(|c| c.container_id.is_some()) => {
                Self::HasRun
            }
            _ => Self::HasNotRun,
        }
    }
}

fn has_ended(container: &api::ContainerStatus) -> bool {
    container.restart_count > 0
        || terminated(container.state.as_ref()).is_some()
        || terminated(container.last_state.as_ref()).is_some()
}

/// When a probe says something new of it: at its first answer, if it has not been asked yet.
fn first_answer(container: &api::Container, status: &api::ContainerStatus) -> Option<Timestamp> {
    let (readiness, startup) = (&container.readiness_probe, &container.startup_probe);
    if readiness.is_some() && status.ready || startup.is_some() && status.started == Some(true) {
        return Some(Timestamp::MIN);
    }
    let periods = [readiness, startup].into_iter().flatten().map(|probe| probe.period_seconds);
    let period = periods.map(|period| i64::from(period.unwrap_or(DEFAULT_PERIOD_SECONDS))).min()?;
    Some(later(started_at(status)?, period))
}

fn started_at(container: &api::ContainerStatus) -> Option<Timestamp> {
    Some(container.state.as_ref()?.running.as_ref()?.started_at.as_ref()?.0)
}

/// Pods that began together are not looked at together.
fn lot(pod: &api::Pod) -> i64 {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    i64::try_from(fnv1a_64(uid.as_bytes()) % LOOK_SPREAD_SECONDS).unwrap_or_default()
}

/// The specification with what containers and the pod's cgroup were given last, where they are given something else now.
fn given(facts: &Facts<'_>, spec: &api::PodSpec, memory: &Memory) -> Option<api::PodSpec> {
    let actuated: &Allocation = facts.grants.actuated.as_ref().filter(|_| memory.resizing.is_some())?;
    let mut given = spec.clone();
    actuated.overlay(&mut given);
    Some(given)
}

/// Requests and limits of the whole pod: containers, sidecars, init containers where one of them needs more, what is said
/// for the pod as a whole, and the overhead of its runtime class.
pub(super) fn added_up(spec: &api::PodSpec) -> api::ResourceRequirements {
    let (_, mut limits) = without_overhead(spec);
    for (name, amount) in spec.overhead.iter().flatten() {
        // No limit stays no limit. Manifests were checked when they came in.
        let overhead = Quantity::try_from(amount).unwrap_or_default();
        if let Some(limit) = limits.get_mut(name).filter(|limit| !limit.is_zero()) {
            *limit = limit.plus(overhead);
        }
    }
    api::ResourceRequirements {
        requests: shown(pod_requests(spec)),
        limits: shown(limits),
        ..Default::default()
    }
}

fn shown(amounts: Amounts) -> Option<List> {
    (!amounts.is_empty()).then(|| amounts.into_iter().map(|(name, amount)| (name, amount.into())).collect())
}

/// What the pod's cgroup has. Only CPU and limits of memory are the cgroup's: what else the pod's containers ask for does
/// not appear. Amounts of CPU that are too small for the kernel are those of the specification, if it has them.
fn of_cgroup(spec: &api::PodSpec, node: &NodeFacts) -> api::ResourceRequirements {
    let mut shown = spec.resources.clone().unwrap_or_default();
    let asked = Sizes::of(spec.resources.as_ref());
    let has = cgroup(spec, node);
    let cpu = |milli| Amount::from(Quantity::from_milli(milli, Format::Decimal));
    let requests = shown.requests.get_or_insert_default();
    if has.cpu_request > 0 && has.cpu_request.max(asked.cpu_request) > sizes::LEAST_CPU_REQUEST {
        requests.insert("cpu".to_owned(), cpu(has.cpu_request));
    }
    if let Some(memory) = pod_requests(spec).remove("memory") {
        requests.entry("memory".to_owned()).or_insert_with(|| memory.into());
    }
    let limits = shown.limits.get_or_insert_default();
    if has.cpu_limit > 0 && has.cpu_limit.max(asked.cpu_limit) > sizes::LEAST_CPU_LIMIT {
        limits.insert("cpu".to_owned(), cpu(has.cpu_limit));
    }
    if has.memory_limit > 0 {
        limits.insert("memory".to_owned(), Quantity::from_value(has.memory_limit, Format::Binary).into());
    }
    for list in [&mut shown.requests, &mut shown.limits] {
        list.take_if(|list| list.is_empty());
    }
    shown
}

/// Of CPU and memory, what the kernel would say. Zero: nothing.
fn cgroup(spec: &api::PodSpec, node: &NodeFacts) -> Sizes {
    let rules = PodCgroupRules {
        cpu_quota: node.cpu_cfs_quota,
        cpu_period: node.cpu_period.unwrap_or(DEFAULT_CPU_PERIOD),
        pids: 0,
        page_sizes: Vec::new(),
    };
    let set = limits::of_pod(spec, qos_class(spec), &rules);
    let shares = set.cpu_shares.unwrap_or_default();
    let shares = match node.pod_cgroups {
        CgroupKind::Absent => return Sizes::default(),
        CgroupKind::V1 => shares,
        // Weights are coarser, and upstream shows what is left of the shares.
        CgroupKind::V2 => shares_of_weight(weight_of_shares(shares)),
    };
    Sizes {
        cpu_request: milli_of_shares(shares),
        cpu_limit: milli_of_quota(set.cpu_quota.unwrap_or_default(), rules.cpu_period),
        memory_request: 0,
        memory_limit: set.memory.unwrap_or_default() / PAGE * PAGE,
    }
}
