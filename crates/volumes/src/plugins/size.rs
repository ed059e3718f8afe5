//! How large a memory-backed volume may become.

use crablet_model::api;
use crablet_model::qos::{QosClass, qos_class};
use crablet_model::quantity::Quantity;
use crablet_model::resources::limit;

use crate::volumes::Context;

/// In bytes: what the node has for pods, or what the pod may use, or what the volume asks for, whichever is least.
pub fn of_memory(ctx: &Context, spec: &api::PodSpec, of_volume: Option<Quantity>) -> i64 {
    let mut size = ctx.node.borrow().allocatable_memory;
    for smaller in [pod_memory_limit(spec), of_volume].into_iter().flatten().map(|q| q.value()) {
        if smaller > 0 && smaller <= size {
            size = smaller;
        }
    }
    size
}

/// As the pod's cgroup is limited: not at all if some container is not.
fn pod_memory_limit(spec: &api::PodSpec) -> Option<Quantity> {
    let of = |container: &api::Container| {
        limit(container.resources.as_ref(), "memory").filter(|limit| *limit > Quantity::ZERO)
    };
    if qos_class(spec) == QosClass::BestEffort {
        return None;
    }
    if let Some(limit) = limit(spec.resources.as_ref(), "memory").filter(|limit| *limit > Quantity::ZERO) {
        return Some(limit);
    }
    let (mut sidecars, mut highest_init) = (Quantity::ZERO, Quantity::ZERO);
    for init in spec.init_containers.iter().flatten() {
        let own = of(init)?;
        if init.restart_policy.as_deref() == Some("Always") {
            sidecars = sidecars.plus(own);
            highest_init = highest_init.max(sidecars);
        } else {
            highest_init = highest_init.max(sidecars.plus(own));
        }
    }
    let regular =
        spec.containers.iter().try_fold(Quantity::ZERO, |sum, container| Some(sum.plus(of(container)?)))?;
    let overhead = spec.overhead.as_ref().and_then(|list| list.get("memory"));
    let overhead = overhead.and_then(|text| Quantity::try_from(text).ok()).unwrap_or_default();
    Some(regular.plus(sidecars).max(highest_init).plus(overhead))
}
