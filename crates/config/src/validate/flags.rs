//! Flags that belong to no field.

use std::net::IpAddr;

use super::Check;
use crate::{labels, value};

pub(super) fn check(check: &mut Check<'_>) {
    for key in ["--root-dir", "--container-logs-dir", "--cert-dir"] {
        let path = check.tree.text(key);
        if path.is_empty() || path.contains('\0') {
            check.refuse(key, format!("{key} is {path:?}"), "give a folder");
        }
    }
    if check.tree.is("--exit-on-lock-contention") && check.tree.text("--lock-file").is_empty() {
        let message = "cannot exit on lock file contention: no lock file specified";
        check.refuse("--exit-on-lock-contention", message, "name one with --lock-file");
    }
    let cloud = check.tree.text("--cloud-provider");
    if !["", "external"].contains(&cloud) {
        let message = format!(
            "cloud provider {cloud:?} was specified, but built-in cloud providers are disabled. Please set --cloud-provider=external and migrate to an external cloud provider"
        );
        check.refuse("--cloud-provider", message, "set --cloud-provider=external");
    }
    node_ip(check);
    node_labels(check);
}

/// The addresses that make sense, in the order in which they were said.
pub fn node_ips(text: &str) -> Vec<IpAddr> {
    text.split(',').filter_map(|part| value::ip(part.trim())).collect()
}

fn node_ip(check: &mut Check<'_>) {
    const KEY: &str = "--node-ip";
    let said = check.tree.text(KEY);
    for part in said.split(',').filter(|part| !part.is_empty() && value::ip(part.trim()).is_none()) {
        check.warnings.push(format!("Could not parse --node-ip {part:?}: it is ignored"));
    }
    let ips = node_ips(said);
    let pair = |a: &IpAddr, b: &IpAddr| a.is_ipv4() != b.is_ipv4();
    match ips.as_slice() {
        [] | [_] => (),
        [a, b] if pair(a, b) && !a.is_unspecified() && !b.is_unspecified() => (),
        [a, b] if pair(a, b) => {
            let message = "dual-stack node IP cannot include '0.0.0.0' or '::'";
            check.refuse(KEY, message, "name one address of each family, or a single one");
        }
        _ => {
            let message = format!(
                "bad --node-ip {said:?}: must contain either a single IP or a dual-stack pair of IPs"
            );
            check.refuse(KEY, message, "name one address, or one of each family");
        }
    }
}

fn node_labels(check: &mut Check<'_>) {
    const KEY: &str = "--node-labels";
    let tree = check.tree;
    let reserved: Vec<_> =
        tree.pairs(KEY).map(|(key, _)| key).filter(|key| labels::is_reserved(key)).collect();
    if !reserved.is_empty() {
        let message = format!(
            "unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [{}]",
            reserved.join(" ")
        );
        check.refuse(KEY, message, labels::allowed());
    }
    for (key, value) in tree.pairs(KEY) {
        for (text, why) in [(key, labels::key_problem(key)), (value, labels::value_problem(value))] {
            if let Some(why) = why {
                check.refuse(KEY, format!("invalid node labels: '{text}' - {why}"), "write it like `zone=a`");
            }
        }
    }
}
