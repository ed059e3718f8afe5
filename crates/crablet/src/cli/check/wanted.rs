//! What the agent would use: the part of its settings that the machine must live up to.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use crablet_config::Settings;
use crablet_model::cgroup::CgroupDriver;
use serde_json::Value;

#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    pub node_name: String,
    pub config_file: Option<PathBuf>,
    /// Notices about the settings themselves.
    pub notices: Vec<String>,
    /// Settings without effect in this version.
    pub not_yet: Vec<String>,

    /// The runtime's socket as `unix:///path`, and that of the image service where it is another one.
    pub endpoint: String,
    pub image_endpoint: Option<String>,
    pub cgroup_driver: CgroupDriver,
    pub fail_cgroup_v1: bool,

    pub fail_swap_on: bool,
    pub protect_kernel_defaults: bool,
    /// 0: left as it is.
    pub max_open_files: u64,
    /// Per pod; not above zero: no limit.
    pub pod_pids_limit: i64,

    pub root_dir: PathBuf,
    pub pod_logs_dir: PathBuf,
    /// Signals such as `nodefs.available`, with a quantity or a percentage.
    pub eviction_hard: BTreeMap<String, String>,
    /// In percent of the image file system.
    pub image_gc_high: u64,

    pub ports: Vec<Port>,
    pub resolv_conf: Option<PathBuf>,
    pub pod_cidr: Option<String>,

    pub static_pod_path: Option<PathBuf>,
    /// Without one the agent is on its own, without an API server.
    pub kubeconfig: Option<PathBuf>,
    pub bootstrap_kubeconfig: Option<PathBuf>,
    pub client_ca: Option<PathBuf>,
    pub serving_certificate: Option<PathBuf>,
    pub serving_key: Option<PathBuf>,
}

/// A TCP port that the agent would listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    pub name: &'static str,
    pub address: IpAddr,
    pub number: u16,
}

impl Wanted {
    pub fn new(settings: &Settings) -> Self {
        // Fields that nothing but this check needs yet are taken from the configuration as `/configz` shows it.
        let config: Value = serde_json::from_str(&settings.configz).unwrap_or_default();
        let path = |pointer: &str| text(&config, pointer).map(PathBuf::from);
        // The agent makes these itself when nobody gave it others.
        let own = ["kubelet.crt", "kubelet.key"].map(|name| settings.cert_dir.join(name));
        Self {
            node_name: settings.node_name.clone(),
            config_file: settings.config_file.clone(),
            notices: settings.warnings.clone(),
            not_yet: settings.not_yet.clone(),
            endpoint: settings.container_runtime_endpoint.clone(),
            image_endpoint: settings
                .image_service_endpoint
                .clone()
                .filter(|other| *other != settings.container_runtime_endpoint),
            cgroup_driver: settings.cgroup_driver,
            fail_cgroup_v1: settings.fail_cgroup_v1,
            fail_swap_on: settings.fail_swap_on,
            protect_kernel_defaults: settings.protect_kernel_defaults,
            max_open_files: settings.max_open_files,
            pod_pids_limit: config["podPidsLimit"].as_i64().unwrap_or(-1),
            root_dir: settings.root_dir.clone(),
            pod_logs_dir: settings.pod_logs_dir.clone(),
            eviction_hard: texts(&config["evictionHard"]),
            image_gc_high: config["imageGCHighThresholdPercent"].as_u64().unwrap_or(85),
            ports: ports(settings),
            resolv_conf: settings.resolv_conf.clone(),
            pod_cidr: text(&config, "/podCIDR"),
            static_pod_path: settings.static_pod_path.clone(),
            kubeconfig: settings.kubeconfig.clone(),
            bootstrap_kubeconfig: settings.bootstrap_kubeconfig.clone(),
            client_ca: path("/authentication/x509/clientCAFile"),
            serving_certificate: path("/tlsCertFile").filter(|path| !own.contains(path)),
            serving_key: path("/tlsPrivateKeyFile").filter(|path| !own.contains(path)),
        }
    }

    pub fn standalone(&self) -> bool {
        self.kubeconfig.is_none()
    }
}

