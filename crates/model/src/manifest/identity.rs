//! What makes a manifest this node's pod: UID, name, namespace, node.

use super::Origin;
use crate::api::{Pod, PodStatus, Toleration};
use crate::names::{annotation, phase};

pub(super) fn apply(
    pod: &mut Pod,
    uid: String,
    origin: &Origin<'_>,
    node_name: &str,
    warnings: &mut Vec<String>,
) {
    if pod.status.take().is_some_and(|status| status != PodStatus::default()) {
        warnings.push("status: ignored; a manifest says what should be, not what is".to_owned());
    }
    let meta = &mut pod.metadata;
    if let Some(name) = meta.name.as_mut().filter(|name| !name.is_empty()) {
        *name = format!("{name}-{}", node_name.to_lowercase());
    }
    if meta.namespace.as_deref().unwrap_or_default().is_empty() {
        meta.namespace = Some("default".to_owned());
    }
    meta.annotations.get_or_insert_default().insert(annotation::CONFIG_HASH.to_owned(), uid.clone());
    meta.uid = Some(uid);
    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(node_name.to_owned());
    for container in &mut spec.containers {
        // In Go it is a value, not a pointer: an empty one is there and shown as well.
        container.resources.get_or_insert_default();
    }
    if !matches!(origin, Origin::Url { .. }) {
        tolerate_no_execute(spec.tolerations.get_or_insert_default());
    }
    pod.status = Some(PodStatus { phase: Some(phase::PENDING.to_owned()), ..Default::default() });
}

/// The manifest decides whether the pod runs here, so no taint may evict it.
fn tolerate_no_execute(tolerations: &mut Vec<Toleration>) {
    let wanted = Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        ..Default::default()
    };
    let same = |toleration: &&mut Toleration| {
        let is_empty = |text: &Option<String>| text.as_deref().unwrap_or_default().is_empty();
        toleration.operator == wanted.operator
            && toleration.effect == wanted.effect
            && is_empty(&toleration.key)
            && is_empty(&toleration.value)
    };
    match tolerations.iter_mut().find(same) {
        Some(toleration) => *toleration = wanted,
        None => tolerations.push(wanted),
    }
}
