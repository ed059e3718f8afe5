//! Environment variables.

use super::super::error::{Problems, quoted};
use super::{fields, names, paths};
use crate::api::{Container, EnvFromSource, EnvVarSource, FileKeySelector, PodSpec};

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
    for (index, source) in container.env_from.iter().flatten().enumerate() {
        check_many(&format!("{path}.envFrom[{index}]"), source, problems);
    }
}

/// What is in the source is not looked at: as a rule, a static pod may not name one (see `references`).
fn check_many(path: &str, source: &EnvFromSource, problems: &mut Problems) {
    if let Some(prefix) = source.prefix.as_deref().filter(|prefix| !prefix.is_empty())
        && let Err(rule) = names::env_name(prefix)
    {
        problems.add(format!("{path}.prefix"), format!("{} {rule}", quoted(prefix)));
    }
    match (source.config_map_ref.is_some(), source.secret_ref.is_some()) {
        (false, false) => problems.add(path, "names no source; set `configMapRef` or `secretRef`"),
        (true, true) => problems.add(path, "names more than one source; keep one of them"),
        _ => {}
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
        fields::check_field(&format!("{path}.fieldRef"), field, &FIELDS, problems);
    }
    if let Some(resource) = source.resource_field_ref.as_ref() {
        fields::check_resource(&format!("{path}.resourceFieldRef"), resource, spec, problems);
    }
    if let Some(file) = source.file_key_ref.as_ref() {
        check_file(&format!("{path}.fileKeyRef"), file, problems);
    }
}

fn check_file(path: &str, file: &FileKeySelector, problems: &mut Problems) {
    let fields = [("key", &file.key), ("volumeName", &file.volume_name), ("path", &file.path)];
    for (field, text) in fields {
        let check = match field {
            "key" => names::env_name,
            "volumeName" => names::dns_label,
            _ => paths::no_way_up,
        };
        if text.is_empty() {
            problems.add(format!("{path}.{field}"), "required");
        } else if let Err(rule) = check(text) {
            problems.add(format!("{path}.{field}"), format!("{} {rule}", quoted(text)));
        }
    }
}
