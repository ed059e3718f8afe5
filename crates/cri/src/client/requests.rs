//! From `crablet_model::runtime` to the wire.

use crablet_model::PodUid;
use crablet_model::names::label;
use crablet_model::runtime::{
    Capabilities, ContainerConfig, ContainerSecurity, ContainerUpdate, Device, DnsConfig, EnvValue,
    GroupsPolicy, IdRange, ImageMount, LinuxResources, Map, Mount, NamespaceMode, NamespaceOptions,
    PortMapping, Propagation, Protocol, SandboxConfig, SecurityProfile, SelinuxLabel,
};
use crablet_protos::cri as wire;

use super::signals;
use crate::port::RegistryAuth;

pub fn uid_selector(uid: Option<&PodUid>) -> Map {
    uid.map(|uid| (label::POD_UID.to_owned(), uid.to_string())).into_iter().collect()
}

pub fn sandbox(config: &SandboxConfig) -> wire::PodSandboxConfig {
    let security = wire::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(&config.namespaces)),
        run_as_user: config.run_as_user.map(int64),
        run_as_group: config.run_as_group.map(int64),
        supplemental_groups: config.supplemental_groups.clone(),
        supplemental_groups_policy: groups_policy(config.groups_policy),
        privileged: config.privileged,
        seccomp: Some(profile(&config.seccomp)),
        selinux_options: config.selinux.as_ref().map(selinux),
        ..Default::default()
    };
    wire::PodSandboxConfig {
        metadata: Some(wire::PodSandboxMetadata {
            name: config.name.clone(),
            uid: config.uid.to_string(),
            namespace: config.namespace.clone(),
            attempt: config.attempt,
        }),
        hostname: config.hostname.clone(),
        log_directory: config.log_directory.clone(),
        dns_config: Some(dns(&config.dns)),
        port_mappings: config.port_mappings.iter().map(port_mapping).collect(),
        labels: config.labels.clone(),
        annotations: config.annotations.clone(),
        linux: Some(wire::LinuxPodSandboxConfig {
            cgroup_parent: config.cgroup_parent.clone(),
            security_context: Some(security),
            sysctls: config.sysctls.clone(),
            // Upstream sends an empty one where the pod has no overhead.
            overhead: Some(resources(&config.overhead)),
            resources: Some(resources(&config.resources)),
        }),
    }
}

pub fn container(config: &ContainerConfig, sandbox: &SandboxConfig) -> wire::ContainerConfig {
    wire::ContainerConfig {
        metadata: Some(wire::ContainerMetadata { name: config.name.clone(), attempt: config.attempt }),
        image: Some(wire::ImageSpec {
            image: config.image_ref.clone(),
            user_specified_image: config.user_specified_image.clone(),
            ..Default::default()
        }),
        command: config.command.clone(),
        args: config.args.clone(),
        working_dir: config.working_dir.clone(),
        envs: config.env.iter().map(variable).collect(),
        mounts: config.mounts.iter().map(|mount| self::mount(mount, sandbox)).collect(),
        devices: config.devices.iter().map(device).collect(),
        labels: config.labels.clone(),
        annotations: config.annotations.clone(),
        log_path: config.log_path.clone(),
        stdin: config.stdin,
        stdin_once: config.stdin_once,
        stop_signal: config.stop_signal.as_deref().map_or(0, signals::number),
        tty: config.tty,
        linux: Some(wire::LinuxContainerConfig {
            resources: Some(wire::LinuxContainerResources {
                hugepage_limits: config.hugepage_limits.iter().map(hugepage_limit).collect(),
                memory_swap_limit_in_bytes: config.memory_swap_limit,
                unified: unified(config),
                ..resources(&config.resources)
            }),
            security_context: Some(container_security(&config.security)),
        }),
        ..Default::default()
    }
}

pub fn container_update(id: &str, update: &ContainerUpdate) -> wire::UpdateContainerResourcesRequest {
    let own = update.unified.iter().map(|(file, value)| (file.clone(), value.clone()));
    wire::UpdateContainerResourcesRequest {
        container_id: id.to_owned(),
        linux: Some(wire::LinuxContainerResources {
            hugepage_limits: update.hugepage_limits.iter().map(hugepage_limit).collect(),
            memory_swap_limit_in_bytes: update.memory_swap_limit,
            unified: oom_group(&update.resources).chain(own).collect(),
            ..resources(&update.resources)
        }),
        annotations: Map::new(),
    }
}

