//! What a sandbox is created from.

use std::collections::BTreeSet;

use crablet_model::events::Event;
use crablet_model::names::label;
use crablet_model::resources::{DEFAULT_CPU_PERIOD, NodeRules, sandbox_resources};
use crablet_model::runtime::{
    Map, NamespaceMode, NamespaceOptions, PortMapping, Protocol, SandboxConfig, SeccompProfile,
};
use crablet_model::{PodRef, api};

use super::super::facts::NodeFacts;
use super::hosts::HostName;
use super::security::selinux;
use super::{ConfigError, dns, is_host_network, spec_of};

/// Where on the node a pod's sandbox goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The pod's own cgroup; empty where pods have none.
    pub cgroup_parent: String,
    /// The runtime's handler that the pod's runtime class names; empty for the runtime's default.
    pub runtime_handler: String,
}

/// The pod's sandbox, and what has to be told about its network settings.
pub fn sandbox_config(
    pod: &api::Pod,
    node: &NodeFacts,
    attempt: u32,
    placement: &Placement,
) -> Result<(SandboxConfig, Vec<Event>), ConfigError> {
    let id = PodRef::of(pod);
    let spec = spec_of(pod)?;
    let hostname = if is_host_network(spec) {
        String::new() // the node's own
    } else {
        HostName::of(pod, node)?.for_kernel(spec.set_hostname_as_fqdn.unwrap_or(false))?
    };
    let (dns, events) = dns::dns_config(pod, spec, node);
    let context = spec.security_context.as_ref();
    let config = SandboxConfig {
        name: id.name.to_string(),
        namespace: id.namespace.to_string(),
        uid: id.uid.clone(),
        attempt,
        hostname,
        log_directory: format!("{}/{}", node.pod_logs_dir.trim_end_matches('/'), id.log_dir_name()),
        dns,
        port_mappings: spec.containers.iter().flat_map(port_mappings).collect(),
        labels: labels(pod, &id),
        annotations: pod.metadata.annotations.clone().unwrap_or_default(),
        cgroup_parent: placement.cgroup_parent.clone(),
        runtime_handler: placement.runtime_handler.clone(),
        sysctls: Map::new(),
        namespaces: namespaces(spec),
        privileged: spec.containers.iter().any(is_privileged),
        run_as_user: context.and_then(|c| c.run_as_user),
        run_as_group: context.and_then(|c| c.run_as_group),
        supplemental_groups: supplemental_groups(spec),
        // Upstream: the sandbox's own process needs nothing that the default profile forbids, whatever the pod asks for.
        seccomp: SeccompProfile::RuntimeDefault,
        selinux: selinux(context.and_then(|c| c.se_linux_options.as_ref())),
        resources: sandbox_resources(spec, node_rules(node)),
    };
    Ok((config, events))
}

fn labels(pod: &api::Pod, id: &PodRef) -> Map {
    let mut labels = pod.metadata.labels.clone().unwrap_or_default();
    labels.extend(pod_labels(id));
    labels
}

/// The labels by which sandboxes and containers are known to belong to a pod.
pub(super) fn pod_labels(id: &PodRef) -> [(String, String); 3] {
    [(label::POD_NAME, &*id.name), (label::POD_NAMESPACE, &*id.namespace), (label::POD_UID, id.uid.as_str())]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
}

pub(super) fn namespaces(spec: &api::PodSpec) -> NamespaceOptions {
    let shared =
        |on: Option<bool>| if on.unwrap_or(false) { NamespaceMode::Node } else { NamespaceMode::Pod };
    let pid = if spec.host_pid.unwrap_or(false) {
        NamespaceMode::Node
    } else if spec.share_process_namespace.unwrap_or(false) {
        NamespaceMode::Pod
    } else {
        NamespaceMode::Container
    };
    NamespaceOptions { network: shared(spec.host_network), ipc: shared(spec.host_ipc), pid }
}

/// The groups of a pod: the one that owns its volumes, then those it asks for.
pub(super) fn supplemental_groups(spec: &api::PodSpec) -> Vec<i64> {
    let Some(context) = &spec.security_context else { return Vec::new() };
    context.fs_group.into_iter().chain(context.supplemental_groups.iter().flatten().copied()).collect()
}

pub(super) fn is_privileged(container: &api::Container) -> bool {
    container.security_context.as_ref().and_then(|c| c.privileged).unwrap_or(false)
}

pub(super) fn node_rules(node: &NodeFacts) -> NodeRules {
    NodeRules {
        memory_capacity: node.memory_capacity,
        cpu_period: node.cpu_cfs_quota.then_some(DEFAULT_CPU_PERIOD),
    }
}

/// A container's ports. As upstream, each name counts once, and so does each unnamed port.
fn port_mappings(container: &api::Container) -> Vec<PortMapping> {
    let mut seen = BTreeSet::new();
    let ports = container.ports.iter().flatten();
    ports.filter(|port| seen.insert(port_key(port))).map(port_mapping).collect()
}

fn port_key(port: &api::ContainerPort) -> String {
    if let Some(name) = port.name.as_ref().filter(|name| !name.is_empty()) {
        return name.clone();
    }
    let host_ip = port.host_ip.as_deref().unwrap_or_default();
    let family = match host_ip {
        "" => "any",
        ip if ip.contains(':') => "v6",
        _ => "v4",
    };
    let protocol = port.protocol.as_deref().unwrap_or_default();
    format!("{family}-{protocol}-{host_ip}:{}:{}", port.container_port, port.host_port.unwrap_or(0))
}

fn port_mapping(port: &api::ContainerPort) -> PortMapping {
    PortMapping {
        protocol: match port.protocol.as_deref() {
            Some("UDP") => Protocol::Udp,
            Some("SCTP") => Protocol::Sctp,
            _ => Protocol::Tcp,
        },
        container_port: port.container_port,
        host_port: port.host_port.unwrap_or(0),
        host_ip: port.host_ip.clone().unwrap_or_default(),
    }
}
