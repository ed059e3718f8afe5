//! From the effective configuration to [`Settings`]: plain values, in the form in which the agent uses them.

mod cluster;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crablet_model::cgroup::CgroupDriver;
use serde_json::Value;

use crate::error::{Problem, UsageError};
use crate::gates::Gates;
use crate::labels::is_dns_subdomain;
use crate::settings::{
    Configz, CredentialProviders, Headers, ImagePulls, ImageVerification, LogFormat, LogStreams, Logging,
    Settings,
};
use crate::sources::{self, Loaded};
use crate::tree::Tree;
use crate::{Environment, KUBERNETES_VERSION, validate, value};

/// A shorter pause than this between two safety-net checks would keep a core busy.
const SHORTEST_PERIOD: Duration = Duration::from_millis(100);

/// Checks the whole, names everything that is wrong with it, and resolves it.
pub fn resolve(loaded: Loaded, env: &Environment) -> Result<Settings, UsageError> {
    let Loaded { tree, gates, mut warnings, config_file, config_dir } = loaded;
    let (mut problems, more) = validate::validate(&tree, &gates);
    warnings.extend(more);
    let node_name = node_name(tree.text("--hostname-override"), &env.hostname)
        .map_err(|problem| problems.push(problem))
        .unwrap_or_default();
    if !problems.is_empty() {
        return Err(problems.into());
    }
    let mut period = |key: &str| {
        let period = duration(&tree, key);
        if period < SHORTEST_PERIOD {
            warnings
                .push(format!("{key} is {period:?}: 100ms is used, so that the machine has time for pods"));
        }
        period.max(SHORTEST_PERIOD)
    };
    let file_check_frequency = period("fileCheckFrequency");
    let http_check_frequency = period("httpCheckFrequency");
    let sync_frequency = period("syncFrequency");
    let runtime_request_timeout = period("runtimeRequestTimeout");
    let node_status_update_frequency = period("nodeStatusUpdateFrequency");
    let node_status_report_frequency = period("nodeStatusReportFrequency");
    let tls_min_version = cluster::tls_version(&tree, &mut warnings);
    Ok(Settings {
        file_check_frequency,
        http_check_frequency,
        sync_frequency,
        runtime_request_timeout,
        node_status_update_frequency,
        node_status_report_frequency,
        tls_min_version,
        static_pod_path: path(&tree, "staticPodPath"),
        static_pod_url: text(&tree, "staticPodURL"),
        static_pod_url_headers: headers(&tree),
        root_dir: folder(&tree, "--root-dir"),
        pod_logs_dir: folder(&tree, "podLogsDir"),
        container_logs_dir: folder(&tree, "--container-logs-dir"),
        container_runtime_endpoint: endpoint(tree.text("containerRuntimeEndpoint")),
        image_service_endpoint: text(&tree, "imageServiceEndpoint").map(|text| endpoint(&text)),
        image_pulls: image_pulls(&tree),
        image_verification: image_verification(&tree, &gates),
        credential_providers: credential_providers(&tree),
        node_name,
        address: ip(&tree, "address"),
        read_only_port: port(&tree, "readOnlyPort"),
        healthz_port: port(&tree, "healthzPort"),
        healthz_bind_address: ip(&tree, "healthzBindAddress"),
        max_container_restart_period: restart_period(&tree),
        cpu_cfs_quota: tree.is("cpuCFSQuota"),
        cpu_cfs_quota_period: duration(&tree, "cpuCFSQuotaPeriod"),
        single_process_oom_kill: tree.is("singleProcessOOMKill"),
        user_namespace_ids: count(&tree, "userNamespaces.idsPerPod"),
        // Upstream joins flag and field with "or": a flag cannot switch off what the file switches on.
        seccomp_default: tree.is("seccompDefault") || tree.is("--seccomp-default"),
        allowed_unsafe_sysctls: texts(&tree, "allowedUnsafeSysctls"),
        resolv_conf: path(&tree, "resolvConf"),
        cluster_dns: tree.texts("clusterDNS").into_iter().filter_map(value::ip).collect(),
        cluster_domain: tree.text("clusterDomain").trim().trim_end_matches('.').to_owned(),
        config_file,
        config_dir,
        kubeconfig: path(&tree, "--kubeconfig"),
        bootstrap_kubeconfig: path(&tree, "--bootstrap-kubeconfig"),
        cert_dir: folder(&tree, "--cert-dir"),
        rotate_certificates: tree.is("rotateCertificates"),
        server_tls_bootstrap: tree.is("serverTLSBootstrap"),
        tls_cert_file: cluster::said_path(&tree, "tlsCertFile"),
        tls_private_key_file: cluster::said_path(&tree, "tlsPrivateKeyFile"),
        tls_cipher_suites: texts(&tree, "tlsCipherSuites"),
        volume_plugin_dir: tree.text("volumePluginDir").into(),
        enable_server: tree.is("enableServer"),
        port: port(&tree, "port").unwrap_or_default(),
        node_ips: validate::node_ips(tree.text("--node-ip")),
        node_labels: pairs(&tree, "--node-labels"),
        authentication: cluster::authentication(&tree),
        authorization: cluster::authorization(&tree),
        enable_debugging_handlers: tree.is("enableDebuggingHandlers"),
        enable_profiling_handler: tree.is("enableProfilingHandler"),
        enable_debug_flags_handler: tree.is("enableDebugFlagsHandler"),
        enable_system_log_handler: tree.is("enableSystemLogHandler"),
        enable_system_log_query: tree.is("enableSystemLogQuery"),
        flags: Default::default(),
        register_node: tree.is("registerNode"),
        register_with_taints: cluster::taints(&tree),
        cloud_provider_external: tree.text("--cloud-provider") == "external",
        provider_id: text(&tree, "providerID"),
        // -1 means all.
        node_status_max_images: usize::try_from(tree.int("nodeStatusMaxImages")).ok(),
        node_lease_duration_seconds: count(&tree, "nodeLeaseDurationSeconds"),
        kube_api_qps: count(&tree, "kubeAPIQPS"),
        kube_api_burst: count(&tree, "kubeAPIBurst"),
        event_record_qps: count(&tree, "eventRecordQPS"),
        event_burst: count(&tree, "eventBurst"),
        enable_controller_attach_detach: tree.is("enableControllerAttachDetach"),
        change_detection_strategy: cluster::change_detection(&tree),
        max_pods: count(&tree, "maxPods"),
        pods_per_core: count(&tree, "podsPerCore"),
        // -1 means no limit of its own; 0 is treated like it upstream.
        pod_pids_limit: u64::try_from(tree.int("podPidsLimit")).ok().filter(|limit| *limit > 0),
        system_reserved: pairs(&tree, "systemReserved"),
        kube_reserved: pairs(&tree, "kubeReserved"),
        reserved_system_cpus: text(&tree, "reservedSystemCPUs"),
        eviction_hard: pairs(&tree, "evictionHard"),
        allocatable_ignores_eviction: tree.is("--experimental-allocatable-ignore-eviction"),
        enforce_node_allocatable: cluster::enforcements(&tree),
        local_storage_capacity_isolation: tree.is("localStorageCapacityIsolation"),
        fail_swap_on: tree.is("failSwapOn"),
        fail_cgroup_v1: tree.is("failCgroupV1"),
        cgroup_driver: match tree.text("cgroupDriver") {
            "systemd" => CgroupDriver::Systemd,
            _ => CgroupDriver::Cgroupfs,
        },
        cgroup_root: tree.text("cgroupRoot").to_owned(),
        cgroups_per_qos: tree.is("cgroupsPerQOS"),
        protect_kernel_defaults: tree.is("protectKernelDefaults"),
        lock_file: path(&tree, "--lock-file"),
        exit_on_lock_contention: tree.is("--exit-on-lock-contention"),
        oom_score_adj: tree.int("oomScoreAdj") as i32,
        max_open_files: tree.int("maxOpenFiles").unsigned_abs(),
        run_once: tree.is("runOnce"),
        logging: logging(&tree),
        feature_gates: gates,
        reported_version: KUBERNETES_VERSION.into(),
        warnings,
        not_yet: sources::not_yet(&tree),
        configz: Configz(tree.to_json().to_string().into()),
    })
}

