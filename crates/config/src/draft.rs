//! Values as they were said. Each source writes over the earlier one; then the whole is checked once.

use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use crate::Environment;
use crate::error::{Problem, UsageError};
use crate::flags;
use crate::settings::{Headers, ImagePulls, Settings};
use crate::table::SETTINGS;

#[derive(Clone, Debug, Default)]
pub struct Draft {
    pub(crate) root_dir: PathBuf,
    pub(crate) verbosity: i64,
    pub(crate) static_pod_path: PathBuf,
    pub(crate) file_check_frequency: Duration,
    pub(crate) static_pod_url: String,
    pub(crate) static_pod_url_headers: Vec<(String, String)>,
    pub(crate) http_check_frequency: Duration,
    pub(crate) container_runtime_endpoint: String,
    pub(crate) runtime_request_timeout: Duration,
    pub(crate) serialize_image_pulls: Option<bool>,
    pub(crate) max_parallel_image_pulls: Option<i64>,
    pub(crate) registry_qps: i64,
    pub(crate) registry_burst: i64,
    pub(crate) sync_frequency: Duration,
    pub(crate) max_container_restart_period: Duration,
    pub(crate) cpu_cfs_quota: bool,
    pub(crate) seccomp_default: bool,
    pub(crate) pod_logs_dir: PathBuf,
    pub(crate) container_logs_dir: PathBuf,
    pub(crate) hostname_override: String,
    pub(crate) resolv_conf: PathBuf,
    pub(crate) cluster_dns: Vec<String>,
    pub(crate) cluster_domain: String,
    pub(crate) address: String,
    pub(crate) read_only_port: i64,
    pub(crate) healthz_port: i64,
    pub(crate) healthz_bind_address: String,
}

/// A shorter pause than this between two safety-net checks would keep a core busy.
const SHORTEST_PERIOD: Duration = Duration::from_millis(100);

impl Draft {
    /// The table's defaults, read by the code that reads flags: what `--help` prints is what holds.
    pub fn with_defaults() -> Result<Self, UsageError> {
        let mut draft = Self::default();
        for setting in SETTINGS.iter().filter(|setting| !setting.default.is_empty()) {
            flags::take(&mut draft, setting, &[setting.default])?;
        }
        Ok(draft)
    }

    /// Checks the whole and names everything that is wrong with it.
    pub fn resolve(self, env: &Environment) -> Result<Settings, UsageError> {
        let mut check = Check::default();
        let settings = Settings {
            root_dir: check.folder("--root-dir", &self.root_dir),
            pod_logs_dir: check.folder("field \"podLogsDir\"", &self.pod_logs_dir),
            container_logs_dir: check.folder("--container-logs-dir", &self.container_logs_dir),
            container_runtime_endpoint: check.endpoint(&self.container_runtime_endpoint),
            file_check_frequency: check.period("--file-check-frequency", self.file_check_frequency),
            http_check_frequency: check.period("--http-check-frequency", self.http_check_frequency),
            sync_frequency: check.period("--sync-frequency", self.sync_frequency),
            runtime_request_timeout: check.period("--runtime-request-timeout", self.runtime_request_timeout),
            max_container_restart_period: check.restart_period(self.max_container_restart_period),
            image_pulls: check.image_pulls(&self),
            static_pod_url: check.url(&self.static_pod_url),
            static_pod_url_headers: check.headers(self.static_pod_url_headers),
            static_pod_path: unless_empty(self.static_pod_path),
            node_name: check.node_name(&self.hostname_override, &env.hostname),
            address: check.ip("--address", &self.address),
            read_only_port: port(self.read_only_port),
            healthz_port: port(self.healthz_port),
            healthz_bind_address: check.ip("--healthz-bind-address", &self.healthz_bind_address),
            cpu_cfs_quota: self.cpu_cfs_quota,
            seccomp_default: self.seccomp_default,
            resolv_conf: unless_empty(self.resolv_conf),
            cluster_dns: self.cluster_dns.iter().map(|ip| check.ip("--cluster-dns", ip)).collect(),
            cluster_domain: check.cluster_domain(&self.cluster_domain),
            verbosity: u32::try_from(self.verbosity).unwrap_or(u32::MAX),
        };
        if check.0.is_empty() { Ok(settings) } else { Err(UsageError::from(check.0)) }
    }
}

/// Collects problems. Each check returns something to go on with, so that one run names every mistake.
#[derive(Default)]
struct Check(Vec<Problem>);

impl Check {
    fn refuse(&mut self, message: String, hint: &str) {
        self.0.push(Problem::new(message).hint(hint));
    }

    /// Mounts and symlinks are made from these paths: they must mean the same to every process.
    fn folder(&mut self, name: &str, path: &Path) -> PathBuf {
        let climbs = path.components().any(|part| part == Component::ParentDir);
        if !path.is_absolute() || climbs || path.to_str().is_none_or(|text| text.contains('\0')) {
            self.refuse(format!("{name} is {path:?}"), "give an absolute path without `..`");
        }
        // Drops doubled and trailing slashes.
        path.components().collect()
    }

