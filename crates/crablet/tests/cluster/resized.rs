//! Pods that get other resources while they run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use crablet_testbed::cluster::{Cluster, NodeOptions};
use serde_json::{Value, json};

use super::resized;
use super::support::{
    QUIET, Room, Step, ensure_has, kubelet, main_container, one_by_one, shell, shell_pod, side_by_side, step,
};

const NODE: &str = "node";
const PENDING: &str = "PodResizePending";
const IN_PROGRESS: &str = "PodResizeInProgress";

pub fn all(cluster: &Cluster) -> Result<()> {
    const TOGETHER: &[Step] = &[
        step!(resized::a_container_gets_more_and_less_without_a_restart),
        step!(resized::a_policy_asks_for_a_restart),
        step!(resized::memory_in_use_is_not_taken_away),
        step!(resized::sidecars_are_resized_too),
        step!(resized::the_pod_as_a_whole_is_resized),
    ];
    const ALONE: &[Step] = &[step!(resized::what_does_not_fit_waits_for_room)];
    let node = cluster.join(NodeOptions::new(kubelet()))?;
    side_by_side(cluster, node.log_path(), TOGETHER)?;
    one_by_one(cluster, node.log_path(), ALONE)?;
    let log = node.log_path().to_owned();
    let room = Room::new(cluster, &log, "killed-meanwhile")?;
    room.during("a resize outlives the agent", |room| {
        let waiting = Waiting::begin(room)?;
        node.kubelet().kill9()?;
        drop(node);
        let node = cluster.join(NodeOptions::new(kubelet()))?;
        waiting.is_still_told(room)?;
        waiting.ends(room)?;
        drop(node);
        Ok(())
    })
}

/// CPU and memory, requests and limits.
fn resources(cpu: (&str, &str), memory: (&str, &str)) -> Value {
    json!({
        "requests": { "cpu": cpu.0, "memory": memory.0 },
        "limits": { "cpu": cpu.1, "memory": memory.1 },
    })
}

fn sized(name: &str, resources: Value) -> Value {
    let mut pod = shell_pod(name, QUIET);
    pod["spec"]["containers"][0]["resources"] = resources;
    pod
}

/// Asks for other resources of the first container.
fn ask(room: &Room<'_>, pod: &str, resources: &Value) -> Result<()> {
    let spec = json!({ "containers": [{ "name": "main", "resources": resources }] });
    ask_for(room, pod, &spec)
}

fn ask_for(room: &Room<'_>, pod: &str, spec: &Value) -> Result<()> {
    let patch = json!({ "spec": spec }).to_string();
    room.kubectl(&["patch", "pod", pod, "--subresource=resize", "--type=strategic", "--patch", &patch])?;
    Ok(())
}

fn condition(pod: &Value, kind: &str) -> Option<Value> {
    let conditions = pod["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind).cloned()
}

/// Until the status shows these resources, for all generations, and no resize.
fn wait_resized(room: &Room<'_>, name: &str, wanted: &Value) -> Result<Value> {
    let mut seen = Value::Null;
    let waited = room.until("other resources in the pod's status", || {
        seen = room.get(&format!("pod/{name}"))?;
        let status = &seen["status"];
        Ok(main_container(&seen)["resources"] == *wanted
            && main_container(&seen)["allocatedResources"] == wanted["requests"]
            && status["observedGeneration"] == seen["metadata"]["generation"]
            && condition(&seen, PENDING).is_none()
            && condition(&seen, IN_PROGRESS).is_none())
    });
    waited.with_context(|| format!("{:#}", seen["status"]))?;
    Ok(seen)
}

/// Files of the pod's own cgroup, where that is of version 1.
fn cgroup(pod: &Value, controller: &str, file: &str) -> Result<Option<String>> {
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    let mount = Path::new("/sys/fs/cgroup").join(controller);
    let found = find_folder(&mount, &[format!("pod{uid}"), format!("pod{}.slice", uid.replace('-', "_"))], 5);
    found.map(|folder| Ok(fs::read_to_string(folder.join(file))?.trim().to_owned())).transpose()
}

fn find_folder(below: &Path, names: &[String], depth: usize) -> Option<PathBuf> {
    let entries = fs::read_dir(below).ok()?;
    let folders: Vec<_> = entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).collect();
    let named = |name: &str| names.iter().any(|wanted| name.ends_with(wanted.as_str()));
    if let Some(found) = folders.iter().find(|folder| named(&folder.file_name().to_string_lossy())) {
        return Some(found.path());
    }
    let deeper = folders.iter().filter(|_| depth > 0);
    deeper.into_iter().find_map(|folder| find_folder(&folder.path(), names, depth - 1))
}

