//! A machine that becomes a node by `kubeadm join`: with a bootstrap token, for which it gets a certificate of its own.
//! Then as many pods as the node has room for.

use std::fs;

use anyhow::{Result, ensure};
use crablet_testbed::cluster::Cluster;
use crablet_testbed::kubeadm::join::{Joined, join};
use serde_json::{Value, json};

use super::support::{PATIENCE, QUIET, Room, ensure_has, kubelet, template};

const NODE: &str = "node";
const CROWD: usize = 110;

pub fn all(cluster: &Cluster) -> Result<()> {
    let node = join(cluster, &kubelet(), NODE)?;
    let room = Room::new(cluster, node.log_path(), "joining")?;
    room.during("a certificate for a token", |room| has_credentials(room, &node))?;
    room.during("a full node", |room| a_full_node_comes_and_goes(room, &node))
}

fn has_credentials(room: &Room<'_>, node: &Joined) -> Result<()> {
    let current = node.home().join("pki/kubelet-client-current.pem");
    ensure!(fs::symlink_metadata(&current)?.is_symlink(), "`{}` is no link", current.display());
    ensure_has(&fs::read_to_string(&current)?, &["BEGIN CERTIFICATE", "PRIVATE KEY"])?;
    let kubeconfig = node.etc().join("kubelet.conf");
    let text = fs::read_to_string(&kubeconfig)?;
    ensure_has(&text, &[&*current.to_string_lossy(), &room.cluster.server()])?;
    ensure!(!text.contains("token"), "a token is in the kubeconfig");
    ensure!(!node.etc().join("bootstrap-kubelet.conf").exists(), "kubeadm left the token");
    // What kubeadm does next: it loads the file.
    let mut whoami = std::process::Command::new(room.cluster.bin().join("kubectl"));
    whoami.arg("--kubeconfig").arg(&kubeconfig).args(["auth", "whoami", "-o", "json"]);
    let who: Value = serde_json::from_str(&crablet_testbed::process::output_of(&mut whoami)?)?;
    ensure!(who["status"]["userInfo"]["username"] == format!("system:node:{NODE}"), "{who}");
    let asked = "jsonpath={range .items[*]}{.spec.signerName} {.spec.username}{\"\\n\"}{end}";
    let requests = room.kubectl(&["get", "csr", "-o", asked])?;
    let client = "kubernetes.io/kube-apiserver-client-kubelet system:bootstrap:";
    let serving = format!("kubernetes.io/kubelet-serving system:node:{NODE}");
    ensure!(
        requests.lines().filter(|line| line.starts_with(client)).count() == 1
            && requests.lines().all(|line| line.starts_with(client) || line == serving),
        "who asked for certificates: {requests}"
    );
    Ok(())
}

fn a_full_node_comes_and_goes(room: &Room<'_>, node: &Joined) -> Result<()> {
    room.create(&json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": "crowd" },
        "spec": {
            "replicas": CROWD,
            "selector": { "matchLabels": { "app": "crowd" } },
            "template": template("crowd", QUIET),
        },
    }))?;
    let timeout = format!("--timeout={}s", PATIENCE.as_secs());
    room.kubectl(&["rollout", "status", "deployment/crowd", &timeout])?;
    let restarts = "jsonpath={range .items[*]}{.status.containerStatuses[0].restartCount}{end}";
    ensure!(
        room.kubectl(&["get", "pods", "-o", restarts])? == "0".repeat(CROWD),
        "containers were restarted"
    );
    room.event(&format!("node/{NODE}"), "NodeAllocatableEnforced")?;
    room.delete(&["deployment", "crowd", "--cascade=foreground"])?;
    let left = room.kubectl(&["get", "pods", "-o", "name"])?;
    ensure!(left.is_empty(), "pods are left: {left}");
    // Sandboxes may go after their pods.
    let mut last = String::new();
    let nothing = room.until("the removal of everything", || {
        let mut left = room.cluster.containerd().leftovers();
        // Upstream's kubelet makes its folder a mount of its own, for as long as it runs.
        left.mounts.retain(|mount| *mount != node.home().join("root"));
        let folders =
            [node.home().join("root/pods"), node.home().join("pod-logs")].map(|folder| entries(&folder));
        last = format!("{left}\nfolders: {folders:?}");
        Ok(left.no_pods() && folders.iter().all(Vec::is_empty) && pod_cgroups(room).is_empty())
    });
    nothing.map_err(|error| error.context(format!("{last}\ncgroups: {:?}", pod_cgroups(room))))
}

fn entries(folder: &std::path::Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Cgroups of pods below this cluster's own, in every hierarchy.
fn pod_cgroups(room: &Room<'_>) -> Vec<String> {
    let mut found = Vec::new();
    let root = room.cluster.network().cgroup_root();
    let mut hierarchies: Vec<_> =
        fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|e| e.path()).collect();
    hierarchies.push("/sys/fs/cgroup".into());
    for hierarchy in hierarchies {
        let pods = hierarchy.join(root.trim_start_matches('/')).join("kubepods");
        for folder in [pods.clone(), pods.join("burstable"), pods.join("besteffort")] {
            found.extend(entries(&folder).into_iter().filter(|name| name.starts_with("pod")));
        }
    }
    found
}
