//! What was said, resolved: every default filled in, every value checked.
//!
//! | module | what it holds |
//! |---|---|
//! | [`cluster`] | words of a node in a cluster: taints, TLS, who may ask, how changes are noticed |

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crablet_model::cgroup::CgroupDriver;

use crate::gates::Gates;

mod cluster;

pub use cluster::{Authentication, Authorization, ChangeDetection, Taint, TlsVersion};

/// All that the agent needs to know to run. Plain values: nothing here is optional unless leaving it out means something.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// A folder of manifests, or one manifest. `None`: no such source.
    pub static_pod_path: Option<PathBuf>,
    /// Where manifests are fetched from. `None`: no such source.
    pub static_pod_url: Option<String>,
    pub static_pod_url_headers: Headers,
    pub file_check_frequency: Duration,
    pub http_check_frequency: Duration,

    /// Absolute, without `..`.
    pub root_dir: PathBuf,
    /// Absolute, without `..`.
    pub pod_logs_dir: PathBuf,
    /// Absolute, without `..`.
    pub container_logs_dir: PathBuf,

    /// Always of the form `unix:///path`.
    pub container_runtime_endpoint: String,
    pub runtime_request_timeout: Duration,
    pub image_pulls: ImagePulls,
    /// What a pod has to show for an image that is on the node already.
    pub image_verification: ImageVerification,
    /// Programs that know credentials for registries: their configuration, a file or a folder, and where they lie.
    /// `None`: there are none.
    pub credential_providers: Option<CredentialProviders>,

    /// Lower-cased; a DNS subdomain, because the names of static pods end in it.
    pub node_name: String,
    pub address: IpAddr,
    /// `None`: not served.
    pub read_only_port: Option<u16>,
    /// `None`: not served.
    pub healthz_port: Option<u16>,
    pub healthz_bind_address: IpAddr,

    pub sync_frequency: Duration,
    pub max_container_restart_period: Duration,
    pub cpu_cfs_quota: bool,
    /// From 1 ms to 1 s.
    pub cpu_cfs_quota_period: Duration,
    /// Out of memory ends one process of a container instead of all; cgroup v1 cannot do otherwise.
    pub single_process_oom_kill: bool,
    /// Users that a pod with users of its own has; 0 for the usual number.
    pub user_namespace_ids: u32,
    pub seccomp_default: bool,
    /// Names, or beginnings of names that end in `*`.
    pub allowed_unsafe_sysctls: Vec<String>,

    /// `None`: pods with the node's DNS policy resolve no names.
    pub resolv_conf: Option<PathBuf>,
    pub cluster_dns: Vec<IpAddr>,
    /// Empty: no cluster domain.
    pub cluster_domain: String,

    /// The file behind `--config`, absolute.
    pub config_file: Option<PathBuf>,
    /// The folder behind `--config-dir`.
    pub config_dir: Option<PathBuf>,
    /// `None`: standalone, without an API server.
    pub kubeconfig: Option<PathBuf>,
    pub bootstrap_kubeconfig: Option<PathBuf>,
    pub cert_dir: PathBuf,
    /// Ask for a new client certificate in time.
    pub rotate_certificates: bool,
    /// Ask the API server for the certificate to serve with. Holds only where no file is named.
    pub server_tls_bootstrap: bool,
    /// Only what was said. `None`: `kubelet.crt` in `cert_dir`, made there if it is missing, unless it is asked for.
    pub tls_cert_file: Option<PathBuf>,
    /// Only what was said, as `tls_cert_file`.
    pub tls_private_key_file: Option<PathBuf>,
    /// Go's names. Empty: those that are in use today.
    pub tls_cipher_suites: Vec<String>,
    pub tls_min_version: TlsVersion,
    pub volume_plugin_dir: PathBuf,
    /// Bare paths have become `unix://` addresses. `None`: images are the container runtime's business.
    pub image_service_endpoint: Option<String>,

    pub enable_server: bool,
    pub port: u16,
    /// At most one per address family. An unspecified address (`0.0.0.0`, `::`) names the preferred family.
    pub node_ips: Vec<IpAddr>,
    pub node_labels: BTreeMap<String, String>,
    pub authentication: Authentication,
    pub authorization: Authorization,
    /// Serve logs, exec, attach and port-forward.
    pub enable_debugging_handlers: bool,
    /// Serve what there is of `/debug/pprof`.
    pub enable_profiling_handler: bool,
    /// Serve `/debug/flags/v`.
    pub enable_debug_flags_handler: bool,
    /// Serve the machine's logs.
    pub enable_system_log_handler: bool,
    pub enable_system_log_query: bool,

    pub register_node: bool,
    pub register_with_taints: Vec<Taint>,
    /// `--cloud-provider=external`: something else initialises the node.
    pub cloud_provider_external: bool,
    pub provider_id: Option<String>,
    pub node_status_update_frequency: Duration,
    pub node_status_report_frequency: Duration,
    /// How many images the node's status names. `None`: all.
    pub node_status_max_images: Option<usize>,
    /// At least 1.
    pub node_lease_duration_seconds: u32,
    /// 0: client-go's own default, 5 per second.
    pub kube_api_qps: u32,
    pub kube_api_burst: u32,
    /// 0: client-go's own default, 5 per second.
    pub event_record_qps: u32,
    pub event_burst: u32,
    pub enable_controller_attach_detach: bool,
    pub change_detection_strategy: ChangeDetection,

    pub max_pods: u32,
    /// 0: no such limit.
    pub pods_per_core: u32,
    /// `None`: as many as the node can allocate.
    pub pod_pids_limit: Option<u64>,
    /// Quantities by resource: cpu, memory, ephemeral-storage, pid. They parse and are not negative.
    pub system_reserved: BTreeMap<String, String>,
    /// As `system_reserved`.
    pub kube_reserved: BTreeMap<String, String>,
    /// Such as `0-1,8`. `None`: none are kept back by number.
    pub reserved_system_cpus: Option<String>,
    /// Quantities or percentages by signal, such as `memory.available`.
    pub eviction_hard: BTreeMap<String, String>,
    /// Leave `eviction_hard` out of what the node can allocate.
    pub allocatable_ignores_eviction: bool,
    /// `pods`, `system-reserved` and the like. Empty: nothing is enforced (`none` was said).
    pub enforce_node_allocatable: Vec<String>,
    pub local_storage_capacity_isolation: bool,

    pub fail_swap_on: bool,
    pub fail_cgroup_v1: bool,
    pub cgroup_driver: CgroupDriver,
    /// Empty: the root.
    pub cgroup_root: String,
    pub cgroups_per_qos: bool,
    pub protect_kernel_defaults: bool,

    pub lock_file: Option<PathBuf>,
    /// Never true without a lock file.
    pub exit_on_lock_contention: bool,
    /// From -1000 to 1000.
    pub oom_score_adj: i32,
    /// 0: left as it is.
    pub max_open_files: u64,
    /// Start the manifests' pods, wait until they run or have finished, report, exit.
    pub run_once: bool,
    pub logging: Logging,
    pub feature_gates: Gates,

    /// The version that the node reports. `--version=v1.36.4-something` changes what comes behind the numbers.
    pub reported_version: Box<str>,

    /// Things that hold but should not be so: deprecation notices, upstream's lenient decoding. Complete sentences, one
    /// line each, in upstream's words where upstream has any.
    pub warnings: Vec<String>,
    /// Settings that were set to something else than their default and have no effect in this version: `--flag` or the
    /// path of the field.
    pub not_yet: Vec<String>,
    /// What each flag is set to by the command line or its default, as `/flagz` shows it. Empty where no agent is meant
    /// to run.
    pub flags: BTreeMap<String, String>,
    /// The effective configuration as `/configz` shows it: a KubeletConfiguration in JSON. Also what a reload is compared
    /// with.
    pub configz: Configz,
}