fn ensure_cgroup(pod: &Value, shares: &str, quota: &str, memory: &str) -> Result<()> {
    for (controller, file, wanted) in [
        ("cpu", "cpu.shares", shares),
        ("cpu", "cpu.cfs_quota_us", quota),
        ("memory", "memory.limit_in_bytes", memory),
    ] {
        if let Some(found) = cgroup(pod, controller, file)? {
            ensure!(found == wanted, "`{file}` of the pod is {found}, not {wanted}");
        }
    }
    Ok(())
}

pub fn a_container_gets_more_and_less_without_a_restart(room: &Room<'_>) -> Result<()> {
    let small = resources(("100m", "200m"), ("32Mi", "64Mi"));
    let large = resources(("150m", "400m"), ("48Mi", "128Mi"));
    room.create_ready(&sized("stretch", small.clone()))?;
    let before = room.get("pod/stretch")?;
    ensure!(main_container(&before)["resources"] == small, "{:#}", before["status"]);
    ensure_cgroup(&before, "102", "20000", "67108864")?;

    ask(room, "stretch", &large)?;
    let after = wait_resized(room, "stretch", &large)?;
    ensure_cgroup(&after, "153", "40000", "134217728")?;
    let inside =
        room.kubectl(&["exec", "stretch", "--", "cat", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]);
    if let Ok(limit) = inside {
        ensure!(limit.trim() == "134217728", "the container has {limit}");
    }
    let started = room.event("pod/stretch", "ResizeStarted")?;
    ensure_has(&started, &["Pod resize started: {\"containers\":[{\"name\":\"main\"", "\"generation\":2}"])?;
    let completed = room.event("pod/stretch", "ResizeCompleted")?;
    ensure_has(
        &completed,
        &["Pod resize completed: {\"containers\":[{\"name\":\"main\"", "\"cpu\":\"400m\""],
    )?;
    ensure!(after["status"]["allocatedResources"] == large["requests"], "{:#}", after["status"]);

    ask(room, "stretch", &small)?;
    let back = wait_resized(room, "stretch", &small)?;
    ensure_cgroup(&back, "102", "20000", "67108864")?;
    for key in ["containerID", "restartCount", "state"] {
        ensure!(main_container(&back)[key] == main_container(&before)[key], "{:#}", back["status"]);
    }
    room.delete(&["pod/stretch"])
}

pub fn a_policy_asks_for_a_restart(room: &Room<'_>) -> Result<()> {
    let small = resources(("50m", "100m"), ("32Mi", "64Mi"));
    let mut pod = sized("strict", small);
    pod["spec"]["containers"][0]["resizePolicy"] = json!([
        { "resourceName": "cpu", "restartPolicy": "NotRequired" },
        { "resourceName": "memory", "restartPolicy": "RestartContainer" },
    ]);
    room.create_ready(&pod)?;
    let more_cpu = resources(("60m", "120m"), ("32Mi", "64Mi"));
    ask(room, "strict", &more_cpu)?;
    let seen = wait_resized(room, "strict", &more_cpu)?;
    ensure!(main_container(&seen)["restartCount"] == 0, "{:#}", seen["status"]);
    let more_memory = resources(("60m", "120m"), ("40Mi", "80Mi"));
    ask(room, "strict", &more_memory)?;
    room.wait("pod/strict", "jsonpath={.status.containerStatuses[0].restartCount}=1")?;
    room.wait_ready("strict")?;
    let seen = wait_resized(room, "strict", &more_memory)?;
    ensure_cgroup(&seen, "61", "12000", "83886080")?;
    let killed = room.event("pod/strict", "Killing")?;
    ensure!(killed == "Container main resize requires restart", "{killed}");
    room.delete(&["pod/strict"])
}

