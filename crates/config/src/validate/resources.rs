//! Resources that are kept back.

use std::collections::BTreeSet;

use crablet_model::quantity::Quantity;
use serde_json::Value;

use super::Check;

pub(super) fn check(check: &mut Check<'_>) {
    for key in ["systemReserved", "kubeReserved"] {
        reserved(check, key);
    }
    reserved_memory(check);
    qos_reserved(check);
    log_size(check);
    sysctls(check);
}

/// Upstream finds these when it connects to the runtime.
fn reserved(check: &mut Check<'_>, key: &str) {
    let tree = check.tree;
    let title = check.title(key);
    for (name, amount) in tree.pairs(key) {
        if !["cpu", "memory", "ephemeral-storage", "pid"].contains(&name) {
            let message = format!("{title}: cannot reserve {name:?} resource");
            check.refuse(key, message, "give cpu, memory, ephemeral-storage or pid");
            continue;
        }
        match Quantity::parse(amount) {
            Err(error) => {
                let message =
                    format!("{title}: failed to parse quantity {amount:?} for {name:?} resource: {error}");
                check.refuse(key, message, "write it like `500m` or `1Gi`");
            }
            Ok(amount) if amount.is_negative() => {
                let message = format!("{title}: resource quantity for {name:?} cannot be negative: {amount}");
                check.refuse(key, message, "give a positive amount");
            }
            Ok(_) => (),
        }
    }
}

fn reserved_memory(check: &mut Check<'_>) {
    const KEY: &str = "reservedMemory";
    let tree = check.tree;
    let mut seen = BTreeSet::new();
    for item in tree.items(KEY) {
        let node = item.get("numaNode").and_then(Value::as_i64).unwrap_or_default();
        for (name, amount) in item.get("limits").and_then(Value::as_object).into_iter().flatten() {
            if name != "memory" && !name.starts_with("hugepages-") {
                let message = format!(
                    "the limit type {name:?} for NUMA node {node} is not supported, only [memory hugepages-<HugePageSize>] is accepted"
                );
                check.invalid(KEY, message, "leave it out");
            }
            if amount.as_str() == Some("0") {
                let message =
                    format!("reserved memory may not be zero for NUMA node {node} and resource {name:?}");
                check.invalid(KEY, message, "leave it out, or give an amount");
            }
            if !seen.insert((node, name)) {
                let message = format!(
                    "the reserved memory has a duplicate value for NUMA node {node} and resource {name:?}"
                );
                check.invalid(KEY, message, "name it once");
            }
        }
    }
}

fn qos_reserved(check: &mut Check<'_>) {
    const KEY: &str = "qosReserved";
    let tree = check.tree;
    if tree.pairs(KEY).next().is_some() && !check.gates.enabled("QOSReserved") {
        check.warnings.push("qosReserved has no effect without the feature gate QOSReserved".to_owned());
        return;
    }
    for (name, amount) in tree.pairs(KEY) {
        let percent = amount.strip_suffix('%').and_then(|number| number.parse::<u32>().ok());
        if name != "memory" || percent.is_none_or(|percent| percent > 100) {
            let message = format!("{}: cannot reserve {amount:?} of {name:?}", check.title(KEY));
            check.refuse(KEY, message, "write it like `memory=50%`");
        }
    }
}

fn log_size(check: &mut Check<'_>) {
    const KEY: &str = "containerLogMaxSize";
    let size = check.tree.text(KEY);
    if let Err(error) = Quantity::parse(size) {
        let message =
            format!("{}: failed to parse container log max size {size:?}: {error}", check.title(KEY));
        check.refuse(KEY, message, "write it like `10Mi`");
    }
}

/// Upstream finds these when it is nearly up.
fn sysctls(check: &mut Check<'_>) {
    const KEY: &str = "allowedUnsafeSysctls";
    /// What the kernel keeps apart for each pod: whole names, and beginnings.
    const NAMES: [&str; 1] = ["kernel.sem"];
    const BEGINNINGS: [&str; 4] = ["kernel.shm", "kernel.msg", "fs.mqueue.", "net."];
    let tree = check.tree;
    let title = check.title(KEY);
    for pattern in tree.texts(KEY) {
        let name = pattern.strip_suffix('*').unwrap_or(pattern).replace('/', ".");
        let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
        if name.is_empty() || pattern.len() > 253 || !name.chars().all(letters) {
            let message =
                format!("{title}: sysctl {pattern:?} must have at most 253 characters and be a name");
            check.refuse(KEY, message, "write it like `net.core.somaxconn` or `net.*`");
        } else if !NAMES.contains(&name.as_str()) && !BEGINNINGS.iter().any(|begin| name.starts_with(begin)) {
            let message = format!("{title}: the sysctls {name:?} are not known to be namespaced");
            check.refuse(KEY, message, "leave it out: it would change the whole machine");
        }
    }
}
