//! Ports of the host that pods occupy.

use crablet_model::api::{Container, PodSpec};

const EVERY_ADDRESS: &str = "0.0.0.0";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    pub address: Box<str>,
    pub protocol: Box<str>,
    pub port: i32,
}

/// Those of containers and sidecars; other init containers have ended when it matters.
pub fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
    let sidecars = spec.init_containers.iter().flatten().filter(sidecar);
    let ports = spec.containers.iter().chain(sidecars).flat_map(|c| c.ports.iter().flatten());
    let text = |said: Option<&String>, default: &str| -> Box<str> {
        said.map(String::as_str).filter(|s| !s.is_empty()).unwrap_or(default).into()
    };
    let host_port = |port: &crablet_model::api::ContainerPort| {
        Some(HostPort {
            address: text(port.host_ip.as_ref(), EVERY_ADDRESS),
            protocol: text(port.protocol.as_ref(), "TCP"),
            port: port.host_port.filter(|port| *port > 0)?,
        })
    };
    ports.filter_map(host_port).collect()
}

pub fn conflict<'a>(wanted: &[HostPort], mut used: impl Iterator<Item = &'a HostPort>) -> bool {
    let everywhere = |port: &HostPort| &*port.address == EVERY_ADDRESS;
    used.any(|used| {
        wanted.iter().any(|wanted| {
            wanted.port == used.port
                && wanted.protocol == used.protocol
                && (everywhere(wanted) || everywhere(used) || wanted.address == used.address)
        })
    })
}
