//! Names, addresses and DNS of pods.

use super::Kind::*;
use super::*;

pub const GROUP: Group = Group { title: "Network and DNS", settings: SETTINGS };

const SETTINGS: &[Setting] = &[
    field("resolvConf", Path)
        .pointer()
        .flag("resolv-conf")
        .default("/etc/resolv.conf")
        .acts()
        .doc("What pods with the DNS policy Default resolve names by. \"\" means nothing."),
    field("clusterDNS", TextList("IP"))
        .flag("cluster-dns")
        .live()
        .doc("DNS servers for pods with the DNS policy ClusterFirst. May be repeated."),
    field("clusterDomain", Text("DOMAIN"))
        .flag("cluster-domain")
        .live()
        .doc("The domain of the cluster: pods with the DNS policy ClusterFirst search it."),
    field("podCIDR", Text("CIDR")).flag("pod-cidr").doc("Addresses for pods, without an API server."),
    field("hairpinMode", Text("MODE"))
        .flag("hairpin-mode")
        .default("promiscuous-bridge")
        .inert()
        .doc("promiscuous-bridge, hairpin-veth or none. The network is the runtime's business."),
    field("iptablesMasqueradeBit", Int32)
        .pointer()
        .default("14")
        .inert()
        .doc("From 0 to 31. Nothing uses it any more."),
    field("iptablesDropBit", Int32)
        .pointer()
        .default("15")
        .inert()
        .doc("From 0 to 31. Nothing uses it any more."),
];