fn duration(tree: &Tree, key: &str) -> Duration {
    Duration::from_nanos(u64::try_from(tree.duration(key)).unwrap_or(0))
}

fn text(tree: &Tree, key: &str) -> Option<String> {
    Some(tree.text(key)).filter(|text| !text.is_empty()).map(str::to_owned)
}

fn path(tree: &Tree, key: &str) -> Option<PathBuf> {
    text(tree, key).map(PathBuf::from)
}

fn texts(tree: &Tree, key: &str) -> Vec<String> {
    tree.texts(key).into_iter().map(str::to_owned).collect()
}

fn pairs(tree: &Tree, key: &str) -> BTreeMap<String, String> {
    tree.pairs(key).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Validation has refused negative ones.
fn count(tree: &Tree, key: &str) -> u32 {
    u32::try_from(tree.int(key)).unwrap_or_default()
}

/// Without doubled and trailing slashes.
fn folder(tree: &Tree, key: &str) -> PathBuf {
    PathBuf::from(tree.text(key)).components().collect()
}

fn port(tree: &Tree, key: &str) -> Option<u16> {
    u16::try_from(tree.int(key)).ok().filter(|port| *port != 0)
}

fn ip(tree: &Tree, key: &str) -> IpAddr {
    value::ip(tree.text(key)).unwrap_or(IpAddr::from([0, 0, 0, 0]))
}

/// A bare path is a unix socket.
fn endpoint(endpoint: &str) -> String {
    if endpoint.starts_with('/') { format!("unix://{endpoint}") } else { endpoint.to_owned() }
}

fn headers(tree: &Tree) -> Headers {
    let mut headers = Vec::new();
    for (name, values) in tree.get("staticPodURLHeader").and_then(Value::as_object).into_iter().flatten() {
        let values = values.as_array().into_iter().flatten().filter_map(Value::as_str);
        headers.extend(values.map(|value| (name.clone(), value.to_owned())));
    }
    Headers(headers)
}

fn image_pulls(tree: &Tree) -> ImagePulls {
    let parallel = match (tree.is("serializeImagePulls"), tree.get("maxParallelImagePulls")) {
        (true, _) => 1,
        (false, Some(_)) => usize::try_from(tree.int("maxParallelImagePulls")).unwrap_or(1),
        (false, None) => ImagePulls::NO_LIMIT,
    };
    ImagePulls {
        parallel: parallel.clamp(1, ImagePulls::NO_LIMIT),
        qps: tree.int("registryPullQPS") as f64,
        burst: u32::try_from(tree.int("registryBurst")).unwrap_or(u32::MAX),
    }
}

/// Validation has refused other words.
fn image_verification(tree: &Tree, gates: &Gates) -> ImageVerification {
    if !gates.enabled("KubeletEnsureSecretPulledImages") {
        return ImageVerification::Never { recorded: false };
    }
    match tree.text("imagePullCredentialsVerificationPolicy") {
        "NeverVerify" => ImageVerification::Never { recorded: true },
        "NeverVerifyAllowlistedImages" => {
            ImageVerification::NeverAllowlisted(texts(tree, "preloadedImagesVerificationAllowlist"))
        }
        "AlwaysVerify" => ImageVerification::Always,
        _ => ImageVerification::NeverPreloaded,
    }
}

/// Either of them is enough to mean it: who reads them says what is missing.
fn credential_providers(tree: &Tree) -> Option<CredentialProviders> {
    let config = path(tree, "--image-credential-provider-config");
    let bin_dir = path(tree, "--image-credential-provider-bin-dir");
    let said = config.is_some() || bin_dir.is_some();
    said.then(|| CredentialProviders {
        config: config.unwrap_or_default(),
        bin_dir: bin_dir.unwrap_or_default(),
    })
}

/// The gate may have taken the field away: then upstream's old constant holds, which is the same.
fn restart_period(tree: &Tree) -> Duration {
    match tree.get("crashLoopBackOff.maxContainerRestartPeriod") {
        Some(_) => duration(tree, "crashLoopBackOff.maxContainerRestartPeriod"),
        None => Duration::from_secs(300),
    }
}

fn logging(tree: &Tree) -> Logging {
    let streams = |format: &str| LogStreams {
        split_stream: tree.is(&format!("logging.options.{format}.splitStream")),
        info_buffer_size: crablet_model::quantity::Quantity::parse(
            tree.text(&format!("logging.options.{format}.infoBufferSize")),
        )
        .map_or(0, |size| size.value().unsigned_abs()),
    };
    let level = |value: Option<&Value>| {
        value.and_then(Value::as_u64).map_or(0, |level| u32::try_from(level).unwrap_or(u32::MAX))
    };
    let pattern = |item: &Value| {
        let pattern = item.get("filePattern").and_then(Value::as_str).unwrap_or_default();
        (pattern.to_owned(), level(item.get("verbosity")))
    };
    Logging {
        format: if tree.text("logging.format") == "json" { LogFormat::Json } else { LogFormat::Text },
        verbosity: level(tree.get("logging.verbosity")),
        vmodule: tree.items("logging.vmodule").iter().map(pattern).collect(),
        flush_frequency: duration(tree, "logging.flushFrequency"),
        text: streams("text"),
        json: streams("json"),
    }
}

fn node_name(said: &str, hostname: &str) -> Result<String, Problem> {
    let said = said.trim();
    let name = if said.is_empty() { hostname.trim() } else { said }.to_lowercase();
    if name.is_empty() {
        return Err(Problem::new("empty hostname is invalid").hint("give a name with --hostname-override"));
    }
    if !is_dns_subdomain(&name) {
        return Err(Problem::new(format!("{name:?} cannot be the node's name")).hint(
            "give --hostname-override lower-case letters, digits, `-` and `.`: the names of static pods end in it",
        ));
    }
    Ok(name)
}
