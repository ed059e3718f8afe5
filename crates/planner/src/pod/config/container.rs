//! What a container is created from.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crablet_model::names::label;
use crablet_model::paths::clean_from_root;
use crablet_model::runtime::{ContainerConfig, Map, Mount};
use crablet_model::{PodRef, api};

use super::super::facts::{NodeFacts, PreparedImage};
use super::env::EnvObjects;
use super::mounts::{MountedVolume, devices, volume_mounts};
use super::sandbox::{Placement, pod_labels};
use super::update::container_update;
use super::{ConfigError, ContainerError, annotations, env, security, spec_of};

const ETC_HOSTS: &str = "/etc/hosts";

/// Everything that one instance of a container is made from.
#[derive(Clone, Copy, Debug)]
pub struct ContainerInputs<'a> {
    pub pod: &'a api::Pod,
    pub container: &'a api::Container,
    /// The restart count of the instance.
    pub attempt: u32,
    pub image: &'a PreparedImage,
    pub node: &'a NodeFacts,
    pub pod_ips: &'a [IpAddr],
    /// Host path of the pod's hosts file; `None` where the pod has none.
    pub etc_hosts: Option<&'a str>,
    /// Host path of the instance's termination message file; `None` where the container wants none.
    pub termination_file: Option<&'a str>,
    /// What the environment takes from the cluster.
    pub objects: &'a EnvObjects,
    /// The pod's volumes by name, as they are mounted on the node.
    pub volumes: &'a BTreeMap<String, MountedVolume>,
    /// Host paths of the mounts that ask for a part of their volume, by their place in the container's list.
    pub sub_paths: &'a BTreeMap<usize, String>,
    /// What the runtime calls the images that are volumes, by the volume's name.
    pub image_volumes: &'a BTreeMap<String, String>,
    /// Where on the node the pod is.
    pub placement: &'a Placement,
    /// The container whose processes an ephemeral container sees.
    pub target_id: Option<&'a str>,
}

pub fn container_config(inputs: &ContainerInputs<'_>) -> Result<ContainerConfig, ContainerError> {
    let (pod, container) = (inputs.pod, inputs.container);
    let spec = spec_of(pod)?;
    let id = PodRef::of(pod);
    let env = env::environment(inputs)?;
    let may_use = container_update(spec, container, inputs.node);
    // Before the command, as with upstream: what cannot be configured is said before what cannot be sent.
    let (mounts, devices, security) = (mounts(inputs)?, devices(inputs)?, security::security(inputs)?);
    Ok(ContainerConfig {
        name: container.name.clone(),
        attempt: inputs.attempt,
        image_ref: inputs.image.image_ref.clone(),
        user_specified_image: container.image.clone().unwrap_or_default(),
        command: env.expand_all(container.command.as_ref())?,
        args: env.expand_all(container.args.as_ref())?,
        working_dir: container.working_dir.clone().unwrap_or_default(),
        env: env.into_vars(),
        mounts,
        devices,
        labels: labels(&id, container),
        annotations: annotations::annotations(inputs, spec),
        log_path: format!("{}/{}.log", container.name, inputs.attempt),
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        tty: container.tty.unwrap_or(false),
        resources: may_use.resources,
        memory_swap_limit: may_use.memory_swap_limit,
        unified: may_use.unified,
        hugepage_limits: may_use.hugepage_limits,
        security,
        stop_signal: stop_signal(inputs),
    })
}

fn stop_signal(inputs: &ContainerInputs<'_>) -> Option<String> {
    let lifecycle = inputs.container.lifecycle.as_ref().filter(|_| inputs.node.stop_signals)?;
    lifecycle.stop_signal.clone()
}

fn labels(id: &PodRef, container: &api::Container) -> Map {
    let name = (label::CONTAINER_NAME.to_owned(), container.name.clone());
    pod_labels(id).into_iter().chain([name]).collect()
}

/// Whether one of its volumes takes the place of the hosts file. As upstream, by the words of the pod.
pub fn has_own_hosts(container: &api::Container) -> bool {
    container.volume_mounts.iter().flatten().any(|mount| mount.mount_path == ETC_HOSTS)
}

fn mounts(inputs: &ContainerInputs<'_>) -> Result<Vec<Mount>, ConfigError> {
    let container = inputs.container;
    let file = |container_path: &str, host_path: &str| Mount {
        container_path: container_path.to_owned(),
        host_path: host_path.to_owned(),
        readonly: false,
        selinux_relabel: inputs.node.selinux_enabled,
        users: inputs.placement.users,
        ..Mount::default()
    };
    let of_volumes = volume_mounts(inputs)?;
    let message_path = container.termination_message_path.as_deref().filter(|path| !path.is_empty());
    let hosts = inputs.etc_hosts.filter(|_| !has_own_hosts(container)).map(|path| file(ETC_HOSTS, path));
    let message = message_path.zip(inputs.termination_file);
    let message = message.map(|(inside, path)| file(&clean_from_root(inside), path));
    Ok(of_volumes.into_iter().chain(hosts).chain(message).collect())
}
