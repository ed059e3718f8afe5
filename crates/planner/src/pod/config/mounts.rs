//! Which volumes a container sees, and where.

use crablet_model::api;
use crablet_model::runtime::{Mount, Propagation};

use super::ConfigError;
use super::container::ContainerInputs;
use super::env;

/// A volume that is ready on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountedVolume {
    pub host_path: String,
    /// Its kind is never written to by containers, whatever they ask for.
    pub read_only: bool,
    /// Its files are to be labelled for the container, where the node labels files.
    pub relabel: bool,
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
        let path = match (&mount.sub_path, &mount.sub_path_expr) {
            (_, Some(expression)) if !expression.is_empty() => env.expand_strictly(expression)?,
            (Some(path), _) if !path.is_empty() => path.clone(),
            _ => continue,
        };
        if path.starts_with('/') {
            return Err(ConfigError(format!("error SubPath `{path}` must not be an absolute path")));
        }
        if path.split('/').any(|part| part == "..") {
            return Err(ConfigError(format!("unable to provision SubPath `{path}`: must not contain '..'")));
        }
        wanted.push(SubPath { index, volume: mount.name.clone(), path });
    }
    Ok(wanted)
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
    let volume = inputs.volumes.get(&mount.name).ok_or_else(|| {
        let (volume, container) = (&mount.name, &inputs.container.name);
        ConfigError(format!("cannot find volume {volume:?} to mount into container {container:?}"))
    })?;
    let path = &mount.mount_path;
    Ok(Mount {
        container_path: if path.starts_with('/') { path.clone() } else { format!("/{path}") },
        host_path: inputs.sub_paths.get(&index).unwrap_or(&volume.host_path).clone(),
        readonly: mount.read_only.unwrap_or(false) || volume.read_only,
        selinux_relabel: volume.relabel && inputs.node.selinux_enabled,
        propagation: match mount.mount_propagation.as_deref() {
            None | Some("" | "None") => Propagation::Private,
            Some("HostToContainer") => Propagation::HostToContainer,
            Some("Bidirectional") => Propagation::Bidirectional,
            Some(other) => return Err(ConfigError(format!("invalid MountPropagation mode: {other:?}"))),
        },
    })
}
