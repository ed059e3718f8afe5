//! What a pod asks for as a whole.
//!
//! Containers run together, so they are summed, and so are sidecars. Init containers run one after the other, each beside
//! the sidecars before it: the largest of these phases counts where it is more than the sum. Pod-level values replace
//! what containers add up to, and the overhead of the pod's runtime class comes on top.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use crate::api::{PodSpec, ResourceRequirements};
use crate::quantity::Quantity;

pub type Amounts = BTreeMap<String, Quantity>;
type List = BTreeMap<String, ApiQuantity>;

/// The pod's requests of every resource that it names.
pub fn pod_requests(spec: &PodSpec) -> Amounts {
    let mut sum = requests_of_containers(spec);
    add(&mut sum, &amounts(spec.overhead.as_ref()));
    sum
}

/// Requests and limits of all that runs in the pod, without what its sandbox needs for itself.
pub fn without_overhead(spec: &PodSpec) -> (Amounts, Amounts) {
    (requests_of_containers(spec), limits_of_containers(spec, &mut |_| ()))
}

/// What containers ask for together, whatever the pod as a whole asks for.
pub fn below_pod_level(spec: &PodSpec) -> Amounts {
    sum_of_containers(spec, |r| r.requests.as_ref(), &mut |_| ())
}

fn requests_of_containers(spec: &PodSpec) -> Amounts {
    let mut sum = below_pod_level(spec);
    replace_by_pod_level(&mut sum, spec.resources.as_ref().and_then(|r| r.requests.as_ref()));
    sum
}

fn limits_of_containers(spec: &PodSpec, each: &mut dyn FnMut(&Amounts)) -> Amounts {
    let mut sum = sum_of_containers(spec, |r| r.limits.as_ref(), each);
    replace_by_pod_level(&mut sum, spec.resources.as_ref().and_then(|r| r.limits.as_ref()));
    sum
}

/// The pod's limits of every resource that it names. `each` is shown what every container, and every phase of an init container, is limited to.
pub(super) fn pod_limits(spec: &PodSpec, each: &mut dyn FnMut(&Amounts)) -> Amounts {
    let mut sum = limits_of_containers(spec, each);
    for (name, overhead) in amounts(spec.overhead.as_ref()) {
        // No limit stays no limit.
        if let Some(limit) = sum.get_mut(&name).filter(|limit| !limit.is_zero()) {
            *limit = limit.plus(overhead);
        }
    }
    sum
}

fn sum_of_containers(
    spec: &PodSpec,
    pick: fn(&ResourceRequirements) -> Option<&List>,
    each: &mut dyn FnMut(&Amounts),
) -> Amounts {
    let of = |resources: Option<&ResourceRequirements>| amounts(resources.and_then(pick));
    let mut sum = Amounts::new();
    for container in &spec.containers {
        let own = of(container.resources.as_ref());
        each(&own);
        add(&mut sum, &own);
    }
    let (mut sidecars, mut largest_phase) = (Amounts::new(), Amounts::new());
    for container in spec.init_containers.iter().flatten() {
        let mut phase = of(container.resources.as_ref());
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut sum, &phase);
            add(&mut sidecars, &phase);
            phase.clone_from(&sidecars);
        } else {
            add(&mut phase, &sidecars);
        }
        each(&phase);
        raise(&mut largest_phase, &phase);
    }
    raise(&mut sum, &largest_phase);
    sum
}

fn replace_by_pod_level(sum: &mut Amounts, pod_level: Option<&List>) {
    let supported = |name: &str| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-");
    sum.extend(amounts(pod_level).into_iter().filter(|(name, _)| supported(name)));
}

/// A quantity that does not parse counts as absent: validation refuses it long before.
fn amounts(list: Option<&List>) -> Amounts {
    let parsed = |(name, text): (&String, &ApiQuantity)| Some((name.clone(), Quantity::try_from(text).ok()?));
    list.into_iter().flatten().filter_map(parsed).collect()
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let total = sum.entry(name.clone()).or_default();
        *total = total.plus(*amount);
    }
}

fn raise(to: &mut Amounts, least: &Amounts) {
    for (name, amount) in least {
        let current = to.entry(name.clone()).or_insert(*amount);
        *current = (*current).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(json: serde_json::Value) -> PodSpec {
        serde_json::from_value(json).expect("a pod spec")
    }

    fn printed(amounts: &Amounts) -> String {
        let parts: Vec<_> = amounts.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
        parts.join(" ")
    }

    #[test]
    fn phases_of_init_containers_count_where_they_are_larger() {
        let spec = spec(serde_json::json!({
            "containers": [
                {"name": "a", "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}, "limits": {"cpu": "1"}}},
                {"name": "b", "resources": {"requests": {"cpu": "100m", "example.com/gpu": "1"}}},
            ],
            "initContainers": [
                {"name": "early", "resources": {"requests": {"memory": "1Gi"}}},
                {"name": "sidecar", "restartPolicy": "Always", "resources": {"requests": {"cpu": "50m", "memory": "50Mi"}}},
                {"name": "late", "resources": {"requests": {"cpu": "500m", "memory": "1Mi"}}},
            ],
            "overhead": {"cpu": "10m", "memory": "10Mi"},
        }));
        // cpu: max(100+100+50, 50+500) + 10; memory: max(100+50, 1024) + 10.
        assert_eq!(printed(&pod_requests(&spec)), "cpu=560m example.com/gpu=1 memory=1034Mi");
        assert_eq!(printed(&pod_limits(&spec, &mut |_| ())), "cpu=1010m");
    }

    #[test]
    fn pod_level_values_replace_what_containers_add_up_to() {
        let spec = spec(serde_json::json!({
            "resources": {
                "requests": {"cpu": "100m", "ephemeral-storage": "1Gi"},
                "limits": {"memory": "200Mi", "hugepages-2Mi": "4Mi"},
            },
            "containers": [
                {"name": "a", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}}},
            ],
        }));
        assert_eq!(printed(&pod_requests(&spec)), "cpu=100m memory=1Gi");
        assert_eq!(printed(&pod_limits(&spec, &mut |_| ())), "cpu=2 hugepages-2Mi=4Mi memory=200Mi");
    }
}
