//! The object to register with.

use crablet_model::api;

use super::facts::NodeFacts;
use super::status::{OS, StatusOutcome, architecture, set_status};

pub const CONTROLLER_ATTACH_DETACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
const CLOUD_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// A whole Node, its status included. In standalone mode it is all that is known of the node.
pub fn initial_node(facts: &NodeFacts<'_>) -> (api::Node, StatusOutcome) {
    let settings = facts.settings;
    let mut node = api::Node::default();
    node.metadata.name = Some(settings.node_name.clone());
    let defaults = [
        ("kubernetes.io/hostname", settings.node_name.as_str()),
        ("kubernetes.io/os", OS),
        ("kubernetes.io/arch", architecture()),
        ("beta.kubernetes.io/os", OS),
        ("beta.kubernetes.io/arch", architecture()),
    ];
    let defaults = defaults.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
    node.metadata.labels = Some(defaults.chain(settings.labels.clone()).collect());
    if settings.controller_attach_detach {
        node.metadata.annotations = Some([(CONTROLLER_ATTACH_DETACH.to_owned(), "true".to_owned())].into());
    }
    let uninitialized = settings.cloud_external.then(|| api::Taint {
        key: CLOUD_TAINT.to_owned(),
        value: Some("true".to_owned()),
        effect: "NoSchedule".to_owned(),
        time_added: None,
    });
    let taints: Vec<_> = settings.taints.iter().cloned().chain(uninitialized).collect();
    node.spec = Some(api::NodeSpec {
        taints: (!taints.is_empty()).then_some(taints),
        provider_id: settings.provider_id.clone().filter(|id| !id.is_empty()),
        ..api::NodeSpec::default()
    });
    let outcome = set_status(&mut node, facts);
    (node, outcome)
}
