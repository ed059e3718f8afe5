//! `--runonce`: the pods of the manifests are started, reported and left alone.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use crablet_testbed::process::wait_child;

use super::support::{Node, PATIENCE, quiet_pod, shell_pod};

/// Exit code and stdout.
fn run_once(node: &Node) -> Result<(Option<i32>, String)> {
    let mut command = node.agent.command();
    command.arg("--runonce").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn()?;
    let status = wait_child(&mut child, PATIENCE)?;
    if status.is_none() {
        child.kill()?;
    }
    let output = child.wait_with_output()?;
    status.context("it does not end")?;
    Ok((output.status.code(), String::from_utf8(output.stdout)?))
}

pub fn run_once_starts_the_pods_reports_and_leaves(node: &Node) -> Result<()> {
    node.agent.put_manifest("a", &quiet_pod("a"))?;
    node.agent.put_manifest("b", &shell_pod("b", "exit 0", "restartPolicy: Never"))?;
    let mut report: Vec<String> = Vec::new();
    let (code, stdout) = run_once(node)?;
    report.extend(stdout.lines().map(str::to_owned));
    report.sort();
    ensure!(code == Some(0), "{code:?}\n{stdout}");
    ensure!(report == ["default/a-node1: Running, ready", "default/b-node1: Succeeded"], "{report:?}");
    let containers = node.containerd.leftovers().containers;

    // Once more, with a pod that fails, a manifest that is none, and without the manifest of a pod that runs.
    node.agent.remove_manifest("a")?;
    node.agent.put_manifest("c", &shell_pod("c", "exit 3", "restartPolicy: Never"))?;
    node.agent.put_manifest("d", "kind: Nonsense")?;
    let (code, stdout) = run_once(node)?;
    ensure!(code == Some(1), "{code:?}\n{stdout}");
    ensure!(stdout.contains("default/b-node1: Succeeded\n"), "{stdout}");
    ensure!(stdout.contains("default/c-node1: Failed, container main ended with exit code 3\n"), "{stdout}");
    ensure!(stdout.lines().any(|line| line.contains("/d` is not used")), "{stdout}");
    ensure!(!stdout.contains("a-node1"), "{stdout}");

    // The agent that comes to stay finds what was started, unchanged.
    node.agent.put_manifest("a", &quiet_pod("a"))?;
    node.agent.start()?;
    node.wait_ready(&["a"])?;
    let now = node.containerd.leftovers().containers;
    ensure!(containers.iter().all(|container| now.contains(container)), "{containers:?}\n{now:?}");
    for name in ["a", "b", "c", "d"] {
        node.agent.remove_manifest(name)?;
    }
    node.wait_empty()
}
