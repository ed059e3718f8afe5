//! Name, namespace, UID, labels and annotations.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::super::error::{Problems, key, quoted};
use super::names;
use crate::names::annotation;

const MAX_ANNOTATION_BYTES: usize = 256 << 10;

pub(super) fn check(meta: &ObjectMeta, node_name: &str, problems: &mut Problems) {
    match meta.name.as_deref().unwrap_or_default() {
        "" => problems.add("metadata.name", "required"),
        name => {
            if let Err(rule) = names::dns_subdomain(name) {
                let message = format!(
                    "{} {rule}; the node name {} was appended to it",
                    quoted(name),
                    quoted(node_name)
                );
                problems.add("metadata.name", message);
            }
        }
    }
    let texts = [
        ("metadata.namespace", meta.namespace.as_deref(), names::dns_label as fn(&str) -> names::Check),
        ("metadata.uid", meta.uid.as_deref(), names::uid),
    ];
    for (path, text, rule) in texts {
        if let Some(text) = text
            && let Err(rule) = rule(text)
        {
            problems.add(path, format!("{} {rule}", quoted(text)));
        }
    }
    labels("metadata.labels", meta.labels.iter().flatten(), problems);
    annotations(meta, problems);
    if meta.deletion_timestamp.is_some() {
        problems.add(
            "metadata.deletionTimestamp",
            "a manifest cannot delete its pod; remove the manifest instead",
        );
    }
}

pub(super) fn labels<'a>(
    path: &str,
    labels: impl Iterator<Item = (&'a String, &'a String)>,
    problems: &mut Problems,
) {
    for (name, value) in labels {
        if let Err(rule) = names::qualified(name) {
            problems.add(path, format!("key {} {rule}", quoted(name)));
        }
        if let Err(rule) = names::label_value(value) {
            problems.add(format!("{path}[{}]", key(name)), format!("{} {rule}", quoted(value)));
        }
    }
}

fn annotations(meta: &ObjectMeta, problems: &mut Problems) {
    let mut bytes = 0;
    for (name, value) in meta.annotations.iter().flatten() {
        // Annotation keys may be upper case in their DNS part, too.
        if let Err(rule) = names::qualified(&name.to_lowercase()) {
            problems.add("metadata.annotations", format!("key {} {rule}", quoted(name)));
        }
        bytes += name.len() + value.len();
    }
    if bytes > MAX_ANNOTATION_BYTES {
        problems.add(
            "metadata.annotations",
            format!("{bytes} bytes together; the limit is {MAX_ANNOTATION_BYTES}"),
        );
    }
    if meta.annotations.as_ref().is_some_and(|all| all.contains_key(annotation::CONFIG_MIRROR)) {
        let path = format!("metadata.annotations[{}]", annotation::CONFIG_MIRROR);
        problems.add(path, "this is the API server's copy of a static pod; write the pod's own manifest");
    }
}