    fn endpoint(&mut self, endpoint: &str) -> String {
        let full = if endpoint.starts_with('/') { format!("unix://{endpoint}") } else { endpoint.to_owned() };
        if !full.strip_prefix("unix://").is_some_and(|path| path.starts_with('/')) {
            self.refuse(
                format!("--container-runtime-endpoint is {endpoint:?}"),
                "give a unix socket, such as `unix:///run/containerd/containerd.sock`",
            );
        }
        full
    }

    fn period(&mut self, name: &str, period: Duration) -> Duration {
        if period < SHORTEST_PERIOD {
            self.refuse(format!("{name} is {period:?}"), "give at least `100ms`");
        }
        period
    }

    fn restart_period(&mut self, period: Duration) -> Duration {
        if !(Duration::from_secs(1)..=Duration::from_secs(300)).contains(&period) {
            let message = format!("field \"crashLoopBackOff.maxContainerRestartPeriod\" is {period:?}");
            self.refuse(message, "give from `1s` to `300s`");
        }
        period
    }

    fn image_pulls(&mut self, draft: &Draft) -> ImagePulls {
        let parallel = match (draft.serialize_image_pulls, draft.max_parallel_image_pulls) {
            (Some(true), Some(many)) if many > 1 => {
                self.refuse(
                    format!("field \"maxParallelImagePulls\" is {many} while image pulls are serialized"),
                    "set `serializeImagePulls: false`, or leave one of the two out",
                );
                1
            }
            (Some(true), _) => 1,
            (_, Some(many)) => usize::try_from(many).unwrap_or(1).clamp(1, ImagePulls::NO_LIMIT),
            (Some(false), None) => ImagePulls::NO_LIMIT,
            (None, None) => ImagePulls::DEFAULT_PARALLEL,
        };
        let burst = u32::try_from(draft.registry_burst).unwrap_or(u32::MAX);
        ImagePulls { parallel, qps: draft.registry_qps as f64, burst }
    }

    fn url(&mut self, url: &str) -> Option<String> {
        if url.is_empty() {
            return None;
        }
        let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        let usable = host.is_some_and(|host| !host.is_empty() && !host.starts_with('/'));
        if !usable || url.contains(|c: char| c.is_whitespace() || c.is_control()) {
            // The address may hold a password: it is not repeated.
            let message = "--manifest-url is not an http or https address".to_owned();
            self.refuse(message, "write it like `https://example.com/pods.yaml`");
        }
        Some(url.to_owned())
    }

    fn headers(&mut self, headers: Vec<(String, String)>) -> Headers {
        for (name, value) in &headers {
            let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
            if name.is_empty() || !name.chars().all(token) {
                let message = format!("--manifest-url-header has the name {name:?}");
                self.refuse(message, "header names are letters, digits and dashes");
            } else if value.contains(|c: char| c.is_control() && c != '\t') {
                let message = format!("--manifest-url-header {name:?} has a control character in its value");
                self.refuse(message, "header values are one line of text");
            }
        }
        Headers(headers)
    }

    fn node_name(&mut self, said: &str, hostname: &str) -> String {
        let said = said.trim();
        let name = if said.is_empty() { hostname.trim() } else { said }.to_lowercase();
        if name.is_empty() {
            self.refuse("the node has no name".to_owned(), "give one with --hostname-override");
        } else if !is_dns_subdomain(&name) {
            self.refuse(
                format!("{name:?} cannot be the node's name"),
                "give --hostname-override lower-case letters, digits, `-` and `.`: the names of static pods end in it",
            );
        }
        name
    }

    fn ip(&mut self, name: &str, text: &str) -> IpAddr {
        text.trim().parse().unwrap_or_else(|_| {
            self.refuse(format!("{name} is {text:?}"), "give an IP address");
            IpAddr::from([0, 0, 0, 0])
        })
    }

    fn cluster_domain(&mut self, domain: &str) -> String {
        let domain = domain.trim().trim_end_matches('.');
        if !domain.is_empty() && !is_dns_subdomain(domain) {
            self.refuse(format!("--cluster-domain is {domain:?}"), "give a domain such as `cluster.local`");
        }
        domain.to_owned()
    }
}

fn unless_empty(path: PathBuf) -> Option<PathBuf> {
    (!path.as_os_str().is_empty()).then_some(path)
}

fn port(number: i64) -> Option<u16> {
    u16::try_from(number).ok().filter(|port| *port != 0)
}

/// What Kubernetes accepts as the name of most objects.
pub(crate) fn is_dns_subdomain(name: &str) -> bool {
    let alphanumeric = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    !name.is_empty()
        && name.len() <= 253
        && name.split('.').map(str::as_bytes).all(|label| {
            label.first().copied().is_some_and(alphanumeric)
                && label.last().copied().is_some_and(alphanumeric)
                && label.iter().all(|c| alphanumeric(*c) || *c == b'-')
        })
}
