//! The control plane: etcd, kube-apiserver, kube-controller-manager and kube-scheduler, all on the cluster's own
//! address. Ports are the usual ones: the address is nobody else's.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::pki::{IdentityFiles, Pki};
use super::{SERVICE_DOMAIN, kubeconfig};
use crate::daemon::Daemon;
use crate::network::Network;
use crate::process::output_of;
use crate::scratch::Scratch;
use crate::{kube, packages};

pub const API_PORT: u16 = 6443;
/// How long each program may take on a small machine that is busy.
const START: Duration = Duration::from_secs(90);

/// What the programs have in common.
pub struct Ground<'a> {
    pub scratch: &'a Scratch,
    pub network: Network,
    pub pki: &'a Pki,
    pub bin: &'a Path,
    /// The folder of the cluster's files.
    pub home: &'a Path,
}

/// Running programs, in the order in which they are to be stopped.
pub struct ControlPlane {
    scheduler: Daemon,
    controller_manager: Daemon,
    apiserver: Daemon,
    etcd: Daemon,
}

impl ControlPlane {
    /// `audit`: a line in [`Ground::audit_log`] for each request of a node.
    pub fn start(ground: &Ground<'_>, audit: bool, api_flags: &[String]) -> Result<ControlPlane> {
        let etcd = ground.start_etcd()?;
        let apiserver = ground.start_apiserver(audit, api_flags)?;
        apiserver.wait_ready(START, || ground.is_ready())?;
        let controller_manager = ground.start_controller_manager()?;
        let scheduler = ground.start_scheduler()?;
        Ok(ControlPlane { scheduler, controller_manager, apiserver, etcd })
    }

    pub fn daemons(&self) -> [&Daemon; 4] {
        [&self.scheduler, &self.controller_manager, &self.apiserver, &self.etcd]
    }
}

