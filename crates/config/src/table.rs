//! The one table of settings. A row says everything there is to say about one setting; the command line, the config file
//! and `--help` all read it.

use std::path::PathBuf;
use std::time::Duration;

use crate::draft::Draft;

pub struct Setting {
    /// Without dashes. `None`: only the config file can say it.
    pub flag: Option<&'static str>,
    pub short: Option<char>,
    /// The path in KubeletConfiguration, dotted. `None`: only a flag can say it.
    pub field: Option<&'static str>,
    pub group: Group,
    /// As it would be typed; parsed by the same code as what is typed. Empty: unset.
    pub default: &'static str,
    /// What `--help` says of it.
    pub doc: &'static str,
    pub take: Take,
    /// Upstream reads 0 and "" in the file as "not said", except in the fields where these values mean something.
    pub zero: Zero,
}

/// The kind of value, and where it goes.
#[derive(Clone, Copy)]
pub enum Take {
    Bool(fn(&mut Draft, bool)),
    /// Whole numbers from the first to the second, both included.
    Number(i64, i64, fn(&mut Draft, i64)),
    Duration(fn(&mut Draft, Duration)),
    Text(&'static str, fn(&mut Draft, String)),
    /// In a file, a relative path starts at the file's folder.
    Path(fn(&mut Draft, PathBuf)),
    /// `a,b`, and the flag may be repeated.
    List(&'static str, fn(&mut Draft, Vec<String>)),
    /// `Key:Value,Key:Value`, and the flag may be repeated.
    Headers(fn(&mut Draft, Vec<(String, String)>)),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Zero {
    IsUnset,
    Counts,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    General,
    Sources,
    Runtime,
    Pods,
    Network,
    Serving,
}

impl Group {
    pub const ALL: [(Group, &'static str); 6] = [
        (Group::General, "General"),
        (Group::Sources, "Where pods come from"),
        (Group::Runtime, "Container runtime and images"),
        (Group::Pods, "How pods are run"),
        (Group::Network, "Names and DNS"),
        (Group::Serving, "What is served"),
    ];
}

impl Setting {
    /// How messages name it: `--flag`, or the field where there is no flag.
    pub fn name(&self) -> String {
        match (self.flag, self.field) {
            (Some(flag), _) => format!("--{flag}"),
            (None, field) => format!("field \"{}\"", field.unwrap_or_default()),
        }
    }
}

const TCP_PORT: i64 = u16::MAX as i64;
const INT32: i64 = i32::MAX as i64;

/// What most rows have in common.
const ROW: Setting = Setting {
    flag: None,
    short: None,
    field: None,
    group: Group::General,
    default: "",
    doc: "",
    take: Take::Bool(|_, _| ()),
    zero: Zero::IsUnset,
};

pub const SETTINGS: &[Setting] = &[
    // General
    Setting {
        flag: Some("config"),
        doc: "A KubeletConfiguration (v1beta1) in YAML or JSON. Flags win over what it says.",
        take: Take::Path(|_, _| ()),
        ..ROW
    },
    Setting {
        flag: Some("root-dir"),
        default: "/var/lib/kubelet",
        doc: "Where the agent keeps what must survive its restart, and where pods keep their volumes.",
        take: Take::Path(|d, v| d.root_dir = v),
        ..ROW
    },
    Setting {
        flag: Some("v"),
        short: Some('v'),
        field: Some("logging.verbosity"),
        default: "0",
        doc: "How much is logged: 4 adds what a developer wants to know, 6 everything.",
        take: Take::Number(0, INT32, |d, v| d.verbosity = v),
        ..ROW
    },
    // Where pods come from
    Setting {
        flag: Some("pod-manifest-path"),
        field: Some("staticPodPath"),
        group: Group::Sources,
        doc: "A folder of pod manifests, or one manifest. Files whose names start with a dot are ignored.",
        take: Take::Path(|d, v| d.static_pod_path = v),
        ..ROW
    },
    Setting {
        flag: Some("file-check-frequency"),
        field: Some("fileCheckFrequency"),
        group: Group::Sources,
        default: "20s",
        doc: "How often the manifests are read again even though nothing reported a change.",
        take: Take::Duration(|d, v| d.file_check_frequency = v),
        ..ROW
    },
    Setting {
        flag: Some("manifest-url"),
        field: Some("staticPodURL"),
        group: Group::Sources,
        doc: "An http or https address that answers with a pod or a list of pods.",
        take: Take::Text("URL", |d, v| d.static_pod_url = v),
        ..ROW
    },
    Setting {
        flag: Some("manifest-url-header"),
        field: Some("staticPodURLHeader"),
        group: Group::Sources,
        doc: "Headers to send to --manifest-url. May be repeated. The first one replaces those of the config file.",
        take: Take::Headers(|d, v| d.static_pod_url_headers = v),
        ..ROW
    },
    Setting {
        flag: Some("http-check-frequency"),
        field: Some("httpCheckFrequency"),
        group: Group::Sources,
        default: "20s",
        doc: "How often --manifest-url is asked.",
        take: Take::Duration(|d, v| d.http_check_frequency = v),
        ..ROW
    },
    // Container runtime and images
    Setting {
        flag: Some("container-runtime-endpoint"),
        field: Some("containerRuntimeEndpoint"),
        group: Group::Runtime,
        default: "unix:///run/containerd/containerd.sock",
        doc: "The socket on which the container runtime speaks CRI v1.",
        take: Take::Text("SOCKET", |d, v| d.container_runtime_endpoint = v),
        ..ROW
    },
    Setting {
        flag: Some("runtime-request-timeout"),
        field: Some("runtimeRequestTimeout"),
        group: Group::Runtime,
        default: "2m0s",
        doc: "How long the runtime may take to answer, image pulls apart.",
        take: Take::Duration(|d, v| d.runtime_request_timeout = v),
        ..ROW
    },
    Setting {
        flag: Some("serialize-image-pulls"),
        field: Some("serializeImagePulls"),
        group: Group::Runtime,
        doc: "Pull one image at a time. When neither this nor maxParallelImagePulls is said, up to 5 images are pulled at \
              once, so that one stuck registry does not hold the others up; upstream would pull one at a time. False \
              alone means no limit.",
        take: Take::Bool(|d, v| d.serialize_image_pulls = Some(v)),
        zero: Zero::Counts,
        ..ROW
    },
    Setting {
        field: Some("maxParallelImagePulls"),
        group: Group::Runtime,
        doc: "How many images are pulled at once.",
        take: Take::Number(1, INT32, |d, v| d.max_parallel_image_pulls = Some(v)),
        zero: Zero::Counts,
        ..ROW
    },
    Setting {
        flag: Some("registry-qps"),
        field: Some("registryPullQPS"),
        group: Group::Runtime,
        default: "5",
        doc: "How many image pulls may begin per second. 0 means no limit.",
        take: Take::Number(0, INT32, |d, v| d.registry_qps = v),
        zero: Zero::Counts,
        ..ROW
    },
    Setting {
        flag: Some("registry-burst"),
        field: Some("registryBurst"),
        group: Group::Runtime,
        default: "10",
        doc: "How many image pulls may begin at once before --registry-qps holds them back.",
        take: Take::Number(0, INT32, |d, v| d.registry_burst = v),
        ..ROW
    },
    // How pods are run
    Setting {
        flag: Some("sync-frequency"),
        field: Some("syncFrequency"),
        group: Group::Pods,
        default: "1m0s",
        doc: "How often each pod is looked at even though nothing reported a change.",
        take: Take::Duration(|d, v| d.sync_frequency = v),
        ..ROW
    },
    Setting {
        field: Some("crashLoopBackOff.maxContainerRestartPeriod"),
        group: Group::Pods,
        default: "5m0s",
        doc: "The longest pause before a crashing container is started again, from 1s to 5m.",
        take: Take::Duration(|d, v| d.max_container_restart_period = v),
        zero: Zero::Counts,
        ..ROW
    },
    Setting {
        flag: Some("cpu-cfs-quota"),
        field: Some("cpuCFSQuota"),
        group: Group::Pods,
        default: "true",
        doc: "Enforce CPU limits.",
        take: Take::Bool(|d, v| d.cpu_cfs_quota = v),
        zero: Zero::Counts,
        ..ROW
    },
    Setting {
        flag: Some("seccomp-default"),
        field: Some("seccompDefault"),
        group: Group::Pods,
        default: "false",
        doc: "Containers that name no seccomp profile get the runtime's. Said by either the flag or the file, it holds.",
        // Upstream joins flag and file with "or": a flag cannot switch off what the file switches on.
        take: Take::Bool(|d, v| d.seccomp_default |= v),
        zero: Zero::Counts,
        ..ROW
    },
    Setting {
        field: Some("podLogsDir"),
        group: Group::Pods,
        default: "/var/log/pods",
        doc: "Where the runtime writes the logs of containers.",
        take: Take::Path(|d, v| d.pod_logs_dir = v),
        ..ROW
    },
    Setting {
        flag: Some("container-logs-dir"),
        group: Group::Pods,
        default: "/var/log/containers",
        doc: "Where links to the logs are kept for log collectors. Crablet's own flag: upstream cannot move them.",
        take: Take::Path(|d, v| d.container_logs_dir = v),
        ..ROW
    },
    // Names and DNS
    Setting {
        flag: Some("hostname-override"),
        group: Group::Network,
        doc: "The node's name. Without it, the machine's hostname in lower case.",
        take: Take::Text("NAME", |d, v| d.hostname_override = v),
        ..ROW
    },
    Setting {
        flag: Some("resolv-conf"),
        field: Some("resolvConf"),
        group: Group::Network,
        default: "/etc/resolv.conf",
        doc: "What pods with the DNS policy Default resolve names by. \"\" means nothing.",
        take: Take::Path(|d, v| d.resolv_conf = v),
        zero: Zero::Counts,
        ..ROW
    },
    Setting {
        flag: Some("cluster-dns"),
        field: Some("clusterDNS"),
        group: Group::Network,
        doc: "DNS servers for pods with the DNS policy ClusterFirst. May be repeated.",
        take: Take::List("IP", |d, v| d.cluster_dns = v),
        ..ROW
    },
    Setting {
        flag: Some("cluster-domain"),
        field: Some("clusterDomain"),
        group: Group::Network,
        doc: "The domain of the cluster: pods with the DNS policy ClusterFirst search it.",
        take: Take::Text("DOMAIN", |d, v| d.cluster_domain = v),
        ..ROW
    },
    // What is served
    Setting {
        flag: Some("address"),
        field: Some("address"),
        group: Group::Serving,
        default: "0.0.0.0",
        doc: "The address on which --read-only-port is served.",
        take: Take::Text("IP", |d, v| d.address = v),
        ..ROW
    },
    Setting {
        flag: Some("read-only-port"),
        field: Some("readOnlyPort"),
        group: Group::Serving,
        default: "0",
        doc: "A port that tells anyone who asks which pods run here, without authentication. 0 means off, also without \
              --config, where upstream would serve 10255.",
        take: Take::Number(0, TCP_PORT, |d, v| d.read_only_port = v),
        ..ROW
    },
    Setting {
        flag: Some("healthz-port"),
        field: Some("healthzPort"),
        group: Group::Serving,
        default: "10248",
        doc: "The port of /healthz. 0 means off.",
        take: Take::Number(0, TCP_PORT, |d, v| d.healthz_port = v),
        zero: Zero::Counts,
        ..ROW
    },
    Setting {
        flag: Some("healthz-bind-address"),
        field: Some("healthzBindAddress"),
        group: Group::Serving,
        default: "127.0.0.1",
        doc: "The address of /healthz.",
        take: Take::Text("IP", |d, v| d.healthz_bind_address = v),
        ..ROW
    },
];

pub fn by_flag(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.flag == Some(name))
}

pub fn by_field(path: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.field == Some(path))
}
