//! What exactly the runtime is asked to create, as upstream v1.36 asks for it.
//!
//! | module | what it makes |
//! |---|---|
//! | `sandbox` | a [`SandboxConfig`](crablet_model::runtime::SandboxConfig): namespaces, ports, labels |
//! | `container` | a [`ContainerConfig`](crablet_model::runtime::ContainerConfig): command, mounts, annotations |
//! | `update` | what a container may use, when it is created and when that changes |
//! | `env`, `env_file` | a container's environment, and the `$(NAME)` references to it |
//! | `mounts` | which volumes a container sees, and where |
//! | `fields` | what the environment says of the pod and of resources |
//! | `security`, `profiles` | the user, the capabilities, the masked paths and the profiles of a container |
//! | `annotations` | what a container carries with it for a later life of the agent |
//! | `dns` | the resolver settings of a pod |
//! | `hosts` | a pod's host name and its hosts file |
//!
//! Absent so far: devices of plugins, and a container's own stop signal. What a pod asks for and does not get is an
//! error, never silence.

mod annotations;
mod container;
mod dns;
mod env;
mod env_file;
mod fields;
mod hosts;
mod mounts;
mod profiles;
mod sandbox;
mod security;
mod update;

pub use container::{ContainerInputs, container_config, has_own_hosts};
pub use dns::{ResolvConf, beyond_limits, parse_resolv_conf, told_of_node};
pub use env::{EnvObjects, EnvReferences, Missing, Service, env_references, service_env};
pub use env_file::{EnvFile, FileReference};
pub use fields::{volume_field, volume_resource};
pub use hosts::hosts_file;
pub use mounts::{MountedVolume, SubPath, sub_paths, volume_groups};
pub use sandbox::{Placement, node_rules, sandbox_config};
pub use update::container_update;

use crablet_model::{PodRef, api};

/// Why a pod's specification cannot be turned into something for the runtime. Shows as `CreateContainerConfigError`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

impl ConfigError {
    fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// Why the runtime is not asked for a container.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContainerError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A command names a variable whose value is no text, and runtimes take commands as text only. Shows as
    /// `CreateContainerError`, in upstream's words: it finds out when it asks the runtime.
    #[error("grpc: error while marshaling: string field contains invalid UTF-8")]
    NotText,
}

/// The longest name that a Linux file system takes.
const FILE_NAME_BYTES: usize = 255;

/// The name of a container's link in the container log folder. As upstream, a name that is too long loses its end, be
/// it of the id.
pub fn log_link_name(id: &PodRef, container: &str, container_id: &str) -> String {
    const SUFFIX: &str = ".log";
    let mut name = format!("{}_{}_{container}-{container_id}", id.name, id.namespace);
    name.truncate(name.floor_char_boundary(FILE_NAME_BYTES - SUFFIX.len()));
    name + SUFFIX
}

fn spec_of(pod: &api::Pod) -> Result<&api::PodSpec, ConfigError> {
    pod.spec.as_ref().ok_or_else(|| ConfigError::new(format!("pod {} has no specification", PodRef::of(pod))))
}

fn is_host_network(spec: &api::PodSpec) -> bool {
    spec.host_network.unwrap_or(false)
}

#[cfg(test)]
mod tests;
