//! The agent dies, the runtime dies, things change while nobody looks.

use anyhow::{Result, ensure};
use crablet_testbed::wait::{self, Deadline};
use serde_json::Value;

use super::support::{Node, PATIENCE, quiet_pod, shell_pod};

pub fn killing_the_agent_changes_no_status_and_no_container(node: &Node) -> Result<()> {
    node.agent.start()?;
    node.agent.put_manifest("a", &quiet_pod("a"))?;
    node.agent.put_manifest("b", &shell_pod("b", "exit 4", "restartPolicy: Never"))?;
    node.agent.put_manifest("c", &shell_pod("c", "exit 1", ""))?;
    node.wait(|s| s.is_ready("a") && s.pod("b").is_some_and(|p| p.phase == "Failed"))?;
    node.wait_pod("c", |p| {
        super::support::container(p)["state"]["waiting"]["message"]
            .as_str()
            .is_some_and(|m| m.starts_with("back-off 20s"))
    })?;

    let before = statuses(node)?;
    // Of each container the newest instance stays; the removal of an older one may still be under way.
    let mut containers = Vec::new();
    let settled = wait::until(Deadline::after(PATIENCE), || {
        containers = node.containerd.leftovers().containers;
        containers.len() == 3
    });
    ensure!(settled, "one container for each pod is expected: {containers:?}");
    node.agent.kill9()?;
    node.agent.start()?;
    node.wait(|s| s.inventoried && s.runtime.ready && s.is_ready("a") && s.pods.len() == 3)?;
    ensure!(before == statuses(node)?, "before:\n{before:#?}\nafter:\n{:#?}", statuses(node)?);
    ensure!(containers == node.containerd.leftovers().containers, "containers changed");
    // An orderly stop leaves them alone as well.
    node.agent.restart()?;
    node.wait(|s| s.inventoried && s.runtime.ready && s.is_ready("a") && s.pods.len() == 3)?;
    ensure!(before == statuses(node)?, "before:\n{before:#?}\nafter:\n{:#?}", statuses(node)?);
    Ok(())
}

/// Name and whole status, times included.
fn statuses(node: &Node) -> Result<Vec<(Value, Value)>> {
    let mut all: Vec<_> =
        node.pods()?.into_iter().map(|p| (p["metadata"]["name"].clone(), p["status"].clone())).collect();
    all.sort_by_key(|(name, _)| name.to_string());
    Ok(all)
}

pub fn a_runtime_that_comes_back_is_found_again(node: &Node) -> Result<()> {
    node.agent.start()?;
    node.agent.put_manifest("stay", &quiet_pod("stay"))?;
    node.agent.put_manifest("leave", &quiet_pod("leave"))?;
    node.wait_ready(&["stay", "leave"])?;
    let before = node.pod("stay")?["status"].clone();

    node.containerd.kill9_daemon()?;
    let down = node.wait(|s| !s.runtime.ready)?;
    ensure!(down.runtime.message.contains("container runtime is down"), "{down}");
    node.agent.remove_manifest("leave")?;
    node.containerd.start_daemon_again()?;
    node.wait(|s| s.runtime.ready && s.pod("leave").is_none())?;
    ensure!(node.pod("stay")?["status"] == before, "{:#}", node.pod("stay")?);
    node.agent.remove_manifest("stay")?;
    node.wait_empty()
}

pub fn the_agent_waits_for_a_runtime_that_is_not_there_yet(node: &Node) -> Result<()> {
    node.containerd.kill9_daemon()?;
    node.agent.put_manifest("early", &quiet_pod("early"))?;
    node.agent.start()?;
    node.agent.wait_for_log(PATIENCE, "container runtime cannot be reached")?;
    node.agent.wait_for_log(PATIENCE, &node.containerd.endpoint())?;
    node.wait(|s| s.pod("early").is_some_and(|p| p.phase == "Pending"))?;
    node.containerd.start_daemon_again()?;
    node.wait_ready(&["early"])?;
    Ok(())
}

pub fn what_was_removed_while_the_agent_was_down_ends(node: &Node) -> Result<()> {
    node.agent.start()?;
    node.agent.put_manifest("gone", &quiet_pod("gone"))?;
    node.agent.put_manifest("kept", &quiet_pod("kept"))?;
    node.wait_ready(&["gone", "kept"])?;
    node.agent.kill9()?;
    node.agent.remove_manifest("gone")?;
    node.agent.start()?;
    node.wait(|s| s.inventoried && s.is_ready("kept") && s.pods.len() == 1)?;
    node.agent.remove_manifest("kept")?;
    node.wait_empty()
}
