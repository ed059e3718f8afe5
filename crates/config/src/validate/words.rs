//! Texts that must be one of a few words, and paths.

use super::Check;
use crate::go;

pub(super) fn check(check: &mut Check<'_>) {
    topology(check);
    hairpin(check);
    swap(check);
    reservation_policy(check);
    managers(check);
    pod_logs(check);
    hidden_metrics(check);
    crash_loop(check);
    taints(check);
    user_namespaces(check);
    system_cgroups(check);
}

fn topology(check: &mut Check<'_>) {
    const POLICY: &str = "topologyManagerPolicy";
    let policy = check.tree.text(POLICY);
    if !["none", "best-effort", "restricted", "single-numa-node"].contains(&policy) {
        let title = check.title(POLICY);
        let message = format!(
            "{title} {policy:?} must be one of: [\"none\" \"best-effort\" \"restricted\" \"single-numa-node\"]"
        );
        check.invalid(POLICY, message, "give one of them");
    }
    const SCOPE: &str = "topologyManagerScope";
    let scope = check.tree.text(SCOPE);
    if !["container", "pod"].contains(&scope) {
        let title = check.title(SCOPE);
        let message = format!("{title} {scope:?} must be one of: \"container\", or \"pod\"");
        check.invalid(SCOPE, message, "give one of them");
    }
}

fn hairpin(check: &mut Check<'_>) {
    const KEY: &str = "hairpinMode";
    let mode = check.tree.text(KEY);
    if !["none", "hairpin-veth", "promiscuous-bridge"].contains(&mode) {
        let title = check.title(KEY);
        let message = format!(
            "option {mode:?} specified for {title}. Valid options are \"none\", \"hairpin-veth\" or \"promiscuous-bridge\""
        );
        check.invalid(KEY, message, "leave it out: it has no effect");
    }
}

fn swap(check: &mut Check<'_>) {
    const KEY: &str = "memorySwap.swapBehavior";
    let behaviour = check.tree.text(KEY);
    if !["", "NoSwap", "LimitedSwap"].contains(&behaviour) {
        let message = format!("{KEY} {behaviour:?} must be one of: \"\", \"LimitedSwap\" or \"NoSwap\"");
        check.invalid(KEY, message, "give one of them");
    }
}

fn reservation_policy(check: &mut Check<'_>) {
    const KEY: &str = "memoryReservationPolicy";
    let policy = check.tree.text(KEY);
    match policy {
        "None" => (),
        "TieredReservation" if check.gates.enabled("MemoryQoS") => (),
        "TieredReservation" => {
            let message = format!("{KEY} {policy:?} requires MemoryQoS feature gate to be enabled");
            check.invalid(KEY, message, "switch the gate `MemoryQoS` on, or leave the field out");
        }
        _ => {
            let message = format!(
                "option {policy:?} specified for {KEY}. Valid options are \"None\" or \"TieredReservation\""
            );
            check.invalid(KEY, message, "give one of them");
        }
    }
}

/// Upstream finds these when the managers start.
fn managers(check: &mut Check<'_>) {
    for (key, policies, words) in [
        ("cpuManagerPolicy", ["none", "static"], "unknown policy"),
        ("memoryManagerPolicy", ["None", "Static"], "unknown policy"),
    ] {
        let policy = check.tree.text(key);
        if !policies.contains(&policy) {
            let title = check.title(key);
            let hint = format!("give `{}` or `{}`", policies[0], policies[1]);
            check.refuse(key, format!("{title}: {words}: {policy:?}"), hint);
        }
    }
    const STRATEGY: &str = "configMapAndSecretChangeDetectionStrategy";
    let strategy = check.tree.text(STRATEGY);
    if !["Get", "Cache", "Watch"].contains(&strategy) {
        let message = format!("{STRATEGY}: unknown configmap and secret manager mode: {strategy:?}");
        check.refuse(STRATEGY, message, "give `Get`, `Cache` or `Watch`");
    }
}

fn pod_logs(check: &mut Check<'_>) {
    const KEY: &str = "podLogsDir";
    let path = check.tree.text(KEY);
    if path.is_empty() {
        check.invalid(KEY, "podLogsDir was not specified", "give a folder, such as `/var/log/pods`");
        return;
    }
    let hint = "give an absolute path without `..`, such as `/var/log/pods`";
    if !path.starts_with('/') {
        check.invalid(KEY, format!("pod logs path {path:?} must be absolute path"), hint);
    }
    if go::clean_path(path) != path {
        check.invalid(KEY, format!("pod logs path {path:?} must be normalized"), hint);
    }
    if !path.is_ascii() {
        // Upstream's own spelling.
        check.invalid(KEY, format!("pod logs path {path:?} mut contains ASCII characters only"), hint);
    } else if path.contains('\0') {
        check.refuse(KEY, format!("{KEY} is {path:?}"), hint);
    }
}

