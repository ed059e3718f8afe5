//! Being attached to what runs already.

use anyhow::{Result, ensure};
use crablet_testbed::pty::Terminal;
use serde_json::{Value, json};

use super::clients;
use crate::cluster::support::{PATIENCE, Room, main_container, shell_pod};

/// Answers each line, and says when there will be no more.
const ANSWERS: &str = "while read -r line; do echo \"got $line\"; done; echo over";

fn answering(name: &str, more: &Value) -> Value {
    let mut pod = shell_pod(name, ANSWERS);
    pod["spec"]["restartPolicy"] = json!("Never");
    // The first process of a container does not die of a SIGTERM that it does not expect.
    pod["spec"]["terminationGracePeriodSeconds"] = json!(1);
    for (field, value) in more.as_object().into_iter().flatten() {
        pod["spec"]["containers"][0][field] = value.clone();
    }
    pod
}

/// Whether the program still runs, and was never begun again.
fn ensure_untouched(room: &Room<'_>, pod: &str) -> Result<()> {
    let seen = room.get(&format!("pod/{pod}"))?;
    let main = main_container(&seen);
    ensure!(main["state"]["running"].is_object() && main["restartCount"] == 0, "`{pod}` is now {main:#}");
    Ok(())
}

pub fn a_program_is_talked_to_and_left_alone(room: &Room<'_>) -> Result<()> {
    for client in clients::both()? {
        room.create_ready(&answering(client.name, &json!({ "stdin": true })))?;
        for word in ["hello", "again"] {
            let mut attached = client.talk(room, &["attach", "-i", client.name])?;
            attached.say(&format!("{word}\n"))?;
            attached.until(|line| line == format!("got {word}"))?;
            attached.kill9()?;
        }
        // The end of a client's input is not the end of the program's.
        let said = client.run_with(room, &["attach", "-i", client.name], "bye\n")?;
        ensure!(said.code == Some(0), "the {} kubectl: {said}", client.name);
        let mut logs = client.follow(room, &["logs", "-f", client.name])?;
        logs.until(|line| line == "got bye")?;
        ensure_untouched(room, client.name)?;
        // Those who only listen hear what others say.
        let mut listening = client.follow(room, &["attach", client.name])?;
        let mut talking = client.talk(room, &["attach", "-i", client.name])?;
        // Nobody tells when the listener is heard of; what was said before that it may have missed.
        let mut count = 0;
        room.until("the listener hears something", || {
            count += 1;
            talking.say(&format!("word {count}\n"))?;
            talking.until(|line| line == format!("got word {count}"))?;
            Ok(listening.has_said("got word"))
        })?;
        drop((listening, talking));
        ensure_untouched(room, client.name)?;
        room.delete(&["pod", client.name])?;
    }
    Ok(())
}

pub fn an_input_that_is_given_once_ends(room: &Room<'_>) -> Result<()> {
    for client in clients::both()? {
        room.create_ready(&answering(client.name, &json!({ "stdin": true, "stdinOnce": true })))?;
        let mut attached = client.talk(room, &["attach", "-i", client.name])?;
        attached.say("hello\n")?;
        attached.until(|line| line == "got hello")?;
        attached.say_no_more();
        attached.until(|line| line == "over")?;
        attached.until_its_end()?;
        room.wait(&format!("pod/{}", client.name), "jsonpath={.status.phase}=Succeeded")?;
        room.delete(&["pod", client.name])?;
    }
    Ok(())
}

pub fn a_terminal_is_shared(room: &Room<'_>) -> Result<()> {
    for client in clients::both()? {
        let mut pod = answering(client.name, &json!({ "stdin": true, "tty": true }));
        pod["spec"]["containers"][0]["command"] = json!(["/bin/sh", "-c", format!("tty; {ANSWERS}")]);
        room.create_ready(&pod)?;
        for word in ["hello", "again"] {
            let mut terminal =
                Terminal::start(&client.command(room, &["attach", "-it", client.name]), 24, 80)?;
            terminal.write(&format!("{word}\n"))?;
            terminal.until(&format!("got {word}"), PATIENCE)?;
        }
        ensure_untouched(room, client.name)?;
        let logs = client.output(room, &["logs", client.name])?;
        // What was typed may come before it.
        ensure!(logs.contains("/dev/pts/"), "it has no terminal: {logs:?}");
        room.delete(&["pod", client.name])?;
    }
    Ok(())
}
