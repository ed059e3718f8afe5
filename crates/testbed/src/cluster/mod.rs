//! A real cluster of our own: a control plane of the pinned Kubernetes version, a containerd, and nodes that join. Each
//! cluster has an address, folders, certificates and cgroups of its own, so that several can run on one machine; all of
//! it hangs on the containerd's scratch folder and goes with it, also after a failure, Ctrl-C or kill -9.

mod addons;
mod control_plane;
mod kubeconfig;
mod node;
pub mod pki;

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

pub use self::control_plane::{API_PORT, FRONT_PROXY};
use self::control_plane::{ControlPlane, Ground};
pub use self::node::{Kubelet, Node, NodeOptions};
use self::pki::Pki;
use crate::daemon::Daemon;
use crate::network::Network;
use crate::process::output_of;
use crate::wait::{self, Deadline};
use crate::{Containerd, Flavor, StartOptions, kube, kubectl, packages};

/// The domain of services' names.
const SERVICE_DOMAIN: &str = "cluster.local";
/// The service of the cluster's name server has this address in the services' subnet.
const DNS_HOST: u8 = 10;
const A_DAY: Duration = Duration::from_secs(24 * 3600);
/// The administrator's kubeconfig in the cluster's folder.
const ADMIN: &str = "admin.kubeconfig";

/// Whether tests are to start clusters: `CRABLET_TEST_CLUSTER=yes|no`. Without it: if nothing would have to be built or
/// installed for it, so that a plain `cargo test` does neither.
pub fn is_under_test() -> bool {
    match std::env::var("CRABLET_TEST_CLUSTER") {
        Ok(wanted) => wanted == "yes",
        Err(_) => {
            let programs = kube::has(kube::CONTROL_PLANE) && kube::has(&[kube::KUBELET, kube::KUBEADM]);
            let built = programs && kubectl::has_old();
            built && packages::cluster_is_there() && rustix::process::geteuid().is_root()
        }
    }
}

/// Builds and installs all that tests with clusters need.
pub fn prepare() -> Result<()> {
    packages::ensure_cluster()?;
    kube::ensure(kube::CONTROL_PLANE)?;
    kube::ensure(&[kube::KUBELET, kube::KUBEADM])?;
    kubectl::ensure_old()?;
    Ok(())
}

/// How to start a cluster.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    pub flavor: Flavor,
    /// Archives of images that the node is to have, besides the test bed's own.
    pub images: Vec<PathBuf>,
    /// Whether services work: kube-proxy on the node and CoreDNS in a pod, once a node joined.
    pub addons: bool,
    /// Whether the API server keeps a line for each request of a node, in [`Cluster::audit_log`].
    pub audit: bool,
    /// Flags of the API server besides the usual ones: gates that are closed otherwise.
    pub api_flags: Vec<String>,
}

impl ClusterOptions {
    pub fn new(flavor: Flavor) -> ClusterOptions {
        ClusterOptions { flavor, images: Vec::new(), addons: false, audit: false, api_flags: Vec::new() }
    }

    /// The programs that such a cluster is made of, for those who want them built ahead.
    fn programs(&self) -> Vec<crate::gobuild::Program> {
        let proxy = self.addons.then_some(kube::PROXY);
        kube::CONTROL_PLANE.iter().copied().chain(proxy).collect()
    }
}

/// A running cluster. Dropping it removes all of it. Fields are dropped in this order.
pub struct Cluster {
    proxy: std::sync::Mutex<Option<Daemon>>,
    control_plane: ControlPlane,
    addons: bool,
    pki: Pki,
    bin: PathBuf,
    home: PathBuf,
    containerd: Containerd,
}

