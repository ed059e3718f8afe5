//! Volumes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::error::{Problems, quoted};
use super::{fields, names, network_volumes, one_of, paths};
use crate::api::{
    DownwardAPIVolumeFile, EmptyDirVolumeSource, HostPathVolumeSource, PodSpec, ProjectedVolumeSource,
    Volume, VolumeProjection,
};
use crate::quantity::Quantity;

/// A volume can follow labels and annotations as they change, so it may hold all of them.
const FIELDS: [&str; 5] =
    ["metadata.name", "metadata.namespace", "metadata.labels", "metadata.annotations", "metadata.uid"];

const HOST_PATH_TYPES: [&str; 7] =
    ["DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"];

const MAX_MODE: i32 = 0o777;

pub(super) fn check_all(spec: &PodSpec, problems: &mut Problems) {
    let mut seen = BTreeSet::new();
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        let path = format!("spec.volumes[{index}]");
        check_name(format!("{path}.name"), &volume.name, &mut seen, problems);
        check(&path, volume, spec, problems);
    }
}

fn check_name<'a>(path: String, name: &'a str, seen: &mut BTreeSet<&'a str>, problems: &mut Problems) {
    if name.is_empty() {
        problems.add(path, "required");
    } else if let Err(rule) = names::dns_label(name) {
        problems.add(path, format!("{} {rule}", quoted(name)));
    } else if !seen.insert(name) {
        problems
            .add(path, format!("{} is the name of an earlier volume; names must be unique", quoted(name)));
    }
}

fn check(path: &str, volume: &Volume, spec: &PodSpec, problems: &mut Problems) {
    let sources = sources(volume);
    if sources.len() > 1 {
        let message = format!("names more than one source ({}); keep one of them", sources.join(", "));
        return problems.add(path, message);
    }
    if let Some(source) = volume.empty_dir.as_ref() {
        check_empty_dir(&format!("{path}.emptyDir"), source, problems);
    }
    if let Some(source) = volume.host_path.as_ref() {
        check_host_path(&format!("{path}.hostPath"), source, problems);
    }
    if let Some(source) = volume.downward_api.as_ref() {
        let path = format!("{path}.downwardAPI");
        check_mode(format!("{path}.defaultMode"), source.default_mode, problems);
        for (index, file) in source.items.iter().flatten().enumerate() {
            check_file(&format!("{path}.items[{index}]"), file, spec, problems);
        }
    }
    network_volumes::check(path, volume, problems);
    if let Some(source) = volume.image.as_ref() {
        if source.reference.as_deref().unwrap_or_default().is_empty() {
            problems.add(format!("{path}.image.reference"), "required");
        }
        let policies = ["Always", "IfNotPresent", "Never"];
        one_of(format!("{path}.image.pullPolicy"), source.pull_policy.as_deref(), &policies, problems);
    }
    if let Some(source) = volume.projected.as_ref() {
        check_projected(&format!("{path}.projected"), source, spec, problems);
    }
}

/// The names of the sources that are given, of all those that Kubernetes knows.
fn sources(volume: &Volume) -> Vec<String> {
    match serde_json::to_value(volume) {
        Ok(Value::Object(fields)) => {
            fields.into_iter().map(|(name, _)| name).filter(|n| n != "name").collect()
        }
        _ => Vec::new(),
    }
}

fn check_empty_dir(path: &str, source: &EmptyDirVolumeSource, problems: &mut Problems) {
    // Upstream accepts any medium and then cannot mount it, again and again.
    let medium = source.medium.as_deref().unwrap_or_default();
    let of_size = |size: &str| Quantity::parse(size).is_ok_and(|size| !size.is_negative() && !size.is_zero());
    let known = matches!(medium, "" | "Memory" | "HugePages")
        || medium.strip_prefix("HugePages-").is_some_and(of_size);
    if !known {
        let message = format!("{} is not one of Memory, HugePages, HugePages-<size>", quoted(medium));
        problems.add(format!("{path}.medium"), message);
    }
    if let Some(limit) = source.size_limit.as_ref() {
        let path = format!("{path}.sizeLimit");
        match Quantity::try_from(limit) {
            Err(error) => problems.add(path, error.to_string()),
            Ok(amount) if amount.is_negative() => {
                problems.add(path, format!("{} is below 0", quoted(&limit.0)))
            }
            Ok(_) => {}
        }
    }
}

fn check_host_path(path: &str, source: &HostPathVolumeSource, problems: &mut Problems) {
    if source.path.is_empty() {
        problems.add(format!("{path}.path"), "required");
    } else if let Err(rule) = paths::no_way_up(&source.path) {
        problems.add(format!("{path}.path"), format!("{} {rule}", quoted(&source.path)));
    }
    let kind = source.type_.as_deref().filter(|kind| !kind.is_empty());
    one_of(format!("{path}.type"), kind, &HOST_PATH_TYPES, problems);
}

fn check_projected(path: &str, source: &ProjectedVolumeSource, spec: &PodSpec, problems: &mut Problems) {
    check_mode(format!("{path}.defaultMode"), source.default_mode, problems);
    let mut seen = BTreeSet::new();
    for (index, projection) in source.sources.iter().flatten().enumerate() {
        let path = format!("{path}.sources[{index}]");
        if count(projection) > 1 {
            problems.add(path.clone(), "names more than one source; keep one of them");
        }
        let files = projection.downward_api.iter().flat_map(|source| source.items.iter().flatten());
        for (index, file) in files.enumerate() {
            let path = format!("{path}.downwardAPI.items[{index}]");
            check_file(&path, file, spec, problems);
            if !file.path.is_empty() && !seen.insert(file.path.as_str()) {
                let message =
                    format!("{} is the path of an earlier item; paths must be unique", quoted(&file.path));
                problems.add(format!("{path}.path"), message);
            }
        }
    }
}

fn count(projection: &VolumeProjection) -> usize {
    let given = [
        projection.cluster_trust_bundle.is_some(),
        projection.config_map.is_some(),
        projection.downward_api.is_some(),
        projection.pod_certificate.is_some(),
        projection.secret.is_some(),
        projection.service_account_token.is_some(),
    ];
    given.into_iter().filter(|given| *given).count()
}

fn check_file(path: &str, file: &DownwardAPIVolumeFile, spec: &PodSpec, problems: &mut Problems) {
    if file.path.is_empty() {
        problems.add(format!("{path}.path"), "required");
    } else if let Err(rule) = paths::of_a_file(&file.path) {
        problems.add(format!("{path}.path"), format!("{} {rule}", quoted(&file.path)));
    }
    check_mode(format!("{path}.mode"), file.mode, problems);
    match (file.field_ref.as_ref(), file.resource_field_ref.as_ref()) {
        (None, None) => problems.add(path, "names no source; set `fieldRef` or `resourceFieldRef`"),
        (Some(_), Some(_)) => problems.add(path, "names more than one source; keep one of them"),
        (Some(field), None) => fields::check_field(&format!("{path}.fieldRef"), field, &FIELDS, problems),
        (None, Some(resource)) => {
            let path = format!("{path}.resourceFieldRef");
            if resource.container_name.as_deref().unwrap_or_default().is_empty() {
                problems.add(format!("{path}.containerName"), "required");
            }
            fields::check_resource(&path, resource, spec, problems);
        }
    }
}

fn check_mode(path: String, mode: Option<i32>, problems: &mut Problems) {
    if let Some(mode) = mode
        && !(0..=MAX_MODE).contains(&mode)
    {
        problems.add(path, format!("{mode} is not between 0 and {MAX_MODE} (octal 0777)"));
    }
}
