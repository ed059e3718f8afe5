//! Whether a pod that runs may have other resources, and whose turn it is where several ask for them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crablet_model::allocation::{Allocation, Sizes};
use crablet_model::cgroup::effective::pod_requests;
use crablet_model::qos::{QosClass, qos_class};
use crablet_model::quantity::Quantity;
use crablet_model::{PodUid, api};
use jiff::Timestamp;

use super::{AdmissionNode, Claim, Decision, judge};

/// What the node's configuration has to say about resizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResizeRules {
    /// The gate `InPlacePodLevelResourcesVerticalScaling` is off.
    pub no_whole_pods: bool,
}

/// What becomes of a resize.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Granted,
    /// Granted once these have ended: they are in its way and matter less.
    GrantedInsteadOf(Vec<PodUid>),
    /// Not now. The reason is the one for which a new pod would be rejected: upstream's event says it.
    Deferred {
        reason: String,
        message: String,
    },
    /// Not as long as it asks for this.
    Infeasible(String),
}

/// Judges what `pod` asks for beside the others. `granted` is what it has.
pub fn judge_resize(
    pod: &api::Pod,
    granted: &Allocation,
    others: &BTreeMap<PodUid, Claim>,
    node: &AdmissionNode,
) -> Answer {
    if let Some(why) = infeasible(pod, granted, &node.resizes) {
        return Answer::Infeasible(why);
    }
    match judge(pod, others, node) {
        Decision::Admitted => Answer::Granted,
        Decision::AdmittedInsteadOf(victims) => Answer::GrantedInsteadOf(victims),
        // As upstream, also where the node will never have as much.
        Decision::Rejected(why) => Answer::Deferred { reason: why.reason.to_string(), message: why.message },
    }
}

fn infeasible(pod: &api::Pod, granted: &Allocation, rules: &ResizeRules) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let whole = (Sizes::of(spec.resources.as_ref()), Sizes::of(granted.pod.as_ref()));
    if rules.no_whole_pods && whole.0 != whole.1 {
        return Some("InPlacePodLevelResourcesVerticalScaling is disabled".to_owned());
    }
    None
}

/// Whose resize is judged first: the smaller the earlier.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    /// Who gives something back makes room for others.
    increases: bool,
    priority: Reverse<i32>,
    not_guaranteed: bool,
    /// Who has waited longer; who is new comes last.
    is_new: bool,
    since: Option<Timestamp>,
}

impl Turn {
    /// Of a pod that asks for something else than it was granted, and since when it has been told to wait.
    pub fn of(pod: &api::Pod, granted: &Allocation, since: Option<Timestamp>) -> Self {
        let spec = pod.spec.clone().unwrap_or_default();
        Self {
            increases: asks_for_more(&spec, granted),
            priority: Reverse(spec.priority.unwrap_or_default()),
            not_guaranteed: qos_class(&spec) != QosClass::Guaranteed,
            is_new: since.is_none(),
            since,
        }
    }
}

fn asks_for_more(spec: &api::PodSpec, granted: &Allocation) -> bool {
    let wanted = pod_requests(spec);
    let mut before = spec.clone();
    granted.overlay(&mut before);
    let before = pod_requests(&before);
    let of =
        |amounts: &BTreeMap<String, Quantity>, name: &str| amounts.get(name).copied().unwrap_or_default();
    ["cpu", "memory"].into_iter().any(|name| of(&wanted, name) > of(&before, name))
}

/// The pod with as much as it asks for, or as it still has where that is more: what is to be given back is not free before
/// its status says so.
pub fn as_it_counts(pod: &api::Pod) -> Option<api::PodSpec> {
    let status = pod.status.as_ref()?;
    let mut spec = pod.spec.clone()?;
    let of = |name: &str| {
        let regular = status.container_statuses.iter().flatten();
        regular.chain(status.init_container_statuses.iter().flatten()).find(|s| s.name == name)
    };
    let sidecars = spec.init_containers.iter_mut().flatten();
    let sidecars = sidecars.filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let mut raised = false;
    for container in spec.containers.iter_mut().chain(sidecars) {
        let Some(status) = of(&container.name) else { continue };
        let actual = status.resources.as_ref().and_then(|r| r.requests.as_ref());
        let requests = &mut container.resources.get_or_insert_default().requests;
        for list in [actual, status.allocated_resources.as_ref()].into_iter().flatten() {
            raised |= raise(requests.get_or_insert_default(), list);
        }
    }
    if let Some(whole) = spec.resources.as_mut().and_then(|r| r.requests.as_mut()) {
        let actual = status.resources.as_ref().and_then(|r| r.requests.as_ref());
        for list in [actual, status.allocated_resources.as_ref()].into_iter().flatten() {
            let named = list.iter().filter(|(name, _)| whole.contains_key(*name));
            let named = named.map(|(name, amount)| (name.clone(), amount.clone())).collect();
            raised |= raise(whole, &named);
        }
    }
    raised.then_some(spec)
}

type List = BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>;

fn raise(list: &mut List, least: &List) -> bool {
    let mut raised = false;
    for (name, amount) in least {
        let Ok(least) = Quantity::try_from(amount) else { continue };
        let known = list.get(name).and_then(|text| Quantity::try_from(text).ok()).unwrap_or_default();
        if known < least {
            list.insert(name.clone(), amount.clone());
            raised = true;
        }
    }
    raised
}
