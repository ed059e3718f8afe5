//! What other programs see of the agent.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use crablet_testbed::suites::registry;
use serde_json::{Value, json};

use super::support::{Node, PATIENCE, container, quiet_pod, shell_pod};

pub fn submitted_manifests_survive_the_agent(node: &Node) -> Result<()> {
    node.agent.start()?;
    node.wait(|s| s.sources_ready)?;
    let (status, body) = node.agent.unix("PUT", "/manifests/handed-in", &quiet_pod("handed-in"))?;
    ensure!(status == 201, "{status} {body}");
    node.wait_ready(&["handed-in"])?;
    ensure!(node.pod("handed-in")?["metadata"]["annotations"]["kubernetes.io/config.source"] == "http");

    let (status, body) = node.agent.unix("PUT", "/manifests/wrong", "kind: Pod")?;
    ensure!(status == 422 && body.lines().count() == 1, "{status} {body}");
    let (status, _) = node.agent.unix("PUT", "/manifests/..%2f..%2fetc", &quiet_pod("evil"))?;
    ensure!(status == 400 || status == 404 || status == 422, "{status}");

    node.agent.kill9()?;
    node.agent.start()?;
    node.wait(|s| s.inventoried && s.is_ready("handed-in") && s.pods.len() == 1)?;
    ensure!(container(&node.pod("handed-in")?)["restartCount"] == 0);
    let (status, body) = node.agent.unix("GET", "/manifests/handed-in", "")?;
    ensure!(status == 200 && body == quiet_pod("handed-in"), "{status} {body}");

    let (status, body) = node.agent.unix("DELETE", "/manifests/handed-in", "")?;
    ensure!(status == 200, "{status} {body}");
    let (status, _) = node.agent.unix("DELETE", "/manifests/handed-in", "")?;
    ensure!(status == 404, "{status}");
    node.wait_empty()
}

