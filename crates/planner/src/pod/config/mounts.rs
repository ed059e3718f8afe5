//! Which volumes a container sees, and where.

use std::collections::{BTreeMap, BTreeSet};

use crablet_model::api;
use crablet_model::paths::clean_from_root;
use crablet_model::runtime::{Device, ImageMount, Mount, Propagation};

use super::ConfigError;
use super::container::ContainerInputs;
use super::env::{self, Environment};

/// A volume that is ready on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountedVolume {
    pub host_path: String,
    /// Its kind is never written to by containers, whatever they ask for.
    pub read_only: bool,
    /// Its files are to be labelled for the container, where the node labels files.
    pub relabel: bool,
    /// `host_path` is a link to a device, for `volumeDevices`.
    pub block: bool,
    /// A group that containers are in besides their own: who made the volume has written its files for it.
    pub group: Option<i64>,
}

/// A mount that asks for a part of its volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubPath {
    /// Its place in the container's list of mounts.
    pub index: usize,
    pub volume: String,
    pub path: String,
}

/// The parts of volumes that somebody has to make ready before the container can be configured.
pub fn sub_paths(inputs: &ContainerInputs<'_>) -> Result<Vec<SubPath>, ConfigError> {
    let mounts = inputs.container.volume_mounts.as_deref().unwrap_or_default();
    if mounts.iter().all(|m| is_empty(m.sub_path.as_ref()) && is_empty(m.sub_path_expr.as_ref())) {
        return Ok(Vec::new());
    }
    let env = env::environment(inputs)?;
    let mut wanted = Vec::new();
    for (index, mount) in mounts.iter().enumerate() {
        // The runtime finds the parts of images by itself.
        if image_source(inputs.pod, &mount.name).is_some() {
            continue;
        }
        if let Some(path) = sub_path(mount, &env)? {
            wanted.push(SubPath { index, volume: mount.name.clone(), path });
        }
    }
    Ok(wanted)
}

/// The part of its volume that a mount asks for.
fn sub_path(mount: &api::VolumeMount, env: &Environment<'_>) -> Result<Option<String>, ConfigError> {
    let path = match (&mount.sub_path, &mount.sub_path_expr) {
        (_, Some(expression)) if !expression.is_empty() => env.expand_strictly(expression)?,
        (Some(path), _) if !path.is_empty() => path.clone(),
        _ => return Ok(None),
    };
    if path.starts_with('/') {
        return Err(ConfigError(format!("error SubPath `{path}` must not be an absolute path")));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(ConfigError(format!("unable to provision SubPath `{path}`: must not contain '..'")));
    }
    Ok(Some(path))
}

fn image_source<'a>(pod: &'a api::Pod, volume: &str) -> Option<&'a api::ImageVolumeSource> {
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.find(|v| v.name == volume)?.image.as_ref()
}

fn is_empty(text: Option<&String>) -> bool {
    text.is_none_or(String::is_empty)
}

pub(super) fn volume_mounts(inputs: &ContainerInputs<'_>) -> Result<Vec<Mount>, ConfigError> {
    let mounts = inputs.container.volume_mounts.as_deref().unwrap_or_default();
    mounts.iter().enumerate().map(|(index, mount)| volume_mount(inputs, index, mount)).collect()
}

fn volume_mount(
    inputs: &ContainerInputs<'_>,
    index: usize,
    mount: &api::VolumeMount,
) -> Result<Mount, ConfigError> {
    let volume = inputs.volumes.get(&mount.name).filter(|volume| !volume.block).ok_or_else(|| {
        let (volume, container) = (&mount.name, &inputs.container.name);
        ConfigError(format!("cannot find volume {volume:?} to mount into container {container:?}"))
    })?;
    let path = &mount.mount_path;
    // As upstream, a path with a root stays as it is written.
    let container_path = if path.starts_with('/') { path.clone() } else { clean_from_root(path) };
    let image = image_mount(inputs, mount)?;
    let host_path = match image {
        Some(_) => String::new(),
        None => inputs.sub_paths.get(&index).unwrap_or(&volume.host_path).clone(),
    };
    Ok(Mount {
        container_path,
        host_path,
        readonly: mount.read_only.unwrap_or(false) || volume.read_only,
        selinux_relabel: volume.relabel && inputs.node.selinux_enabled,
        propagation: match mount.mount_propagation.as_deref() {
            None | Some("" | "None") => Propagation::Private,
            Some("HostToContainer") => Propagation::HostToContainer,
            Some("Bidirectional") => Propagation::Bidirectional,
            Some(other) => return Err(ConfigError(format!("invalid MountPropagation mode: {other:?}"))),
        },
        recursive_read_only: recursive_read_only(inputs, mount)
            .map_err(|why| ConfigError(format!("failed to resolve recursive read-only mode: {why}")))?,
        image,
        users: inputs.placement.users,
    })
}

