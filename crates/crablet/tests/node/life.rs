//! How containers start, end and start again.

use std::fs;

use anyhow::{Result, ensure};
use crablet_testbed::Flavor;
use serde_json::{Value, json};

use super::support::{Node, container, quiet_pod, shell_pod};

pub fn restart_policies_decide_how_a_pod_ends(node: &Node) -> Result<()> {
    node.agent.start()?;
    node.agent.put_manifest("good", &shell_pod("good", "exit 0", "restartPolicy: Never"))?;
    node.agent.put_manifest("bad", &shell_pod("bad", "exit 3", "restartPolicy: Never"))?;
    node.agent.put_manifest("done", &shell_pod("done", "exit 0", "restartPolicy: OnFailure"))?;
    node.agent.put_manifest("again", &shell_pod("again", "exit 0", "restartPolicy: Always"))?;

    let good = node.wait_pod("good", |p| p["status"]["phase"] == "Succeeded")?;
    ensure!(container(&good)["state"]["terminated"]["reason"] == "Completed", "{good:#}");
    let bad = node.wait_pod("bad", |p| p["status"]["phase"] == "Failed")?;
    ensure!(container(&bad)["state"]["terminated"]["exitCode"] == 3, "{bad:#}");
    let done = node.wait_pod("done", |p| p["status"]["phase"] == "Succeeded")?;
    ensure!(container(&done)["restartCount"] == 0, "{done:#}");
    // Even a container that ended well runs again under Always, and its pod goes on.
    let again = node.wait_pod("again", |p| container(p)["restartCount"].as_i64() >= Some(1))?;
    ensure!(again["status"]["phase"] == "Running", "{again:#}");
    Ok(())
}

