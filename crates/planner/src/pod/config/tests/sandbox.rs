//! Sandboxes, names and resolvers.

use std::net::IpAddr;

use crablet_model::runtime::{
    DnsConfig, NamespaceMode, NamespaceOptions, PortMapping, Protocol, SecurityProfile,
};
use serde_json::{Value, json};

use super::super::{ResolvConf, beyond_limits, hosts_file, parse_resolv_conf, sandbox_config, told_of_node};
use super::{NodeFacts, Placement, node, pod, sandbox_of, strings};

#[test]
fn a_sandbox_is_named_and_labelled_after_its_pod() {
    let (config, events) = sandbox_of(json!({"dnsPolicy": "ClusterFirst", "containers": [{"name": "c"}]}));
    assert!(events.is_empty());
    assert_eq!((config.name.as_str(), config.namespace.as_str(), config.attempt), ("web", "shop", 2));
    assert_eq!(config.hostname, "web");
    assert_eq!(config.log_directory, "/var/log/pods/shop_web_u1");
    let labels: Vec<_> = config.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let pod_labels = [
        "app=web",
        "io.kubernetes.pod.name=web",
        "io.kubernetes.pod.namespace=shop",
        "io.kubernetes.pod.uid=u1",
    ];
    assert_eq!(labels, pod_labels);
    assert_eq!(config.annotations.get("kubernetes.io/config.source").map(String::as_str), Some("file"));
    let namespaces = NamespaceOptions { pid: NamespaceMode::Container, ..NamespaceOptions::default() };
    assert_eq!(config.namespaces, namespaces);
    assert_eq!((config.privileged, config.seccomp), (false, SecurityProfile::RuntimeDefault));
    assert_eq!(config.resources.cpu_shares, 2);
}

#[test]
fn a_pod_may_share_the_nodes_namespaces() {
    let (config, _) = sandbox_of(json!({
        "hostNetwork": true, "hostIPC": true, "hostPID": true,
        "securityContext": {"runAsUser": 7, "runAsGroup": 8, "fsGroup": 9, "supplementalGroups": [10, 11]},
        "containers": [{"name": "c"}, {"name": "d", "securityContext": {"privileged": true}}],
    }));
    let node = NamespaceMode::Node;
    let all = NamespaceOptions { network: node, ipc: node, pid: node, ..NamespaceOptions::default() };
    assert_eq!(config.namespaces, all);
    assert_eq!(config.hostname, "");
    assert!(config.privileged);
    assert_eq!((config.run_as_user, config.run_as_group), (Some(7), Some(8)));
    assert_eq!(config.supplemental_groups, [9, 10, 11]);
    let (config, _) = sandbox_of(json!({"shareProcessNamespace": true, "containers": []}));
    assert_eq!(config.namespaces.pid, NamespaceMode::Pod);
}

#[test]
fn kernel_settings_overhead_and_every_container_count() {
    let (config, _) = sandbox_of(json!({
        "securityContext": {"sysctls": [
            {"name": "kernel.shm_rmid_forced", "value": "1"}, {"name": "net/ipv4/ping_group_range", "value": "0 1"},
        ]},
        "overhead": {"cpu": "250m", "memory": "64Mi"},
        "initContainers": [
            {"name": "i", "securityContext": {"privileged": true}, "resources": {"limits": {"memory": "2Gi"}}},
            {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}},
        ],
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}, "limits": {"memory": "1Gi"}}}],
    }));
    let sysctls: Vec<_> = config.sysctls.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(sysctls, ["kernel.shm_rmid_forced=1", "net.ipv4.ping_group_range=0 1"]);
    assert!(config.privileged);
    assert_eq!((config.resources.cpu_shares, config.resources.memory_limit), (1024, 2 << 30));
    let overhead = config.overhead;
    assert_eq!((overhead.cpu_shares, overhead.cpu_quota, overhead.memory_limit), (256, 25_000, 64 << 20));
}

