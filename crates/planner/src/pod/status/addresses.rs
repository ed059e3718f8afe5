//! The addresses of a pod and of its node.

use std::net::IpAddr;

use crablet_model::api;
use crablet_model::runtime::SandboxState;

use super::super::facts::Facts;

/// The node's addresses. An agent that has just started and does not know them yet leaves those that were told.
pub(super) fn of_host(facts: &Facts<'_>, old: Option<&api::PodStatus>) -> Vec<String> {
    match facts.node.host_ips.is_empty() {
        true => old.and_then(|s| s.host_ips.as_ref()).into_iter().flatten().map(|h| h.ip.clone()).collect(),
        false => texts(&facts.node.host_ips),
    }
}

/// The newest ready sandbox knows the addresses. A pod without one keeps those it had, so that a finished pod can still
/// be told apart by them.
pub(super) fn of_pod(facts: &Facts<'_>, pod: &api::Pod, old: Option<&api::PodStatus>) -> Vec<String> {
    let host_network = pod.spec.as_ref().and_then(|s| s.host_network).unwrap_or(false);
    let found = if host_network {
        Some(facts.node.host_ips.as_slice()).filter(|ips| !ips.is_empty())
    } else {
        facts.runtime.sandboxes.iter().find(|s| s.state == SandboxState::Ready).map(|s| s.ips.as_slice())
    };
    match found {
        Some(ips) => texts(&one_of_each_family(ips, facts.node.host_ips.first())),
        None => old_ips(old),
    }
}

fn old_ips(old: Option<&api::PodStatus>) -> Vec<String> {
    let Some(old) = old else { return Vec::new() };
    match old.pod_ips.as_deref() {
        Some(ips) if !ips.is_empty() => ips.iter().map(|ip| ip.ip.clone()).collect(),
        _ => old.pod_ip.iter().cloned().collect(),
    }
}

/// First an address of the node's own family (IPv4 where it has none), then one of the other: never more than two.
pub(in super::super) fn one_of_each_family(ips: &[IpAddr], node: Option<&IpAddr>) -> Vec<IpAddr> {
    let primary_is_v6 = node.is_some_and(IpAddr::is_ipv6);
    let of_family = |v6: bool| ips.iter().find(move |ip| ip.is_ipv6() == v6);
    of_family(primary_is_v6).into_iter().chain(of_family(!primary_is_v6)).copied().collect()
}

fn texts(ips: &[IpAddr]) -> Vec<String> {
    ips.iter().map(IpAddr::to_string).collect()
}
