//! What decisions about the Node are made from.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crablet_model::api;
use crablet_model::quantity::Quantity;
use crablet_model::runtime::RuntimeHandler;
use jiff::Timestamp;

/// Named as the configuration names them.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    pub node_name: String,
    /// `--node-labels`; applied when the Node is created.
    pub labels: BTreeMap<String, String>,
    /// `registerWithTaints`; applied when the Node is created.
    pub taints: Vec<api::Taint>,
    /// `registerNode`
    pub register: bool,
    /// `--node-ip`: at most two, of different families; one alone may be unspecified (`0.0.0.0`, `::`).
    pub node_ips: Vec<IpAddr>,
    /// `--cloud-provider=external`
    pub cloud_external: bool,
    pub provider_id: Option<String>,
    pub port: u16,
    /// `nodeStatusUpdateFrequency`: how often the status is computed without a reason.
    pub status_update: Duration,
    /// `nodeStatusReportFrequency`: how often it is sent without a change.
    pub status_report: Duration,
    /// `nodeLeaseDurationSeconds`
    pub lease_seconds: i32,
    pub max_pods: i64,
    /// 0 for no limit.
    pub pods_per_core: i64,
    pub system_reserved: BTreeMap<String, Quantity>,
    pub kube_reserved: BTreeMap<String, Quantity>,
    /// Signals to quantities or percentages. The configuration has refused what is neither.
    pub eviction_hard: BTreeMap<String, String>,
    /// `nodeStatusMaxImages`; -1 for all.
    pub max_images: i32,
    pub controller_attach_detach: bool,
    pub local_storage_isolation: bool,
    /// With its `v`.
    pub kubelet_version: String,
    /// What of `status.declaredFeatures` is implemented.
    pub declared_features: Vec<String>,
}

/// What the machine is: looked at once at start, as upstream does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    pub machine_id: String,
    pub system_uuid: String,
    pub boot_id: String,
    pub kernel_version: String,
    pub os_image: String,
    pub cpus: u32,
    pub memory_bytes: u64,
    pub swap_bytes: u64,
    /// Size of a page in bytes, and how many there are; sizes without pages included.
    pub huge_pages: BTreeMap<u64, u64>,
}

/// The machine's place in the network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// In the kernel's order.
    pub interfaces: Vec<Interface>,
    /// In the kernel's order, IPv4 before IPv6. `None` where the kernel has no routing table to read.
    pub default_routes: Option<Vec<DefaultRoute>>,
    /// What a look-up of the node's name gave; empty when it was not needed or failed.
    pub looked_up: Vec<IpAddr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    pub up: bool,
    pub loopback: bool,
    pub point_to_point: bool,
    pub addresses: Vec<IpAddr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultRoute {
    pub interface: String,
    pub ipv6: bool,
}

/// How the container runtime fares, as far as the Node tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeState {
    /// Whether the runtime has ever said that it is ready. Until then the node is not ready either.
    pub checked: bool,
    /// `containerd://2.1.4`; `None` before the runtime has said it: then what the Node says stays.
    pub version: Option<String>,
    /// Why pods cannot run, in order: `container runtime is down`, `PLEG is not healthy: …`, `container runtime not
    /// ready: …`.
    pub errors: Vec<String>,
    /// What the network lacks: `container runtime network not ready: …`. Ignored until the runtime was checked, when it
    /// is not known.
    pub network_error: Option<String>,
    /// In any order.
    pub handlers: Vec<RuntimeHandler>,
    /// `None` when the runtime does not tell its features.
    pub supplemental_groups_policy: Option<bool>,
    /// A shutdown of the machine is under way.
    pub shutting_down: bool,
}

/// Everything that a status is made of.
#[derive(Clone, Copy, Debug)]
pub struct NodeFacts<'a> {
    pub settings: &'a NodeSettings,
    /// `None` when the machine could not be read.
    pub machine: Option<&'a Machine>,
    pub network: &'a Network,
    /// Size of the filesystem that holds the agent's root folder.
    pub root_capacity: Option<u64>,
    pub runtime: &'a RuntimeState,
    /// Why volumes cannot be had: `CSINode is not yet initialized`.
    pub storage_error: Option<&'a str>,
    /// Every image of the runtime, largest first.
    pub images: &'a [api::ContainerImage],
    /// `None` before it is known which volumes are in use: then what the Node says stays.
    pub volumes_in_use: Option<&'a [String]>,
    pub now: Timestamp,
}
