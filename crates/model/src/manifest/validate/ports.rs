//! Ports, of each container and across the pod.

use std::collections::BTreeSet;

use super::super::error::{Problems, quoted};
use super::{names, one_of};
use crate::api::{Container, ContainerPort, PodSpec};

/// Number, protocol and address of a port of the node.
type HostPort<'a> = (i32, Option<&'a str>, &'a str);

pub(super) fn check_all(spec: &PodSpec, problems: &mut Problems) {
    let host_network = spec.host_network.unwrap_or(false);
    let mut host_ports = BTreeSet::new();
    for (index, container) in spec.containers.iter().enumerate() {
        let path = format!("spec.containers[{index}]");
        check_container(&path, container, host_network, &mut host_ports, problems);
    }
    // Init containers do not run beside each other, so each has the node's ports for itself.
    for (index, container) in spec.init_containers.iter().flatten().enumerate() {
        let path = format!("spec.initContainers[{index}]");
        check_container(&path, container, host_network, &mut BTreeSet::new(), problems);
    }
}

fn check_container<'a>(
    path: &str,
    container: &'a Container,
    host_network: bool,
    host_ports: &mut BTreeSet<HostPort<'a>>,
    problems: &mut Problems,
) {
    let mut seen = BTreeSet::new();
    for (index, port) in container.ports.iter().flatten().enumerate() {
        let path = format!("{path}.ports[{index}]");
        check(&path, port, host_network, problems);
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty())
            && !seen.insert(name)
        {
            let message = format!("{} is the name of an earlier port; names must be unique", quoted(name));
            problems.add(format!("{path}.name"), message);
        }
        let host_port = port.host_port.unwrap_or(0);
        let address = (host_port, port.protocol.as_deref(), port.host_ip.as_deref().unwrap_or_default());
        if host_port != 0 && !host_ports.insert(address) {
            let message = format!("{host_port} is taken by an earlier port of this pod");
            problems.add(format!("{path}.hostPort"), message);
        }
    }
}

/// `hostIP` may be any text, as upstream has it: the runtime is the one to understand it.
fn check(path: &str, port: &ContainerPort, host_network: bool, problems: &mut Problems) {
    let in_range = |number: i32| (1..=65535).contains(&number);
    if port.container_port == 0 {
        problems.add(format!("{path}.containerPort"), "required");
    } else if !in_range(port.container_port) {
        problems.add(
            format!("{path}.containerPort"),
            format!("{} is not between 1 and 65535", port.container_port),
        );
    }
    let host_port = port.host_port.unwrap_or(0);
    if host_port != 0 && !in_range(host_port) {
        problems.add(format!("{path}.hostPort"), format!("{host_port} is not between 1 and 65535"));
    } else if host_network && host_port != port.container_port {
        let message =
            format!("{host_port} must equal `containerPort` {} with hostNetwork", port.container_port);
        problems.add(format!("{path}.hostPort"), message);
    }
    one_of(format!("{path}.protocol"), port.protocol.as_deref(), &["TCP", "UDP", "SCTP"], problems);
    if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty())
        && let Err(rule) = names::port_name(name)
    {
        problems.add(format!("{path}.name"), format!("{} {rule}", quoted(name)));
    }
}
