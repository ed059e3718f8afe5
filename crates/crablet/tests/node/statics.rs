//! Manifests that change faster than their pods end.

use std::fs;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use crablet_testbed::wait::{self, Deadline};

use super::support::{Node, PATIENCE, shell_pod};

/// A pod that writes a word when it begins, when it is told to stop, and when it may go.
fn slow(node: &Node, number: u32) -> String {
    let script = format!(
        "trap 'echo {number} is asked >> /room/diary; until [ -e /room/go ]; do sleep 0.1; done; echo {number} ends >> /room/diary; exit 0' TERM; \
         echo {number} begins >> /room/diary; while true; do sleep 0.1; done"
    );
    let spec = format!(
        "terminationGracePeriodSeconds: 120\nvolumes:\n- name: room\n  hostPath:\n    path: {}",
        room(node).display()
    );
    shell_pod("slow", &script, &spec) + "    volumeMounts:\n    - name: room\n      mountPath: /room\n"
}

/// Whoever is told to stop goes, or stays until it may go.
fn may_go(node: &Node, may: bool) -> Result<()> {
    let word = room(node).join("go");
    if may {
        fs::write(word, "")?;
    } else {
        fs::remove_file(word)?;
    }
    Ok(())
}

fn room(node: &Node) -> PathBuf {
    node.agent.home().join("room")
}

fn lines(node: &Node) -> Vec<String> {
    let text = fs::read_to_string(room(node).join("diary")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn wait_lines(node: &Node, expected: &[&str]) -> Result<()> {
    wait::until(Deadline::after(PATIENCE), || lines(node).len() >= expected.len());
    ensure!(lines(node) == expected, "the diary says {:#?}", lines(node));
    Ok(())
}

pub fn an_edited_manifest_waits_for_the_end_of_its_last_version(node: &Node) -> Result<()> {
    fs::create_dir_all(room(node))?;
    node.agent.start()?;
    node.agent.put_manifest("slow.yaml", &slow(node, 1))?;
    wait_lines(node, &["1 begins"])?;
    node.agent.put_manifest("slow.yaml", &slow(node, 2))?;
    wait_lines(node, &["1 begins", "1 is asked"])?;
    node.agent.kill9()?;
    node.agent.put_manifest("slow.yaml", &slow(node, 3))?;
    node.agent.start()?;
    may_go(node, true)?;
    wait_lines(node, &["1 begins", "1 is asked", "1 ends", "3 begins"])?;
    node.wait_ready(&["slow"])?;
    node.agent.remove_manifest("slow.yaml")?;
    node.wait_empty()?;
    wait_lines(node, &["1 begins", "1 is asked", "1 ends", "3 begins", "3 is asked", "3 ends"])
}

pub fn a_manifest_that_comes_back_waits_for_the_end_of_its_pod(node: &Node) -> Result<()> {
    let once = ["1 begins", "1 is asked", "1 ends"];
    fs::create_dir_all(room(node))?;
    node.agent.start()?;
    node.agent.put_manifest("slow.yaml", &slow(node, 1))?;
    wait_lines(node, &once[..1])?;
    node.agent.remove_manifest("slow.yaml")?;
    wait_lines(node, &once[..2])?;
    node.agent.put_manifest("slow.yaml", &slow(node, 1))?;
    may_go(node, true)?;
    wait_lines(node, &[&once[..], &once[..1]].concat())?;
    may_go(node, false)?;
    // An end that has begun is not taken back by a death of the agent.
    node.wait_ready(&["slow"])?;
    node.agent.remove_manifest("slow.yaml")?;
    wait_lines(node, &[&once[..], &once[..2]].concat())?;
    node.agent.kill9()?;
    node.agent.put_manifest("slow.yaml", &slow(node, 1))?;
    node.agent.start()?;
    may_go(node, true)?;
    wait_lines(node, &[&once[..], &once[..], &once[..1]].concat())?;
    node.agent.remove_manifest("slow.yaml")?;
    node.wait_empty()
}
