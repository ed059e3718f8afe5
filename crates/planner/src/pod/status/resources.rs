//! What the pod as a whole asks for and may use.

use std::collections::BTreeMap;

use crablet_model::allocation::Allocation;
use crablet_model::cgroup::effective::{Amounts, pod_requests, without_overhead};
use crablet_model::quantity::Quantity;
use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

/// Requests and limits of the whole pod, as its status shows them: containers, sidecars, init containers where one of them
/// needs more, what is said for the pod as a whole, and the overhead of its runtime class.
pub fn of_pod(spec: &api::PodSpec) -> api::ResourceRequirements {
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

/// The same of what containers and the pod's cgroup were given last.
pub fn actual(spec: &api::PodSpec, actuated: &Allocation) -> api::ResourceRequirements {
    let mut given = spec.clone();
    actuated.overlay(&mut given);
    of_pod(&given)
}

fn shown(amounts: Amounts) -> Option<BTreeMap<String, Amount>> {
    (!amounts.is_empty()).then(|| amounts.into_iter().map(|(name, amount)| (name, amount.into())).collect())
}
