//! Environment variables.

use super::super::error::{Problems, quoted};
use super::names;
use crate::api::{Container, EnvVarSource, ObjectFieldSelector, PodSpec, ResourceFieldSelector};
use crate::quantity::Quantity;

const FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// One unit of each suffix: a divisor says in which unit the value is wanted.
const BYTE_DIVISORS: [&str; 13] =
    ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

pub(super) fn check(path: &str, container: &Container, spec: &PodSpec, problems: &mut Problems) {
    for (index, env) in container.env.iter().flatten().enumerate() {
        let path = format!("{path}.env[{index}]");
        if env.name.is_empty() {
            problems.add(format!("{path}.name"), "required");
        } else if let Err(rule) = names::env_name(&env.name) {
            problems.add(format!("{path}.name"), format!("{} {rule}", quoted(&env.name)));
        }
        if let Some(source) = env.value_from.as_ref() {
            let path = format!("{path}.valueFrom");
            if env.value.as_ref().is_some_and(|value| !value.is_empty()) {
                problems.add(path.clone(), "cannot be set together with `value`; remove one of them");
            }
            check_source(&path, source, spec, problems);
        }
    }
}

fn check_source(path: &str, source: &EnvVarSource, spec: &PodSpec, problems: &mut Problems) {
    let given = [
        source.field_ref.is_some(),
        source.resource_field_ref.is_some(),
        source.config_map_key_ref.is_some(),
        source.secret_key_ref.is_some(),
        source.file_key_ref.is_some(),
    ];
    match given.iter().filter(|given| **given).count() {
        1 => {}
        0 => problems.add(path, "names no source; set `fieldRef` or `resourceFieldRef`"),
        _ => problems.add(path, "names more than one source; keep one of them"),
    }
    if let Some(field) = source.field_ref.as_ref() {
        check_field(&format!("{path}.fieldRef"), field, problems);
    }
    if let Some(resource) = source.resource_field_ref.as_ref() {
        check_resource(&format!("{path}.resourceFieldRef"), resource, spec, problems);
    }
}

fn check_field(path: &str, field: &ObjectFieldSelector, problems: &mut Problems) {
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
        None if FIELDS.contains(&field.field_path.as_str()) => {}
        _ => {
            let known = FIELDS.join(", ");
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

fn check_resource(path: &str, selector: &ResourceFieldSelector, spec: &PodSpec, problems: &mut Problems) {
    let name = selector.container_name.as_deref().unwrap_or_default();
    if !name.is_empty() && !spec.containers.iter().any(|container| container.name == name) {
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