pub fn sandbox_update(
    id: &str,
    overhead: &LinuxResources,
    of_containers: &LinuxResources,
) -> wire::UpdatePodSandboxResourcesRequest {
    wire::UpdatePodSandboxResourcesRequest {
        pod_sandbox_id: id.to_owned(),
        overhead: Some(resources(overhead)),
        resources: Some(resources(of_containers)),
    }
}

/// The pod's annotations go along, because some runtimes choose by them how to pull, and where to look.
fn named_image(image: &str, pod: Option<&SandboxConfig>) -> wire::ImageSpec {
    let annotations = pod.map(|pod| pod.annotations.clone()).unwrap_or_default();
    wire::ImageSpec { image: image.to_owned(), annotations, ..Default::default() }
}

pub fn image_status(image: &str, pod: Option<&SandboxConfig>) -> wire::ImageStatusRequest {
    wire::ImageStatusRequest { image: Some(named_image(image, pod)), verbose: false }
}

pub fn pull(image: &str, auth: Option<&RegistryAuth>, pod: Option<&SandboxConfig>) -> wire::PullImageRequest {
    let auth = auth.map(|auth| wire::AuthConfig {
        username: auth.username.clone(),
        password: auth.password.clone(),
        ..Default::default()
    });
    wire::PullImageRequest { image: Some(named_image(image, pod)), auth, sandbox_config: pod.map(sandbox) }
}

fn container_security(security: &ContainerSecurity) -> wire::LinuxContainerSecurityContext {
    wire::LinuxContainerSecurityContext {
        capabilities: security.capabilities.as_ref().map(capabilities),
        privileged: security.privileged,
        namespace_options: Some(namespaces(&security.namespaces)),
        run_as_user: security.run_as_user.map(int64),
        run_as_username: security.run_as_username.clone(),
        run_as_group: security.run_as_group.map(int64),
        readonly_rootfs: security.readonly_rootfs,
        supplemental_groups: security.supplemental_groups.clone(),
        supplemental_groups_policy: groups_policy(security.groups_policy),
        no_new_privs: security.no_new_privs,
        masked_paths: security.masked_paths.clone(),
        readonly_paths: security.readonly_paths.clone(),
        seccomp: Some(profile(&security.seccomp)),
        apparmor: security.apparmor.as_ref().map(profile),
        apparmor_profile: security.apparmor.as_ref().map(apparmor_text).unwrap_or_default(),
        selinux_options: security.selinux.as_ref().map(selinux),
    }
}

fn capabilities(asked: &Capabilities) -> wire::Capability {
    wire::Capability {
        add_capabilities: asked.add.clone(),
        drop_capabilities: asked.drop.clone(),
        add_ambient_capabilities: Vec::new(),
    }
}

fn groups_policy(policy: GroupsPolicy) -> i32 {
    match policy {
        GroupsPolicy::Merge => wire::SupplementalGroupsPolicy::Merge,
        GroupsPolicy::Strict => wire::SupplementalGroupsPolicy::Strict,
    }
    .into()
}

fn resources(numbers: &LinuxResources) -> wire::LinuxContainerResources {
    wire::LinuxContainerResources {
        cpu_period: numbers.cpu_period,
        cpu_quota: numbers.cpu_quota,
        cpu_shares: numbers.cpu_shares,
        memory_limit_in_bytes: numbers.memory_limit,
        oom_score_adj: numbers.oom_score_adj,
        unified: oom_group(numbers).collect(),
        ..Default::default()
    }
}

/// Files of cgroup v2: those that the container's resources stand for, and its own.
fn unified(config: &ContainerConfig) -> Map {
    let own = config.unified.iter().map(|(file, value)| (file.clone(), value.clone()));
    oom_group(&config.resources).chain(own).collect()
}

fn oom_group(numbers: &LinuxResources) -> impl Iterator<Item = (String, String)> {
    numbers.oom_group.then(|| ("memory.oom.group".to_owned(), "1".to_owned())).into_iter()
}

fn hugepage_limit((page_size, limit): &(String, u64)) -> wire::HugepageLimit {
    wire::HugepageLimit { page_size: page_size.clone(), limit: *limit }
}

fn namespaces(options: &NamespaceOptions) -> wire::NamespaceOption {
    wire::NamespaceOption {
        network: mode(options.network),
        pid: mode(options.pid),
        ipc: mode(options.ipc),
        target_id: options.target_id.clone(),
        userns_options: Some(users(options.users)),
    }
}

