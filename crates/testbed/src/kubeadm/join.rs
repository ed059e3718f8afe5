//! `kubeadm join` on this very machine. kubeadm's places cannot be chosen, so it runs in a mount namespace where they
//! lead into the cluster's scratch folder; it starts the kubelet through a stand-in for `systemctl`. The kubelet runs
//! outside of the namespace, as the runtime does, since both must see the same mounts.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Kubelet};
use crate::containerd::tail_of;
use crate::daemon::Daemon;
use crate::guard::{self, Group};
use crate::process::{shown, wait_child};
use crate::wait::{self, Deadline};
use crate::{cgroups, kube, traces};

/// How long all of it may take.
const PATIENCE: Duration = Duration::from_secs(180);
/// What a test machine is not: one with cgroup v2 and systemd, whose ports and host name are the node's alone.
const FORGIVEN: &str = "SystemVerification,Port-10250,Hostname,FileContent--proc-sys-net-ipv4-ip_forward";

/// A node that kubeadm made of this machine. Dropping it kills the kubelet; its pods go with the cluster.
pub struct Joined {
    home: PathBuf,
    kubelet: Daemon,
    said: String,
}

impl Joined {
    /// The folder in the cluster's scratch folder that has all of its files.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// What is at `/etc/kubernetes` for kubeadm.
    pub fn etc(&self) -> PathBuf {
        self.home.join("etc")
    }

    /// What is at `/var/lib/kubelet` for kubeadm: the kubelet's configuration. Its own files are in `root`.
    pub fn lib(&self) -> PathBuf {
        self.home.join("lib")
    }

    pub fn kubelet(&self) -> &Daemon {
        &self.kubelet
    }

    pub fn log_path(&self) -> &Path {
        self.kubelet.log_path()
    }

    /// What kubeadm said.
    pub fn said(&self) -> &str {
        &self.said
    }
}

/// Prepares the cluster, joins it under this name, and waits until the node is ready. Its serving certificate has to be
/// approved before the API server trusts its port.
pub fn join(cluster: &Cluster, kubelet: &Kubelet, name: &str) -> Result<Joined> {
    let command = super::invite(cluster)?;
    let place = Place::prepare(cluster, kubelet, name)?;
    let kubeadm = place.start_kubeadm(&command)?;
    let (kubelet, said) = place.see_it_through(kubeadm)?;
    let ready = ["wait", "--for=condition=Ready", &format!("node/{name}"), "--timeout=120s"];
    let log = kubelet.log_path().to_owned();
    cluster.kubectl(&ready).with_context(|| format!("the kubelet's last words:\n{}", tail_of(&log, 20)))?;
    Ok(Joined { home: place.home, kubelet, said })
}

struct Place<'a> {
    cluster: &'a Cluster,
    name: &'a str,
    home: PathBuf,
    binary: PathBuf,
}

