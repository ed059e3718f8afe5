//! Whether a status says anything new.

use std::collections::BTreeMap;

use crablet_model::api::{NodeCondition, NodeStatus};

use super::resources::parsed;

/// Compares meanings: amounts by value, conditions by type and without their heartbeats, empty lists as absent ones.
pub fn status_changed(old: &NodeStatus, new: &NodeStatus) -> bool {
    parsed(old.capacity.as_ref()) != parsed(new.capacity.as_ref())
        || parsed(old.allocatable.as_ref()) != parsed(new.allocatable.as_ref())
        || conditions(old) != conditions(new)
        || rest(old) != rest(new)
}

fn conditions(status: &NodeStatus) -> BTreeMap<&str, NodeCondition> {
    let quiet = |condition: &NodeCondition| NodeCondition { last_heartbeat_time: None, ..condition.clone() };
    status.conditions.iter().flatten().map(|c| (c.type_.as_str(), quiet(c))).collect()
}

fn rest(status: &NodeStatus) -> NodeStatus {
    fn filled<T: Clone>(list: Option<&Vec<T>>) -> Option<Vec<T>> {
        list.filter(|list| !list.is_empty()).cloned()
    }
    NodeStatus {
        capacity: None,
        allocatable: None,
        conditions: None,
        addresses: filled(status.addresses.as_ref()),
        declared_features: filled(status.declared_features.as_ref()),
        images: filled(status.images.as_ref()),
        runtime_handlers: filled(status.runtime_handlers.as_ref()),
        volumes_attached: filled(status.volumes_attached.as_ref()),
        volumes_in_use: filled(status.volumes_in_use.as_ref()),
        node_info: Some(status.node_info.clone().unwrap_or_default()),
        ..status.clone()
    }
}
