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
    // A runtime class is a handler of the runtime, most often of the same name.
    let handler = one.pod.spec.as_ref().and_then(|s| s.runtime_class_name.as_deref()).unwrap_or_default();
    let mut handlers = one.facts.node.runtime_handlers.iter();
    mount.recursive_read_only.as_deref().is_some_and(|mode| mode != DISABLED)
        && mount.mount_propagation.as_deref().is_none_or(|mode| mode == "None")
        && handlers.any(|h| h.name == handler && h.recursive_read_only_mounts)
}