pub fn memory_in_use_is_not_taken_away(room: &Room<'_>) -> Result<()> {
    let large = resources(("20m", "100m"), ("32Mi", "128Mi"));
    let mut pod = sized("hungry", large.clone());
    let script = format!("dd if=/dev/zero of=/dev/shm/held bs=1048576 count=48; {QUIET}");
    pod["spec"]["containers"][0]["command"] = json!(["/bin/sh", "-c", script]);
    let probe =
        json!({ "exec": { "command": ["/bin/sh", "-c", "[ $(stat -c %s /dev/shm/held) = 50331648 ]"] } });
    pod["spec"]["containers"][0]["readinessProbe"] = probe;
    room.create_ready(&pod)?;
    ask(room, "hungry", &resources(("20m", "100m"), ("16Mi", "16Mi")))?;
    let told = format!("jsonpath={{.status.conditions[?(@.type==\"{IN_PROGRESS}\")].reason}}=Error");
    room.wait("pod/hungry", &told)?;
    let seen = room.get("pod/hungry")?;
    let told = condition(&seen, IN_PROGRESS).context("no condition")?;
    ensure!(told["observedGeneration"] == 2, "{told:#}");
    ensure_has(
        told["message"].as_str().unwrap_or_default(),
        &[
            "cannot decrease memory limits: ",
            "attempting to set container \"main\" memory limit (16777216) below current usage (",
        ],
    )?;
    ensure!(main_container(&seen)["resources"]["limits"]["memory"] == "128Mi", "{:#}", seen["status"]);
    ensure!(main_container(&seen)["allocatedResources"]["memory"] == "16Mi", "{:#}", seen["status"]);
    let event = room.event("pod/hungry", "ResizeError")?;
    ensure_has(&event, &["Pod resize error: {", "\"error\":\"cannot decrease memory limits: "])?;
    // Somebody thinks better of it.
    ask(room, "hungry", &large)?;
    let seen = wait_resized(room, "hungry", &large)?;
    ensure!(main_container(&seen)["restartCount"] == 0, "{:#}", seen["status"]);
    room.delete(&["pod/hungry"])
}

pub fn sidecars_are_resized_too(room: &Room<'_>) -> Result<()> {
    let (small, large) = (json!({ "requests": { "cpu": "20m" } }), json!({ "requests": { "cpu": "40m" } }));
    let mut pod = sized("pair", small.clone());
    let mut sidecar = shell("beside", QUIET);
    sidecar["restartPolicy"] = json!("Always");
    sidecar["resources"] = small;
    pod["spec"]["initContainers"] = json!([sidecar]);
    room.create_ready(&pod)?;
    ask_for(room, "pair", &json!({ "initContainers": [{ "name": "beside", "resources": large }] }))?;
    room.until("another request of the sidecar", || {
        let pod = room.get("pod/pair")?;
        let sidecar = &pod["status"]["initContainerStatuses"][0];
        Ok(sidecar["resources"] == large
            && sidecar["restartCount"] == 0
            && condition(&pod, IN_PROGRESS).is_none())
    })?;
    let pod = room.get("pod/pair")?;
    if let Some(shares) = cgroup(&pod, "cpu", "cpu.shares")? {
        ensure!(shares == "61", "the pod has {shares} shares");
    }
    room.delete(&["pod/pair"])
}

