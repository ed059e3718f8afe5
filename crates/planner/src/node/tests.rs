//! A small node, and what is decided about it.

mod addresses;
mod patch;
mod reconcile;
mod resources;
mod status;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crablet_model::api;
use crablet_model::quantity::Quantity;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::facts::{DefaultRoute, Interface, Machine, Network, NodeFacts, NodeSettings, RuntimeState};

/// Everything that facts borrow.
struct World {
    settings: NodeSettings,
    machine: Option<Machine>,
    network: Network,
    root_capacity: Option<u64>,
    runtime: RuntimeState,
    storage_error: Option<String>,
    images: Vec<api::ContainerImage>,
    volumes_in_use: Option<Vec<String>>,
    now: Timestamp,
}

impl World {
    fn new() -> Self {
        Self {
            settings: settings(),
            machine: Some(Machine {
                machine_id: "m".to_owned(),
                system_uuid: "s".to_owned(),
                boot_id: "b".to_owned(),
                kernel_version: "6.12.0".to_owned(),
                os_image: "Some Linux".to_owned(),
                cpus: 4,
                memory_bytes: 8 << 30,
                swap_bytes: 0,
                huge_pages: BTreeMap::new(),
            }),
            network: Network {
                interfaces: vec![
                    interface("lo", &["127.0.0.1", "::1"]),
                    interface("eth0", &["10.0.0.5", "fe80::5", "fd00::5"]),
                ],
                default_routes: Some(vec![route("eth0", false), route("eth0", true)]),
                looked_up: Vec::new(),
            },
            root_capacity: Some(100 << 30),
            runtime: RuntimeState {
                checked: true,
                version: Some("containerd://2.1.4".to_owned()),
                ..RuntimeState::default()
            },
            storage_error: None,
            images: Vec::new(),
            volumes_in_use: None,
            now: "2026-11-15T10:00:00.5Z".parse().unwrap(),
        }
    }

    fn facts(&self) -> NodeFacts<'_> {
        NodeFacts {
            settings: &self.settings,
            machine: self.machine.as_ref(),
            network: &self.network,
            root_capacity: self.root_capacity,
            runtime: &self.runtime,
            storage_error: self.storage_error.as_deref(),
            images: &self.images,
            volumes_in_use: self.volumes_in_use.as_deref(),
            now: self.now,
        }
    }
}

fn settings() -> NodeSettings {
    NodeSettings {
        node_name: "n1".to_owned(),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        register: true,
        node_ips: Vec::new(),
        cloud_external: false,
        provider_id: None,
        port: 10250,
        status_update: Duration::from_secs(10),
        status_report: Duration::from_secs(300),
        lease_seconds: 40,
        max_pods: 110,
        pods_per_core: 0,
        system_reserved: BTreeMap::new(),
        kube_reserved: BTreeMap::new(),
        eviction_hard: BTreeMap::new(),
        max_images: 50,
        controller_attach_detach: true,
        local_storage_isolation: true,
        kubelet_version: "v1.36.4".to_owned(),
        declared_features: Vec::new(),
    }
}

fn interface(name: &str, addresses: &[&str]) -> Interface {
    Interface {
        name: name.to_owned(),
        up: true,
        loopback: name == "lo",
        point_to_point: name.starts_with("ppp"),
        addresses: ips(addresses),
    }
}

fn route(interface: &str, ipv6: bool) -> DefaultRoute {
    DefaultRoute { interface: interface.to_owned(), ipv6 }
}

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn quantities(pairs: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
    pairs.iter().map(|(name, amount)| ((*name).to_owned(), Quantity::parse(amount).unwrap())).collect()
}

fn node(json: Value) -> api::Node {
    serde_json::from_value(json).unwrap()
}

fn shown(node: &api::Node) -> Value {
    let mut value = serde_json::to_value(node).unwrap();
    for field in ["apiVersion", "kind"] {
        value.as_object_mut().unwrap().remove(field);
    }
    value
}

/// The status of a node that has had its first patch.
fn settled(world: &World) -> api::Node {
    let mut node = node(json!({"metadata": {"name": "n1", "uid": "u1"}}));
    super::set_status(&mut node, &world.facts());
    node
}
