//! What a container may use: when it is created, and when that changes while it runs.

use crablet_model::api;
use crablet_model::qos::qos_class;
use crablet_model::resources::{container_resources, hugepage_limits};
use crablet_model::runtime::ContainerUpdate;

use super::super::facts::{NodeFacts, SwapControl};
use super::sandbox::node_rules;

const NODE_CRITICAL: &str = "system-node-critical";

/// The numbers of one container of the pod.
pub fn container_update(
    spec: &api::PodSpec,
    container: &api::Container,
    node: &NodeFacts,
) -> ContainerUpdate {
    let node_critical = spec.priority_class_name.as_deref() == Some(NODE_CRITICAL);
    let resources = container_resources(spec, container, qos_class(spec), node_critical, node_rules(node));
    let swap = node.swap_control;
    ContainerUpdate {
        resources,
        // No container may use swap: on cgroup v1 as far as it has a memory limit.
        memory_swap_limit: if swap == SwapControl::Together { resources.memory_limit } else { 0 },
        unified: (swap == SwapControl::Alone)
            .then(|| ("memory.swap.max".into(), "0".into()))
            .into_iter()
            .collect(),
        hugepage_limits: hugepage_limits(spec, container, &node.hugepage_sizes),
    }
}
