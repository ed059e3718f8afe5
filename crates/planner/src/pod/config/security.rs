//! The user, the capabilities and the masked paths of a container.

use crablet_model::runtime::{ContainerSecurity, SeccompProfile, SelinuxLabel};
use crablet_model::{PodRef, api};

use super::super::facts::{NodeFacts, PreparedImage};
use super::sandbox::{is_privileged, namespaces, supplemental_groups};
use super::{ConfigError, spec_of};

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
const READONLY_PATHS: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

pub(super) fn security(
    pod: &api::Pod,
    container: &api::Container,
    image: &PreparedImage,
    node: &NodeFacts,
) -> Result<ContainerSecurity, ConfigError> {
    let spec = spec_of(pod)?;
    let user = User::of(spec, container);
    user.check(image, pod, container)?;
    let own = container.security_context.as_ref();
    let capabilities = own.and_then(|c| c.capabilities.as_ref());
    let unmasked = own.and_then(|c| c.proc_mount.as_deref()) == Some("Unmasked");
    let (run_as_user, run_as_username) = user.with_image(image);
    Ok(ContainerSecurity {
        privileged: is_privileged(container),
        add_capabilities: capabilities.and_then(|c| c.add.clone()).unwrap_or_default(),
        drop_capabilities: capabilities.and_then(|c| c.drop.clone()).unwrap_or_default(),
        namespaces: namespaces(spec),
        run_as_user,
        run_as_username,
        run_as_group: user.group,
        readonly_rootfs: own.and_then(|c| c.read_only_root_filesystem).unwrap_or(false),
        supplemental_groups: supplemental_groups(spec),
        no_new_privs: own.and_then(|c| c.allow_privilege_escalation) == Some(false),
        masked_paths: if unmasked { Vec::new() } else { masked_paths(node) },
        readonly_paths: if unmasked { Vec::new() } else { READONLY_PATHS.map(str::to_owned).to_vec() },
        seccomp: seccomp(spec, container, node)?,
        selinux: selinux(own.and_then(|c| c.se_linux_options.as_ref()))
            .or_else(|| selinux(spec.security_context.as_ref().and_then(|c| c.se_linux_options.as_ref()))),
    })
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
                (Some(_), _) => return Ok(()),
                (None, name) => format!(
                    "container has runAsNonRoot and image has non-numeric user ({name}), cannot verify user is non-root"
                ),
            },
        };
        Err(ConfigError(format!("{fault} (pod: \"{}\", container: {})", PodRef::of(pod), container.name)))
    }
}

fn seccomp(
    spec: &api::PodSpec,
    container: &api::Container,
    node: &NodeFacts,
) -> Result<SeccompProfile, ConfigError> {
    let own = container.security_context.as_ref().and_then(|c| c.seccomp_profile.as_ref());
    let profile = own.or(spec.security_context.as_ref().and_then(|c| c.seccomp_profile.as_ref()));
    match profile.map(|p| p.type_.as_str()) {
        Some("RuntimeDefault") => Ok(SeccompProfile::RuntimeDefault),
        Some("Localhost") => Err(ConfigError(format!(
            "container {} asks for a localhost seccomp profile, which is not supported yet",
            container.name
        ))),
        None if node.seccomp_default => Ok(SeccompProfile::RuntimeDefault),
        _ => Ok(SeccompProfile::Unconfined),
    }
}
