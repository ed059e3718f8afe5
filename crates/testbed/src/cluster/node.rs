//! One node of a cluster: a kubelet of either kind on the cluster's containerd.

use std::fs;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::control_plane::Ground;
use super::{Cluster, SERVICE_DOMAIN, kubeconfig};
use crate::daemon::Daemon;
use crate::wait::{self, Deadline};
use crate::{cgroups, kube, traces};

/// How long a kubelet may take until its node is ready.
const READY: Duration = Duration::from_secs(120);

/// Which kubelet runs the node. Both get the same flags, configuration and credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kubelet {
    /// Kubernetes' own, of the pinned version.
    Upstream,
    /// The given `crablet` binary.
    Crablet(PathBuf),
}

impl Kubelet {
    pub fn name(&self) -> &'static str {
        match self {
            Kubelet::Upstream => "upstream",
            Kubelet::Crablet(_) => "crablet",
        }
    }

    fn binary(&self) -> Result<PathBuf> {
        match self {
            Kubelet::Upstream => Ok(kube::ensure(&[kube::KUBELET])?.join(kube::KUBELET.name)),
            Kubelet::Crablet(path) => Ok(path.clone()),
        }
    }
}

/// How a node is to join.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    pub kubelet: Kubelet,
    pub name: String,
    /// Instead of containerd's own endpoint: a proxy's.
    pub runtime_endpoint: Option<String>,
    /// Instead of the API server's own address: a proxy's.
    pub api_server: Option<String>,
    /// Instead of a client certificate: the bootstrap token with which the kubelet is to ask for one.
    pub bootstrap_token: Option<String>,
    /// Flags besides the usual ones.
    pub flags: Vec<String>,
}

impl NodeOptions {
    pub fn new(kubelet: Kubelet) -> NodeOptions {
        NodeOptions {
            kubelet,
            name: "node".into(),
            runtime_endpoint: None,
            api_server: None,
            bootstrap_token: None,
            flags: Vec::new(),
        }
    }

    fn server(&self, ground: &Ground<'_>) -> String {
        self.api_server.clone().unwrap_or_else(|| ground.server())
    }
}

/// A node that joined. Dropping it kills the kubelet; its pods go with the cluster.
pub struct Node {
    name: String,
    home: PathBuf,
    kubelet: Daemon,
}

impl Node {
    /// Starts its kubelet; what becomes of it is for others to say.
    pub(super) fn launch(cluster: &Cluster, options: &NodeOptions) -> Result<Node> {
        let ground = cluster.ground();
        let binary = options.kubelet.binary()?;
        let home = ground.scratch.dir().join(&options.name);
        fs::create_dir_all(home.join("manifests"))?;
        cgroups::create(&ground.network.cgroup_root())?;
        traces::note(ground.scratch)?;
        let endpoint = options.runtime_endpoint.clone().unwrap_or_else(|| cluster.containerd().endpoint());
        let config = configuration(&ground, &home, options, &endpoint)?;
        fs::write(home.join("config.yaml"), format!("{config:#}\n"))?;
        let mut command = Command::new(binary);
        match &options.bootstrap_token {
            Some(token) => {
                let path = home.join("bootstrap-kubeconfig");
                let server = options.server(&ground);
                kubeconfig::write_for_token(&path, &server, ground.pki.cluster.certificate(), token)?;
                command.arg("--bootstrap-kubeconfig").arg(path);
            }
            None => write_kubeconfig(&ground, &home, options)?,
        }
        command
            .arg("--config")
            .arg(home.join("config.yaml"))
            .arg("--kubeconfig")
            .arg(home.join("kubeconfig"))
            .arg("--root-dir")
            .arg(home.join("root"))
            .arg("--cert-dir")
            .arg(home.join("pki"))
            .args(["--hostname-override", &options.name])
            .arg(format!("--node-ip={}", ground.network.gateway()))
            .arg("--v=2")
            .args(&options.flags);
        let kubelet = Daemon::start(ground.scratch, &format!("kubelet-{}", options.name), &mut command)?;
        Ok(Node { name: options.name.clone(), home, kubelet })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn home(&self) -> &Path {
        &self.home
    }

    pub fn log_path(&self) -> &Path {
        self.kubelet.log_path()
    }

    pub fn kubelet(&self) -> &Daemon {
        &self.kubelet
    }

    /// The API server tells, and a kubelet that leaves is heard of at once.
    pub(super) fn wait_ready(&self, cluster: &Cluster) -> Result<()> {
        let node = format!("node/{}", self.name);
        let timeout = format!("--timeout={}s", READY.as_secs());
        for condition in ["--for=create", "--for=condition=Ready"] {
            let mut command = cluster.kubectl_command();
            command.args(["wait", condition, &node, &timeout]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            let mut kubectl = command.spawn().context("cannot run `kubectl`")?;
            let end = rustix::process::pidfd_open(
                rustix::process::Pid::from_child(&kubectl),
                rustix::process::PidfdFlags::empty(),
            )?;
            let left = self.kubelet.end()?;
            wait::readable(&[end.as_fd(), left.as_fd()], Deadline::after(READY * 2))?;
            if let Err(error) = self.kubelet.check() {
                let _ = kubectl.kill();
                let _ = kubectl.wait();
                return Err(error.context(format!("node `{}` cannot join the cluster", self.name)));
            }
            let output = kubectl.wait_with_output()?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr);
                bail!(
                    "node `{}` did not become ready: {}\nthe end of its kubelet's log:\n{}",
                    self.name,
                    said.trim(),
                    crate::containerd::tail_of(self.log_path(), 20)
                );
            }
        }
        Ok(())
    }
}

fn write_kubeconfig(ground: &Ground<'_>, home: &Path, options: &NodeOptions) -> Result<()> {
    let user = format!("system:node:{}", options.name);
    let identity = ground.pki.cluster.client(&user, Some("system:nodes"))?;
    let server = options.server(ground);
    kubeconfig::write(&home.join("kubeconfig"), &server, ground.pki.cluster.certificate(), &user, &identity)
}

/// As on a real node, except for what test machines do not let a kubelet do and for folders and addresses, which are
/// the cluster's own. JSON is YAML enough.
fn configuration(ground: &Ground<'_>, home: &Path, options: &NodeOptions, endpoint: &str) -> Result<Value> {
    let address = ground.network.gateway();
    let serving = ground.pki.cluster.server(&options.name, &[&options.name], &[IpAddr::from(address)])?;
    let serving = ground.pki.put(&format!("kubelet-{}", options.name), &serving)?;
    Ok(json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "rotateCertificates": options.bootstrap_token.is_some(),
        "staticPodPath": home.join("manifests"),
        "podLogsDir": home.join("pod-logs"),
        "volumePluginDir": home.join("volume-plugins"),
        "containerRuntimeEndpoint": endpoint,
        "address": address,
        "healthzBindAddress": address,
        "tlsCertFile": serving.certificate,
        "tlsPrivateKeyFile": serving.key,
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": ground.pki.ca_file() },
        },
        "authorization": { "mode": "Webhook" },
        "clusterDNS": [ground.network.service_address(super::DNS_HOST)],
        "clusterDomain": SERVICE_DOMAIN,
        "cgroupRoot": ground.network.cgroup_root(),
        // The machine's own limits, not the node's: cgroup v1, little disk, images that exist nowhere else.
        "failCgroupV1": false,
        "failSwapOn": false,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        // Chains for the whole machine that nobody would remove.
        "makeIPTablesUtilChains": false,
    }))
}
