//! What the pod as a whole asks for and may use: the sums over its containers.

use std::collections::BTreeMap;

use crablet_model::quantity::Quantity;
use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

type Amounts = BTreeMap<String, Amount>;

/// Requests and limits of the whole pod, as its status shows them.
pub fn of_pod(spec: &api::PodSpec) -> api::ResourceRequirements {
    let asked = spec.containers.iter().filter_map(|container| container.resources.as_ref());
    api::ResourceRequirements {
        requests: sum(asked.clone().filter_map(|resources| resources.requests.as_ref())),
        limits: sum(asked.filter_map(|resources| resources.limits.as_ref())),
        ..Default::default()
    }
}

fn sum<'a>(lists: impl Iterator<Item = &'a Amounts>) -> Option<Amounts> {
    let mut total: BTreeMap<String, Quantity> = BTreeMap::new();
    for (name, amount) in lists.flatten() {
        // Manifests were checked when they came in.
        let Ok(amount) = Quantity::parse(&amount.0) else { continue };
        let so_far = total.get(name).copied();
        total.insert(name.clone(), so_far.map_or(amount, |sum| sum.plus(amount)));
    }
    let shown = |(name, amount): (String, Quantity)| (name, Amount(amount.to_string()));
    (!total.is_empty()).then(|| total.into_iter().map(shown).collect())
}
