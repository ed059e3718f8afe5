//! Taints that keep pods from running. Those that only keep pods from being placed here are the scheduler's.

use crablet_model::api::{PodSpec, Taint, Toleration};

use super::AdmissionNode;

const NO_EXECUTE: &str = "NoExecute";

/// Whether the pod bears every taint of the node that a kubelet looks at.
pub fn tolerated(spec: &PodSpec, node: &AdmissionNode) -> bool {
    let mut taints = node.taints.iter().filter(|taint| taint.effect == NO_EXECUTE);
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    taints.all(|taint| tolerations.iter().any(|t| tolerates(t, taint, node.toleration_comparisons)))
}

fn tolerates(toleration: &Toleration, taint: &Taint, comparisons: bool) -> bool {
    let any_or = |wanted: Option<&str>, actual: &str| wanted.is_none_or(|w| w.is_empty() || w == actual);
    if !any_or(toleration.effect.as_deref(), &taint.effect) || !any_or(toleration.key.as_deref(), &taint.key)
    {
        return false;
    }
    let value = toleration.value.as_deref().unwrap_or_default();
    let actual = taint.value.as_deref().unwrap_or_default();
    let numbers = || Some((number(actual)?, number(value)?)).filter(|_| comparisons);
    match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => value == actual,
        "Exists" => true,
        "Lt" => numbers().is_some_and(|(actual, limit)| actual < limit),
        "Gt" => numbers().is_some_and(|(actual, limit)| actual > limit),
        _ => false,
    }
}

/// A plain decimal number, without a plus or leading zeros.
fn number(text: &str) -> Option<i64> {
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}
