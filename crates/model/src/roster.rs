//! All containers of a pod, whatever part they play.

use std::borrow::Cow;

use crate::api;

/// The part that a container plays in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Runs to its end before the next one begins.
    Init,
    /// An init container that is restarted whenever it ends: it stays beside those that follow.
    Sidecar,
    Regular,
    /// Added to a pod that runs, to look at it. Started once and never again.
    Ephemeral,
}

impl Role {
    /// The list of the specification in which containers of this role stand, as events and errors name it.
    pub fn field(self) -> &'static str {
        match self {
            Self::Init | Self::Sidecar => "initContainers",
            Self::Regular => "containers",
            Self::Ephemeral => "ephemeralContainers",
        }
    }

    /// Stands among the init containers of the specification.
    pub fn is_init(self) -> bool {
        matches!(self, Self::Init | Self::Sidecar)
    }
}

/// The role of a container that stands among the init containers.
pub fn init_role(container: &api::Container) -> Role {
    match container.restart_policy.as_deref() {
        Some("Always") => Role::Sidecar,
        _ => Role::Init,
    }
}

/// Init containers, then regular ones, then ephemeral ones, each in the order of the specification.
pub fn roster(spec: &api::PodSpec) -> impl Iterator<Item = (Role, Cow<'_, api::Container>)> {
    let init = spec.init_containers.iter().flatten().map(|c| (init_role(c), Cow::Borrowed(c)));
    let regular = spec.containers.iter().map(|c| (Role::Regular, Cow::Borrowed(c)));
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    init.chain(regular).chain(ephemeral.map(|c| (Role::Ephemeral, Cow::Owned(as_container(c)))))
}

/// The container of this name, and its role.
pub fn find<'a>(spec: &'a api::PodSpec, name: &str) -> Option<(Role, Cow<'a, api::Container>)> {
    roster(spec).find(|(_, container)| container.name == name)
}

/// Whose processes an ephemeral container wants to see.
pub fn target<'a>(spec: &'a api::PodSpec, name: &str) -> Option<&'a str> {
    let ephemeral = spec.ephemeral_containers.iter().flatten().find(|c| c.name == name)?;
    ephemeral.target_container_name.as_deref().filter(|target| !target.is_empty())
}

/// An ephemeral container as what it is to a runtime: a container like any other.
pub fn as_container(ephemeral: &api::EphemeralContainer) -> api::Container {
    let it = ephemeral.clone();
    api::Container {
        args: it.args,
        command: it.command,
        env: it.env,
        env_from: it.env_from,
        image: it.image,
        image_pull_policy: it.image_pull_policy,
        lifecycle: it.lifecycle,
        liveness_probe: it.liveness_probe,
        name: it.name,
        ports: it.ports,
        readiness_probe: it.readiness_probe,
        resize_policy: it.resize_policy,
        resources: it.resources,
        restart_policy: it.restart_policy,
        restart_policy_rules: it.restart_policy_rules,
        security_context: it.security_context,
        startup_probe: it.startup_probe,
        stdin: it.stdin,
        stdin_once: it.stdin_once,
        termination_message_path: it.termination_message_path,
        termination_message_policy: it.termination_message_policy,
        tty: it.tty,
        volume_devices: it.volume_devices,
        volume_mounts: it.volume_mounts,
        working_dir: it.working_dir,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_container_is_found_with_its_role() {
        let spec: api::PodSpec = serde_json::from_value(serde_json::json!({
            "containers": [{"name": "main"}],
            "initContainers": [{"name": "first"}, {"name": "beside", "restartPolicy": "Always"}],
            "ephemeralContainers": [{"name": "looking", "image": "tools", "targetContainerName": "main"}],
        }))
        .unwrap();
        let all: Vec<_> = roster(&spec).map(|(role, c)| (role, c.name.clone())).collect();
        let expected = [
            (Role::Init, "first"),
            (Role::Sidecar, "beside"),
            (Role::Regular, "main"),
            (Role::Ephemeral, "looking"),
        ];
        assert_eq!(all, expected.map(|(role, name)| (role, name.to_owned())));
        let (role, looking) = find(&spec, "looking").unwrap();
        assert_eq!((role, looking.image.as_deref()), (Role::Ephemeral, Some("tools")));
        assert_eq!(target(&spec, "looking"), Some("main"));
        assert_eq!(target(&spec, "main"), None);
        assert!(find(&spec, "nobody").is_none());
    }
}
