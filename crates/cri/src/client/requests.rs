//! From `crablet_model::runtime` to the wire.

use crablet_model::PodUid;
use crablet_model::names::label;
use crablet_model::runtime::{
    ContainerConfig, ContainerSecurity, DnsConfig, LinuxResources, Map, Mount, NamespaceMode,
    NamespaceOptions, PortMapping, Propagation, Protocol, SandboxConfig, SeccompProfile, SelinuxLabel,
};
use crablet_protos::cri as wire;

pub fn uid_selector(uid: Option<&PodUid>) -> Map {
    uid.map(|uid| (label::POD_UID.to_owned(), uid.to_string())).into_iter().collect()
}

pub fn sandbox(config: &SandboxConfig) -> wire::PodSandboxConfig {
    let security = wire::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(&config.namespaces)),
        run_as_user: config.run_as_user.map(int64),
        run_as_group: config.run_as_group.map(int64),
        supplemental_groups: config.supplemental_groups.clone(),
        supplemental_groups_policy: wire::SupplementalGroupsPolicy::Merge.into(),
        privileged: config.privileged,
        seccomp: Some(seccomp(config.seccomp)),
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
            overhead: Some(wire::LinuxContainerResources::default()),
            resources: Some(resources(&config.resources)),
        }),
    }
}

pub fn container(config: &ContainerConfig) -> wire::ContainerConfig {
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
        mounts: config.mounts.iter().map(mount).collect(),
        labels: config.labels.clone(),
        annotations: config.annotations.clone(),
        log_path: config.log_path.clone(),
        stdin: config.stdin,
        stdin_once: config.stdin_once,
        tty: config.tty,
        linux: Some(wire::LinuxContainerConfig {
            resources: Some(wire::LinuxContainerResources {
                hugepage_limits: config.hugepage_limits.iter().map(hugepage_limit).collect(),
                memory_swap_limit_in_bytes: config.memory_swap_limit,
                unified: config.unified.clone(),
                ..resources(&config.resources)
            }),
            security_context: Some(container_security(&config.security)),
        }),
        ..Default::default()
    }
}

/// The pod's annotations go along, because some runtimes choose how to pull by them.
pub fn pull(image: &str, pod: Option<&SandboxConfig>) -> wire::PullImageRequest {
    let annotations = pod.map(|pod| pod.annotations.clone()).unwrap_or_default();
    wire::PullImageRequest {
        image: Some(wire::ImageSpec { image: image.to_owned(), annotations, ..Default::default() }),
        auth: None,
        sandbox_config: pod.map(sandbox),
    }
}

fn container_security(security: &ContainerSecurity) -> wire::LinuxContainerSecurityContext {
    let asked = !security.add_capabilities.is_empty() || !security.drop_capabilities.is_empty();
    let capabilities = asked.then(|| wire::Capability {
        add_capabilities: security.add_capabilities.clone(),
        drop_capabilities: security.drop_capabilities.clone(),
        add_ambient_capabilities: Vec::new(),
    });
    wire::LinuxContainerSecurityContext {
        capabilities,
        privileged: security.privileged,
        namespace_options: Some(namespaces(&security.namespaces)),
        run_as_user: security.run_as_user.map(int64),
        run_as_username: security.run_as_username.clone(),
        run_as_group: security.run_as_group.map(int64),
        readonly_rootfs: security.readonly_rootfs,
        supplemental_groups: security.supplemental_groups.clone(),
        supplemental_groups_policy: wire::SupplementalGroupsPolicy::Merge.into(),
        no_new_privs: security.no_new_privs,
        masked_paths: security.masked_paths.clone(),
        readonly_paths: security.readonly_paths.clone(),
        seccomp: Some(seccomp(security.seccomp)),
        selinux_options: security.selinux.as_ref().map(selinux),
        ..Default::default()
    }
}

fn resources(numbers: &LinuxResources) -> wire::LinuxContainerResources {
    wire::LinuxContainerResources {
        cpu_period: numbers.cpu_period,
        cpu_quota: numbers.cpu_quota,
        cpu_shares: numbers.cpu_shares,
        memory_limit_in_bytes: numbers.memory_limit,
        oom_score_adj: numbers.oom_score_adj,
        ..Default::default()
    }
}

fn hugepage_limit((page_size, limit): &(String, u64)) -> wire::HugepageLimit {
    wire::HugepageLimit { page_size: page_size.clone(), limit: *limit }
}

fn namespaces(options: &NamespaceOptions) -> wire::NamespaceOption {
    wire::NamespaceOption {
        network: mode(options.network),
        pid: mode(options.pid),
        ipc: mode(options.ipc),
        target_id: String::new(),
        userns_options: Some(wire::UserNamespace {
            mode: wire::NamespaceMode::Node.into(),
            ..Default::default()
        }),
    }
}

fn mode(mode: NamespaceMode) -> i32 {
    match mode {
        NamespaceMode::Pod => wire::NamespaceMode::Pod,
        NamespaceMode::Container => wire::NamespaceMode::Container,
        NamespaceMode::Node => wire::NamespaceMode::Node,
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

fn seccomp(profile: SeccompProfile) -> wire::SecurityProfile {
    use wire::security_profile::ProfileType;
    let profile_type = match profile {
        SeccompProfile::RuntimeDefault => ProfileType::RuntimeDefault,
        SeccompProfile::Unconfined => ProfileType::Unconfined,
    };
    wire::SecurityProfile { profile_type: profile_type.into(), localhost_ref: String::new() }
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

fn mount(mount: &Mount) -> wire::Mount {
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
        ..Default::default()
    }
}

fn variable((key, value): &(String, String)) -> wire::KeyValue {
    wire::KeyValue { key: key.clone(), value: value.clone().into_bytes() }
}

fn int64(value: i64) -> wire::Int64Value {
    wire::Int64Value { value }
}

#[cfg(test)]
mod tests;
