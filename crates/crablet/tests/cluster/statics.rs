//! Static pods, as the cluster sees them.

use std::fs;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::lifecycle::{lines, pod_of};
use super::support::{QUIET, Room, main_container, shell, shell_pod};

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

/// Writes its number when it begins, and again when it may go after it was told to stop.
fn slow(room: &Room<'_>, number: u32) -> Value {
    let script = format!(
        "trap 'until [ -e /room/go ]; do sleep 0.1; done; echo {number} ends >> /room/diary; exit 0' TERM; \
         echo {number} begins >> /room/diary; while true; do sleep 0.1; done"
    );
    let mut pod = pod_of(room, "slow", json!([shell("main", &script)]));
    pod["metadata"]["namespace"] = room.namespace().into();
    pod["spec"]["terminationGracePeriodSeconds"] = json!(90);
    pod
}

fn let_go(room: &Room<'_>) -> Result<()> {
    Ok(fs::write(room.folder().join("go"), "")?)
}

/// Written aside and moved, as one does with what someone watches.
fn put(room: &Room<'_>, pod: &Value) -> Result<PathBuf> {
    let manifest = room.cluster.dir().join(format!("node/manifests/{}.json", room.namespace()));
    let aside = room.folder().join("manifest.json");
    fs::write(&aside, pod.to_string())?;
    fs::rename(&aside, &manifest)?;
    Ok(manifest)
}

fn is_last(room: &Room<'_>, line: &str) -> bool {
    lines(room).last().is_some_and(|last| last == line)
}

/// Two edits while the first version still ends: what lies between is never begun.
pub fn an_edited_static_pod_ends_before_the_next_begins(room: &Room<'_>) -> Result<()> {
    put(room, &slow(room, 1))?;
    room.wait("pod/slow-node", "create")?;
    room.wait_ready("slow-node")?;
    let first = room.get("pod/slow-node")?;
    room.until("its begin", || Ok(is_last(room, "1 begins")))?;
    put(room, &slow(room, 2))?;
    room.event("pod/slow-node", "Killing")?;
    let manifest = put(room, &slow(room, 3))?;
    let_go(room)?;
    room.until("the begin of the last one", || Ok(is_last(room, "3 begins")))?;
    ensure!(lines(room) == ["1 begins", "1 ends", "3 begins"], "the diary says {:#?}", lines(room));
    // The mirror is another, too: it names another version.
    let hash = |pod: &Value| pod["metadata"]["annotations"]["kubernetes.io/config.hash"].clone();
    room.until(
        "another mirror",
        || Ok(hash(&room.get("pod/slow-node").unwrap_or_default()) != hash(&first)),
    )?;
    room.wait_ready("slow-node")?;
    fs::remove_file(&manifest)?;
    room.wait("pod/slow-node", "delete")?;
    room.until("its end", || Ok(is_last(room, "3 ends")))
}

/// A manifest that is removed and put back while its pod still ends: the pod begins again, and not before.
pub fn a_static_pod_that_comes_back_begins_after_its_end(room: &Room<'_>) -> Result<()> {
    let manifest = put(room, &slow(room, 1))?;
    room.wait("pod/slow-node", "create")?;
    room.wait_ready("slow-node")?;
    room.until("its begin", || Ok(is_last(room, "1 begins")))?;
    fs::remove_file(&manifest)?;
    room.event("pod/slow-node", "Killing")?;
    put(room, &slow(room, 1))?;
    let_go(room)?;
    room.until("its second begin", || Ok(lines(room).len() == 3))?;
    ensure!(lines(room) == ["1 begins", "1 ends", "1 begins"], "the diary says {:#?}", lines(room));
    room.until("its mirror", || Ok(room.wait_ready("slow-node").is_ok()))?;
    fs::remove_file(&manifest)?;
    room.wait("pod/slow-node", "delete")?;
    room.until("its end", || Ok(is_last(room, "1 ends")))
}