fn users(range: Option<IdRange>) -> wire::UserNamespace {
    let mode = if range.is_some() { wire::NamespaceMode::Pod } else { wire::NamespaceMode::Node };
    wire::UserNamespace { mode: mode.into(), uids: mappings(range), gids: mappings(range) }
}

fn mappings(range: Option<IdRange>) -> Vec<wire::IdMapping> {
    let mapping =
        |range: IdRange| wire::IdMapping { host_id: range.host_id, container_id: 0, length: range.length };
    range.map(mapping).into_iter().collect()
}

fn mode(mode: NamespaceMode) -> i32 {
    match mode {
        NamespaceMode::Pod => wire::NamespaceMode::Pod,
        NamespaceMode::Container => wire::NamespaceMode::Container,
        NamespaceMode::Node => wire::NamespaceMode::Node,
        NamespaceMode::Target => wire::NamespaceMode::Target,
    }
    .into()
}

fn selinux(label: &SelinuxLabel) -> wire::SeLinuxOption {
    wire::SeLinuxOption {
        user: label.user.clone(),
        role: label.role.clone(),
        r#type: label.kind.clone(),
        level: label.level.clone(),
    }
}

fn profile(profile: &SecurityProfile) -> wire::SecurityProfile {
    use wire::security_profile::ProfileType;
    let (profile_type, localhost_ref) = match profile {
        SecurityProfile::RuntimeDefault => (ProfileType::RuntimeDefault, String::new()),
        SecurityProfile::Unconfined => (ProfileType::Unconfined, String::new()),
        SecurityProfile::Localhost(name) => (ProfileType::Localhost, name.clone()),
    };
    wire::SecurityProfile { profile_type: profile_type.into(), localhost_ref }
}

/// The same in one text, as older runtimes read it.
fn apparmor_text(profile: &SecurityProfile) -> String {
    match profile {
        SecurityProfile::RuntimeDefault => "runtime/default".to_owned(),
        SecurityProfile::Unconfined => "unconfined".to_owned(),
        SecurityProfile::Localhost(name) => format!("localhost/{name}"),
    }
}

fn dns(config: &DnsConfig) -> wire::DnsConfig {
    wire::DnsConfig {
        servers: config.servers.clone(),
        searches: config.searches.clone(),
        options: config.options.clone(),
    }
}

fn port_mapping(mapping: &PortMapping) -> wire::PortMapping {
    let protocol = match mapping.protocol {
        Protocol::Tcp => wire::Protocol::Tcp,
        Protocol::Udp => wire::Protocol::Udp,
        Protocol::Sctp => wire::Protocol::Sctp,
    };
    wire::PortMapping {
        protocol: protocol.into(),
        container_port: mapping.container_port,
        host_port: mapping.host_port,
        host_ip: mapping.host_ip.clone(),
    }
}

fn mount(mount: &Mount, sandbox: &SandboxConfig) -> wire::Mount {
    wire::Mount {
        container_path: mount.container_path.clone(),
        host_path: mount.host_path.clone(),
        readonly: mount.readonly,
        selinux_relabel: mount.selinux_relabel,
        propagation: match mount.propagation {
            Propagation::Private => wire::MountPropagation::PropagationPrivate,
            Propagation::HostToContainer => wire::MountPropagation::PropagationHostToContainer,
            Propagation::Bidirectional => wire::MountPropagation::PropagationBidirectional,
        }
        .into(),
        recursive_read_only: mount.recursive_read_only,
        image: mount.image.as_ref().map(|image| image_spec(image, sandbox)),
        image_sub_path: mount.image.as_ref().map(|image| image.sub_path.clone()).unwrap_or_default(),
        uid_mappings: mappings(mount.users),
        gid_mappings: mappings(mount.users),
    }
}

fn image_spec(image: &ImageMount, sandbox: &SandboxConfig) -> wire::ImageSpec {
    wire::ImageSpec {
        image: image.image_ref.clone(),
        user_specified_image: image.user_specified_image.clone(),
        // As upstream: which handler it is for is told with the gate RuntimeClassInImageCriApi only.
        annotations: sandbox.annotations.clone(),
        ..Default::default()
    }
}

fn device(device: &Device) -> wire::Device {
    wire::Device {
        container_path: device.container_path.clone(),
        host_path: device.host_path.clone(),
        permissions: device.permissions.clone(),
    }
}

fn variable((key, value): &(String, EnvValue)) -> wire::KeyValue {
    wire::KeyValue { key: key.clone(), value: value.as_bytes().to_vec() }
}

fn int64(value: i64) -> wire::Int64Value {
    wire::Int64Value { value }
}

#[cfg(test)]
mod tests;
