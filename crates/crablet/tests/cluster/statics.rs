//! Static pods, as the cluster sees them.

use std::fs;

use anyhow::{Result, ensure};

use super::support::{QUIET, Room, main_container, shell_pod};

pub fn a_static_pod_has_a_mirror(room: &Room<'_>) -> Result<()> {
    let manifest = room.cluster.dir().join("node/manifests/keeper.json");
    let mut pod = shell_pod("keeper", QUIET);
    pod["metadata"]["namespace"] = room.namespace().into();
    // Written aside and moved, as one does with what someone watches.
    let aside = room.folder().join("keeper.json");
    fs::write(&aside, pod.to_string())?;
    fs::rename(&aside, &manifest)?;
    room.wait("pod/keeper-node", "create")?;
    room.wait_ready("keeper-node")?;
    let first = room.get("pod/keeper-node")?;
    ensure!(first["metadata"]["ownerReferences"][0]["kind"] == "Node", "no owner: {}", first["metadata"]);
    let hash = &first["metadata"]["annotations"]["kubernetes.io/config.mirror"];
    ensure!(hash.is_string(), "no mirror annotation: {}", first["metadata"]);

    let uid = first["metadata"]["uid"].as_str().unwrap_or_default();
    room.kubectl(&["delete", "pod", "keeper-node", "--wait=false"])?;
    let mut mirrors =
        room.follow(&["get", "pods", "--watch", "-o", "jsonpath={.metadata.name} {.metadata.uid}{\"\\n\"}"])?;
    mirrors.until(|line| line.starts_with("keeper-node ") && !line.ends_with(uid))?;
    room.wait_ready("keeper-node")?;
    let second = room.get("pod/keeper-node")?;
    let container = |pod| main_container(pod)["containerID"].clone();
    ensure!(container(&first) == container(&second), "the container was replaced with the mirror");
    ensure!(main_container(&second)["restartCount"] == 0, "{}", main_container(&second));

    fs::remove_file(&manifest)?;
    room.wait("pod/keeper-node", "delete")?;
    room.until("the end of the container", || Ok(room.containers("keeper-node")?.is_empty()))
}