/// The image that the mount shows, where its volume is one.
fn image_mount(
    inputs: &ContainerInputs<'_>,
    mount: &api::VolumeMount,
) -> Result<Option<ImageMount>, ConfigError> {
    let Some(source) = image_source(inputs.pod, &mount.name) else { return Ok(None) };
    let image_ref = inputs
        .image_volumes
        .get(&mount.name)
        .ok_or_else(|| ConfigError(format!("the image of the volume {:?} is not on the node", mount.name)))?;
    let env = env::environment(inputs)?;
    Ok(Some(ImageMount {
        image_ref: image_ref.clone(),
        user_specified_image: source.reference.clone().unwrap_or_default(),
        sub_path: sub_path(mount, &env)?.unwrap_or_default(),
    }))
}

/// Whether mounts below are to be read-only, too.
fn recursive_read_only(inputs: &ContainerInputs<'_>, mount: &api::VolumeMount) -> Result<bool, String> {
    let name = &mount.name;
    let mode = match mount.recursive_read_only.as_deref() {
        None | Some("Disabled") => return Ok(false),
        Some(mode) => mode,
    };
    if !mount.read_only.unwrap_or(false) {
        return Err(format!("volume {name:?} requested recursive read-only mode, but it is not read-only"));
    }
    if let Some(propagation) = mount.mount_propagation.as_deref().filter(|mode| *mode != "None") {
        return Err(format!(
            "volume {name:?} requested recursive read-only mode, but it is not compatible with propagation {propagation:?}"
        ));
    }
    let wanted = &inputs.placement.runtime_handler;
    let handler = inputs.node.runtime_handlers.iter().find(|handler| handler.name == *wanted);
    match (mode, handler.is_some_and(|handler| handler.recursive_read_only_mounts)) {
        ("IfPossible" | "Enabled", true) => Ok(true),
        ("IfPossible", false) => Ok(false),
        ("Enabled", false) => Err(format!(
            "volume {name:?} requested recursive read-only mode, but it is not supported by the runtime"
        )),
        (other, _) => Err(format!("unknown recursive read-only mode {other:?}")),
    }
}

/// The block devices that the container gets as they are.
pub(super) fn devices(inputs: &ContainerInputs<'_>) -> Result<Vec<Device>, ConfigError> {
    let wanted = inputs.container.volume_devices.as_deref().unwrap_or_default();
    wanted.iter().map(|device| volume_device(inputs, device)).collect()
}

fn volume_device(inputs: &ContainerInputs<'_>, device: &api::VolumeDevice) -> Result<Device, ConfigError> {
    let path = &device.device_path;
    if !path.starts_with('/') {
        return Err(ConfigError(format!("error DevicePath `{path}` must be an absolute path")));
    }
    let volume = inputs.volumes.get(&device.name).filter(|volume| volume.block).ok_or_else(|| {
        let (volume, container) = (&device.name, &inputs.container.name);
        ConfigError(format!("cannot find volume {volume:?} to pass into container {container:?}"))
    })?;
    Ok(Device {
        container_path: path.clone(),
        host_path: volume.host_path.clone(),
        permissions: if volume.read_only { "r" } else { "mrw" }.to_owned(),
    })
}

/// The groups that the pod is in for its volumes' sake.
pub fn volume_groups(pod: &api::Pod, volumes: &BTreeMap<String, MountedVolume>) -> Vec<i64> {
    let context = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let own = context.and_then(|context| context.supplemental_groups.as_deref()).unwrap_or_default();
    let groups: BTreeSet<i64> = volumes.values().filter_map(|volume| volume.group).collect();
    groups.into_iter().filter(|group| !own.contains(group)).collect()
}