impl Ground<'_> {
    fn address(&self) -> Ipv4Addr {
        self.network.gateway()
    }

    pub fn server(&self) -> String {
        format!("https://{}:{API_PORT}", self.address())
    }

    pub fn audit_log(&self) -> PathBuf {
        self.home.join("audit.log")
    }

    fn start_etcd(&self) -> Result<Daemon> {
        let etcd = packages::program("etcd").context("no `etcd` on the path\nhint: package `etcd-server`")?;
        let serving = self.serving("etcd", &[])?;
        let address = self.address();
        let mut command = Command::new(etcd);
        command
            .args(["--name", "testbed", "--data-dir"])
            .arg(self.home.join("etcd"))
            .arg(format!("--listen-client-urls=https://{address}:2379"))
            .arg(format!("--advertise-client-urls=https://{address}:2379"))
            .arg(format!("--listen-peer-urls=http://{address}:2380"))
            .arg(format!("--initial-advertise-peer-urls=http://{address}:2380"))
            .arg(format!("--initial-cluster=testbed=http://{address}:2380"))
            .arg("--client-cert-auth")
            .arg(option("--trusted-ca-file", &self.pki.ca_file()))
            .arg(option("--cert-file", &serving.certificate))
            .arg(option("--key-file", &serving.key))
            // A scratch folder need not survive a power cut.
            .arg("--unsafe-no-fsync")
            // Debian's etcd asks for this word on some architectures.
            .env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH);
        Daemon::start(self.scratch, "etcd", &mut command)
    }

    fn start_apiserver(&self, audit: bool, flags: &[String]) -> Result<Daemon> {
        let names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        let whole_name = format!("kubernetes.default.svc.{SERVICE_DOMAIN}");
        let serving = self.serving("apiserver", &[names[0], names[1], names[2], &whole_name, "localhost"])?;
        let etcd = self.client("apiserver-etcd", "apiserver", None)?;
        let kubelet =
            self.client("apiserver-kubelet", "kube-apiserver-kubelet-client", Some("system:masters"))?;
        let proxy = self.pki.put("front-proxy", &self.pki.front_proxy.client(FRONT_PROXY, None)?)?;
        let address = self.address();
        let mut command = Command::new(self.bin.join(kube::APISERVER.name));
        command
            .arg(format!("--advertise-address={address}"))
            .arg(format!("--bind-address={address}"))
            .arg(format!("--secure-port={API_PORT}"))
            .arg(format!("--etcd-servers=https://{address}:2379"))
            .arg(option("--etcd-cafile", &self.pki.ca_file()))
            .arg(option("--etcd-certfile", &etcd.certificate))
            .arg(option("--etcd-keyfile", &etcd.key))
            .arg(option("--tls-cert-file", &serving.certificate))
            .arg(option("--tls-private-key-file", &serving.key))
            .arg(option("--client-ca-file", &self.pki.ca_file()))
            .arg(option("--kubelet-certificate-authority", &self.pki.ca_file()))
            .arg(option("--kubelet-client-certificate", &kubelet.certificate))
            .arg(option("--kubelet-client-key", &kubelet.key))
            .arg("--kubelet-preferred-address-types=InternalIP,Hostname")
            .arg(option("--requestheader-client-ca-file", &self.pki.front_proxy_ca_file()))
            .arg(format!("--requestheader-allowed-names={FRONT_PROXY}"))
            .arg("--requestheader-username-headers=X-Remote-User")
            .arg("--requestheader-group-headers=X-Remote-Group")
            .arg("--requestheader-extra-headers-prefix=X-Remote-Extra-")
            .arg(option("--proxy-client-cert-file", &proxy.certificate))
            .arg(option("--proxy-client-key-file", &proxy.key))
            .arg(format!("--service-account-issuer=https://kubernetes.default.svc.{SERVICE_DOMAIN}"))
            .arg(option("--service-account-key-file", &self.pki.account_public_key_file()))
            .arg(option("--service-account-signing-key-file", &self.pki.account_key_file()))
            .arg(format!("--service-cluster-ip-range={}", self.network.service_subnet()))
            .arg("--authorization-mode=Node,RBAC")
            .arg("--enable-admission-plugins=NodeRestriction")
            .arg("--enable-bootstrap-token-auth=true")
            // Services of aggregated APIs are reached by their pods' addresses: no kube-proxy is needed for it.
            .arg("--enable-aggregator-routing=true")
            .arg("--allow-privileged=true")
            .arg("--profiling=false")
            .args(flags);
        if audit {
            let policy = self.home.join("audit-policy.yaml");
            fs::write(&policy, AUDIT_POLICY)?;
            command.arg(option("--audit-policy-file", &policy));
            command.arg(option("--audit-log-path", &self.audit_log()));
        }
        Daemon::start(self.scratch, "kube-apiserver", &mut command)
    }

    fn is_ready(&self) -> bool {
        // The port first: it is cheaper to ask than a new process.
        std::net::TcpStream::connect_timeout(&(self.address(), API_PORT).into(), Duration::from_secs(1))
            .is_ok()
            && output_of(
                Command::new(self.bin.join(kube::KUBECTL.name))
                    .arg(option("--kubeconfig", &self.home.join(super::ADMIN)))
                    .args(["--request-timeout=5s", "get", "--raw", "/readyz"]),
            )
            .is_ok()
    }

    fn start_controller_manager(&self) -> Result<Daemon> {
        let config = self.kubeconfig("controller-manager", "system:kube-controller-manager", None)?;
        let mut command = Command::new(self.bin.join(kube::CONTROLLER_MANAGER.name));
        command
            .arg(option("--kubeconfig", &config))
            .arg(format!("--bind-address={}", self.address()))
            .arg("--controllers=*,bootstrap-signer-controller,token-cleaner-controller")
            .arg("--use-service-account-credentials=true")
            .arg(option("--service-account-private-key-file", &self.pki.account_key_file()))
            .arg(option("--root-ca-file", &self.pki.ca_file()))
            .arg(option("--cluster-signing-cert-file", &self.pki.ca_file()))
            .arg(option("--cluster-signing-key-file", &self.pki.ca_key_file()))
            .arg(format!("--service-cluster-ip-range={}", self.network.service_subnet()))
            .arg("--leader-elect=false");
        Daemon::start(self.scratch, "kube-controller-manager", &mut command)
    }

    fn start_scheduler(&self) -> Result<Daemon> {
        let config = self.kubeconfig("scheduler", "system:kube-scheduler", None)?;
        let mut command = Command::new(self.bin.join(kube::SCHEDULER.name));
        command
            .arg(option("--kubeconfig", &config))
            .arg(format!("--bind-address={}", self.address()))
            .arg("--leader-elect=false");
        Daemon::start(self.scratch, "kube-scheduler", &mut command)
    }

    /// A serving certificate for the cluster's address and the first address of its services.
    pub fn serving(&self, name: &str, dns: &[&str]) -> Result<IdentityFiles> {
        let addresses =
            [self.address(), self.network.service_address(1), Ipv4Addr::LOCALHOST].map(IpAddr::from);
        self.pki.put(name, &self.pki.cluster.server(name, dns, &addresses)?)
    }

    fn client(&self, name: &str, user: &str, group: Option<&str>) -> Result<IdentityFiles> {
        self.pki.put(name, &self.pki.cluster.client(user, group)?)
    }

    /// Writes `<name>.kubeconfig` for a user of this cluster.
    pub fn kubeconfig(&self, name: &str, user: &str, group: Option<&str>) -> Result<PathBuf> {
        let path = self.home.join(format!("{name}.kubeconfig"));
        let identity = self.pki.cluster.client(user, group)?;
        kubeconfig::write(&path, &self.server(), self.pki.cluster.certificate(), user, &identity)?;
        Ok(path)
    }
}

/// What nodes ask for, and nothing of what others do.
const AUDIT_POLICY: &str = r#"apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    userGroups: ["system:nodes"]
  - level: None
"#;

/// Who may speak for other users towards the API server.
pub const FRONT_PROXY: &str = "front-proxy-client";

fn option(name: &str, path: &Path) -> String {
    format!("{name}={}", path.display())
}
