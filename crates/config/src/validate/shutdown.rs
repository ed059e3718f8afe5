//! How long the machine's shutdown waits.

use super::Check;
use crate::go;

const TOTAL: &str = "shutdownGracePeriod";
const CRITICAL: &str = "shutdownGracePeriodCriticalPods";
const BY_PRIORITY: &str = "shutdownGracePeriodByPodPriority";
const SECOND: i64 = 1_000_000_000;

pub(super) fn check(check: &mut Check<'_>) {
    let (total, critical) = (check.tree.duration(TOTAL), check.tree.duration(CRITICAL));
    let by_priority = !check.tree.items(BY_PRIORITY).is_empty();
    if check.gates.enabled("GracefulNodeShutdown") {
        if critical > total {
            let (critical, total) = (go::format_duration(critical), go::format_duration(total));
            let message = format!("{CRITICAL} {{{critical}}} must be <= {TOTAL} {{{total}}}");
            check.invalid(CRITICAL, message, "it is a part of the other: make it shorter");
        }
        for (key, period) in [(TOTAL, total), (CRITICAL, critical)] {
            if period < 0 || (period > 0 && period < SECOND) {
                let message = format!(
                    "{key} {{{}}} must be either zero or otherwise >= 1 sec",
                    go::format_duration(period)
                );
                check.invalid(key, message, "give at least `1s`, or `0s` for none");
            }
        }
    } else if total > 0 || critical > 0 {
        let message = "specifying shutdownGracePeriod or shutdownGracePeriodCriticalPods requires feature gate GracefulNodeShutdown";
        check.invalid(TOTAL, message, "leave them out, or switch the gate on");
    }
    if !by_priority {
        return;
    }
    if !check.gates.enabled("GracefulNodeShutdownBasedOnPodPriority") {
        let message = "Specifying shutdownGracePeriodByPodPriority requires feature gate GracefulNodeShutdownBasedOnPodPriority";
        check.invalid(BY_PRIORITY, message, "leave it out, or switch the gate on");
    } else if total > 0 || critical > 0 {
        let message =
            "Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time";
        check.invalid(BY_PRIORITY, message, "leave one of them out");
    }
}
