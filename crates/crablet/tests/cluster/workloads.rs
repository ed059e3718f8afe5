//! Pods that controllers make.

use anyhow::{Context, Result, ensure};
use crablet_testbed::images;
use serde_json::{Value, json};

use super::support::{PATIENCE, QUIET, Room, main_container, template};

fn rolled_out(room: &Room<'_>, workload: &str) -> Result<()> {
    room.kubectl(&["rollout", "status", workload, &format!("--timeout={}s", PATIENCE.as_secs())])?;
    Ok(())
}

pub fn a_deployment_rolls_and_scales(room: &Room<'_>) -> Result<()> {
    room.create(&json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": "web" },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "app": "web" } },
            "template": template("web", QUIET),
        },
    }))?;
    rolled_out(room, "deployment/web")?;
    room.kubectl(&["set", "image", "deployment/web", &format!("main={}", images::WEB)])?;
    rolled_out(room, "deployment/web")?;
    room.kubectl(&["scale", "deployment/web", "--replicas=3"])?;
    rolled_out(room, "deployment/web")?;
    let pods = room.get("pods")?;
    let pods = pods["items"].as_array().context("a list")?;
    let staying = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let images: Vec<&Value> = staying.map(|pod| &main_container(pod)["image"]).collect();
    ensure!(images == [images::WEB; 3], "the pods' images are {images:?}");
    room.kubectl(&["scale", "deployment/web", "--replicas=1"])?;
    room.wait("deployment/web", "jsonpath={.status.replicas}=1")?;
    room.delete(&["deployment", "web", "--cascade=foreground"])?;
    ensure!(room.kubectl(&["get", "pods", "-o", "name"])?.is_empty(), "pods outlive their deployment");
    Ok(())
}

pub fn a_daemon_set_runs_here(room: &Room<'_>) -> Result<()> {
    room.create(&json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": "agent" },
        "spec": { "selector": { "matchLabels": { "app": "agent" } }, "template": template("agent", QUIET) },
    }))?;
    rolled_out(room, "daemonset/agent")?;
    room.wait("daemonset/agent", "jsonpath={.status.numberReady}=1")?;
    room.delete(&["daemonset", "agent", "--cascade=foreground"])?;
    Ok(())
}

pub fn a_job_completes(room: &Room<'_>) -> Result<()> {
    let mut template = template("sum", "echo $((6 * 7))");
    template["spec"]["restartPolicy"] = json!("Never");
    room.create(&json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": "sum" },
        "spec": { "parallelism": 2, "completions": 3, "template": template },
    }))?;
    room.wait("job/sum", "condition=Complete")?;
    let said = room.kubectl(&["logs", "--selector=app=sum", "--tail=-1"])?;
    ensure!(said == "42\n42\n42\n", "the job said {said:?}");
    let phases = room.kubectl(&["get", "pods", "-o", "jsonpath={.items[*].status.phase}"])?;
    ensure!(phases == "Succeeded Succeeded Succeeded", "the pods are {phases}");
    Ok(())
}

pub fn a_stateful_pod_comes_back_under_its_name(room: &Room<'_>) -> Result<()> {
    room.create(&json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": { "name": "store" },
        "spec": {
            "serviceName": "store",
            "replicas": 2,
            "selector": { "matchLabels": { "app": "store" } },
            "template": template("store", "hostname; trap 'exit 0' TERM; while true; do sleep 3600 & wait $!; done"),
        },
    }))?;
    rolled_out(room, "statefulset/store")?;
    let before = room.get("pod/store-0")?["metadata"]["uid"].clone();
    room.delete(&["pod", "store-0"])?;
    room.wait("pod/store-0", "create")?;
    room.wait_ready("store-0")?;
    let after = room.get("pod/store-0")?["metadata"]["uid"].clone();
    ensure!(before != after, "store-0 is still the pod {before}");
    ensure!(room.kubectl(&["logs", "store-0"])? == "store-0\n", "the pod does not know its name");
    ensure!(room.running("store-0")?.len() == 1, "the first pod's container still runs");
    room.delete(&["statefulset", "store", "--cascade=foreground"])?;
    Ok(())
}
