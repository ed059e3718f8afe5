//! Thresholds of eviction. Upstream finds these when its eviction manager starts.

use crablet_model::quantity::Quantity;

use super::Check;
use crate::go;

const SIGNALS: [&str; 9] = [
    "memory.available",
    "allocatableMemory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "pid.available",
];

const SOFT: &str = "evictionSoft";
const GRACE: &str = "evictionSoftGracePeriod";
const RECLAIM: &str = "evictionMinimumReclaim";

pub(super) fn check(check: &mut Check<'_>) {
    for key in ["evictionHard", SOFT, GRACE, RECLAIM] {
        each(check, key);
    }
    let tree = check.tree;
    for (signal, _) in tree.pairs(SOFT) {
        if tree.pairs(GRACE).all(|(known, _)| known != signal) {
            let message = format!("grace period must be specified for the soft eviction threshold {signal}");
            check.refuse(SOFT, message, format!("add `{signal}: 1m` to `{GRACE}`"));
        }
    }
}

fn each(check: &mut Check<'_>, key: &str) {
    let tree = check.tree;
    let title = check.title(key);
    for (signal, text) in tree.pairs(key) {
        if !SIGNALS.contains(&signal) {
            let known = crate::error::nearest(signal, SIGNALS.into_iter());
            let hint = match known {
                Some(known) => format!("did you mean `{known}`?"),
                None => format!("give one of {}", SIGNALS.join(", ")),
            };
            check.refuse(key, format!("{title}: unsupported eviction signal {signal}"), hint);
            continue;
        }
        let wrong = if key == GRACE { period(text) } else { amount(text, key == RECLAIM) };
        if let Some(why) = wrong {
            check.refuse(key, format!("{title}: {signal}: {why}"), "write it like `100Mi` or `10%`");
        }
    }
}

fn period(text: &str) -> Option<String> {
    match go::parse_duration(text) {
        Err(why) => Some(why),
        Ok(period) if period < 0 => {
            Some(format!("invalid eviction grace period specified: {text}, must be a positive value"))
        }
        Ok(_) => None,
    }
}

fn amount(text: &str, zero_allowed: bool) -> Option<String> {
    if let Some(number) = text.strip_suffix('%') {
        return match number.trim_end_matches('%').parse::<f32>() {
            Err(_) => Some(format!("{text:?} is not a percentage")),
            Ok(percent) if percent < 0.0 => {
                Some(format!("eviction percentage threshold must be >= 0%: {text}"))
            }
            Ok(percent) if percent > 100.0 && !zero_allowed => {
                Some(format!("eviction percentage threshold must be <= 100%: {text}"))
            }
            Ok(percent) if percent == 0.0 && zero_allowed => {
                Some(format!("eviction percentage minimum reclaim must be positive: {text}"))
            }
            Ok(_) => None,
        };
    }
    match Quantity::parse(text) {
        Err(error) => Some(error.to_string()),
        Ok(amount) if amount.is_negative() || (amount.is_zero() && !zero_allowed) => {
            Some(format!("eviction threshold must be positive: {text}"))
        }
        Ok(_) => None,
    }
}
