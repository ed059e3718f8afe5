//! Pods that this node does not let run, and pods that it lets run instead of others. All of them name the node
//! themselves, so that no scheduler keeps them away.

use std::fs;

use anyhow::{Result, ensure};
use crablet_testbed::cluster::Cluster;
use serde_json::{Value, json};

use super::support::{QUIET, Room, Step, one_by_one, shell_pod, side_by_side, step};
use super::{admission, whole_node};

const NODE: &str = "node";

pub fn all(cluster: &Cluster) -> Result<()> {
    const TOGETHER: &[Step] = &[
        step!(admission::labels_that_the_node_lacks),
        step!(admission::labels_of_a_moment_ago_count),
        step!(admission::more_than_the_node_has),
        step!(admission::a_port_that_is_taken),
        step!(admission::another_operating_system),
        step!(admission::a_kernel_setting_that_is_not_allowed),
        step!(admission::a_finished_pod_takes_nothing),
    ];
    const ALONE: &[Step] = &[step!(admission::a_critical_pod_takes_the_place_of_another)];
    let node = cluster.join(whole_node::options())?;
    side_by_side(cluster, node.log_path(), TOGETHER)?;
    one_by_one(cluster, node.log_path(), ALONE)
}

/// A pod that is bound to the node already, with more in its specification.
fn bound(name: &str, more: Value) -> Value {
    let mut pod = shell_pod(name, QUIET);
    pod["spec"]["nodeName"] = json!(NODE);
    for (key, value) in more.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    pod
}

fn asking(name: &str, milli_cpu: i64) -> Value {
    let mut pod = bound(name, json!({}));
    pod["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": format!("{milli_cpu}m") } });
    pod
}

/// The pod is refused in these words, leaves nothing in the runtime, and can be deleted.
fn refused(room: &Room<'_>, pod: &Value, reason: &str, message: &str) -> Result<()> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let object = format!("pod/{name}");
    room.create(pod)?;
    room.wait(&object, "jsonpath={.status.phase}=Failed")?;
    let status = &room.get(&object)?["status"];
    ensure!(status["reason"] == reason, "{status:#}");
    let told = status["message"].as_str().unwrap_or_default();
    ensure!(told.starts_with(&format!("Pod was rejected: {message}")), "{status:#}");
    ensure!(status.get("containerStatuses").is_none(), "{status:#}");
    let event = room.event(&object, reason)?;
    ensure!(event.starts_with(message), "the event says `{event}`");
    ensure!(room.containers(name)?.is_empty(), "something of it was begun");
    room.delete(&[&object])
}

pub fn labels_that_the_node_lacks(room: &Room<'_>) -> Result<()> {
    let message = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    refused(
        room,
        &bound("selective", json!({ "nodeSelector": { "colour": "green" } })),
        "NodeAffinity",
        message,
    )?;
    let term = json!({ "matchExpressions": [{ "key": "kubernetes.io/os", "operator": "NotIn", "values": ["linux"] }] });
    let required = json!({ "nodeSelectorTerms": [term] });
    let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": required } });
    refused(room, &bound("choosy", json!({ "affinity": affinity })), "NodeAffinity", message)
}

pub fn labels_of_a_moment_ago_count(room: &Room<'_>) -> Result<()> {
    room.kubectl(&["label", "node", NODE, "fresh=yes"])?;
    room.create_ready(&bound("prompt", json!({ "nodeSelector": { "fresh": "yes" } })))
}

pub fn more_than_the_node_has(room: &Room<'_>) -> Result<()> {
    let message = "Node didn't have enough resource: cpu, requested: 1000000, used: ";
    refused(room, &asking("greedy", 1_000_000), "OutOfcpu", message)
}

