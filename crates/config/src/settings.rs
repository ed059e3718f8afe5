//! What was said, resolved: every default filled in, every value checked.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::gates::Gates;

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
    pub seccomp_default: bool,

    /// `None`: pods with the node's DNS policy get an empty `resolv.conf`.
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
    pub volume_plugin_dir: PathBuf,
    /// Bare paths have become `unix://` addresses. `None`: images are the container runtime's business.
    pub image_service_endpoint: Option<String>,

    pub enable_server: bool,
    pub port: u16,
    /// At most one per address family. An unspecified address (`0.0.0.0`, `::`) names the preferred family.
    pub node_ips: Vec<IpAddr>,
    pub node_labels: BTreeMap<String, String>,

    pub fail_swap_on: bool,
    pub fail_cgroup_v1: bool,
    pub cgroup_driver: CgroupDriver,
    /// Empty: the root.
    pub cgroup_root: String,
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
    /// The effective configuration as `/configz` shows it: a KubeletConfiguration in JSON. Also what a reload is compared
    /// with.
    pub configz: Configz,
}

impl Settings {
    pub fn local_socket(&self) -> PathBuf {
        local_socket(&self.root_dir)
    }
}

/// Where the agent of this root directory answers local questions. Shared by the agent and `crablet explain`.
pub fn local_socket(root_dir: &Path) -> PathBuf {
    root_dir.join("crablet.sock")
}

/// Who makes the cgroups of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    Cgroupfs,
    Systemd,
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
