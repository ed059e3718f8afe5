use serde_json::{Value, json};

use super::*;
use crate::node::addresses::{PROVIDED_NODE_IP, set_addresses};

/// What is chosen, as `type=address`, or the error.
fn chosen(world: &World, old: Value) -> (String, api::Node) {
    let mut node = node(json!({"metadata": {"name": "n1"}, "status": {"addresses": old}}));
    let error = set_addresses(&mut node, &world.settings, &world.network).err();
    let addresses = node.status.as_ref().and_then(|s| s.addresses.clone()).unwrap_or_default();
    let addresses: Vec<_> = addresses.iter().map(|a| format!("{}={}", a.type_, a.address)).collect();
    (error.unwrap_or_else(|| addresses.join(" ")), node)
}

#[test]
fn an_address_is_chosen_as_upstream_does() {
    type Change = fn(&mut World);
    let cases: &[(&str, Change, &str)] = &[
        ("default route", |_| {}, "InternalIP=10.0.0.5 Hostname=n1"),
        ("given", |w| w.settings.node_ips = ips(&["fd00::5"]), "InternalIP=fd00::5 Hostname=n1"),
        (
            "both",
            |w| w.settings.node_ips = ips(&["10.0.0.5", "fd00::5"]),
            "InternalIP=10.0.0.5 InternalIP=fd00::5 Hostname=n1",
        ),
        ("IPv6 preferred", |w| w.settings.node_ips = ips(&["::"]), "InternalIP=fd00::5 Hostname=n1"),
        (
            "IPv4 of a default route",
            |w| w.settings.node_ips = ips(&["0.0.0.0"]),
            "InternalIP=10.0.0.5 Hostname=n1",
        ),
        (
            "not ours",
            |w| w.settings.node_ips = ips(&["10.9.9.9"]),
            r#"failed to validate nodeIP: node IP: "10.9.9.9" not found in the host's network interfaces"#,
        ),
        (
            "loopback",
            |w| w.settings.node_ips = ips(&["127.0.0.1"]),
            "failed to validate nodeIP: nodeIP can't be loopback address",
        ),
        (
            "second is link-local",
            |w| w.settings.node_ips = ips(&["10.0.0.5", "fe80::5"]),
            "failed to validate secondaryNodeIP: nodeIP can't be a link-local unicast address",
        ),
        (
            "name is an address",
            |w| w.settings.node_name = "10.1.1.1".to_owned(),
            "InternalIP=10.1.1.1 Hostname=10.1.1.1",
        ),
        (
            "DNS, ours only",
            |w| w.network.looked_up = ips(&["127.0.1.1", "10.7.7.7", "fd00::5"]),
            "InternalIP=fd00::5 Hostname=n1",
        ),
        (
            "DNS, preferred family",
            |w| w.network.looked_up = ips(&["fd00::5", "10.0.0.5"]),
            "InternalIP=10.0.0.5 Hostname=n1",
        ),
        (
            "no routes",
            |w| w.network.default_routes = Some(Vec::new()),
            r#"can't get ip address of node n1. error: no default routes found in "/proc/net/route" or "/proc/net/ipv6_route""#,
        ),
        (
            "no routing table",
            |w| {
                w.network.default_routes = None;
                w.network.interfaces.insert(1, interface("ppp0", &["10.0.0.4"]));
            },
            "InternalIP=10.0.0.5 Hostname=n1",
        ),
        (
            "unnumbered interface",
            |w| {
                w.network.interfaces =
                    vec![interface("lo", &["127.0.0.1", "10.3.3.3"]), interface("eth0", &["169.254.1.1"])];
            },
            "InternalIP=10.3.3.3 Hostname=n1",
        ),
        (
            "interface is down",
            |w| w.network.interfaces[1].up = false,
            "can't get ip address of node n1. error: unable to select an IP from default routes.",
        ),
        ("cloud", |w| w.settings.cloud_external = true, "Hostname=n1"),
        (
            "cloud, default route",
            |w| {
                w.settings.cloud_external = true;
                w.settings.node_ips = ips(&["0.0.0.0"]);
            },
            "InternalIP=10.0.0.5 Hostname=n1",
        ),
    ];
    for (name, change, expected) in cases {
        let mut world = World::new();
        change(&mut world);
        assert_eq!(chosen(&world, json!([])).0, *expected, "{name}");
    }
}

#[test]
fn a_cloud_provider_keeps_its_addresses_and_is_told_ours() {
    let mut world = World::new();
    let old = json!([{"type": "ExternalIP", "address": "1.2.3.4"}]);
    world.settings.cloud_external = true;
    world.settings.node_ips = ips(&["10.0.0.5", "fd00::5"]);
    let (addresses, mut node) = chosen(&world, old);
    assert_eq!(addresses, "ExternalIP=1.2.3.4");
    assert_eq!(node.metadata.annotations.as_ref().unwrap()[PROVIDED_NODE_IP], "10.0.0.5,fd00::5");
    // No longer given: no longer said.
    world.settings.node_ips.clear();
    set_addresses(&mut node, &world.settings, &world.network).unwrap();
    assert_eq!(node.metadata.annotations, None);
}

#[test]
fn a_failure_leaves_the_addresses() {
    let mut world = World::new();
    world.network.interfaces.clear();
    let (error, node) = chosen(&world, json!([{"type": "InternalIP", "address": "10.0.0.5"}]));
    assert!(error.starts_with("can't get ip address"), "{error}");
    assert_eq!(shown(&node)["status"]["addresses"], json!([{"type": "InternalIP", "address": "10.0.0.5"}]));
}
