//! What containers are asked while they run, and what comes of their answers.

use std::fs;

use anyhow::{Context, Result, ensure};
use crablet_testbed::cluster::{Cluster, NodeOptions};
use serde_json::{Value, json};

use super::pods::with_folder;
use super::support::{QUIET, Room, Step, ensure_has, kubelet, main_container, shell_pod, side_by_side, step};

use super::probes as this;

pub fn all(cluster: &Cluster) -> Result<()> {
    const TOGETHER: &[Step] = &[
        step!(this::who_is_not_alive_is_restarted),
        step!(this::readiness_comes_and_goes),
        step!(this::the_startup_probe_holds_the_others_back),
        step!(this::who_does_not_come_up_is_restarted),
        step!(this::a_command_that_hangs_is_killed),
        step!(this::a_sidecar_is_probed_too),
    ];
    let node = cluster.join(NodeOptions::new(kubelet()))?;
    let log = node.log_path().to_owned();
    // Upstream keeps what an earlier life found out only of containers that had run for ten seconds before its start.
    let room = Room::new(cluster, &log, "probes-and-restarts")?;
    let before = ready_and_started(&room)?;
    side_by_side(cluster, &log, TOGETHER)?;

    node.kubelet().kill9()?;
    drop(node);
    let _node = cluster.join(NodeOptions::new(kubelet()))?;
    room.during("a restart of the agent", |room| {
        // It has taken stock once it does something new, and has asked again once the answer is another.
        room.create_ready(&shell_pod("afterwards", QUIET))?;
        let after = Ready::of(room, "steady")?;
        ensure!(before == after, "a restart changed a pod that was ready:\n{before:#?}\n{after:#?}");
        fs::remove_file(room.folder().join("ready"))?;
        room.wait("pod/steady", "condition=Ready=False")?;
        let pod = room.get("pod/steady")?;
        ensure!(main_container(&pod)["started"] == true, "it has started: {:#}", pod["status"]);
        ensure!(main_container(&pod)["restartCount"] == 0, "it was restarted: {:#}", pod["status"]);
        room.delete(&["pod", "steady", "afterwards"])
    })
}

/// A pod whose container asks for files in the room's folder.
fn asked(room: &Room<'_>, name: &str, script: &str, probes: Value) -> Value {
    let mut pod = with_folder(room, shell_pod(name, script));
    if let Value::Object(probes) = probes {
        for (field, probe) in probes {
            pod["spec"]["containers"][0][field] = probe;
        }
    }
    pod
}

