//! Numbers within their bounds.

use super::Check;
use crate::go;

/// A field, the least and the most, and how upstream says so.
const BOUNDS: &[(&str, i64, i64, &str)] = &[
    ("eventBurst", 0, i64::MAX, "must not be a negative number"),
    ("eventRecordQPS", 0, i64::MAX, "must not be a negative number"),
    ("healthzPort", 0, 65535, "must be between 1 and 65535, inclusive"),
    ("imageGCHighThresholdPercent", 0, 100, "must be between 0 and 100, inclusive"),
    ("imageGCLowThresholdPercent", 0, 100, "must be between 0 and 100, inclusive"),
    ("kubeAPIBurst", 0, i64::MAX, "must not be a negative number"),
    ("kubeAPIQPS", 0, i64::MAX, "must not be a negative number"),
    ("nodeStatusMaxImages", -1, i64::MAX, "must be -1 or greater"),
    ("maxOpenFiles", 0, i64::MAX, "must not be a negative number"),
    ("maxPods", 0, i64::MAX, "must not be a negative number"),
    ("oomScoreAdj", -1000, 1000, "must be between -1000 and 1000, inclusive"),
    ("podsPerCore", 0, i64::MAX, "must not be a negative number"),
    ("port", 1, 65535, "must be between 1 and 65535, inclusive"),
    ("readOnlyPort", 0, 65535, "must be between 0 and 65535, inclusive"),
    ("registryBurst", 0, i64::MAX, "must not be a negative number"),
    ("registryPullQPS", 0, i64::MAX, "must not be a negative number"),
];

/// The same for fields that upstream names without a number.
const BARE: &[(&str, i64, &str)] = &[
    ("nodeLeaseDurationSeconds", 1, "must be greater than 0"),
    ("containerLogMaxWorkers", 1, "must be greater than or equal to 1"),
    ("containerLogMaxFiles", 2, "must be greater than 1"),
];

const SECOND: i64 = 1_000_000_000;

pub(super) fn check(check: &mut Check<'_>) {
    for (key, from, to, rule) in BOUNDS {
        let number = check.tree.int(key);
        if !(*from..=*to).contains(&number) {
            let title = check.title(key);
            check.invalid(key, format!("{title} {number} {rule}"), want(*from, *to));
        }
    }
    for (key, from, rule) in BARE {
        if check.tree.int(key) < *from {
            check.invalid(key, format!("{key} {rule}"), want(*from, i64::MAX));
        }
    }
    // Upstream names flags that it has removed.
    for (key, flag) in
        [("iptablesDropBit", "iptables-drop-bit"), ("iptablesMasqueradeBit", "iptables-masquerade-bit")]
    {
        let bit = check.tree.int(key);
        if !(0..=31).contains(&bit) {
            check.invalid(
                key,
                format!("{key} (--{flag}) {bit} must be between 0 and 31, inclusive"),
                want(0, 31),
            );
        }
    }
    parallel_pulls(check);
    periods(check);
    throttling(check);
}

fn want(from: i64, to: i64) -> String {
    match to {
        i64::MAX => format!("give a whole number, at least {from}"),
        _ => format!("give a whole number from {from} to {to}"),
    }
}

fn parallel_pulls(check: &mut Check<'_>) {
    const KEY: &str = "maxParallelImagePulls";
    if check.tree.get(KEY).is_none() {
        return;
    }
    let many = check.tree.int(KEY);
    if many < 1 {
        check.invalid(KEY, format!("{KEY} {many} must be a positive number"), want(1, i64::MAX));
    }
    if many > 1 && check.tree.is("serializeImagePulls") {
        let message = "maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls (--serialize-image-pulls) is set to false";
        check.invalid(KEY, message, "set `serializeImagePulls: false`, or leave one of the two out");
    }
}

fn periods(check: &mut Check<'_>) {
    const INTERVAL: &str = "containerLogMonitorInterval";
    if check.tree.duration(INTERVAL) < 3 * SECOND {
        let message = format!("{INTERVAL} must be a positive time duration greater than or equal to 3s");
        check.invalid(INTERVAL, message, "give at least `3s`");
    }
    const QUOTA: &str = "cpuCFSQuotaPeriod";
    let quota = check.tree.duration(QUOTA);
    let (title, text) = (check.title(QUOTA), go::format_duration(quota));
    if !check.gates.enabled("CustomCPUCFSQuotaPeriod") {
        if quota != SECOND / 10 {
            let message = format!("{title} {{{text}}} requires feature gate CustomCPUCFSQuotaPeriod");
            check.invalid(QUOTA, message, "leave it out, or switch the gate on");
        }
    } else if !(SECOND / 1000..=SECOND).contains(&quota) {
        let message = format!("{title} {{{text}}} must be between 1ms and 1sec, inclusive");
        check.invalid(QUOTA, message, "give from `1ms` to `1s`");
    }
    const SYNC: &str = "syncFrequency";
    let sync = check.tree.duration(SYNC);
    if sync <= 0 {
        let message = format!("{}: invalid sync frequency {}", check.title(SYNC), go::format_duration(sync));
        check.refuse(SYNC, message, "give a duration such as `1m0s`");
    }
}

fn throttling(check: &mut Check<'_>) {
    const KEY: &str = "memoryThrottlingFactor";
    let factor = check.tree.get(KEY).and_then(serde_json::Value::as_f64);
    if let Some(factor) = factor.filter(|factor| !(*factor > 0.0 && *factor <= 1.0)) {
        let message = format!("{KEY} {factor} must be greater than 0 and less than or equal to 1.0");
        check.invalid(KEY, message, "give a number such as `0.9`");
    }
}