fn ports(settings: &Settings) -> Vec<Port> {
    let serving = (settings.enable_server && settings.port != 0).then_some(settings.port);
    [
        ("API", settings.address, serving),
        ("healthz", settings.healthz_bind_address, settings.healthz_port),
        ("read-only", settings.address, settings.read_only_port),
    ]
    .into_iter()
    .filter_map(|(name, address, number)| Some(Port { name, address, number: number? }))
    .collect()
}

/// An empty text means "not set", as everywhere in this configuration.
fn text(config: &Value, pointer: &str) -> Option<String> {
    config.pointer(pointer)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn texts(map: &Value) -> BTreeMap<String, String> {
    let entries = map.as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::Path;

    use crablet_config::{Command, Environment, parse};

    use super::*;

    fn wanted(args: &[&str], config: &'static str) -> Wanted {
        let args = ["check"].iter().chain(args).map(OsString::from);
        let env = Environment { hostname: "node1".into() };
        let command = parse(args, &env, |_: &Path| Ok(config.as_bytes().to_vec()));
        let Ok(Command::Check(options)) = command else { panic!("{command:?}") };
        Wanted::new(&options.settings)
    }

    #[test]
    fn what_is_wanted_comes_from_the_agents_own_flags_and_configuration() {
        let config = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
                      cgroupDriver: systemd\nfailSwapOn: false\nfailCgroupV1: false\nprotectKernelDefaults: true\n\
                      podCIDR: 10.1.0.0/24\nmaxOpenFiles: 5000\npodPidsLimit: 100\nimageGCHighThresholdPercent: 90\n\
                      tlsCertFile: /tls.crt\ntlsPrivateKeyFile: /tls.key\nresolvConf: /resolv.conf\n\
                      authentication:\n  x509:\n    clientCAFile: /ca.crt\n\
                      evictionHard:\n  nodefs.available: 7%\nreadOnlyPort: 10255\nstaticPodPath: /manifests\n";
        let args = ["--config", "/config.yaml", "--kubeconfig=/kubelet.conf", "--root-dir=/root-dir"];
        let wanted = wanted(&args, config);
        assert_eq!(wanted.node_name, "node1");
        assert_eq!(wanted.config_file, Some("/config.yaml".into()));
        assert_eq!(wanted.cgroup_driver, CgroupDriver::Systemd);
        assert!(!wanted.fail_swap_on && !wanted.fail_cgroup_v1 && wanted.protect_kernel_defaults);
        assert_eq!((wanted.max_open_files, wanted.pod_pids_limit, wanted.image_gc_high), (5000, 100, 90));
        assert_eq!(wanted.eviction_hard, [("nodefs.available".to_owned(), "7%".to_owned())].into());
        assert_eq!(wanted.pod_cidr.as_deref(), Some("10.1.0.0/24"));
        let paths = [
            (&wanted.client_ca, "/ca.crt"),
            (&wanted.serving_certificate, "/tls.crt"),
            (&wanted.serving_key, "/tls.key"),
            (&wanted.kubeconfig, "/kubelet.conf"),
            (&wanted.static_pod_path, "/manifests"),
            (&wanted.resolv_conf, "/resolv.conf"),
        ];
        for (path, expected) in paths {
            assert_eq!(path.as_deref(), Some(Path::new(expected)));
        }
        let ports: Vec<_> = wanted.ports.iter().map(|port| (port.name, port.number)).collect();
        assert_eq!(ports, [("API", 10250), ("healthz", 10248), ("read-only", 10255)]);
    }

    #[test]
    fn without_a_word_the_defaults_are_wanted() {
        let wanted = wanted(&[], "");
        assert!(wanted.standalone() && wanted.fail_swap_on && wanted.fail_cgroup_v1);
        assert_eq!(wanted.root_dir, Path::new("/var/lib/kubelet"));
        assert_eq!(wanted.endpoint, "unix:///run/containerd/containerd.sock");
        assert_eq!((wanted.image_endpoint, wanted.client_ca), (None, None));
        assert_eq!((wanted.serving_certificate, wanted.serving_key), (None, None));
        assert!(wanted.ports.iter().all(|port| port.name != "read-only"));
    }
}
