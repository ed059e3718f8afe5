//! What the bare client asks for: as kubelets do for the pods of the bench, so far as it is work for the runtime.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use crablet_protos::cri::security_profile::ProfileType;
use crablet_protos::cri::{
    ContainerConfig, ContainerMetadata, DnsConfig, ImageSpec, LinuxContainerConfig, LinuxContainerResources,
    LinuxContainerSecurityContext, LinuxPodSandboxConfig, LinuxSandboxSecurityContext, Mount, NamespaceMode,
    NamespaceOption, PodSandboxConfig, PodSandboxMetadata, SecurityProfile,
};
use crablet_testbed::cluster::Cluster;
use crablet_testbed::images;

/// Kubelets hide and protect these; the runtime needs a mount for each.
const MASKED: [&str; 12] = [
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
const READONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];
/// On the machine, and in the container: the token, the names, the last words.
const MOUNTS: [(&str, &str); 3] = [
    ("token", "/var/run/secrets/kubernetes.io/serviceaccount"),
    ("etc-hosts", "/etc/hosts"),
    ("termination-log", "/dev/termination-log"),
];
/// As containers without a request get it.
const LEAST_CPU_SHARES: i64 = 2;
const FIRST_TO_GO: i64 = 1000;

#[derive(Clone)]
pub struct Messages {
    folder: PathBuf,
    cgroup_root: String,
}

impl Messages {
    pub fn new(cluster: &Cluster) -> Messages {
        Messages {
            folder: cluster.dir().join("floor"),
            cgroup_root: format!("{}/floor", cluster.network().cgroup_root()),
        }
    }

    /// Makes what the container will mount.
    pub fn prepare(&self, number: usize) -> Result<()> {
        let folder = self.pod(number);
        let made = fs::create_dir_all(folder.join("token"))
            .and_then(|()| fs::write(folder.join("etc-hosts"), "127.0.0.1 localhost\n"))
            .and_then(|()| fs::write(folder.join("termination-log"), ""));
        made.with_context(|| format!("cannot prepare `{}`", folder.display()))
    }

    pub fn sandbox(&self, number: usize) -> PodSandboxConfig {
        let name = format!("floor-{number}");
        let security = LinuxSandboxSecurityContext {
            namespace_options: Some(namespaces()),
            seccomp: Some(profile(ProfileType::RuntimeDefault)),
            ..Default::default()
        };
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: name.clone(),
                uid: name.clone(),
                namespace: "default".into(),
                attempt: 0,
            }),
            hostname: name.clone(),
            log_directory: self.pod(number).join("logs").to_string_lossy().into_owned(),
            dns_config: Some(DnsConfig { servers: vec!["127.0.0.1".into()], ..Default::default() }),
            labels: labels(&name),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: format!("{}/pod{number}", self.cgroup_root),
                security_context: Some(security),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    pub fn container(&self, number: usize) -> ContainerConfig {
        let texts = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
        let security = LinuxContainerSecurityContext {
            namespace_options: Some(namespaces()),
            seccomp: Some(profile(ProfileType::Unconfined)),
            masked_paths: texts(&MASKED),
            readonly_paths: texts(&READONLY),
            ..Default::default()
        };
        let resources = LinuxContainerResources {
            cpu_shares: LEAST_CPU_SHARES,
            oom_score_adj: FIRST_TO_GO,
            ..Default::default()
        };
        let mount = |(host, container): (&str, &str)| Mount {
            host_path: self.pod(number).join(host).to_string_lossy().into_owned(),
            container_path: container.into(),
            ..Default::default()
        };
        ContainerConfig {
            metadata: Some(ContainerMetadata { name: "main".into(), attempt: 0 }),
            image: Some(ImageSpec { image: images::PAUSE.into(), ..Default::default() }),
            log_path: "main/0.log".into(),
            labels: labels(&format!("floor-{number}")),
            mounts: MOUNTS.into_iter().map(mount).collect(),
            linux: Some(LinuxContainerConfig {
                resources: Some(resources),
                security_context: Some(security),
            }),
            ..Default::default()
        }
    }

    fn pod(&self, number: usize) -> PathBuf {
        self.folder.join(number.to_string())
    }
}

fn labels(name: &str) -> BTreeMap<String, String> {
    let labels = [("name", name), ("namespace", "default"), ("uid", name)];
    labels.map(|(key, value)| (format!("io.kubernetes.pod.{key}"), value.to_owned())).into()
}

fn namespaces() -> NamespaceOption {
    NamespaceOption { pid: NamespaceMode::Container.into(), ..Default::default() }
}

fn profile(kind: ProfileType) -> SecurityProfile {
    SecurityProfile { profile_type: kind.into(), ..Default::default() }
}
