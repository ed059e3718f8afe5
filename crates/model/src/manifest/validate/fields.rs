//! What a container may be told of its pod, in its environment and in volumes.

use super::super::error::{Problems, quoted};
use super::names;
use crate::api::{ObjectFieldSelector, PodSpec, ResourceFieldSelector};
use crate::quantity::Quantity;
use crate::roster;

/// One unit of each suffix: a divisor says in which unit the value is wanted.
const BYTE_DIVISORS: [&str; 13] =
    ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

/// A field of the pod: one of those that are known, or a key of its labels or annotations.
pub(super) fn check_field(path: &str, field: &ObjectFieldSelector, known: &[&str], problems: &mut Problems) {
    if let Some(version) = field.api_version.as_deref().filter(|version| *version != "v1") {
        problems.add(format!("{path}.apiVersion"), format!("{} is not `v1`", quoted(version)));
    }
    let path = format!("{path}.fieldPath");
    if field.field_path.is_empty() {
        return problems.add(path, "required");
    }
    match subscript(&field.field_path) {
        Some((map @ ("metadata.labels" | "metadata.annotations"), name)) => {
            let lower = if map == "metadata.annotations" { name.to_lowercase() } else { name.to_owned() };
            if let Err(rule) = names::qualified(&lower) {
                problems.add(path, format!("key {} {rule}", quoted(name)));
            }
        }
        None if known.contains(&field.field_path.as_str()) => {}
        _ => {
            let known = known.join(", ");
            let message = format!(
                "{} is not one of {known}, metadata.labels['<key>'], metadata.annotations['<key>']",
                quoted(&field.field_path)
            );
            problems.add(path, message);
        }
    }
}

/// `metadata.labels['key']` as its two parts.
fn subscript(path: &str) -> Option<(&str, &str)> {
    path.strip_suffix("']")?.split_once("['")
}

/// An amount of a container of the pod.
pub(super) fn check_resource(
    path: &str,
    selector: &ResourceFieldSelector,
    spec: &PodSpec,
    problems: &mut Problems,
) {
    let name = selector.container_name.as_deref().unwrap_or_default();
    if !name.is_empty() && roster::find(spec, name).is_none() {
        problems
            .add(format!("{path}.containerName"), format!("{} is no container of this pod", quoted(name)));
    }
    let resource =
        selector.resource.strip_prefix("limits.").or_else(|| selector.resource.strip_prefix("requests."));
    let divisors: &[&str] = match resource {
        Some("cpu") => &["1", "1m"],
        Some("memory" | "ephemeral-storage") => &BYTE_DIVISORS,
        _ if selector.resource.is_empty() => return problems.add(format!("{path}.resource"), "required"),
        _ => {
            let message = format!(
                "{} is not `limits.` or `requests.` with one of cpu, memory, ephemeral-storage",
                quoted(&selector.resource)
            );
            return problems.add(format!("{path}.resource"), message);
        }
    };
    if let Some(divisor) = selector.divisor.as_ref().filter(|divisor| !divisor.0.is_empty()) {
        let path = format!("{path}.divisor");
        match Quantity::try_from(divisor) {
            Err(error) => problems.add(path, error.to_string()),
            Ok(amount) if amount.is_zero() => {}
            Ok(amount) => {
                let known = divisors.iter().any(|known| Quantity::parse(known) == Ok(amount));
                if !known {
                    problems
                        .add(path, format!("{} is not one of {}", quoted(&divisor.0), divisors.join(", ")));
                }
            }
        }
    }
}
