//! The pod's own fields, apart from its containers.

use std::net::IpAddr;

use super::super::Gates;
use super::super::error::{Problems, quoted};
use super::{metadata, names, one_of, resources, security};
use crate::api::{PodDNSConfig, PodSpec, Toleration};

const MAX_NAMESERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARS: usize = 2048;

pub(super) fn check(spec: &PodSpec, gates: Gates, problems: &mut Problems) {
    one_of(
        "spec.restartPolicy".into(),
        spec.restart_policy.as_deref(),
        &["Always", "OnFailure", "Never"],
        problems,
    );
    let policies = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
    one_of("spec.dnsPolicy".into(), spec.dns_policy.as_deref(), &policies, problems);
    let preemption = ["PreemptLowerPriority", "Never"];
    one_of("spec.preemptionPolicy".into(), spec.preemption_policy.as_deref(), &preemption, problems);
    one_of(
        "spec.os.name".into(),
        spec.os.as_ref().map(|os| os.name.as_str()),
        &["linux", "windows"],
        problems,
    );
    if let Some(seconds) = spec.active_deadline_seconds.filter(|s| !(1..=i64::from(i32::MAX)).contains(s)) {
        let message = format!("{seconds} is not between 1 and {}", i32::MAX);
        problems.add("spec.activeDeadlineSeconds", message);
    }
    if spec.host_pid == Some(true) && spec.share_process_namespace == Some(true) {
        problems.add(
            "spec.shareProcessNamespace",
            "cannot be `true` together with `hostPID`; remove one of them",
        );
    }
    for (index, gate) in spec.readiness_gates.iter().flatten().enumerate() {
        if let Err(rule) = names::qualified(&gate.condition_type) {
            let path = format!("spec.readinessGates[{index}].conditionType");
            problems.add(path, format!("{} {rule}", quoted(&gate.condition_type)));
        }
    }
    if spec.host_users == Some(false) {
        let shared =
            [("hostNetwork", spec.host_network), ("hostPID", spec.host_pid), ("hostIPC", spec.host_ipc)];
        for (name, _) in shared.into_iter().filter(|(_, shared)| *shared == Some(true)) {
            problems.add(format!("spec.{name}"), "forbidden when `hostUsers` is false");
        }
    }
    host_names(spec, gates, problems);
    dns(spec, gates, problems);
    metadata::labels("spec.nodeSelector", spec.node_selector.iter().flatten(), problems);
    for (index, toleration) in spec.tolerations.iter().flatten().enumerate() {
        check_toleration(&format!("spec.tolerations[{index}]"), toleration, problems);
    }
    if let Some(context) = spec.security_context.as_ref() {
        security::check_pod("spec.securityContext", context, gates, problems);
    }
    if let Some(class) = spec.runtime_class_name.as_deref()
        && let Err(rule) = names::dns_subdomain(class)
    {
        problems.add("spec.runtimeClassName", format!("{} {rule}", quoted(class)));
    }
    resources::check_pod(spec, problems);
    resources::check_overhead(spec, problems);
}

fn host_names(spec: &PodSpec, gates: Gates, problems: &mut Problems) {
    for (path, name) in [("spec.hostname", &spec.hostname), ("spec.subdomain", &spec.subdomain)] {
        if let Some(name) = name.as_deref().filter(|name| !name.is_empty())
            && let Err(rule) = names::dns_label(name)
        {
            problems.add(path, format!("{} {rule}", quoted(name)));
        }
    }
    if let Some(name) = spec.hostname_override.as_deref() {
        check_hostname_override(name, spec, problems);
    }
    for (index, alias) in spec.host_aliases.iter().flatten().enumerate() {
        let path = format!("spec.hostAliases[{index}]");
        ip(format!("{path}.ip"), &alias.ip, gates, problems);
        for (index, name) in alias.hostnames.iter().flatten().enumerate() {
            if let Err(rule) = names::dns_subdomain(name) {
                problems.add(format!("{path}.hostnames[{index}]"), format!("{} {rule}", quoted(name)));
            }
        }
    }
}

fn check_hostname_override(name: &str, spec: &PodSpec, problems: &mut Problems) {
    const MAX: usize = 64;
    let path = "spec.hostnameOverride";
    if spec.set_hostname_as_fqdn == Some(true) {
        problems.add(path, "may not be specified when setHostnameAsFQDN is true");
    }
    if spec.host_network == Some(true) {
        problems.add(path, "may not be specified when hostNetwork is true");
    }
    if name.len() > MAX {
        problems.add(path, format!("{} characters; the limit is {MAX}", name.len()));
    } else if let Err(rule) = names::dns_subdomain(name) {
        problems.add(path, format!("{} {rule}", quoted(name)));
    }
}