impl Cluster {
    /// Starts the control plane and the runtime; builds and installs what is missing first.
    pub fn start(options: ClusterOptions) -> Result<Cluster> {
        packages::ensure_cluster()?;
        let bin = kube::ensure(&options.programs())?;
        let coredns = if options.addons { Some(addons::coredns_image()?) } else { None };
        let containerd = Containerd::start(StartOptions::new(options.flavor))?;
        let images: Vec<PathBuf> = options.images.into_iter().chain(coredns).collect();
        containerd.import(&images)?;
        containerd.network().bring_up()?;
        let home = containerd.scratch().dir().join("cluster");
        // Keys and credentials lie in it.
        fs::DirBuilder::new().mode(0o700).create(&home)?;
        let pki = Pki::create(&home.join("pki"))?;
        let ground = Ground {
            scratch: containerd.scratch(),
            network: containerd.network(),
            pki: &pki,
            bin: &bin,
            home: &home,
        };
        ground.kubeconfig("admin", "admin", Some("system:masters"))?;
        let control_plane = ControlPlane::start(&ground, options.audit, &options.api_flags)?;
        let cluster = Cluster {
            proxy: std::sync::Mutex::new(None),
            control_plane,
            addons: options.addons,
            pki,
            bin,
            home,
            containerd,
        };
        // The controller manager makes it, and no pod is admitted without it.
        cluster.kubectl(&["wait", "--for=create", "serviceaccount/default", "--timeout=60s"])?;
        Ok(cluster)
    }

    /// Starts a kubelet and waits until its node is ready (and the add-ons with it).
    pub fn join(&self, options: NodeOptions) -> Result<Node> {
        let node = Node::launch(self, &options)?;
        node.wait_ready(self)?;
        let mut proxy = self.proxy.lock().unwrap();
        if self.addons && proxy.is_none() {
            *proxy = Some(addons::start_proxy(&self.ground(), &options.name)?);
            addons::start_coredns(self)?;
        }
        Ok(node)
    }

    /// Starts a kubelet and no more: one that may not live until its node is ready.
    pub fn launch(&self, options: NodeOptions) -> Result<Node> {
        Node::launch(self, &options)
    }

    /// The administrator's, with everything in it.
    pub fn kubeconfig(&self) -> PathBuf {
        self.home.join(ADMIN)
    }

    pub fn server(&self) -> String {
        self.ground().server()
    }

    pub fn pki(&self) -> &Pki {
        &self.pki
    }

    pub fn network(&self) -> Network {
        self.containerd.network()
    }

    pub fn containerd(&self) -> &Containerd {
        &self.containerd
    }

    /// The folder that goes with the cluster; all logs are in it as `<program>.log`.
    pub fn dir(&self) -> &Path {
        self.containerd.scratch().dir()
    }

    /// The folder of Kubernetes' programs.
    pub fn bin(&self) -> &Path {
        &self.bin
    }

    /// JSON lines, with [`ClusterOptions::audit`].
    pub fn audit_log(&self) -> PathBuf {
        self.ground().audit_log()
    }

    /// Runs `kubectl` as the administrator and gives what it printed.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        output_of(self.kubectl_command().args(args))
    }

    /// The same, not yet run.
    pub fn kubectl_command(&self) -> Command {
        let mut command = Command::new(self.bin.join(kube::KUBECTL.name));
        command.arg("--kubeconfig").arg(self.kubeconfig());
        command
    }

    /// Stays as long as all of it runs; the error says which program left.
    pub fn wait_for_an_end(&self, node: &Node) -> Result<()> {
        let mut daemons = self.control_plane.daemons().to_vec();
        daemons.push(node.kubelet());
        let ends = daemons.iter().map(|daemon| daemon.end()).collect::<Result<Vec<_>>>()?;
        let fds: Vec<_> = ends.iter().map(|end| end.as_fd()).collect();
        loop {
            wait::readable(&fds, Deadline::after(A_DAY))?;
            for daemon in &daemons {
                daemon.check()?;
            }
        }
    }

    /// Removes everything and checks that nothing is left.
    pub fn stop(self) -> Result<()> {
        let Cluster { proxy, control_plane, containerd, .. } = self;
        drop(proxy);
        drop(control_plane);
        containerd.stop()
    }

    fn ground(&self) -> Ground<'_> {
        Ground {
            scratch: self.containerd.scratch(),
            network: self.containerd.network(),
            pki: &self.pki,
            bin: &self.bin,
            home: &self.home,
        }
    }
}