fn hidden_metrics(check: &mut Check<'_>) {
    const KEY: &str = "showHiddenMetricsForVersion";
    let version = check.tree.text(KEY);
    if !["", "1.35"].contains(&version) {
        let message = format!(
            "invalid showHiddenMetricsForVersion: showHiddenMetricsForVersion: Invalid value: {version:?}: must be omitted or have the value '1.35'; only the previous minor version is allowed"
        );
        check.refuse(KEY, message, "leave it out, or give `1.35`");
    }
}

fn crash_loop(check: &mut Check<'_>) {
    const KEY: &str = "crashLoopBackOff.maxContainerRestartPeriod";
    let said = check.tree.get(KEY).is_some();
    let millis = check.tree.duration(KEY) / 1_000_000;
    match (check.gates.enabled("KubeletCrashLoopBackOffMax"), said) {
        (false, true) => check.invalid(
            KEY,
            "FeatureGate KubeletCrashLoopBackOffMax not enabled, CrashLoopBackOff.MaxContainerRestartPeriod must not be set",
            "leave it out, or switch the gate on",
        ),
        (true, true) if !(1_000..=300_000).contains(&millis) => {
            let seconds = check.tree.duration(KEY) as f64 / 1e9;
            let message = format!(
                "CrashLoopBackOff.MaxContainerRestartPeriod (got: {seconds} seconds) must be set between 1s and 300s"
            );
            check.invalid(KEY, message, "give from `1s` to `300s`");
        }
        _ => (),
    }
}

fn taints(check: &mut Check<'_>) {
    const KEY: &str = "registerWithTaints";
    let tree = check.tree;
    for taint in tree.items(KEY) {
        let part = |name: &str| taint.get(name).and_then(serde_json::Value::as_str).unwrap_or_default();
        let (key, value, effect) = (part("key"), part("value"), part("effect"));
        let wrong_effect = !effect.is_empty() && !crate::labels::is_effect(effect);
        let why = crate::labels::key_problem(key)
            .or_else(|| crate::labels::value_problem(value))
            .or(wrong_effect.then_some("the effect must be `NoSchedule`, `PreferNoSchedule` or `NoExecute`"));
        if let Some(why) = why {
            check.refuse(KEY, format!("invalid taint: {{{key} {value} {effect} <nil>}}"), why);
        }
        if !part("timeAdded").is_empty() {
            check.invalid(KEY, "taint.TimeAdded is not nil", "leave `timeAdded` out");
        }
    }
}

fn user_namespaces(check: &mut Check<'_>) {
    const KEY: &str = "userNamespaces.idsPerPod";
    const UNIT: i64 = 65536;
    if check.tree.get(KEY).is_none() {
        return;
    }
    let ids = check.tree.int(KEY);
    let rule = match ids {
        ids if ids < UNIT => "must not be less than 65536",
        ids if ids % UNIT != 0 => "must be a multiple of 65536",
        ids if ids > i64::from(u32::MAX) => "must not be more than 4294967295",
        _ => return,
    };
    check.invalid(KEY, format!("{KEY} {rule}"), "give a multiple of 65536");
}

fn system_cgroups(check: &mut Check<'_>) {
    const KEY: &str = "systemCgroups";
    if !check.tree.text(KEY).is_empty() && check.tree.text("cgroupRoot").is_empty() {
        let (system, root) = (check.title(KEY), check.title("cgroupRoot"));
        let message = format!("{system} was specified and {root} was not specified");
        check.invalid(KEY, message, "set `cgroupRoot: /` as well");
    }
    let driver = check.tree.text("cgroupDriver");
    if !["cgroupfs", "systemd"].contains(&driver) {
        check.warnings.push(format!("cgroupDriver {driver:?} is unknown: cgroupfs is used"));
    }
    let (kubelet, reserved) = (check.tree.text("kubeletCgroups"), check.tree.text("kubeReservedCgroup"));
    if !kubelet.is_empty() && !reserved.is_empty() && !kubelet.starts_with(reserved) {
        check
            .warnings
            .push("unsupported configuration:KubeletCgroups is not within KubeReservedCgroup".to_owned());
    }
}