#[test]
fn ports_are_mapped_once_per_name_or_place() {
    let (config, _) = sandbox_of(json!({"containers": [
        {"name": "c", "ports": [
            {"name": "http", "containerPort": 80, "hostPort": 8080, "protocol": "TCP"},
            {"name": "http", "containerPort": 81, "protocol": "TCP"},
            {"containerPort": 53, "protocol": "UDP"},
            {"containerPort": 53, "protocol": "UDP"},
            {"containerPort": 53, "protocol": "UDP", "hostIP": "127.0.0.1"},
            {"containerPort": 9, "protocol": "odd"},
        ]},
        {"name": "d", "ports": [{"name": "http", "containerPort": 82, "protocol": "SCTP"}]},
    ]}));
    let mapping = |protocol, container_port, host_port, host_ip: &str| PortMapping {
        protocol,
        container_port,
        host_port,
        host_ip: host_ip.to_owned(),
    };
    assert_eq!(
        config.port_mappings,
        [
            mapping(Protocol::Tcp, 80, 8080, ""),
            mapping(Protocol::Udp, 53, 0, ""),
            mapping(Protocol::Udp, 53, 0, "127.0.0.1"),
            mapping(Protocol::Tcp, 9, 0, ""),
            mapping(Protocol::Sctp, 82, 0, ""),
        ]
    );
}

#[test]
fn host_names_follow_the_pod_unless_it_says_otherwise() {
    let name = |spec: Value| {
        let mut spec = spec;
        spec["containers"] = json!([]);
        sandbox_config(&pod(spec), &node(), 0, &Placement::default())
            .map(|(c, _)| c.hostname)
            .map_err(|e| e.to_string())
    };
    assert_eq!(name(json!({"hostname": "h"})), Ok("h".to_owned()));
    assert_eq!(name(json!({"hostname": "h", "subdomain": "s"})), Ok("h".to_owned()));
    let fqdn = json!({"hostname": "h", "subdomain": "s", "setHostnameAsFQDN": true});
    assert_eq!(name(fqdn), Ok("h.s.shop.svc.cluster.local".to_owned()));
    assert_eq!(name(json!({"setHostnameAsFQDN": true})), Ok("web".to_owned()));
    assert_eq!(name(json!({"hostnameOverride": "a.b", "subdomain": "s"})), Ok("a.b".to_owned()));
    let long = format!("{}--.x", "a".repeat(61));
    assert_eq!(name(json!({"hostnameOverride": "a".repeat(70)})), Ok("a".repeat(63)));
    let mut pod = pod(json!({"containers": []}));
    pod.metadata.name = Some(long);
    let cut = sandbox_config(&pod, &node(), 0, &Placement::default()).map(|(c, _)| c.hostname);
    assert_eq!(cut, Ok("a".repeat(61)));
    let refused = name(json!({"hostname": "Not"})).expect_err("a refusal");
    assert!(
        refused.starts_with("pod Hostname \"Not\" is not a valid DNS label: a lowercase RFC 1123 label"),
        "{refused}"
    );
    let long = json!({"hostname": "a".repeat(60), "subdomain": "s", "setHostnameAsFQDN": true});
    let refused = name(long).expect_err("a refusal");
    assert!(
        refused.ends_with("is too long (64 characters is the max, 85 characters requested)"),
        "{refused}"
    );
}

