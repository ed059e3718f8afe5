//! Under which addresses the node is known.

use std::net::{IpAddr, Ipv4Addr};

use crablet_model::api::{Node, NodeAddress};

use super::facts::{Interface, Network, NodeSettings};

/// Tells an external cloud provider which addresses were set by hand.
pub const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// Whether [`choose`] would look at [`Network::looked_up`].
pub fn needs_lookup(settings: &NodeSettings) -> bool {
    let specified = settings.node_ips.first().is_some_and(|ip| !ip.is_unspecified());
    let left_to_the_cloud = settings.cloud_external && settings.node_ips.is_empty();
    !specified && !left_to_the_cloud && settings.node_name.parse::<IpAddr>().is_err()
}

/// Sets `status.addresses` and the annotation for cloud providers. On an error the addresses stay as they were.
pub fn set_addresses(node: &mut Node, settings: &NodeSettings, network: &Network) -> Result<(), String> {
    let specified = |at: usize| settings.node_ips.get(at).filter(|ip| !ip.is_unspecified()).copied();
    let (first, second) = (specified(0), specified(1));
    for (ip, field) in [(first, "nodeIP"), (second, "secondaryNodeIP")] {
        if let Some(ip) = ip {
            validate(ip, network).map_err(|error| format!("failed to validate {field}: {error}"))?;
        }
    }

    let annotations = node.metadata.annotations.get_or_insert_default();
    match first {
        Some(first) if settings.cloud_external => {
            let provided = second.map_or_else(|| first.to_string(), |second| format!("{first},{second}"));
            annotations.insert(PROVIDED_NODE_IP.to_owned(), provided);
        }
        _ => drop(annotations.remove(PROVIDED_NODE_IP)),
    }
    if annotations.is_empty() {
        node.metadata.annotations = None;
    }

    let addresses = node.status.get_or_insert_default().addresses.get_or_insert_default();
    let hostname = NodeAddress { type_: "Hostname".to_owned(), address: settings.node_name.clone() };
    if settings.cloud_external {
        // What the cloud provider has set is right.
        if !addresses.is_empty() {
            return Ok(());
        }
        if settings.node_ips.is_empty() {
            *addresses = vec![hostname];
            return Ok(());
        }
    }
    let internal = match (first, second) {
        (Some(first), Some(second)) => vec![first, second],
        _ => vec![one_address(first, settings, network).map_err(|error| {
            format!("can't get ip address of node {}. error: {error}", settings.node_name)
        })?],
    };
    *addresses = internal
        .into_iter()
        .map(|ip| NodeAddress { type_: "InternalIP".to_owned(), address: ip.to_string() })
        .chain([hostname])
        .collect();
    Ok(())
}

fn one_address(first: Option<IpAddr>, settings: &NodeSettings, network: &Network) -> Result<IpAddr, String> {
    if let Some(ip) = first.or_else(|| settings.node_name.parse().ok()) {
        return Ok(ip);
    }
    let prefers_v6 = settings.node_ips.first().is_some_and(IpAddr::is_ipv6);
    let valid = || network.looked_up.iter().filter(|ip| validate(**ip, network).is_ok());
    let of_dns = valid().find(|ip| ip.is_ipv6() == prefers_v6).or_else(|| valid().next());
    of_dns.map_or_else(|| of_default_route(network, prefers_v6), |ip| Ok(*ip))
}

fn of_default_route(network: &Network, prefers_v6: bool) -> Result<IpAddr, String> {
    let families = [prefers_v6, !prefers_v6];
    let Some(routes) = &network.default_routes else {
        let usable = |i: &&Interface| i.up && !i.loopback && !i.point_to_point;
        return families
            .into_iter()
            .find_map(|v6| network.interfaces.iter().filter(usable).find_map(|i| global_address(i, v6)))
            .ok_or_else(|| "no acceptable interface with global unicast address found on host".to_owned());
    };
    if routes.is_empty() {
        return Err(r#"no default routes found in "/proc/net/route" or "/proc/net/ipv6_route""#.to_owned());
    }
    let up = |i: &&Interface| i.up;
    for v6 in families {
        for route in routes.iter().filter(|route| route.ipv6 == v6) {
            let through = network.interfaces.iter().filter(up).filter(|i| i.name == route.interface);
            // Where interfaces have link-local addresses only, the machine's own one is on the loopback interface.
            let loopback = network.interfaces.iter().filter(up).filter(|i| i.loopback);
            if let Some(ip) = through.chain(loopback).find_map(|i| global_address(i, v6)) {
                return Ok(ip);
            }
        }
    }
    Err("unable to select an IP from default routes.".to_owned())
}

fn global_address(interface: &Interface, ipv6: bool) -> Option<IpAddr> {
    interface.addresses.iter().copied().find(|ip| ip.is_ipv6() == ipv6 && is_global_unicast(*ip))
}

/// As Go sees it: private addresses are global.
fn is_global_unicast(ip: IpAddr) -> bool {
    !(ip.is_unspecified()
        || ip.is_loopback()
        || ip.is_multicast()
        || is_link_local(ip)
        || ip == IpAddr::V4(Ipv4Addr::BROADCAST))
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

fn validate(ip: IpAddr, network: &Network) -> Result<(), String> {
    let problem = if ip.is_loopback() {
        "nodeIP can't be loopback address"
    } else if ip.is_multicast() {
        "nodeIP can't be a multicast address"
    } else if is_link_local(ip) {
        "nodeIP can't be a link-local unicast address"
    } else if ip.is_unspecified() {
        "nodeIP can't be an all zeros address"
    } else if network.interfaces.iter().any(|i| i.addresses.contains(&ip)) {
        return Ok(());
    } else {
        return Err(format!("node IP: {:?} not found in the host's network interfaces", ip.to_string()));
    };
    Err(problem.to_owned())
}
