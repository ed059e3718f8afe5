//! `kubectl debug`.

use anyhow::{Context, Result, ensure};
use crablet_testbed::images;
use crablet_testbed::pty::Terminal;

use super::clients;
use crate::cluster::support::{PATIENCE, QUIET, Room, ensure_has, main_container, shell_pod};

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

/// A container that is added to a running pod, with a terminal and without one.
pub fn a_container_is_added(room: &Room<'_>) -> Result<()> {
    let image = format!("--image={}", images::BUSYBOX);
    room.create_ready(&shell_pod("sick", QUIET))?;
    for client in clients::both()? {
        let name = format!("--container={}", client.name);
        let script = "while read -r line; do echo \"got $line\"; done";
        let words = ["debug", "sick", "-i", &image, &name, "--target=main", "--", "sh", "-c", script];
        let mut session = client.talk(room, &words)?;
        session.say("hello\n")?;
        session.until(|line| line == "got hello")?;
        ensure_has(&client.output(room, &["logs", "sick", "-c", client.name])?, &["got hello"])?;
        // It runs: so others can look in, too.
        let seen = client.output(room, &["exec", "sick", "-c", client.name, "--", "ps", "-o", "args"])?;
        ensure_has(&seen, &["while read", "sleep 3600"])?;
        drop(session);

        let name = format!("--container={}-it", client.name);
        let words = ["debug", "sick", "-it", &image, &name, "--target=main", "--", "sh"];
        let mut terminal = Terminal::start(&client.command(room, &words), 24, 80)?;
        // A prompt that came before the client was there is not seen again.
        terminal.write("\n")?;
        terminal.until("# ", PATIENCE)?;
        terminal.write("stty size; ls /proc/1/root/bin/s''h; exit 7\n")?;
        terminal.until("/proc/1/root/bin/sh", PATIENCE)?;
        terminal.until_its_end(PATIENCE)?;
        let status = ended(client.name);
        room.wait("pod/sick", &format!("jsonpath={status}=7"))?;
    }
    // None of it has touched the pod's own container, and none of it was begun again.
    let pod = room.get("pod/sick")?;
    ensure!(main_container(&pod)["restartCount"] == 0, "{:#}", pod["status"]["containerStatuses"]);
    let added = pod["status"]["ephemeralContainerStatuses"].as_array().context("no statuses of them")?;
    ensure!(added.len() == 4 && added.iter().all(|s| s["restartCount"] == 0), "{added:#?}");
    room.delete(&["pod", "sick"])
}

/// The path to the exit code of a client's container that had a terminal.
fn ended(client: &str) -> String {
    format!("{{.status.ephemeralContainerStatuses[?(@.name=='{client}-it')].state.terminated.exitCode}}")
}