#[test]
fn dns_follows_the_policy() {
    let dns = |spec: Value| {
        let mut spec = spec;
        spec["containers"] = json!([]);
        sandbox_of(spec).0.dns
    };
    let config = |servers: &[&str], searches: &[&str], options: &[&str]| DnsConfig {
        servers: strings(servers),
        searches: strings(searches),
        options: strings(options),
    };
    let cluster = config(
        &["10.96.0.10"],
        &["shop.svc.cluster.local", "svc.cluster.local", "cluster.local", "corp.test"],
        &["ndots:5"],
    );
    let host = config(&["192.0.2.53"], &["corp.test"], &["ndots:2", "rotate"]);
    for (spec, expected) in [
        (json!({"dnsPolicy": "None"}), DnsConfig::default()),
        (json!({"dnsPolicy": "Default"}), host.clone()),
        (json!({"dnsPolicy": "ClusterFirst"}), cluster.clone()),
        (json!({"dnsPolicy": "odd"}), cluster.clone()),
        (json!({"dnsPolicy": "ClusterFirst", "hostNetwork": true}), host),
        (json!({"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true}), cluster),
        (
            json!({"dnsPolicy": "Default", "dnsConfig": {
                "nameservers": ["192.0.2.53", "1.1.1.1"],
                "searches": ["more.test", "corp.test"],
                "options": [{"name": "ndots", "value": "3"}, {"name": "edns0"}],
            }}),
            config(&["192.0.2.53", "1.1.1.1"], &["corp.test", "more.test"], &["ndots:3", "rotate", "edns0"]),
        ),
    ] {
        assert_eq!(dns(spec.clone()), expected, "{spec}");
    }
}

#[test]
fn dns_that_cannot_be_had_is_told() {
    let mut node = node();
    node.cluster_dns.clear();
    let spec = json!({"dnsPolicy": "ClusterFirst", "containers": []});
    let (config, events) = sandbox_config(&pod(spec), &node, 0, &Placement::default()).expect("a sandbox");
    assert_eq!(config.dns.servers, ["192.0.2.53"]);
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].reason, "MissingClusterDNS");
    assert_eq!(
        events[0].message,
        "pod: \"web_shop(u1)\". kubelet does not have ClusterDNS IP configured and cannot create Pod using \
         \"ClusterFirst\" policy. Falling back to \"Default\" policy."
    );
    let of_node = told_of_node(&events).expect("an event of the node");
    assert_eq!((of_node.reason, of_node.kind.to_string().as_str()), ("MissingClusterDNS", "Warning"));
    assert_eq!(
        of_node.message,
        "kubelet does not have ClusterDNS IP configured and cannot create Pod using \"ClusterFirst\" policy. Falling \
         back to \"Default\" policy."
    );
    assert_eq!(told_of_node(&[]), None);
    let searches: Vec<_> = (0..40).map(|i| format!("d{i}.test")).collect();
    let (config, events) = sandbox_of(json!({"dnsPolicy": "None", "containers": [], "dnsConfig": {
        "nameservers": ["1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"], "searches": searches,
    }}));
    assert_eq!((config.dns.servers.len(), config.dns.searches.len()), (3, 32));
    assert_eq!(
        events[0],
        "Warning DNSConfigForming Nameserver limits were exceeded, some nameservers have been omitted, the applied \
         nameserver line is: 1.1.1.1 2.2.2.2 3.3.3.3"
    );
    let applied = searches[..32].join(" ");
    assert_eq!(
        events[1],
        format!(
            "Warning DNSConfigForming Search Line limits were exceeded, some search paths have been omitted, the \
             applied search line is: {applied}"
        )
    );
    let long: Vec<_> = (0..12).map(|i| format!("{i:0>200}")).chain(["x".repeat(254)]).collect();
    let (config, events) =
        sandbox_of(json!({"dnsPolicy": "None", "containers": [], "dnsConfig": {"searches": long}}));
    assert_eq!((config.dns.searches.len(), events.len()), (10, 1));
}

#[test]
fn a_resolver_file_is_read_as_upstream_reads_it() {
    let text = "# search no\n nameserver 1.1.1.1 extra\nsearch old\nnameserver fe80::1\n\
                search a.test. . b.test\noptions ndots:1 debug\noptions ndots:4\nodd line\n";
    let conf = parse_resolv_conf(text).expect("settings");
    assert_eq!(conf.servers, ["1.1.1.1", "fe80::1"]);
    assert_eq!(conf.searches, ["a.test", "b.test"]);
    assert_eq!(conf.options, ["ndots:4", "debug"]);
    let addressless = parse_resolv_conf("nameserver 1.1.1.1\nnameserver \n#nameserver\n");
    assert_eq!(addressless, Err("nameserver list is empty "));
}

#[test]
fn without_a_resolver_file_names_are_not_resolved() {
    let dns = |node_ips: &[&str], spec: Value| {
        let node_ips = node_ips.iter().map(|ip| ip.parse().expect("an address")).collect();
        let node = NodeFacts { resolv_conf: None, node_ips, ..node() };
        sandbox_config(&pod(spec), &node, 0, &Placement::default()).expect("a sandbox").0.dns
    };
    let config = |servers: &[&str], searches: &[&str]| DnsConfig {
        servers: strings(servers),
        searches: strings(searches),
        options: Vec::new(),
    };
    let host = json!({"dnsPolicy": "Default", "containers": []});
    assert_eq!(dns(&[], host.clone()), config(&["127.0.0.1"], &["."]));
    assert_eq!(dns(&["fd00::5"], host.clone()), config(&["::1"], &["."]));
    assert_eq!(dns(&["10.0.0.5", "fd00::5"], host), config(&["127.0.0.1", "::1"], &["."]));
    let more = json!({"dnsPolicy": "Default", "containers": [], "dnsConfig": {
        "nameservers": ["1.1.1.1"], "searches": ["a.test"],
    }});
    assert_eq!(dns(&[], more), config(&["127.0.0.1", "1.1.1.1"], &[".", "a.test"]));
    let cluster = dns(&[], json!({"dnsPolicy": "ClusterFirst", "containers": []}));
    assert_eq!(cluster.servers, ["10.96.0.10"]);
    assert_eq!(cluster.searches, ["shop.svc.cluster.local", "svc.cluster.local", "cluster.local"]);
    assert_eq!(dns(&[], json!({"dnsPolicy": "None", "containers": []})), DnsConfig::default());
}

#[test]
fn a_resolver_file_that_asks_for_too_much_is_told() {
    let told = |searches: Vec<String>, domain: &str| {
        beyond_limits("/r.conf", &ResolvConf { searches, ..ResolvConf::default() }, domain)
    };
    let many = |count: usize| (0..count).map(|i| format!("d{i}.test")).collect::<Vec<_>>();
    let of_domains = |limit| {
        let text = "Resolv.conf file '/r.conf' contains search line consisting of more than";
        Some(format!("{text} {limit} domains!"))
    };
    assert_eq!(told(many(32), ""), None);
    assert_eq!(told(many(33), ""), of_domains(32));
    assert_eq!(told(many(29), "cluster.local"), None);
    assert_eq!(told(many(30), "cluster.local"), of_domains(29));
    assert_eq!(
        told(vec!["x".repeat(254)], ""),
        Some(
            "Resolv.conf file \"/r.conf\" contains a search path which length is more than allowed 253 chars!"
                .to_owned()
        )
    );
    assert_eq!(
        told(vec!["x".repeat(250); 9], ""),
        Some(
            "Resolv.conf file '/r.conf' contains search line which length is more than allowed 2048 chars!"
                .to_owned()
        )
    );
}

#[test]
fn a_hosts_file_names_the_pod_and_its_aliases() {
    let ips: [IpAddr; 2] = ["10.0.0.7", "fd00::7"].map(|ip| ip.parse().expect("an address"));
    let file = |spec: Value, node_hosts| {
        hosts_file(&pod(spec), &ips, &node(), node_hosts).map_err(|e| e.to_string())
    };
    let common = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
                  fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n";
    let plain = file(json!({"containers": []}), None);
    assert_eq!(plain, Ok(format!("{common}10.0.0.7\tweb\nfd00::7\tweb\n")));
    let aliases = json!([{"ip": "1.2.3.4", "hostnames": ["a", "b"]}]);
    let named = file(json!({"containers": [], "subdomain": "s", "hostAliases": aliases}), None);
    let domain = "web.s.shop.svc.cluster.local\tweb";
    let added = "\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n";
    assert_eq!(named, Ok(format!("{common}10.0.0.7\t{domain}\nfd00::7\t{domain}\n{added}")));
    let host = json!({"containers": [], "hostNetwork": true, "hostAliases": aliases});
    let expected = format!("# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n{added}");
    assert_eq!(file(host.clone(), Some("127.0.0.1 localhost\n")), Ok(expected));
    assert!(file(host, None).is_err());
}
