//! What was said, resolved: every default filled in, every value checked.

use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

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

    /// klog's `-v`: 0 is what an operator reads, 4 and 6 add what a developer reads.
    pub verbosity: u32,
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
