//! What a sandbox is created from.

use std::collections::BTreeSet;

use crablet_model::events::Event;
use crablet_model::names::label;
use crablet_model::resources::{DEFAULT_CPU_PERIOD, NodeRules, overhead_resources, sandbox_resources};
use crablet_model::roster::roster;
use crablet_model::runtime::{
    GroupsPolicy, IdRange, Map, NamespaceMode, NamespaceOptions, PortMapping, Protocol, SandboxConfig,
    SecurityProfile,
};
use crablet_model::sysctl::sysctl_name;
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
    /// The node's users that stand for the pod's, where it has users of its own.
    pub users: Option<IdRange>,
    /// Groups that the pod is in for its volumes' sake (see [`volume_groups`](super::volume_groups)).
    pub volume_groups: Vec<i64>,
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
        sysctls: sysctls(spec),
        namespaces: namespaces(spec, placement)?,
        privileged: roster(spec).any(|(_, container)| is_privileged(&container)),
        run_as_user: context.and_then(|c| c.run_as_user),
        run_as_group: context.and_then(|c| c.run_as_group),
        supplemental_groups: supplemental_groups(context, &placement.volume_groups),
        groups_policy: groups_policy(context)?,
        // Upstream: the sandbox's own process needs nothing that the default profile forbids, whatever the pod asks for.
        seccomp: SecurityProfile::RuntimeDefault,
        selinux: selinux(context.and_then(|c| c.se_linux_options.as_ref())),
        resources: sandbox_resources(spec, node_rules(node)),
        overhead: overhead_resources(spec, node_rules(node)),
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

pub(super) fn namespaces(
    spec: &api::PodSpec,
    placement: &Placement,
) -> Result<NamespaceOptions, ConfigError> {
    let shared =
        |on: Option<bool>| if on.unwrap_or(false) { NamespaceMode::Node } else { NamespaceMode::Pod };
    let pid = if spec.host_pid.unwrap_or(false) {
        NamespaceMode::Node
    } else if spec.share_process_namespace.unwrap_or(false) {
        NamespaceMode::Pod
    } else {
        NamespaceMode::Container
    };
    // Never the node's users for a pod that asks for its own.
    if spec.host_users == Some(false) && placement.users.is_none() {
        return Err(ConfigError::new("the pod wants users of its own, and there are none for it"));
    }
    Ok(NamespaceOptions {
        network: shared(spec.host_network),
        ipc: shared(spec.host_ipc),
        pid,
        target_id: String::new(),
        users: placement.users,
    })
}

fn sysctls(spec: &api::PodSpec) -> Map {
    let asked = spec.security_context.iter().flat_map(|context| context.sysctls.iter().flatten());
    asked.map(|sysctl| (sysctl_name(&sysctl.name), sysctl.value.clone())).collect()
}

/// The groups of a pod's sandbox: the one that owns its volumes, those that its volumes bring, those it asks for.
fn supplemental_groups(context: Option<&api::PodSecurityContext>, of_volumes: &[i64]) -> Vec<i64> {
    let Some(context) = context else { return Vec::new() };
    let asked = context.supplemental_groups.iter().flatten();
    context.fs_group.iter().chain(of_volumes).chain(asked).copied().collect()
}

pub(super) fn groups_policy(context: Option<&api::PodSecurityContext>) -> Result<GroupsPolicy, ConfigError> {
    match context.and_then(|context| context.supplemental_groups_policy.as_deref()) {
        None | Some("Merge") => Ok(GroupsPolicy::Merge),
        Some("Strict") => Ok(GroupsPolicy::Strict),
        Some(other) => Err(ConfigError(format!("unsupported supplementalGroupsPolicy: {other}"))),
    }
}

pub(super) fn is_privileged(container: &api::Container) -> bool {
    container.security_context.as_ref().and_then(|c| c.privileged).unwrap_or(false)
}

/// What the node adds to the numbers of sandboxes and containers.
pub fn node_rules(node: &NodeFacts) -> NodeRules {
    NodeRules {
        memory_capacity: node.memory_capacity,
        cpu_period: node.cpu_cfs_quota.then_some(node.cpu_period.unwrap_or(DEFAULT_CPU_PERIOD)),
        oom_group: node.oom_group,
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
