//! What is known of the Node object, and who is told.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use crablet_model::api;
use crablet_model::quantity::Quantity;
use crablet_planner::node::resources::parsed;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use serde::Deserialize;
use tokio::sync::watch;

/// The Node as others need to know it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeView {
    /// `None` while there is no Node object.
    pub uid: Option<String>,
    /// All its addresses, internal ones before external ones.
    pub host_ips: Vec<IpAddr>,
    /// All that the Node object says of its addresses, names included. Empty while there is none: a certificate is
    /// for names that the cluster knows.
    pub addresses: Vec<api::NodeAddress>,
    pub allocatable: BTreeMap<String, Quantity>,
    pub pod_cidrs: Vec<String>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub unschedulable: bool,
    pub taints: Vec<api::Taint>,
    /// The runtime can keep to exactly the groups that a pod names.
    pub supplemental_groups_policy: bool,
    /// Volumes that the controller has attached, with the device of each, if it said so.
    pub volumes_attached: BTreeMap<String, String>,
    pub volumes_in_use: BTreeSet<String>,
    pub deleting: bool,
    /// Whether it is known if there is a Node object, or there is no API server to ask.
    pub synced: bool,
}

/// The newest version of the Node that anybody has seen, whether it came from the watch or as an answer.
pub(crate) struct NodeCache {
    latest: Mutex<Latest>,
    view: watch::Sender<Arc<NodeView>>,
}

#[derive(Default)]
struct Latest {
    json: Option<Bytes>,
    version: u64,
    /// The watch has seen this Node, so the watch may say that it is gone.
    watched: bool,
    /// What to show while there is none.
    fallback: NodeView,
    synced: bool,
}

/// How a version of the Node came to be known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Watch,
    Answer,
}

impl NodeCache {
    pub(crate) fn new() -> Self {
        Self { latest: Mutex::default(), view: watch::Sender::default() }
    }

    pub(crate) fn view(&self) -> watch::Receiver<Arc<NodeView>> {
        self.view.subscribe()
    }

    pub(crate) fn json(&self) -> Option<Bytes> {
        self.latest().json.clone()
    }

    /// What the agent itself knows of the node, for as long as there is no Node object.
    pub(crate) fn set_fallback(&self, node: &api::Node) {
        let status = node.status.as_ref();
        let addresses = status.and_then(|s| s.addresses.as_ref()).into_iter().flatten();
        let mut latest = self.latest();
        latest.fallback = NodeView {
            host_ips: internal(addresses.map(|a| (a.type_.as_str(), a.address.as_str()))),
            allocatable: parsed(status.and_then(|s| s.allocatable.as_ref())),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            annotations: node.metadata.annotations.clone().unwrap_or_default(),
            taints: node.spec.as_ref().and_then(|s| s.taints.clone()).unwrap_or_default(),
            supplemental_groups_policy: groups_policy(status.and_then(|s| s.features.as_ref())),
            ..NodeView::default()
        };
        if latest.json.is_none() {
            self.publish(&latest, None);
        }
    }

    /// Older versions than the one that is known are ignored; so is what is not a Node.
    pub(crate) fn learn(&self, json: &Bytes, source: Source) -> Result<(), serde_json::Error> {
        let slim: Slim = serde_json::from_slice(json)?;
        let version = slim.metadata.resource_version.parse().unwrap_or_default();
        let mut latest = self.latest();
        latest.watched |= source == Source::Watch;
        if latest.json.is_some() && version < latest.version {
            return Ok(());
        }
        latest.version = version;
        latest.json = Some(json.clone());
        self.publish(&latest, Some(slim));
        Ok(())
    }

    /// There is no Node. The watch is believed only about a Node that it has shown.
    pub(crate) fn forget(&self, source: Source) {
        let mut latest = self.latest();
        if latest.json.is_some() && (source == Source::Answer || latest.watched) {
            latest.json = None;
            latest.watched = false;
            self.publish(&latest, None);
        }
    }

    /// Nothing more to wait for.
    pub(crate) fn set_synced(&self) {
        self.latest().synced = true;
        self.view.send_if_modified(|view| {
            let first = !view.synced;
            if first {
                *view = Arc::new(NodeView { synced: true, ..NodeView::clone(view) });
            }
            first
        });
    }

    fn latest(&self) -> MutexGuard<'_, Latest> {
        // Nothing panics while it holds the lock with the value half changed.
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, latest: &Latest, slim: Option<Slim>) {
        let view = slim.map_or_else(|| latest.fallback.clone(), NodeView::from);
        let view = NodeView { synced: latest.synced, ..view };
        self.view.send_if_modified(|old| {
            let differs = **old != view;
            if differs {
                *old = Arc::new(view);
            }
            differs
        });
    }
}

#[derive(Deserialize)]
struct Slim {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    uid: Option<String>,
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    deletion_timestamp: Option<serde::de::IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(rename = "podCIDR")]
    pod_cidr: String,
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Vec<String>,
    unschedulable: bool,
    taints: Vec<api::Taint>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    addresses: Vec<api::NodeAddress>,
    allocatable: BTreeMap<String, ApiQuantity>,
    features: Option<api::NodeFeatures>,
    #[serde(rename = "volumesAttached")]
    volumes_attached: Option<Vec<api::AttachedVolume>>,
    #[serde(rename = "volumesInUse")]
    volumes_in_use: Option<BTreeSet<String>>,
}

impl From<Slim> for NodeView {
    fn from(node: Slim) -> Self {
        let cidrs = node.spec.pod_cidrs;
        Self {
            uid: node.metadata.uid,
            host_ips: internal(node.status.addresses.iter().map(|a| (a.type_.as_str(), a.address.as_str()))),
            addresses: node.status.addresses,
            allocatable: parsed(Some(&node.status.allocatable)),
            pod_cidrs: if cidrs.is_empty() && !node.spec.pod_cidr.is_empty() {
                vec![node.spec.pod_cidr]
            } else {
                cidrs
            },
            volumes_attached: node
                .status
                .volumes_attached
                .into_iter()
                .flatten()
                .map(|volume| (volume.name, volume.device_path))
                .collect(),
            volumes_in_use: node.status.volumes_in_use.unwrap_or_default(),
            labels: node.metadata.labels,
            annotations: node.metadata.annotations,
            unschedulable: node.spec.unschedulable,
            taints: node.spec.taints,
            supplemental_groups_policy: groups_policy(node.status.features.as_ref()),
            deleting: node.metadata.deletion_timestamp.is_some(),
            synced: false,
        }
    }
}

fn groups_policy(features: Option<&api::NodeFeatures>) -> bool {
    features.and_then(|f| f.supplemental_groups_policy).unwrap_or(false)
}

/// Internal addresses before external ones, as upstream picks a host's addresses.
fn internal<'a>(addresses: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> Vec<IpAddr> {
    let of = |wanted: &'static str| {
        addresses
            .clone()
            .filter(move |(type_, _)| *type_ == wanted)
            .filter_map(|(_, address)| address.parse().ok())
    };
    of("InternalIP").chain(of("ExternalIP")).collect()
}