pub fn a_port_that_is_taken(room: &Room<'_>) -> Result<()> {
    let with_port = |name: &str, protocol: &str| {
        let mut pod = bound(name, json!({}));
        let port = json!({ "containerPort": 80, "hostPort": 18097, "protocol": protocol });
        pod["spec"]["containers"][0]["ports"] = json!([port]);
        pod
    };
    room.create_ready(&with_port("first", "TCP"))?;
    let message = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
    refused(room, &with_port("second", "TCP"), "NodePorts", message)?;
    room.create_ready(&with_port("other", "UDP"))?;
    // Once it is free, it can be had.
    room.delete(&["pod/first"])?;
    room.create_ready(&with_port("third", "TCP"))
}

pub fn another_operating_system(room: &Room<'_>) -> Result<()> {
    let message = "Failed to admit pod as the OS field doesn't match node OS";
    refused(room, &bound("foreign", json!({ "os": { "name": "windows" } })), "PodOSNotSupported", message)
}

pub fn a_kernel_setting_that_is_not_allowed(room: &Room<'_>) -> Result<()> {
    let settings = json!({ "sysctls": [{ "name": "kernel.msgmax", "value": "65536" }] });
    let pod = bound("tuned", json!({ "securityContext": settings }));
    refused(room, &pod, "SysctlForbidden", "forbidden sysctl: \"kernel.msgmax\" not allowlisted")
}

pub fn a_finished_pod_takes_nothing(room: &Room<'_>) -> Result<()> {
    let mut first = bound("done", json!({ "restartPolicy": "Never" }));
    let port = json!([{ "containerPort": 80, "hostPort": 18098 }]);
    first["spec"]["containers"][0]["ports"] = port.clone();
    first["spec"]["containers"][0]["command"] = json!(["/bin/true"]);
    room.create(&first)?;
    room.wait("pod/done", "jsonpath={.status.phase}=Succeeded")?;
    let mut second = bound("next", json!({}));
    second["spec"]["containers"][0]["ports"] = port;
    room.create_ready(&second)
}

pub fn a_critical_pod_takes_the_place_of_another(room: &Room<'_>) -> Result<()> {
    let node = room.get(&format!("node/{NODE}"))?;
    let cpu = node["status"]["allocatable"]["cpu"].as_str().unwrap_or_default();
    let milli = match cpu.strip_suffix('m') {
        Some(milli) => milli.parse::<i64>()?,
        None => cpu.parse::<i64>()? * 1000,
    };
    let most = milli * 6 / 10;
    let mut ordinary = asking("ordinary", most);
    // One that ends well when it is told to go has succeeded, as upstream has it.
    ordinary["spec"]["containers"][0]["command"] =
        json!(["/bin/sh", "-c", QUIET.replace("exit 0", "exit 1")]);
    room.create_ready(&ordinary)?;
    let manifest = room.cluster.dir().join("node/manifests/critical.json");
    let mut pod = asking("critical", most);
    pod["metadata"]["namespace"] = room.namespace().into();
    let aside = room.folder().join("critical.json");
    fs::write(&aside, pod.to_string())?;
    fs::rename(&aside, &manifest)?;

    room.wait("pod/ordinary", "jsonpath={.status.phase}=Failed")?;
    let status = &room.get("pod/ordinary")?["status"];
    ensure!(status["reason"] == "Preempting", "{status:#}");
    ensure!(status["message"] == "Preempted in order to admit critical pod", "{status:#}");
    let is_disruption = |condition: &&Value| condition["type"] == "DisruptionTarget";
    let disruption = status["conditions"].as_array().into_iter().flatten().find(is_disruption);
    let expected = (json!("True"), json!("TerminationByKubelet"));
    let found = disruption.map(|condition| (condition["status"].clone(), condition["reason"].clone()));
    ensure!(found == Some(expected), "{status:#}");
    let told = room.event("pod/ordinary", "Preempting")?;
    ensure!(told == "Preempted in order to admit critical pod", "{told}");
    room.wait("pod/critical-node", "create")?;
    room.wait_ready("critical-node")?;
    ensure!(room.running("ordinary")?.is_empty(), "it still runs");

    fs::remove_file(&manifest)?;
    room.wait("pod/critical-node", "delete")
}
