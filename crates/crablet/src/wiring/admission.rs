//! Who may run: the node as the registry judges pods by it.

use std::sync::Arc;

use async_trait::async_trait;
use crablet_apiserver::{ApiServer, Call, Lane};
use crablet_config::Settings;
use crablet_model::api;
use crablet_node::NodeView;
use crablet_planner::node::admission::{AdmissionNode, ResizeRules, Sysctls};
use crablet_pods::admission::FreshNode;
use tokio::sync::watch;

use crate::machine::Machine;

/// Before anything is known of the Node: only what the settings and the machine say.
pub fn admission_node(settings: &Settings, machine: &Machine) -> AdmissionNode {
    AdmissionNode {
        name: settings.node_name.clone(),
        sysctls: Sysctls::new(machine.kernel, &settings.allowed_unsafe_sysctls),
        apparmor: machine.apparmor,
        toleration_comparisons: settings.feature_gates.enabled("TaintTolerationComparisonOperators"),
        declared_features: settings
            .feature_gates
            .enabled("NodeDeclaredFeatures")
            .then(|| super::node::declared_features(settings)),
        resizes: ResizeRules {
            no_whole_pods: !settings.feature_gates.enabled("InPlacePodLevelResourcesVerticalScaling"),
        },
        ..AdmissionNode::default()
    }
}

/// Takes in what the Node object says.
pub fn follow(node: &watch::Sender<Arc<AdmissionNode>>, view: &NodeView) {
    node.send_if_modified(|known| {
        let fresh = AdmissionNode {
            labels: view.labels.clone(),
            allocatable: view.allocatable.clone(),
            taints: view.taints.clone(),
            supplemental_groups_policy: view.supplemental_groups_policy,
            ..AdmissionNode::clone(known)
        };
        let is_new = fresh != **known;
        if is_new {
            *known = Arc::new(fresh);
        }
        is_new
    });
}

/// The Node of this moment.
pub struct AskedNode {
    pub api: Arc<dyn ApiServer>,
    pub known: watch::Receiver<Arc<AdmissionNode>>,
}

#[async_trait]
impl FreshNode for AskedNode {
    async fn fetch(&self) -> Option<Arc<AdmissionNode>> {
        let known = self.known.borrow().clone();
        let path = format!("/api/v1/nodes/{}", known.name);
        let answer = self.api.call(Call::get(Lane::Main, path)).await;
        let node = answer
            .inspect_err(|error| tracing::error!(err = %error, "Failed to synchronously fetch node info"))
            .ok()?;
        let node: api::Node = serde_json::from_slice(&node).ok()?;
        Some(Arc::new(AdmissionNode {
            labels: node.metadata.labels.unwrap_or_default(),
            taints: node.spec.and_then(|spec| spec.taints).unwrap_or_default(),
            ..AdmissionNode::clone(&known)
        }))
    }
}
