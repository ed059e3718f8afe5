//! Running commands.

use anyhow::{Context, Result, ensure};
use crablet_testbed::pty::Terminal;
use serde_json::json;

use super::clients;
use crate::cluster::support::{PATIENCE, QUIET, Room, main_container, shell, shell_pod};

pub fn a_command_has_its_streams_and_its_exit_code(room: &Room<'_>) -> Result<()> {
    room.create_ready(&shell_pod("sh", QUIET))?;
    for client in clients::both()? {
        let said = client.run(room, &["exec", "sh", "--", "sh", "-c", "echo out; echo err >&2; exit 42"])?;
        ensure!(said.code == Some(42) && said.output == b"out\n", "the {} kubectl: {said}", client.name);
        ensure!(
            said.error == "err\ncommand terminated with exit code 42\n",
            "the {} kubectl: {said}",
            client.name
        );
        ensure!(client.output(room, &["exec", "sh", "--", "true"])?.is_empty(), "`true` said something");
        // `cat` ends when its input does, and not before.
        let said = client.run_with(room, &["exec", "-i", "sh", "--", "cat"], "x\ny")?;
        ensure!(said.code == Some(0) && said.output == b"x\ny", "the {} kubectl: {said}", client.name);
        ensure!(said.error.is_empty(), "the {} kubectl: {said}", client.name);
        // Arguments arrive as they were given.
        let odd = "a b&c=d?e/f#g%20\"'ä";
        let said = client.output(room, &["exec", "sh", "--", "echo", odd])?;
        ensure!(said == format!("{odd}\n"), "the {} kubectl: {said:?}", client.name);
        let long = "x".repeat(100_000);
        let said = client.output(room, &["exec", "sh", "--", "echo", &long])?;
        ensure!(said.trim_end() == long, "the {} kubectl: {} bytes of a long word", client.name, said.len());
        let where_it_is = client.output(room, &["exec", "sh", "-c", "main", "--", "hostname"])?;
        ensure!(where_it_is == "sh\n", "it ran in {where_it_is:?}");
    }
    room.delete(&["pod", "sh"])
}

pub fn much_goes_both_ways_at_once(room: &Room<'_>) -> Result<()> {
    room.create_ready(&shell_pod("sh", QUIET))?;
    let mut random = fastrand::Rng::with_seed(36);
    let bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(20_000_000).collect();
    for client in clients::both()? {
        let said = client.run_with(room, &["exec", "-i", "sh", "--", "cat"], bytes.clone())?;
        ensure!(said.code == Some(0), "the {} kubectl: {said}", client.name);
        ensure!(said.output == bytes, "{} bytes came back, or others", said.output.len());
    }
    room.delete(&["pod", "sh"])
}

pub fn what_cannot_be_run_is_refused(room: &Room<'_>) -> Result<()> {
    let mut pod = shell_pod("partly", QUIET);
    pod["spec"]["restartPolicy"] = json!("Never");
    pod["spec"]["containers"] = json!([shell("main", QUIET), shell("over", "true")]);
    room.create(&pod)?;
    let ended = "jsonpath={.status.containerStatuses[?(@.name=='over')].state.terminated.reason}=Completed";
    room.wait("pod/partly", ended)?;
    let runs = "jsonpath={.status.containerStatuses[?(@.name=='main')].started}=true";
    room.wait("pod/partly", runs)?;
    for client in clients::both()? {
        client
            .run(room, &["exec", "partly", "-c", "over", "--", "true"])?
            .ensure_refused(&["unable to upgrade connection: container not found (\"over\")"])?;
        client.run(room, &["exec", "partly", "-c", "main", "--", "/no/such"])?.ensure_refused(&[
            "Internal error occurred: error executing command in container: ",
            "\"/no/such\"",
            "no such file or directory",
        ])?;
        client
            .run(room, &["attach", "partly", "-c", "over"])?
            .ensure_refused(&["unable to upgrade connection: container over not found in pod partly_"])?;
    }
    room.delete(&["pod", "partly"])
}

pub fn a_terminal_is_a_terminal(room: &Room<'_>) -> Result<()> {
    room.create_ready(&shell_pod("sh", QUIET))?;
    for client in clients::both()? {
        let command = client.command(room, &["exec", "-it", "sh", "--", "sh"]);
        let mut terminal = Terminal::start(&command, 24, 80)?;
        terminal.until("# ", PATIENCE)?;
        // What is typed is shown too: quotes keep it apart from what is waited for.
        terminal.write("until [ \"$(stty size)\" = '24 80' ]; do sleep 0.1; done; echo sm''all\n")?;
        terminal.until("small", PATIENCE).with_context(|| format!("the {} kubectl", client.name))?;
        terminal.resize(30, 100)?;
        terminal.write("until [ \"$(stty size)\" = '30 100' ]; do sleep 0.1; done; echo lar''ge\n")?;
        terminal.until("large", PATIENCE).with_context(|| format!("the {} kubectl", client.name))?;
        // Ctrl-C is for the program in the container.
        let waits = "trap 'echo caught; exit' INT; echo rea''dy; while true; do sleep 0.1; done";
        terminal.write(&format!("sh -c \"{waits}\"\n"))?;
        terminal.until("ready", PATIENCE)?;
        terminal.write("\u{3}")?;
        terminal.until("caught", PATIENCE)?;
        terminal.write("tty; exit 7\n")?;
        terminal.until("/dev/pts/", PATIENCE)?;
        let code = terminal.until_its_end(PATIENCE)?;
        ensure!(code == Some(7), "the {} kubectl ended with {code:?}", client.name);
    }
    room.delete(&["pod", "sh"])
}

pub fn a_session_ends_with_its_pod(room: &Room<'_>) -> Result<()> {
    let clients = clients::both()?;
    room.create_ready(&shell_pod("short", QUIET))?;
    let mut sessions = Vec::new();
    for client in &clients {
        let mut session =
            client.talk(room, &["exec", "-i", "short", "--", "sh", "-c", "echo begun; sleep 3600"])?;
        session.until(|line| line == "begun")?;
        sessions.push(session);
    }
    let container = main_container(&room.get("pod/short")?)["containerID"].clone();
    room.delete(&["pod", "short"])?;
    for session in sessions {
        let said = session.until_its_end()?;
        ensure!(said == ["begun"], "a session of the container {container} said {said:?}");
    }
    Ok(())
}