pub fn the_pod_as_a_whole_is_resized(room: &Room<'_>) -> Result<()> {
    let (small, large) =
        (resources(("50m", "100m"), ("32Mi", "64Mi")), resources(("80m", "200m"), ("48Mi", "96Mi")));
    let mut pod = shell_pod("whole", QUIET);
    pod["spec"]["resources"] = small;
    room.create_ready(&pod)?;
    ensure_cgroup(&room.get("pod/whole")?, "51", "10000", "67108864")?;
    ask_for(room, "whole", &json!({ "resources": large }))?;
    room.until("other resources of the pod", || {
        let pod = room.get("pod/whole")?;
        Ok(pod["status"]["allocatedResources"] == large["requests"]
            && pod["status"]["resources"]["limits"] == large["limits"]
            && condition(&pod, PENDING).is_none()
            && condition(&pod, IN_PROGRESS).is_none())
    })?;
    let seen = room.get("pod/whole")?;
    ensure!(main_container(&seen)["restartCount"] == 0, "{:#}", seen["status"]);
    ensure_cgroup(&seen, "81", "20000", "100663296")?;
    room.delete(&["pod/whole"])
}

/// A pod that wants what another has.
struct Waiting {
    wanted: Value,
    told: Value,
}

impl Waiting {
    fn begin(room: &Room<'_>) -> Result<Self> {
        let node = room.get(&format!("node/{NODE}"))?;
        let cpu = node["status"]["allocatable"]["cpu"].as_str().unwrap_or_default();
        let milli = match cpu.strip_suffix('m') {
            Some(milli) => milli.parse::<i64>()?,
            None => cpu.parse::<i64>()? * 1000,
        };
        let most = format!("{}m", milli * 6 / 10);
        room.create_ready(&sized("large", json!({ "requests": { "cpu": most } })))?;
        room.create_ready(&sized("small", json!({ "requests": { "cpu": "20m" } })))?;
        let wanted = json!({ "requests": { "cpu": most } });
        ask(room, "small", &wanted)?;
        let told = format!("jsonpath={{.status.conditions[?(@.type==\"{PENDING}\")].reason}}=Deferred");
        room.wait("pod/small", &told)?;
        let seen = room.get("pod/small")?;
        let told = condition(&seen, PENDING).context("no condition")?;
        ensure!(told["status"] == "True" && told["observedGeneration"] == 2, "{told:#}");
        let message = told["message"].as_str().unwrap_or_default();
        let beginning =
            format!("Node didn't have enough resource: cpu, requested: {}, used: ", milli * 6 / 10);
        ensure!(message.starts_with(&beginning), "{message}");
        let event = room.event("pod/small", "ResizeDeferred")?;
        ensure_has(
            &event,
            &["Pod resize OutOfcpu: {\"containers\":[", "\"generation\":2,\"error\":\"Node didn't"],
        )?;
        ensure!(main_container(&seen)["resources"]["requests"]["cpu"] == "20m", "{:#}", seen["status"]);
        Ok(Self { wanted, told })
    }

    fn is_still_told(&self, room: &Room<'_>) -> Result<()> {
        // It has taken stock once it does something new.
        room.create_ready(&shell_pod("afterwards", QUIET))?;
        let seen = room.get("pod/small")?;
        let told = condition(&seen, PENDING).context("it is no longer told")?;
        ensure!(told["reason"] == self.told["reason"], "{told:#}");
        ensure!(main_container(&seen)["restartCount"] == 0, "{:#}", seen["status"]);
        ensure!(main_container(&seen)["allocatedResources"]["cpu"] == "20m", "{:#}", seen["status"]);
        Ok(())
    }

    fn ends(&self, room: &Room<'_>) -> Result<()> {
        room.delete(&["pod/large"])?;
        let seen = wait_resized(room, "small", &self.wanted)?;
        ensure!(main_container(&seen)["restartCount"] == 0, "{:#}", seen["status"]);
        room.delete(&["pod/small"])
    }
}

pub fn what_does_not_fit_waits_for_room(room: &Room<'_>) -> Result<()> {
    Waiting::begin(room)?.ends(room)
}