pub fn a_container_that_keeps_failing_backs_off(node: &Node) -> Result<()> {
    node.agent.start()?;
    node.agent.put_manifest("loop", &shell_pod("loop", "echo no luck; exit 1", ""))?;
    let pod = node.wait_pod("loop", |p| container(p)["state"]["waiting"]["reason"] == "CrashLoopBackOff")?;
    let status = container(&pod);
    ensure!(status["lastState"]["terminated"]["exitCode"] == 1, "{status:#}");
    ensure!(status["restartCount"] == 1, "the first restart is immediate, the second waits: {status:#}");
    let message = status["state"]["waiting"]["message"].as_str().unwrap_or_default();
    ensure!(
        message.starts_with("back-off 10s restarting failed container=main pod=loop-node1_default("),
        "{message}"
    );
    ensure!(pod["status"]["phase"] == "Running", "{pod:#}");

    // The wait is counted from the container's end, so a killed agent neither shortens nor prolongs it.
    node.agent.kill9()?;
    node.agent.start()?;
    let pod = node.wait_pod("loop", |_| true)?;
    ensure!(container(&pod)["state"]["waiting"]["reason"] == "CrashLoopBackOff", "{pod:#}");
    let pod = node.wait_pod("loop", |p| {
        container(p)["restartCount"] == 2 && container(p)["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    })?;
    let message = container(&pod)["state"]["waiting"]["message"].as_str().unwrap_or_default();
    ensure!(message.starts_with("back-off 20s "), "{message}");
    Ok(())
}

pub fn an_edited_manifest_replaces_the_pod(node: &Node) -> Result<()> {
    node.agent.start()?;
    node.agent.put_manifest("edit", &quiet_pod("edit"))?;
    let first = node.wait_ready(&["edit"])?;
    let old = first.pod("edit").map(|p| p.uid.clone()).unwrap_or_default();

    node.agent.put_manifest("edit", &quiet_pod("edit").replace("3600", "3601"))?;
    let mut together = false;
    node.wait(|s| {
        let of_name: Vec<_> = s.pods.iter().filter(|p| p.name == "edit-node1").collect();
        together |= of_name.iter().filter(|p| p.phase == "Running" && p.uid != old).count() > 0
            && of_name.iter().any(|p| p.uid == old);
        of_name.len() == 1 && of_name[0].uid != old && of_name[0].ready
    })?;
    ensure!(!together, "the new pod ran before the old one had ended");

    // A manifest that pins its UID is updated in place.
    let pinned = quiet_pod("pinned")
        .replace("  name: pinned", "  name: pinned\n  uid: 11111111-2222-3333-4444-555555555555");
    node.agent.put_manifest("pinned", &pinned)?;
    node.wait_ready(&["pinned"])?;
    let before = container(&node.pod("pinned")?)["containerID"].clone();
    node.agent.put_manifest("pinned", &pinned.replace("crablet.test/busybox:1", "crablet.test/web:1"))?;
    let after = node.wait_pod("pinned", |p| {
        container(p)["state"]["running"].is_object() && container(p)["containerID"] != before
    })?;
    ensure!(container(&after)["restartCount"] == 1, "{after:#}");
    Ok(())
}

pub fn a_container_is_given_its_grace(node: &Node) -> Result<()> {
    node.agent.start()?;
    let deaf =
        shell_pod("deaf", "trap '' TERM; while true; do sleep 1; done", "terminationGracePeriodSeconds: 3");
    node.agent.put_manifest("deaf", &deaf)?;
    node.agent.put_manifest("polite", &quiet_pod("polite"))?;
    node.wait_ready(&["deaf", "polite"])?;
    node.agent.remove_manifest("deaf")?;
    node.agent.remove_manifest("polite")?;
    // The polite one is gone while the deaf one is still given time: nobody waits for another pod's grace.
    node.wait(|s| s.pod("polite").is_none() && s.pod("deaf").is_some())?;
    node.wait_empty()
}

pub fn last_words_are_reported(node: &Node) -> Result<()> {
    node.agent.start()?;
    let words = shell_pod("words", "echo farewell > /dev/termination-log; exit 2", "restartPolicy: Never");
    node.agent.put_manifest("words", &words)?;
    let from_log = shell_pod("from-log", "echo it broke; exit 2", "restartPolicy: Never")
        + "    terminationMessagePolicy: FallbackToLogsOnError\n";
    node.agent.put_manifest("from-log", &from_log)?;
    let pod = node.wait_pod("words", |p| p["status"]["phase"] == "Failed")?;
    ensure!(container(&pod)["state"]["terminated"]["message"] == "farewell\n", "{pod:#}");
    let pod = node.wait_pod("from-log", |p| p["status"]["phase"] == "Failed")?;
    ensure!(container(&pod)["state"]["terminated"]["message"] == "it broke\n", "{pod:#}");
    Ok(())
}

/// The pod's choice counts where the runtime knows of it; an older one sends what the image says.
pub fn a_stop_signal_is_the_pods_choice(node: &Node) -> Result<()> {
    let config = node.agent.home().join("config.yaml");
    let text = fs::read_to_string(&config)?;
    fs::write(&config, format!("{text}featureGates: {{ContainerStopSignals: true}}\n"))?;
    node.agent.start()?;
    // The probe fails once the traps are set.
    let script =
        "trap 'exit 7' USR1; trap 'exit 8' TERM; touch /set; while true; do sleep 3600 & wait $!; done";
    let more = "    livenessProbe: {exec: {command: [\"/bin/sh\", \"-c\", \"! test -f /set\"]}, periodSeconds: 1, \
                failureThreshold: 1}\n    lifecycle: {stopSignal: SIGUSR1}\n";
    let manifest = shell_pod("told", script, "os: {name: linux}\nterminationGracePeriodSeconds: 30") + more;
    node.agent.put_manifest("told", &manifest)?;
    let pod = node.wait_pod("told", |pod| container(pod)["lastState"]["terminated"].is_object())?;
    let (code, signal) = match node.containerd.flavor() {
        Flavor::Debian => (json!(8), Value::Null),
        Flavor::Pinned => (json!(7), json!("SIGUSR1")),
    };
    ensure!(container(&pod)["lastState"]["terminated"]["exitCode"] == code, "{pod:#}");
    ensure!(container(&pod)["stopSignal"] == signal, "{pod:#}");
    node.agent.remove_manifest("told")?;
    node.wait_empty()
}
