//! Where containers see volumes.

use std::collections::BTreeSet;

use super::super::error::{Problems, quoted};
use super::{one_of, paths};
use crate::api::{Container, PodSpec, VolumeMount};

pub(super) fn check(path: &str, container: &Container, spec: &PodSpec, problems: &mut Problems) {
    let privileged = container.security_context.as_ref().is_some_and(|c| c.privileged == Some(true));
    let mut seen = BTreeSet::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let path = format!("{path}.volumeMounts[{index}]");
        check_name(format!("{path}.name"), &mount.name, spec, problems);
        // Upstream takes any text, `:` too, although its documentation says otherwise.
        let at = mount.mount_path.as_str();
        if at.is_empty() {
            problems.add(format!("{path}.mountPath"), "required");
        } else if !seen.insert(at) {
            let message = format!(
                "{} is the path of an earlier mount; paths must be unique in a container",
                quoted(at)
            );
            problems.add(format!("{path}.mountPath"), message);
        }
        check_sub_path(&path, mount, problems);
        check_propagation(format!("{path}.mountPropagation"), mount, privileged, problems);
        check_recursion(format!("{path}.recursiveReadOnly"), mount, problems);
    }
}

/// Devices come from claims, which a static pod may not name; what is left to refuse is a device of another volume.
pub(super) fn check_devices(path: &str, container: &Container, spec: &PodSpec, problems: &mut Problems) {
    for (index, device) in container.volume_devices.iter().flatten().enumerate() {
        let path = format!("{path}.volumeDevices[{index}]");
        check_name(format!("{path}.name"), &device.name, spec, problems);
        let volume = spec.volumes.iter().flatten().find(|volume| volume.name == device.name);
        if volume.is_some_and(|v| v.persistent_volume_claim.is_none() && v.ephemeral.is_none()) {
            let message =
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
            problems.add(format!("{path}.name"), message);
        }
        if device.device_path.is_empty() {
            problems.add(format!("{path}.devicePath"), "required");
        }
    }
}

fn check_recursion(path: String, mount: &VolumeMount, problems: &mut Problems) {
    match mount.recursive_read_only.as_deref() {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if mount.read_only != Some(true) {
                problems.add(path.clone(), "may only be specified when readOnly is true");
            }
            if mount.mount_propagation.as_deref().is_some_and(|mode| mode != "None") {
                let message = "may only be specified when mountPropagation is None or not specified";
                problems.add(path, message);
            }
        }
        other => one_of(path, other, &["Disabled", "Enabled", "IfPossible"], problems),
    }
}

fn check_name(path: String, name: &str, spec: &PodSpec, problems: &mut Problems) {
    if name.is_empty() {
        problems.add(path, "required");
    } else if !spec.volumes.iter().flatten().any(|volume| volume.name == name) {
        problems.add(path, format!("{} is no volume of this pod; add it to `spec.volumes`", quoted(name)));
    }
}

fn check_sub_path(path: &str, mount: &VolumeMount, problems: &mut Problems) {
    let given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    if given(&mount.sub_path) && given(&mount.sub_path_expr) {
        let message = "cannot be set together with `subPath`; remove one of them";
        problems.add(format!("{path}.subPathExpr"), message);
    }
    for (field, text) in [("subPath", &mount.sub_path), ("subPathExpr", &mount.sub_path_expr)] {
        if let Some(text) = text
            && let Err(rule) = paths::inside(text)
        {
            problems.add(format!("{path}.{field}"), format!("{} {rule}", quoted(text)));
        }
    }
}

fn check_propagation(path: String, mount: &VolumeMount, privileged: bool, problems: &mut Problems) {
    let mode = mount.mount_propagation.as_deref();
    if mode == Some("Bidirectional") && !privileged {
        return problems.add(
            path,
            "`Bidirectional` is only for privileged containers; set `securityContext.privileged` or use `HostToContainer`",
        );
    }
    one_of(path, mode, &["None", "HostToContainer", "Bidirectional"], problems);
}
