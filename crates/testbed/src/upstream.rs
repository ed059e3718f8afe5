//! Upstream's kubelet without a cluster, on static pods: the one to compare with, where no API server is the subject.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::agent::free_port;
use crate::daemon::Daemon;
use crate::wait::Deadline;
use crate::{Containerd, http, traces};

/// A kubelet that runs. Dropping it kills it; its pods go with the runtime.
#[derive(Debug)]
pub struct Upstream {
    home: PathBuf,
    read_only: u16,
    kubelet: Daemon,
}

impl Upstream {
    /// Starts `binary` as node `name`; `endpoint` is containerd's own or that of a proxy in front of it.
    pub fn start(containerd: &Containerd, binary: &Path, name: &str, endpoint: &str) -> Result<Upstream> {
        let home = containerd.scratch().dir().join(format!("upstream-{name}"));
        fs::create_dir_all(home.join("manifests"))?;
        let read_only = free_port()?;
        let config = configuration(&home, endpoint, read_only)?;
        fs::write(home.join("config.yaml"), format!("{config:#}\n"))?;
        traces::note(containerd.scratch())?;
        let mut command = Command::new(binary);
        command
            .arg("--config")
            .arg(home.join("config.yaml"))
            .arg("--root-dir")
            .arg(home.join("root"))
            .arg("--cert-dir")
            .arg(home.join("pki"))
            .args(["--hostname-override", name]);
        let kubelet = Daemon::start(containerd.scratch(), &format!("upstream-{name}"), &mut command)?;
        Ok(Upstream { home, read_only, kubelet })
    }

    pub fn pid(&self) -> u32 {
        self.kubelet.pid()
    }

    /// The folder of all its files.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Puts a manifest into the folder in one step.
    pub fn put_manifest(&self, name: &str, text: &str) -> Result<()> {
        let temporary = self.home.join("manifests").join(format!(".{name}.new"));
        fs::write(&temporary, text)?;
        fs::rename(&temporary, self.home.join("manifests").join(name))?;
        Ok(())
    }

    pub fn remove_manifest(&self, name: &str) -> Result<()> {
        fs::remove_file(self.home.join("manifests").join(name))
            .with_context(|| format!("cannot remove manifest `{name}`"))
    }

    /// Waits until the pods are as `condition` wants them. Without an API server it tells nobody when a pod changes: its
    /// read-only port must be asked again and again.
    pub fn wait_for(
        &self,
        limit: Duration,
        mut condition: impl FnMut(&[Value]) -> bool,
    ) -> Result<Vec<Value>> {
        let mut last = Vec::new();
        self.kubelet.wait_ready(limit, || {
            let Ok(pods) = self.pods() else { return false };
            last = pods;
            condition(&last)
        })?;
        Ok(last)
    }

    /// Its pods as it serves them.
    pub fn pods(&self) -> Result<Vec<Value>> {
        let deadline = Deadline::after(Duration::from_secs(10));
        let address = (Ipv4Addr::LOCALHOST, self.read_only).into();
        let text = http::tcp(address, "GET", "/pods", deadline)?.text()?;
        let mut list: Value = serde_json::from_str(&text)?;
        // No pods are `null` in Go.
        Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }
}

/// Its defaults, except: cgroup v1 and little disk are facts of test machines, nodes' cgroups are left alone, and no
/// iptables chains are made that nobody would remove.
fn configuration(home: &Path, endpoint: &str, read_only: u16) -> Result<Value> {
    Ok(json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "staticPodPath": home.join("manifests"),
        "podLogsDir": home.join("pod-logs"),
        "volumePluginDir": home.join("volume-plugins"),
        "containerRuntimeEndpoint": endpoint,
        "address": "127.0.0.1",
        "port": free_port()?,
        "readOnlyPort": read_only,
        "healthzPort": free_port()?,
        "failCgroupV1": false,
        "evictionHard": { "memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%" },
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "failSwapOn": false,
        "makeIPTablesUtilChains": false,
        "authentication": { "anonymous": { "enabled": true }, "webhook": { "enabled": false } },
        "authorization": { "mode": "AlwaysAllow" },
    }))
}
