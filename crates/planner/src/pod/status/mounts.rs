//! What the status of a container says of the volumes that are mounted into it.

use crablet_model::api;

use super::containers::One;

const ENABLED: &str = "Enabled";
const DISABLED: &str = "Disabled";

pub(super) fn of(one: &One<'_>) -> Option<Vec<api::VolumeMountStatus>> {
    super::non_empty(one.spec.volume_mounts.iter().flatten().map(|mount| shown(one, mount)).collect())
}

fn shown(one: &One<'_>, mount: &api::VolumeMount) -> api::VolumeMountStatus {
    let read_only = mount.read_only.unwrap_or(false);
    let all_below = if is_recursive(one, mount) { ENABLED } else { DISABLED };
    api::VolumeMountStatus {
        mount_path: mount.mount_path.clone(),
        name: mount.name.clone(),
        // The API leaves out what is false.
        read_only: read_only.then_some(true),
        recursive_read_only: read_only.then(|| all_below.to_owned()),
        ..Default::default()
    }
}

/// Whether mounts below are read-only, too: asked for, and within the runtime's power.
fn is_recursive(one: &One<'_>, mount: &api::VolumeMount) -> bool {
    let mut handlers = one.facts.node.runtime_handlers.iter();
    mount.recursive_read_only.as_deref().is_some_and(|mode| mode != DISABLED)
        && mount.mount_propagation.as_deref().is_none_or(|mode| mode == "None")
        && match handler(one) {
            Some(name) => handlers.any(|h| h.name == name && h.recursive_read_only_mounts),
            None => was_recursive(one, mount),
        }
}

/// The handler of the runtime that the pod runs with; `None` while nobody knows what its runtime class means.
fn handler<'a>(one: &One<'a>) -> Option<&'a str> {
    let class = one.pod.spec.as_ref().and_then(|s| s.runtime_class_name.as_deref());
    match class.filter(|class| !class.is_empty()) {
        Some(_) => one.facts.session.runtime_handler.as_deref(),
        None => Some(""),
    }
}

/// As it was told last: after a restart of the agent it takes a moment until the classes are known.
fn was_recursive(one: &One<'_>, mount: &api::VolumeMount) -> bool {
    let mut told = one.old.into_iter().flat_map(|old| old.volume_mounts.iter().flatten());
    let told = told.find(|told| told.mount_path == mount.mount_path);
    told.is_some_and(|told| told.recursive_read_only.as_deref() == Some(ENABLED))
}
