//! What the parts are told of the configuration, each in its own words. The node's are in [`super::node`].

use std::path::Path;
use std::sync::Arc;

use crablet_config::Settings;
use crablet_model::manifest::Gates;
use crablet_planner::pod::{CgroupKind, NodeFacts};
use crablet_pods::settings::Folders;
use crablet_pods::sources::SourceSettings;
use crablet_volumes::selinux::{PolicyLabels, Selinux};

use crate::machine::Machine;

pub fn folders(settings: &Settings) -> Folders {
    Folders {
        root: settings.root_dir.clone(),
        pod_logs: settings.pod_logs_dir.clone(),
        container_logs: settings.container_logs_dir.clone(),
    }
}

pub fn source_settings(settings: &Settings) -> SourceSettings {
    SourceSettings {
        node_name: settings.node_name.clone(),
        folder: settings.static_pod_path.clone(),
        folder_check: settings.file_check_frequency,
        url: settings.static_pod_url.clone(),
        url_headers: settings.static_pod_url_headers.to_vec(),
        url_check: settings.http_check_frequency,
        submitted_folder: settings.root_dir.join("manifests"),
        gates: manifest_gates(settings),
    }
}

fn manifest_gates(settings: &Settings) -> Gates {
    let enabled = |name: &str| settings.feature_gates.enabled(name);
    Gates {
        may_refer: !enabled("PreventStaticPodAPIReferences"),
        selinux_mount: enabled("SELinuxMount"),
        any_address: !enabled("StrictIPCIDRValidation"),
    }
}

pub fn node_facts(settings: &Settings, machine: &Machine) -> NodeFacts {
    let mut node = NodeFacts {
        name: settings.node_name.clone(),
        host_ips: Vec::new(),
        own_ips: Vec::new(),
        node_ips: settings.node_ips.clone(),
        memory_capacity: machine.memory_bytes,
        allocatable_memory: machine.memory_bytes,
        allocatable_milli_cpu: machine.milli_cpus,
        allocatable_storage: 0,
        runtime_name: "containerd".to_owned(),
        runtime_handlers: Vec::new(),
        network_ready: false,
        network_message: "container runtime status check may not have completed yet".to_owned(),
        network_problem: None,
        root_dir: settings.root_dir.to_string_lossy().into_owned(),
        pod_logs_dir: settings.pod_logs_dir.to_string_lossy().into_owned(),
        cluster_dns: Vec::new(),
        cluster_domain: String::new(),
        resolv_conf: None,
        cpu_cfs_quota: false,
        cpu_period: None,
        oom_group: machine.cgroup_v2 && !settings.single_process_oom_kill,
        seccomp_default: false,
        stop_signals: settings.feature_gates.enabled("ContainerStopSignals"),
        extra_masked_paths: machine.masked_paths.clone(),
        selinux_enabled: machine.selinux_enabled,
        hugepage_sizes: machine.hugepage_sizes.clone(),
        swap_control: machine.swap_control,
        pod_cgroups: match (settings.cgroups_per_qos, machine.cgroup_v2) {
            (false, _) => CgroupKind::Absent,
            (true, false) => CgroupKind::V1,
            (true, true) => CgroupKind::V2,
        },
        max_crash_loop_seconds: 0,
    };
    set_changeable(&mut node, settings);
    node
}

/// Facts that a reload of the configuration may change.
pub fn set_changeable(node: &mut NodeFacts, settings: &Settings) {
    let seconds = settings.max_container_restart_period.as_secs();
    node.cluster_dns = settings.cluster_dns.iter().map(ToString::to_string).collect();
    node.cluster_domain.clone_from(&settings.cluster_domain);
    node.cpu_cfs_quota = settings.cpu_cfs_quota;
    node.cpu_period = i64::try_from(settings.cpu_cfs_quota_period.as_micros()).ok();
    node.seccomp_default = settings.seccomp_default;
    node.max_crash_loop_seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
}

/// What volumes have to know of SELinux, where the machine has it.
pub fn selinux(settings: &Settings, machine: &Machine) -> Option<Selinux> {
    let labels = machine.selinux_enabled.then(|| PolicyLabels::read(Path::new("/")))??;
    let every_access_mode = settings.feature_gates.enabled("SELinuxMount");
    Some(Selinux { labels: Arc::new(labels), every_access_mode })
}
