//! What registration changes in a Node that is there already.
//!
//! Labels of `--node-labels` outside a fixed list, and taints, are the cluster's once the Node exists.

use crablet_model::api;
use crablet_model::quantity::Quantity;

use super::initial::CONTROLLER_ATTACH_DETACH;
use super::resources::{HUGE_PAGES, is_extended};

const DEFAULT_LABELS: [&str; 12] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "node.kubernetes.io/windows-build",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// The existing Node with what the agent is right about taken from `initial`; `None` when nothing differs.
///
/// `devices_forgotten` says that the machine has no memory of device plugins: then no device of the old Node is true.
pub fn reconcile(existing: &api::Node, initial: &api::Node, devices_forgotten: bool) -> Option<api::Node> {
    let mut node = existing.clone();
    reconcile_attach_detach(&mut node, initial);
    reconcile_labels(&mut node, initial);
    let changed_metadata = node.metadata != existing.metadata;
    let changed_resources = reconcile_resources(&mut node, initial, devices_forgotten);
    (changed_metadata || changed_resources).then_some(node)
}

fn reconcile_attach_detach(node: &mut api::Node, initial: &api::Node) {
    let wanted = initial.metadata.annotations.as_ref().and_then(|a| a.get(CONTROLLER_ATTACH_DETACH));
    match (wanted, node.metadata.annotations.as_mut()) {
        (Some(wanted), _) => {
            let annotations = node.metadata.annotations.get_or_insert_default();
            annotations.insert(CONTROLLER_ATTACH_DETACH.to_owned(), wanted.clone());
        }
        (None, Some(annotations)) => drop(annotations.remove(CONTROLLER_ATTACH_DETACH)),
        (None, None) => {}
    }
}

fn reconcile_labels(node: &mut api::Node, initial: &api::Node) {
    let Some(wanted) = &initial.metadata.labels else { return };
    let labels = node.metadata.labels.get_or_insert_default();
    for key in DEFAULT_LABELS {
        match wanted.get(key) {
            Some(value) if value.is_empty() => drop(labels.remove(key)),
            Some(value) => drop(labels.insert(key.to_owned(), value.clone())),
            None => {}
        }
    }
}

fn reconcile_resources(node: &mut api::Node, initial: &api::Node, devices_forgotten: bool) -> bool {
    let initial = initial.status.as_ref();
    let status = node.status.get_or_insert_default();
    let mut changed = false;
    for (of_node, of_initial) in [
        (&mut status.capacity, initial.and_then(|s| s.capacity.as_ref())),
        (&mut status.allocatable, initial.and_then(|s| s.allocatable.as_ref())),
    ] {
        let Some(of_initial) = of_initial else { continue };
        let of_node = of_node.get_or_insert_with(|| {
            changed = true;
            of_initial.clone()
        });
        if devices_forgotten {
            for (_, amount) in of_node.iter_mut().filter(|(name, _)| is_extended(name)) {
                changed |= amount.0 != "0";
                *amount = Quantity::ZERO.into();
            }
        }
        for (name, amount) in of_initial.iter().filter(|(name, _)| name.starts_with(HUGE_PAGES)) {
            let value = |q| Quantity::try_from(q).ok();
            if of_node.get(name).and_then(value) != value(amount) {
                of_node.insert(name.clone(), amount.clone());
                changed = true;
            }
        }
        let before = of_node.len();
        of_node.retain(|name, _| !name.starts_with(HUGE_PAGES) || of_initial.contains_key(name));
        changed |= of_node.len() != before;
    }
    changed
}