impl Settings {
    pub fn local_socket(&self) -> PathBuf {
        local_socket(&self.root_dir)
    }

    /// Without an API server.
    pub fn is_standalone(&self) -> bool {
        self.kubeconfig.is_none()
    }
}

/// Where the agent of this root directory answers local questions. Shared by the agent and `crablet explain`.
pub fn local_socket(root_dir: &Path) -> PathBuf {
    root_dir.join("crablet.sock")
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logging {
    pub format: LogFormat,
    /// klog's `-v`: 0 is what an operator reads, 4 and 6 add what a developer reads.
    pub verbosity: u32,
    /// klog's `--vmodule`: file name patterns with a verbosity of their own, in the order in which they were said.
    pub vmodule: Vec<(String, u32)>,
    /// How long a line may stay in a buffer.
    pub flush_frequency: Duration,
    pub text: LogStreams,
    pub json: LogStreams,
}

impl Logging {
    /// The streams of the format in use.
    pub fn streams(&self) -> LogStreams {
        match self.format {
            LogFormat::Text => self.text,
            LogFormat::Json => self.json,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStreams {
    /// Info goes to stdout, the rest to stderr; else all to stderr.
    pub split_stream: bool,
    /// Bytes of info that may wait in memory when the streams are split. 0: none.
    pub info_buffer_size: u64,
}

/// How eagerly images are pulled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImagePulls {
    /// How many at once; at least 1.
    pub parallel: usize,
    /// How many may begin per second. 0: as many as wanted.
    pub qps: f64,
    /// How many may begin at once before `qps` holds them back.
    pub burst: u32,
}

impl ImagePulls {
    /// When nothing was said. Upstream pulls one image at a time, so that one stuck registry holds up every pod.
    pub const DEFAULT_PARALLEL: usize = 5;
    /// `serializeImagePulls: false` alone means "no limit"; this is more than one node pulls.
    pub const NO_LIMIT: usize = u16::MAX as usize;
}

/// Which images on the node a pod may use without credentials of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageVerification {
    /// All: the gate `KubeletEnsureSecretPulledImages` is off, or `NeverVerify` was said.
    Never {
        /// Whether what is pulled is remembered all the same.
        recorded: bool,
    },
    /// Those that nobody pulled through this agent.
    NeverPreloaded,
    /// Those of this list. A name may end in `/*`.
    NeverAllowlisted(Vec<String>),
    Always,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialProviders {
    pub config: PathBuf,
    pub bin_dir: PathBuf,
}

/// A configuration as text. It may hold credentials: it does not print.
#[derive(Clone, PartialEq, Eq)]
pub struct Configz(pub Box<str>);

impl Deref for Configz {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Configz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes>", self.0.len())
    }
}

/// HTTP headers, in the order in which they were said. They may hold credentials: their values do not print.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, String)>);

impl Deref for Headers {
    type Target = Vec<(String, String)>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(name, _)| (name, "<masked>"))).finish()
    }
}