pub fn pods_logs_and_health_look_as_upstreams(node: &Node) -> Result<()> {
    node.agent.start()?;
    node.agent.put_manifest(
        "talk",
        &shell_pod("talk", "echo hello; sleep 3600", "terminationGracePeriodSeconds: 1"),
    )?;
    node.wait_ready(&["talk"])?;
    let (status, body) = node.agent.http_get(node.agent.ports().healthz, "/healthz")?;
    ensure!(status == 200 && body == "ok", "{status} {body}");
    let (status, _) = node.agent.http_get(node.agent.ports().read_only, "/healthz")?;
    ensure!(status == 200, "{status}");

    let pod = node.pod("talk")?;
    let (meta, status) = (&pod["metadata"], &pod["status"]);
    let uid = meta["uid"].as_str().context("a uid")?;
    ensure!(uid.len() == 32 && meta["annotations"]["kubernetes.io/config.hash"] == uid, "{meta:#}");
    ensure!(meta["annotations"]["kubernetes.io/config.source"] == "file", "{meta:#}");
    ensure!(meta["annotations"]["kubernetes.io/config.seen"].is_string(), "{meta:#}");
    ensure!(meta["namespace"] == "default" && pod["spec"]["nodeName"] == "node1", "{pod:#}");
    ensure!(status["qosClass"] == "BestEffort" && status["startTime"].is_string(), "{status:#}");
    ensure!(status["podIP"] == status["podIPs"][0]["ip"] && status["podIP"].is_string(), "{status:#}");
    let conditions: Vec<_> = status["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|c| (c["type"].as_str(), c["status"].as_str()))
        .collect();
    let all = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    ensure!(conditions == all.map(|t| (Some(t), Some("True"))), "{conditions:?}");
    let id = container(&pod)["containerID"].as_str().and_then(|id| id.strip_prefix("containerd://"));
    let id = id.context("a container id")?;

    let log = node.agent.pod_logs_dir().join(format!("default_talk-node1_{uid}/main/0.log"));
    let line = std::fs::read_to_string(&log)?;
    ensure!(line.contains(" stdout F hello"), "{line}");
    let link = node.agent.container_logs_dir().join(format!("talk-node1_default_main-{id}.log"));
    ensure!(std::fs::read_link(&link)? == log, "{}", link.display());
    let hosts = std::fs::read_to_string(node.agent.root_dir().join(format!("pods/{uid}/etc-hosts")))?;
    let own = format!("{}\ttalk-node1\n", status["podIP"].as_str().unwrap_or_default());
    ensure!(hosts.starts_with("# Kubernetes-managed hosts file.\n") && hosts.ends_with(&own), "{hosts}");
    Ok(())
}

pub fn decisions_can_be_asked_for(node: &Node) -> Result<()> {
    node.agent.start()?;
    node.agent.put_manifest("why", &shell_pod("why", "exit 1", ""))?;
    node.wait_pod("why", |p| container(p)["state"]["waiting"]["reason"] == "CrashLoopBackOff")?;
    let (status, body) = node.agent.unix("GET", "/explain/default/why-node1", "")?;
    ensure!(status == 200, "{status} {body}");
    for said in ["the pod has no sandbox", "needs image", "ended with 1", "keeps ending"] {
        ensure!(body.contains(said), "nothing about `{said}` in {body}");
    }
    let (status, _) = node.agent.unix("GET", "/explain/default/nobody", "")?;
    ensure!(status == 404, "{status}");
    Ok(())
}

pub fn a_pull_shows_how_far_it_is(node: &Node) -> Result<()> {
    const IMAGE: &str = "held.test/busybox:1";
    let held = registry::start_held(&node.containerd, "held.test", "crablet.test")?;
    forget_image(node, "crablet.test/busybox:1")?;
    node.agent.start()?;
    node.wait(|s| s.sources_ready)?;
    let idle = pulls(node)?;
    ensure!(idle["pulls"] == json!([]), "{idle:#}");
    node.agent.put_manifest("slow", &quiet_pod("slow").replace("crablet.test/busybox:1", IMAGE))?;
    held.wait_half_way(PATIENCE)?;
    let told = pulls(node)?;
    let pull = &told["pulls"][0];
    ensure!(pull["image"] == IMAGE && pull["pod"] == "slow-node1" && pull["began"].is_string(), "{told:#}");
    let half_way = |part: &Value| {
        let (bytes, of) = (part["bytes"].as_u64(), part["of"].as_u64());
        of > Some(registry::SMALL) && bytes.is_some() && bytes < of
    };
    ensure!(told["incoming"].as_array().is_some_and(|parts| parts.iter().any(half_way)), "{told:#}");
    let shown = Command::new(env!("CARGO_BIN_EXE_crablet"))
        .arg("pulls")
        .arg(format!("--root-dir={}", node.agent.root_dir().display()))
        .output()?;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let begin = format!("{IMAGE} for default/slow-node1, container main: pulled for ");
    ensure!(shown.starts_with(&begin) && shown.contains("on their way to this node:\n"), "{shown}");

    held.let_go();
    node.wait_ready(&["slow"])?;
    let after = pulls(node)?;
    ensure!(after["pulls"] == json!([]), "{after:#}");
    node.agent.remove_manifest("slow")?;
    node.wait_empty()
}

/// Under all its names: what is here already would not be pulled.
fn forget_image(node: &Node, image: &str) -> Result<()> {
    let listed = node.containerd.ctr(&["images", "ls"])?;
    // Name, media type, digest.
    let lines = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let named: Vec<_> = lines.filter(|words| words.len() > 2).map(|words| (words[0], words[2])).collect();
    let digest = named.iter().find(|(name, _)| *name == image).context("the image is here")?.1;
    let names = named.iter().filter(|(_, other)| *other == digest).map(|(name, _)| *name);
    let command: Vec<&str> = ["images", "rm", "--sync"].into_iter().chain(names).collect();
    node.containerd.ctr(&command)?;
    Ok(())
}

fn pulls(node: &Node) -> Result<Value> {
    let (status, body) = node.agent.unix("GET", "/pulls", "")?;
    ensure!(status == 200, "{status} {body}");
    Ok(serde_json::from_str(&body)?)
}
