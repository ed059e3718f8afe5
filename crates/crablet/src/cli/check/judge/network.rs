//! The pods' network: the runtime's CNI set-up, forwarding, and the tools that network plugins call.

use super::super::facts::{Cni, Facts, Kernel, Module, Read, Sysctls};
use super::super::report::{Finding, Group, State};
use super::super::wanted::Wanted;

const GROUP: Group = Group("network");

pub fn judge(wanted: &Wanted, facts: &Facts) -> Vec<Finding> {
    let mut found = cni(wanted, facts);
    match &facts.sysctls {
        Ok(sysctls) => {
            found.push(forwarding(wanted, sysctls));
            found.push(bridges(&facts.kernel, sysctls));
            found.push(conntrack(sysctls));
        }
        Err(why) => found.push(GROUP.unread("forwarding", why)),
    }
    found.push(rules(&facts.tools));
    found
}

/// A node that joins a cluster usually gets its network from a pod, after the agent has started.
fn cni(wanted: &Wanted, facts: &Facts) -> Vec<Finding> {
    let Some(answers) = facts.runtime.as_ref().ok().and_then(|runtime| runtime.answers.as_ref()) else {
        return Vec::new();
    };
    let Ok(description) = &answers.description else {
        return Vec::new();
    };
    let condition = description.conditions.iter().find(|condition| condition.name == "NetworkReady");
    let mut found = vec![match condition {
        Some(condition) if condition.holds => GROUP.ok("NetworkReady", "true"),
        Some(condition) => {
            let state = if wanted.standalone() { State::Error } else { State::Warning };
            let seen = format!("false, {}: {}", condition.reason, condition.message);
            GROUP.finding("NetworkReady", state, seen, cni_advice(wanted, answers.cni.as_ref()))
        }
        None => GROUP.warning("NetworkReady", "not reported", "use a runtime that speaks CRI v1"),
    }];
    found.extend(answers.cni.as_ref().map(plugins));
    found
}

fn cni_advice(wanted: &Wanted, cni: Option<&Cni>) -> String {
    let folder =
        cni.map_or_else(|| "/etc/cni/net.d".to_owned(), |cni| cni.configuration_dir.display().to_string());
    let first = match cni.and_then(|cni| cni.configurations.as_deref()) {
        Some([]) => format!("put a CNI configuration into {folder}, which is empty"),
        Some([first, ..]) => format!("see what is wrong with {folder}/{first}; the runtime's log says"),
        None => format!("put a CNI configuration into {folder}"),
    };
    if wanted.standalone() {
        first
    } else {
        format!("{first}; in a cluster, its network add-on does so once the node has joined")
    }
}

fn plugins(cni: &Cni) -> Finding {
    let folder = cni.plugin_dir.display();
    match &cni.plugins {
        Some(plugins) if plugins.iter().any(|plugin| plugin == "loopback") => {
            GROUP.ok("CNI plugins", format!("{} in {folder}", plugins.len()))
        }
        Some(_) => GROUP.warning(
            "CNI plugins",
            format!("no `loopback` in {folder}"),
            "install the reference plugins (package `containernetworking-plugins`) into that folder",
        ),
        None => GROUP.warning(
            "CNI plugins",
            format!("{folder} cannot be listed"),
            "install the reference plugins (package `containernetworking-plugins`), or mend the runtime's folder",
        ),
    }
}

fn forwarding(wanted: &Wanted, sysctls: &Sysctls) -> Finding {
    let six = wanted.pod_cidr.as_deref().is_some_and(|cidr| cidr.contains(':'));
    let name = if six { "net.ipv6.conf.all.forwarding" } else { "net.ipv4.ip_forward" };
    match sysctls.get(name) {
        Some(0) => {
            let state = if wanted.standalone() { State::Warning } else { State::Error };
            let seen = format!("{name} is 0: nothing leaves the node for a pod, or comes back");
            GROUP.finding(
                "forwarding",
                state,
                seen,
                format!("`sysctl -w {name}=1`, and the same in /etc/sysctl.d"),
            )
        }
        Some(_) => GROUP.ok("forwarding", "on"),
        None => GROUP.warning("forwarding", format!("{name} cannot be read"), "run it on the node itself"),
    }
}

fn bridges(kernel: &Read<Kernel>, sysctls: &Sysctls) -> Finding {
    let fix = "`modprobe br_netfilter` and `sysctl -w net.bridge.bridge-nf-call-iptables=1`, unless the cluster's network \
               has no bridges";
    match sysctls.get("net.bridge.bridge-nf-call-iptables") {
        Some(0) => GROUP.warning(
            "bridges",
            "what crosses a bridge is not seen by iptables: services may not work",
            fix,
        ),
        Some(_) => GROUP.ok("bridges", "iptables sees what crosses them"),
        None if kernel.as_ref().is_ok_and(|kernel| kernel.br_netfilter == Module::Absent) => GROUP.warning(
            "bridges",
            "this kernel has no br_netfilter: services may not work across bridges",
            fix,
        ),
        None => {
            GROUP.warning("bridges", "br_netfilter is not loaded: services may not work across bridges", fix)
        }
    }
}

/// In use, of at most.
fn conntrack(sysctls: &Sysctls) -> Finding {
    const COUNT: &str = "net.netfilter.nf_conntrack_count";
    const MAX: &str = "net.netfilter.nf_conntrack_max";
    match (sysctls.get(COUNT), sysctls.get(MAX)) {
        (Some(count), Some(max)) if *max > 0 && *count >= max / 10 * 9 => GROUP.warning(
            "conntrack",
            format!("{count} of {max} connections: new ones will soon be dropped"),
            format!("`sysctl -w {MAX}={}`", max.saturating_mul(2)),
        ),
        (Some(count), Some(max)) => GROUP.ok("conntrack", format!("{count} of {max} connections")),
        _ => GROUP.ok("conntrack", "not loaded: it comes with the first rule that needs it"),
    }
}

fn rules(tools: &Read<Vec<String>>) -> Finding {
    let tools = match tools {
        Ok(tools) => tools,
        Err(why) => return GROUP.unread("packet rules", why),
    };
    let have: Vec<_> =
        ["iptables", "nft"].into_iter().filter(|name| tools.iter().any(|t| t == name)).collect();
    if have.is_empty() {
        GROUP.warning(
            "packet rules",
            "neither `iptables` nor `nft` is installed: host ports and services will not work",
            "install the package `iptables` or `nftables`",
        )
    } else {
        GROUP.ok("packet rules", have.join(" and "))
    }
}
