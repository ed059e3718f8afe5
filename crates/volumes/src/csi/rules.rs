//! Small rules, equal to upstream's (v1.36): which access a driver is asked for, which volumes it may have, and whether the
//! pod's group gets the files.

use crablet_protos::csi;
use crablet_protos::csi::volume_capability::access_mode::Mode;
use crablet_protos::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use k8s_openapi::api::storage::v1::CSIDriverSpec;

use super::client::Capabilities;
use super::data::Lifecycle;
use super::request::Wanted;

/// How a pod sees a volume.
pub(super) enum Kind {
    Mount { group: Option<u32> },
    Block,
}

pub(super) fn capability(volume: &Wanted, abilities: Capabilities, kind: Kind) -> csi::VolumeCapability {
    let access_type = match kind {
        Kind::Block => AccessType::Block(BlockVolume {}),
        Kind::Mount { group } => AccessType::Mount(MountVolume {
            fs_type: volume.fs_type.clone(),
            mount_flags: volume.mount_options.clone(),
            volume_mount_group: group.map(|group| group.to_string()).unwrap_or_default(),
        }),
    };
    let mode = access_mode(volume.access_modes.as_deref(), abilities.single_node_multi_writer);
    csi::VolumeCapability {
        access_type: Some(access_type),
        access_mode: Some(AccessMode { mode: mode.into() }),
    }
}

/// Of the first mode that the volume has, as upstream (v1.36).
fn access_mode(modes: Option<&[String]>, knows_single_writers: bool) -> Mode {
    let first = modes.and_then(<[_]>::first).map_or("ReadWriteOnce", String::as_str);
    match (first, knows_single_writers) {
        ("ReadWriteOnce", false) | ("ReadWriteOncePod", false) => Mode::SingleNodeWriter,
        ("ReadWriteOnce", true) => Mode::SingleNodeMultiWriter,
        ("ReadWriteOncePod", true) => Mode::SingleNodeSingleWriter,
        ("ReadOnlyMany", _) => Mode::MultiNodeReaderOnly,
        ("ReadWriteMany", _) => Mode::MultiNodeMultiWriter,
        _ => Mode::Unknown,
    }
}

pub(super) fn supports_lifecycle(volume: &Wanted, spec: Option<&CSIDriverSpec>) -> Result<(), String> {
    let (mode, driver) = (volume.lifecycle.name(), &volume.driver);
    let failed = "kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode:";
    let listed = spec.map(|spec| spec.volume_lifecycle_modes.as_deref().unwrap_or_default());
    match listed {
        None if volume.lifecycle == Lifecycle::Persistent => Ok(()),
        None => Err(format!(
            "{failed} volume mode {mode:?} not supported by driver {driver} (no CSIDriver object)"
        )),
        Some(listed) if listed.iter().any(|name| name == mode) => Ok(()),
        Some(listed) => Err(format!(
            "{failed} volume mode {mode:?} not supported by driver {driver} (only supports [{}])",
            listed.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" ")
        )),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupPolicy {
    Never,
    Always,
    OnceWithType,
}

pub(super) fn group_policy(spec: Option<&CSIDriverSpec>) -> Result<GroupPolicy, String> {
    match spec.map(|spec| spec.fs_group_policy.as_deref().unwrap_or_default()) {
        None | Some("ReadWriteOnceWithFSType") => Ok(GroupPolicy::OnceWithType),
        Some("File") => Ok(GroupPolicy::Always),
        Some("None") => Ok(GroupPolicy::Never),
        Some("") => Err("kubernetes.io/csi: mounter.SetupAt failed to check fsGroup policy: \
                         kubernetes.io/csi: expected valid fsGroupPolicy, received nil value or empty string"
            .to_owned()),
        Some(other) => Err(format!("the CSIDriver's fsGroupPolicy {other:?} is not known")),
    }
}

pub(super) fn takes_group(volume: &Wanted, group: Option<u32>, policy: GroupPolicy) -> bool {
    if group.is_none() || volume.read_only {
        return false;
    }
    match policy {
        GroupPolicy::Never => false,
        GroupPolicy::Always => true,
        GroupPolicy::OnceWithType if volume.fs_type.is_empty() => false,
        GroupPolicy::OnceWithType => match volume.lifecycle {
            Lifecycle::Ephemeral => true,
            Lifecycle::Persistent => volume
                .access_modes
                .iter()
                .flatten()
                .any(|mode| mode == "ReadWriteOnce" || mode == "ReadWriteOncePod"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_access_mode_counts() {
        let mode = |modes: &[&str], single| {
            let modes: Vec<String> = modes.iter().map(ToString::to_string).collect();
            access_mode(Some(&modes), single)
        };
        assert_eq!(access_mode(None, false), Mode::SingleNodeWriter);
        assert_eq!(mode(&["ReadWriteOnce", "ReadWriteMany"], false), Mode::SingleNodeWriter);
        assert_eq!(mode(&["ReadWriteOnce"], true), Mode::SingleNodeMultiWriter);
        assert_eq!(mode(&["ReadWriteOncePod"], false), Mode::SingleNodeWriter);
        assert_eq!(mode(&["ReadWriteOncePod"], true), Mode::SingleNodeSingleWriter);
        assert_eq!(mode(&["ReadOnlyMany"], true), Mode::MultiNodeReaderOnly);
        assert_eq!(mode(&["ReadWriteMany"], false), Mode::MultiNodeMultiWriter);
    }
}