/// Upstream refuses addresses that programs read in more than one way, unless a gate is off.
fn ip(path: String, text: &str, gates: Gates, problems: &mut Problems) {
    let rule = match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(v6)) if v6.to_ipv4_mapped().is_some() && !gates.any_address => {
            "must not be an IPv4-mapped IPv6 address"
        }
        Ok(_) => return,
        Err(_) if without_leading_zeros(text).parse::<IpAddr>().is_err() => "is not an IP address",
        Err(_) if gates.any_address => return,
        Err(_) => "must not have leading 0s",
    };
    problems.add(path, format!("{} {rule}", quoted(text)));
}

/// `010.0.0.1` as `10.0.0.1`, also at the end of an IPv6 address.
fn without_leading_zeros(text: &str) -> String {
    let short = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    let group = |group: &str| group.split('.').map(short).collect::<Vec<_>>().join(".");
    text.split(':').map(group).collect::<Vec<_>>().join(":")
}

fn dns(spec: &PodSpec, gates: Gates, problems: &mut Problems) {
    let nameservers = spec.dns_config.as_ref().and_then(|config| config.nameservers.as_ref());
    if spec.dns_policy.as_deref() == Some("None") && nameservers.is_none_or(|servers| servers.is_empty()) {
        problems.add("spec.dnsConfig.nameservers", "at least one is required with dnsPolicy `None`");
    }
    if let Some(config) = spec.dns_config.as_ref() {
        dns_config(config, gates, problems);
    }
}

fn dns_config(config: &PodDNSConfig, gates: Gates, problems: &mut Problems) {
    let nameservers = config.nameservers.as_deref().unwrap_or_default();
    if nameservers.len() > MAX_NAMESERVERS {
        let message = format!("{} nameservers; the limit is {MAX_NAMESERVERS}", nameservers.len());
        problems.add("spec.dnsConfig.nameservers", message);
    }
    for (index, server) in nameservers.iter().enumerate() {
        ip(format!("spec.dnsConfig.nameservers[{index}]"), server, gates, problems);
    }
    let searches = config.searches.as_deref().unwrap_or_default();
    if searches.len() > MAX_SEARCHES {
        problems.add(
            "spec.dnsConfig.searches",
            format!("{} entries; the limit is {MAX_SEARCHES}", searches.len()),
        );
    }
    // They end up on one line, with blanks between them.
    let chars = searches.iter().map(|search| search.len() + 1).sum::<usize>().saturating_sub(1);
    if chars > MAX_SEARCH_CHARS {
        problems
            .add("spec.dnsConfig.searches", format!("{chars} characters; the limit is {MAX_SEARCH_CHARS}"));
    }
    for (index, search) in searches.iter().enumerate() {
        if let Err(rule) = names::dns_search(search) {
            problems.add(format!("spec.dnsConfig.searches[{index}]"), format!("{} {rule}", quoted(search)));
        }
    }
    for (index, option) in config.options.iter().flatten().enumerate() {
        if option.name.as_deref().unwrap_or_default().is_empty() {
            problems.add(format!("spec.dnsConfig.options[{index}].name"), "required");
        }
    }
}

fn check_toleration(path: &str, toleration: &Toleration, problems: &mut Problems) {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (key, operator, effect) =
        (text(&toleration.key), text(&toleration.operator), text(&toleration.effect));
    one_of(format!("{path}.operator"), Some(&operator), &["", "Exists", "Equal"], problems);
    one_of(
        format!("{path}.effect"),
        Some(&effect),
        &["", "NoSchedule", "PreferNoSchedule", "NoExecute"],
        problems,
    );
    if key.is_empty() {
        if operator != "Exists" {
            problems.add(format!("{path}.operator"), "must be `Exists` when there is no key");
        }
    } else if let Err(rule) = names::qualified(&key) {
        problems.add(format!("{path}.key"), format!("{} {rule}", quoted(&key)));
    }
    if operator == "Exists" && !text(&toleration.value).is_empty() {
        problems.add(format!("{path}.value"), "must be empty with operator `Exists`");
    }
    if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
        problems.add(format!("{path}.effect"), "must be `NoExecute` when `tolerationSeconds` is set");
    }
}
