//! The world that the node suite wants around it. `e2e_node.test` brings its own API server and starts the binary
//! called `kubelet` that it is given, on the machine itself: fixed ports, `/var/lib/kubelet`, cgroups at the root. So
//! only one such run fits on a machine, and none beside a real node.

mod ports;
mod standins;
pub(crate) mod traces;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;

use crate::cluster::Kubelet;
use crate::{Containerd, kube};

/// Everything that is needed besides the suite's program.
#[derive(Debug)]
pub struct World {
    /// Where the suite runs: it writes its kubelet's configuration and certificates here.
    pub folder: PathBuf,
    /// Where it leaves logs, `kubelet.log` among them.
    pub logs: PathBuf,
    pub flags: Vec<OsString>,
    pub environment: Vec<(&'static str, OsString)>,
}

impl World {
    /// Prepares it in the runtime's scratch folder. `endpoint` is the runtime as the kubelet is to see it.
    pub fn prepare(containerd: &Containerd, kubelet: &Kubelet, endpoint: &str) -> Result<World> {
        check_machine()?;
        traces::note(containerd.scratch())?;
        // The node's address is on the bridge, which is there before the first pod.
        containerd.network().bring_up()?;
        let folder = containerd.scratch().dir().join("suite");
        let (bin, logs, temporary) = (folder.join("bin"), folder.join("logs"), folder.join("tmp"));
        for dir in [&bin, &logs, &temporary] {
            fs::create_dir_all(dir)?;
        }
        standins::install(&bin, &folder.join("units"))?;
        symlink(binary(kubelet)?, bin.join("kubelet"))?;
        fs::write(folder.join("kubelet-base.yaml"), configuration(&folder))?;
        let daemon = containerd.daemon_pid().context("containerd does not run")?;
        fs::write(folder.join("containerd.pid"), daemon.to_string())?;
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        let path =
            std::env::join_paths(std::iter::once(bin.clone()).chain(std::env::split_paths(&inherited)))?;
        let flag = |name: &str, value: &Path| OsString::from(format!("--{name}={}", value.display()));
        let flags = vec![
            flag("k8s-bin-dir", &bin),
            flag("kubelet-config-file", &folder.join("kubelet-base.yaml")),
            flag("container-runtime-pid-file", &folder.join("containerd.pid")),
            flag("report-dir", &logs),
            format!("--container-runtime-endpoint={endpoint}").into(),
            format!("--kubelet-flags={}", kubelet_flags(containerd, kubelet)).into(),
            "--node-name=node".into(),
            "--prepull-images=false".into(),
        ];
        Ok(World { folder, logs, flags, environment: vec![("PATH", path), ("TMPDIR", temporary.into())] })
    }
}

/// An error on a machine where the suite cannot run: something has its ports or its folder. Worth asking early.
pub fn check_machine() -> Result<()> {
    ports::ensure_free()?;
    traces::refuse_foreign_kubelet()
}

fn binary(kubelet: &Kubelet) -> Result<PathBuf> {
    match kubelet {
        Kubelet::Upstream => Ok(kube::ensure(&[kube::KUBELET])?.join(kube::KUBELET.name)),
        Kubelet::Crablet(path) => Ok(path.clone()),
    }
}

/// What the suite leaves to be said to the kubelet.
fn kubelet_flags(containerd: &Containerd, kubelet: &Kubelet) -> String {
    // Given, so that the kubelet asks no name server for its own address.
    let address = format!("--node-ip={}", containerd.network().gateway());
    match kubelet {
        // The cAdvisor in it does not ask the kubelet where the runtime is, and would see no containers.
        Kubelet::Upstream => format!("{address} --containerd={}", containerd.scratch().socket().display()),
        Kubelet::Crablet(_) => address,
    }
}

/// The suite's own defaults (upstream's `test/e2e_node/jenkins/default-kubelet-config.yaml`), except for what test
/// machines do not let a kubelet do: cgroup v1, a disk that others fill, images that exist nowhere else, and chains in
/// iptables that nobody would remove. JSON is YAML enough.
fn configuration(folder: &Path) -> String {
    let configuration = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": "/",
        "podCIDR": "10.100.0.0/24",
        "volumeStatsAggPeriod": "10s",
        "fileCheckFrequency": "10s",
        "evictionPressureTransitionPeriod": "30s",
        "evictionHard": { "memory.available": "250Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%" },
        "evictionMinimumReclaim": { "nodefs.available": "1%", "nodefs.inodesFree": "1%" },
        "serializeImagePulls": false,
        "failCgroupV1": false,
        "failSwapOn": false,
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "makeIPTablesUtilChains": false,
        "volumePluginDir": folder.join("volume-plugins"),
    });
    format!("{configuration:#}\n")
}