impl<'a> Place<'a> {
    fn prepare(cluster: &'a Cluster, kubelet: &Kubelet, name: &'a str) -> Result<Place<'a>> {
        let binary = match kubelet {
            Kubelet::Upstream => kube::ensure(&[kube::KUBELET])?.join(kube::KUBELET.name),
            Kubelet::Crablet(path) => path.clone(),
        };
        let place = Place { cluster, name, home: cluster.dir().join(name), binary };
        for folder in ["bin", "etc/manifests", "lib", "work", "patches"] {
            fs::create_dir_all(place.home.join(folder))?;
        }
        let systemctl = place.home.join("bin/systemctl");
        let text = include_str!("systemctl.sh").replace("@START@", &place.start_file().to_string_lossy());
        fs::write(&systemctl, text)?;
        fs::set_permissions(&systemctl, fs::Permissions::from_mode(0o755))?;
        // kubeadm asks it for its version.
        symlink(&place.binary, place.home.join("bin/kubelet"))?;
        fs::write(place.home.join("namespace.sh"), include_str!("namespace.sh"))?;
        let patch = place.home.join("patches/kubeletconfiguration+merge.json");
        fs::write(patch, place.configuration().to_string())?;
        let scratch = cluster.containerd().scratch();
        cgroups::create(&cluster.network().cgroup_root())?;
        traces::note(scratch)?;
        Ok(place)
    }

    fn start_file(&self) -> PathBuf {
        self.home.join("start")
    }

    fn output_file(&self) -> PathBuf {
        self.home.join("kubeadm.log")
    }

    /// What this machine has the kubelet do otherwise than the cluster's configuration says: its folders and addresses
    /// are the cluster's own, and a test machine does not let it do all.
    fn configuration(&self) -> Value {
        let network = self.cluster.network();
        let address = network.gateway();
        json!({
            "address": address,
            "healthzBindAddress": address,
            "staticPodPath": self.home.join("etc/manifests"),
            "podLogsDir": self.home.join("pod-logs"),
            "volumePluginDir": self.home.join("volume-plugins"),
            "authentication": { "x509": { "clientCAFile": self.home.join("etc/pki/ca.crt") } },
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": network.cgroup_root(),
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
        })
    }

    /// `join` is the command that the cluster's administrator gives.
    fn start_kubeadm(&self, join: &str) -> Result<Child> {
        let words = join.split_whitespace().skip(1);
        let path = std::env::join_paths(
            std::iter::once(self.home.join("bin"))
                .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
        )?;
        let output = fs::File::create(self.output_file())?;
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private", "sh"])
            .args(["namespace.sh", "etc", "lib", "work"].map(|name| self.home.join(name)))
            .arg(super::ensure()?)
            .args(words)
            .args(["--node-name", self.name])
            .args(["--cri-socket", &self.cluster.containerd().endpoint()])
            .arg("--patches")
            .arg(self.home.join("patches"))
            .arg(format!("--ignore-preflight-errors={FORGIVEN}"))
            .env("PATH", path)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0);
        guard::refuse_when_stopping()?;
        command.spawn().with_context(|| format!("cannot run `{}`", shown(&command)))
    }

    /// Starts the kubelet when kubeadm says so, and waits for kubeadm's end.
    fn see_it_through(&self, mut kubeadm: Child) -> Result<(Daemon, String)> {
        let _group = Group::of(&kubeadm);
        let mut ended = None;
        wait::until(Deadline::after(PATIENCE), || {
            ended = kubeadm.try_wait().ok().flatten();
            ended.is_some() || self.start_file().exists()
        });
        if ended.is_some() || !self.start_file().exists() {
            let _ = kubeadm.kill();
            return Err(self.failed(ended));
        }
        let kubelet = self.start_kubelet()?;
        let ended = wait_child(&mut kubeadm, PATIENCE)?;
        if !ended.is_some_and(|status| status.success()) {
            let _ = kubeadm.kill();
            let last = tail_of(kubelet.log_path(), 20);
            return Err(self.failed(ended).context(format!("the kubelet's last words:\n{last}")));
        }
        Ok((kubelet, fs::read_to_string(self.output_file())?))
    }

    fn failed(&self, status: Option<ExitStatus>) -> anyhow::Error {
        let how =
            status.map_or("did not come to an end".to_owned(), |status| format!("failed with {status}"));
        anyhow::anyhow!("`kubeadm join` {how}:\n{}", tail_of(&self.output_file(), 40))
    }

    /// As the unit of kubeadm's package does it.
    fn start_kubelet(&self) -> Result<Daemon> {
        let (etc, lib) = (self.home.join("etc"), self.home.join("lib"));
        let option = |name: &str, path: PathBuf| format!("--{name}={}", path.display());
        let mut command = Command::new(&self.binary);
        command
            .arg(option("bootstrap-kubeconfig", etc.join("bootstrap-kubelet.conf")))
            .arg(option("kubeconfig", etc.join("kubelet.conf")))
            .arg(option("config", lib.join("config.yaml")))
            .args(flags(&fs::read_to_string(lib.join("kubeadm-flags.env"))?)?)
            .arg(option("root-dir", self.home.join("root")))
            .arg(option("cert-dir", self.home.join("pki")))
            .arg(format!("--node-ip={}", self.cluster.network().gateway()))
            .arg("--v=2");
        let scratch = self.cluster.containerd().scratch();
        Daemon::start(scratch, &format!("kubelet-{}", self.name), &mut command)
    }
}

/// The flags that kubeadm wants: `KUBELET_KUBEADM_ARGS="--one=1 --two=2"`.
fn flags(env: &str) -> Result<Vec<String>> {
    let value = env.trim().strip_prefix("KUBELET_KUBEADM_ARGS=");
    let Some(value) = value.and_then(|value| value.strip_prefix('"')?.strip_suffix('"')) else {
        bail!("kubeadm's flags are not understood: {env:?}");
    };
    Ok(value.split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubeadms_flags_are_read() {
        let env = "KUBELET_KUBEADM_ARGS=\"--hostname-override=node --v=2\"\n";
        assert_eq!(flags(env).unwrap(), ["--hostname-override=node", "--v=2"]);
        assert!(flags("KUBELET_KUBEADM_ARGS=\"\"\n").unwrap().is_empty());
        assert!(flags("nonsense").is_err());
    }
}