/// Asks every second, and takes the first answer for granted.
fn every_second(handler: Value) -> Value {
    let mut probe = json!({ "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 1 });
    if let Value::Object(fields) = handler {
        for (field, value) in fields {
            probe[field] = value;
        }
    }
    probe
}

fn has_file(name: &str) -> Value {
    json!({ "exec": { "command": ["test", "-e", format!("/room/{name}")] } })
}

fn condition(pod: &Value, name: &str) -> Value {
    let all = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|condition| condition["type"] == name).unwrap_or_default()
}

/// The message of an event about a pod that begins like this.
fn told(room: &Room<'_>, pod: &str, reason: &str, begin: &str) -> Result<String> {
    let about = format!("--field-selector=involvedObject.name={pod},reason={reason}");
    let shown = "jsonpath={.involvedObject.fieldPath} {.message}{\"\\n\"}";
    let mut events = room.follow(&["get", "events", &about, "--watch", "-o", shown])?;
    let line =
        events.until(|line| line.split_once(' ').is_some_and(|(_, message)| message.starts_with(begin)));
    line.with_context(|| format!("no event `{reason}` of `{pod}` that begins with `{begin}`"))
}

pub fn who_is_not_alive_is_restarted(room: &Room<'_>) -> Result<()> {
    // Each instance makes itself alive, and then says so.
    fs::write(room.folder().join("alive"), "")?;
    let script = format!("touch /room/alive; touch /room/up; {QUIET}");
    let probes = json!({ "livenessProbe": every_second(has_file("alive")) });
    room.create_ready(&asked(room, "mortal", &script, probes))?;
    room.until("the first instance", || Ok(room.folder().join("up").exists()))?;
    let first = main_container(&room.get("pod/mortal")?)["containerID"].clone();
    fs::remove_file(room.folder().join("alive"))?;
    room.wait("pod/mortal", "jsonpath={.status.containerStatuses[0].restartCount}=1")?;
    room.wait_ready("mortal")?;
    let pod = room.get("pod/mortal")?;
    ensure!(main_container(&pod)["containerID"] != first, "it is the same container");
    let ended = &main_container(&pod)["lastState"]["terminated"];
    ensure!(ended["exitCode"] == 0 && ended["containerID"] == first, "the last state is {ended}");
    let failed = told(room, "mortal", "Unhealthy", "Liveness probe failed: ")?;
    ensure!(failed.starts_with("spec.containers{main} "), "the event is about {failed}");
    told(room, "mortal", "Killing", "Container main failed liveness probe, will be restarted")?;
    room.delete(&["pod", "mortal"])
}

pub fn readiness_comes_and_goes(room: &Room<'_>) -> Result<()> {
    let probes = json!({
        "ports": [{ "name": "web", "containerPort": 8080 }],
        "readinessProbe": every_second(json!({ "httpGet": { "path": "/ready", "port": "web" } })),
        "livenessProbe": every_second(json!({ "tcpSocket": { "port": 8080 }, "failureThreshold": 5 })),
    });
    room.create(&asked(room, "moody", "exec httpd -f -p 8080 -h /room", probes))?;
    told(room, "moody", "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 404")?;
    let pod = room.get("pod/moody")?;
    let main = main_container(&pod);
    ensure!(main["started"] == true && main["ready"] == false, "before: {main:#}");
    for name in ["Ready", "ContainersReady"] {
        let unready = condition(&pod, name);
        ensure!(unready["status"] == "False" && unready["reason"] == "ContainersNotReady", "{unready}");
        ensure!(unready["message"] == "containers with unready status: [main]", "{unready}");
    }
    for _ in 0..2 {
        fs::write(room.folder().join("ready"), "yes")?;
        room.wait_ready("moody")?;
        fs::remove_file(room.folder().join("ready"))?;
        room.wait("pod/moody", "condition=Ready=False")?;
    }
    let pod = room.get("pod/moody")?;
    let main = main_container(&pod);
    ensure!(main["restartCount"] == 0 && main["ready"] == false, "afterwards: {main:#}");
    ensure!(condition(&pod, "ContainersReady")["status"] == "False", "{:#}", pod["status"]["conditions"]);
    figures_tell_of(room, &pod)
}

/// How often and how long, for as long as there is somebody to ask.
fn figures_tell_of(room: &Room<'_>, pod: &Value) -> Result<()> {
    let read = |path: &str| room.kubectl(&["get", "--raw", &format!("/api/v1/nodes/node/proxy{path}")]);
    let (namespace, uid) = (room.namespace(), pod["metadata"]["uid"].as_str().unwrap_or_default());
    let figures = read("/metrics/probes")?;
    let of_pod = format!("container=\"main\",namespace=\"{namespace}\",pod=\"moody\"");
    for (kind, result) in [("Liveness", "successful"), ("Readiness", "successful"), ("Readiness", "failed")] {
        let count = format!(
            "prober_probe_total{{{of_pod},pod_uid=\"{uid}\",probe_type=\"{kind}\",result=\"{result}\"}} "
        );
        let took = format!("prober_probe_duration_seconds_count{{{of_pod},probe_type=\"{kind}\"}} ");
        ensure_has(&figures, &[&count, &took])?;
    }
    ensure_has(&read("/metrics")?, &["kubelet_started_containers_total{container_type=\"container\"} "])?;
    room.delete(&["pod", "moody"])?;
    room.until("the figures of the pod are gone", || Ok(!read("/metrics/probes")?.contains(&of_pod)))
}

pub fn the_startup_probe_holds_the_others_back(room: &Room<'_>) -> Result<()> {
    let mut startup = every_second(has_file("up"));
    startup["failureThreshold"] = json!(1000);
    let probes = json!({
        "startupProbe": startup,
        "livenessProbe": every_second(has_file("alive")),
        "readinessProbe": every_second(has_file("alive")),
    });
    room.create(&asked(room, "slow", QUIET, probes))?;
    told(room, "slow", "Unhealthy", "Startup probe failed: ")?;
    let pod = room.get("pod/slow")?;
    let main = main_container(&pod);
    ensure!(main["started"] == false && main["ready"] == false, "before: {main:#}");
    ensure!(main["restartCount"] == 0, "nobody asked whether it is alive: {main:#}");
    fs::write(room.folder().join("alive"), "")?;
    fs::write(room.folder().join("up"), "")?;
    room.wait_ready("slow")?;
    let pod = room.get("pod/slow")?;
    let main = main_container(&pod);
    ensure!(main["started"] == true && main["restartCount"] == 0, "afterwards: {main:#}");
    room.delete(&["pod", "slow"])
}

pub fn who_does_not_come_up_is_restarted(room: &Room<'_>) -> Result<()> {
    let probes = json!({ "startupProbe": every_second(has_file("up")) });
    room.create(&asked(room, "never", QUIET, probes))?;
    room.wait("pod/never", "jsonpath={.status.containerStatuses[0].restartCount}=1")?;
    told(room, "never", "Killing", "Container main failed startup probe, will be restarted")?;
    fs::write(room.folder().join("up"), "")?;
    room.wait_ready("never")?;
    room.delete(&["pod", "never"])
}

pub fn a_command_that_hangs_is_killed(room: &Room<'_>) -> Result<()> {
    let hangs = json!({ "exec": { "command": ["sleep", "98765"] }, "timeoutSeconds": 1 });
    let probes = json!({ "readinessProbe": every_second(hangs) });
    room.create(&asked(room, "stuck", QUIET, probes))?;
    let late = "Readiness probe failed: command timed out: \"sleep 98765\" timed out after 1s";
    let about = "--field-selector=involvedObject.name=stuck,reason=Unhealthy";
    let shown = "jsonpath={.count} {.message}{\"\\n\"}";
    let mut events = room.follow(&["get", "events", about, "--watch", "-o", shown])?;
    // The same again is the same event, counted.
    events.until(|line| line.split_once(' ').is_some_and(|(count, text)| text == late && count >= "3"))?;
    let processes = room.kubectl(&["exec", "stuck", "--", "ps"])?;
    let left = processes.lines().filter(|line| line.contains("sleep 98765")).count();
    ensure!(left <= 1, "{left} commands of probes are left:\n{processes}");
    let pod = room.get("pod/stuck")?;
    ensure!(main_container(&pod)["restartCount"] == 0, "it was restarted: {:#}", pod["status"]);
    ensure!(main_container(&pod)["ready"] == false, "it is ready: {:#}", pod["status"]);
    room.delete(&["pod", "stuck"])
}

pub fn a_sidecar_is_probed_too(room: &Room<'_>) -> Result<()> {
    let mut pod = with_folder(room, shell_pod("pair", QUIET));
    let mut beside = pod["spec"]["containers"][0].clone();
    beside["name"] = json!("beside");
    beside["restartPolicy"] = json!("Always");
    let mut startup = every_second(has_file("up"));
    startup["failureThreshold"] = json!(1000);
    beside["startupProbe"] = startup;
    beside["readinessProbe"] = every_second(has_file("ready"));
    pod["spec"]["initContainers"] = json!([beside]);
    room.create(&pod)?;
    let failed = told(room, "pair", "Unhealthy", "Startup probe failed: ")?;
    ensure!(failed.starts_with("spec.initContainers{beside} "), "the event is about {failed}");
    let seen = room.get("pod/pair")?;
    let waits = &main_container(&seen)["state"]["waiting"]["reason"];
    ensure!(*waits == "PodInitializing", "the main container waits for its sidecar: {waits}");
    fs::write(room.folder().join("up"), "")?;
    room.wait("pod/pair", "jsonpath={.status.containerStatuses[0].ready}=true")?;
    let seen = room.get("pod/pair")?;
    ensure!(condition(&seen, "Ready")["status"] == "False", "the sidecar is not ready: {:#}", seen["status"]);
    fs::write(room.folder().join("ready"), "")?;
    room.wait_ready("pair")?;
    room.delete(&["pod", "pair"])
}

/// What a restart of the agent must not change.
#[derive(Debug, PartialEq)]
struct Ready {
    container: Value,
    conditions: [Value; 2],
}

impl Ready {
    fn of(room: &Room<'_>, name: &str) -> Result<Ready> {
        let pod = room.get(&format!("pod/{name}"))?;
        let conditions = ["Ready", "ContainersReady"].map(|name| condition(&pod, name));
        Ok(Ready { container: main_container(&pod).clone(), conditions })
    }
}

fn ready_and_started(room: &Room<'_>) -> Result<Ready> {
    fs::write(room.folder().join("ready"), "")?;
    let probes = json!({
        "startupProbe": every_second(has_file("ready")),
        "readinessProbe": every_second(has_file("ready")),
    });
    room.create_ready(&asked(room, "steady", QUIET, probes))?;
    Ready::of(room, "steady")
}
