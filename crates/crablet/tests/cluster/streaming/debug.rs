//! `kubectl debug`.

use anyhow::{Context, Result, ensure};
use crablet_testbed::cluster::Kubelet;
use crablet_testbed::images;

use super::clients;
use crate::cluster::support::{QUIET, Room, ensure_has, kubelet, shell_pod};

pub fn a_node_is_looked_at(room: &Room<'_>) -> Result<()> {
    let image = format!("--image={}", images::BUSYBOX);
    let script = "read -r line; echo \"got $line\"; ls -d /host/etc; exit 0";
    for client in clients::both()? {
        let mut session =
            client.talk(room, &["debug", "node/node", "-i", &image, "--", "sh", "-c", script])?;
        let told = session.until(|line| line.contains("Creating debugging pod"))?;
        let pod = told.split(' ').find(|word| word.starts_with("node-debugger-")).context(told.clone())?;
        session.say("hello\n")?;
        room.wait(&format!("pod/{pod}"), "jsonpath={.status.phase}=Succeeded")?;
        let said = room.kubectl(&["logs", pod])?;
        ensure!(said == "got hello\n/host/etc\n", "the {} kubectl: {said:?}", client.name);
        drop(session);
        room.delete(&["pod", pod])?;
    }
    Ok(())
}

pub fn a_copy_is_looked_at(room: &Room<'_>) -> Result<()> {
    let image = format!("--image={}", images::BUSYBOX);
    room.create_ready(&shell_pod("sick", QUIET))?;
    for client in clients::both()? {
        let copy = format!("--copy-to={}", client.name);
        let flags = [copy.as_str(), "--share-processes", "--container=tools", &image];
        client.output(room, &[&["debug", "sick"], &flags[..], &["--", "sh", "-c", QUIET]].concat())?;
        room.wait_ready(client.name)?;
        // The tools see the processes of the whole pod.
        let seen = client.output(room, &["exec", client.name, "-c", "tools", "--", "ps", "-o", "args"])?;
        ensure_has(&seen, &["pause", "trap"])?;
        room.delete(&["pod", client.name])?;
    }
    room.delete(&["pod", "sick"])
}

/// A container that is added to a running pod. Not for Crablet yet: it has no ephemeral containers.
pub fn a_container_is_added(room: &Room<'_>) -> Result<()> {
    if kubelet() != Kubelet::Upstream {
        return Ok(());
    }
    let image = format!("--image={}", images::BUSYBOX);
    room.create_ready(&shell_pod("sick", QUIET))?;
    for client in clients::both()? {
        let name = format!("--container={}", client.name);
        let script = "while read -r line; do echo \"got $line\"; done";
        let words = ["debug", "sick", "-i", &image, &name, "--target=main", "--", "sh", "-c", script];
        let mut session = client.talk(room, &words)?;
        session.say("hello\n")?;
        session.until(|line| line == "got hello")?;
    }
    room.delete(&["pod", "sick"])
}
