//! The user, the capabilities and the masked paths of a container.

use crablet_model::runtime::{
    Capabilities, ContainerSecurity, NamespaceMode, NamespaceOptions, SelinuxLabel,
};
use crablet_model::{PodRef, api};

use super::super::facts::{NodeFacts, PreparedImage};
use super::container::ContainerInputs;
use super::sandbox::{self, groups_policy, is_privileged};
use super::{ConfigError, profiles, spec_of};

/// Hidden from containers unless they ask for an unmasked `/proc`.
const MASKED_PATHS: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
/// The largest user that upstream takes for one.
const MAX_UID: i64 = i32::MAX as i64;
const READONLY_PATHS: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

pub(super) fn security(inputs: &ContainerInputs<'_>) -> Result<ContainerSecurity, ConfigError> {
    let (pod, container, image) = (inputs.pod, inputs.container, inputs.image);
    let spec = spec_of(pod)?;
    let user = User::of(spec, container);
    user.check(image, pod, container)?;
    let (own, of_pod) = (container.security_context.as_ref(), spec.security_context.as_ref());
    let unmasked = own.and_then(|c| c.proc_mount.as_deref()) == Some("Unmasked");
    let (run_as_user, run_as_username) = user.with_image(image);
    Ok(ContainerSecurity {
        privileged: is_privileged(container),
        capabilities: own.and_then(|c| c.capabilities.as_ref()).map(capabilities),
        namespaces: namespaces(inputs, spec)?,
        run_as_user,
        run_as_username,
        run_as_group: user.group,
        readonly_rootfs: own.and_then(|c| c.read_only_root_filesystem).unwrap_or(false),
        supplemental_groups: supplemental_groups(of_pod, &inputs.placement.volume_groups),
        groups_policy: groups_policy(of_pod)?,
        no_new_privs: own.and_then(|c| c.allow_privilege_escalation) == Some(false),
        masked_paths: if unmasked { Vec::new() } else { masked_paths(inputs.node) },
        readonly_paths: if unmasked { Vec::new() } else { READONLY_PATHS.map(str::to_owned).to_vec() },
        seccomp: profiles::seccomp(spec, container, inputs.node)?,
        apparmor: profiles::apparmor(pod, spec, container)?,
        selinux: selinux(own.and_then(|c| c.se_linux_options.as_ref()))
            .or_else(|| selinux(of_pod.and_then(|c| c.se_linux_options.as_ref()))),
    })
}

/// The pod's, but an ephemeral container may see the processes of another container.
fn namespaces(inputs: &ContainerInputs<'_>, spec: &api::PodSpec) -> Result<NamespaceOptions, ConfigError> {
    let mut options = sandbox::namespaces(spec, inputs.placement)?;
    if let Some(target) = inputs.target_id.filter(|_| options.pid == NamespaceMode::Container) {
        options.pid = NamespaceMode::Target;
        options.target_id = target.to_owned();
    }
    Ok(options)
}

fn capabilities(asked: &api::Capabilities) -> Capabilities {
    Capabilities { add: asked.add.clone().unwrap_or_default(), drop: asked.drop.clone().unwrap_or_default() }
}

/// As a sandbox's, but what volumes bring comes last.
fn supplemental_groups(context: Option<&api::PodSecurityContext>, of_volumes: &[i64]) -> Vec<i64> {
    let own = context.iter().flat_map(|c| c.fs_group.iter().chain(c.supplemental_groups.iter().flatten()));
    own.chain(of_volumes).copied().collect()
}

pub(super) fn selinux(options: Option<&api::SELinuxOptions>) -> Option<SelinuxLabel> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    options.map(|options| SelinuxLabel {
        user: text(&options.user),
        role: text(&options.role),
        kind: text(&options.type_),
        level: text(&options.level),
    })
}

fn masked_paths(node: &NodeFacts) -> Vec<String> {
    MASKED_PATHS.into_iter().map(str::to_owned).chain(node.extra_masked_paths.iter().cloned()).collect()
}

/// Who a container runs as: what the container says, else what the pod says.
struct User {
    user: Option<i64>,
    group: Option<i64>,
    non_root: bool,
}

impl User {
    fn of(spec: &api::PodSpec, container: &api::Container) -> Self {
        let (pod, own) = (spec.security_context.as_ref(), container.security_context.as_ref());
        Self {
            user: own.and_then(|c| c.run_as_user).or(pod.and_then(|c| c.run_as_user)),
            group: own.and_then(|c| c.run_as_group).or(pod.and_then(|c| c.run_as_group)),
            non_root: own
                .and_then(|c| c.run_as_non_root)
                .or(pod.and_then(|c| c.run_as_non_root))
                .unwrap_or(false),
        }
    }

    /// The user to ask the runtime for: a number, or the image's name for it.
    fn with_image(&self, image: &PreparedImage) -> (Option<i64>, String) {
        match (self.user.or(image.uid), image.username.as_str()) {
            (Some(uid), _) => (Some(uid), String::new()),
            (None, "") => (Some(0), String::new()), // an image that names no user means root
            (None, name) => (None, name.to_owned()),
        }
    }

    fn check(
        &self,
        image: &PreparedImage,
        pod: &api::Pod,
        container: &api::Container,
    ) -> Result<(), ConfigError> {
        if !self.non_root {
            return Ok(());
        }
        let fault = match self.user {
            Some(0) => "container's runAsUser breaks non-root policy".to_owned(),
            Some(_) => return Ok(()),
            None => match self.with_image(image) {
                (Some(0), _) => "container has runAsNonRoot and image will run as root".to_owned(),
                (Some(uid), _) if (0..=MAX_UID).contains(&uid) => return Ok(()),
                (Some(uid), _) => format!(
                    "container has runAsNonRoot and image has an invalid user id ({uid}). \
                     (Must be 1-({MAX_UID})): must be between 0 and {MAX_UID}, inclusive"
                ),
                (None, name) => format!(
                    "container has runAsNonRoot and image has non-numeric user ({name}), cannot verify user is non-root"
                ),
            },
        };
        Err(ConfigError(format!("{fault} (pod: \"{}\", container: {})", PodRef::of(pod), container.name)))
    }
}
