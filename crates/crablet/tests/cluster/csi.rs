//! Volumes of a CSI driver, which is a process on the node: it registers, its volumes are mounted, grown and taken away,
//! and neither its death nor the kubelet's leaves anything behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use anyhow::{Context, Result, ensure};
use crablet_testbed::cluster::{Cluster, NodeOptions};
use crablet_testbed::csi::{Driver, DriverOptions};
use serde_json::{Value, json};

use super::csi as this;
use super::support::{QUIET, Room, Step, ensure_has, kubelet, shell_pod, side_by_side, step};

const DRIVER: &str = "hostpath.csi.crablet.example";
const ZONE: &str = "topology.csi.crablet.example/zone";

/// The driver of the cluster under test: steps are plain functions.
static RUNNING: Mutex<Option<Driver>> = Mutex::new(None);

/// Whatever becomes of the test, the driver goes with it.
struct Ended;

impl Drop for Ended {
    fn drop(&mut self) {
        drop(running().take());
    }
}

fn running() -> MutexGuard<'static, Option<Driver>> {
    RUNNING.lock().unwrap_or_else(|dead| dead.into_inner())
}

fn with_driver<T>(work: impl FnOnce(&mut Driver) -> Result<T>) -> Result<T> {
    work(running().as_mut().context("the driver has been started")?)
}

pub fn all(cluster: &Cluster) -> Result<()> {
    const TOGETHER: &[Step] = &[
        step!(this::a_claim_of_the_driver_is_mounted),
        step!(this::an_inline_volume_lives_with_its_pod),
        step!(this::a_volume_is_a_device),
        step!(this::a_group_owns_the_files_of_a_driver),
        step!(this::a_volume_grows),
        step!(this::a_volume_grows_under_its_pod),
        step!(this::figures_tell_of_volumes),
    ];
    let node = cluster.join(NodeOptions::new(kubelet()))?;
    let log = node.log_path().to_owned();
    let root = root_of(&node);
    let options = DriverOptions {
        registry: Some(root.join("plugins_registry")),
        capabilities: ["stage", "stats", "expand"].map(String::from).to_vec(),
        max_volumes: 17,
        topology: Some(format!("{ZONE}=east")),
        ..DriverOptions::new(DRIVER, &cluster.dir().join("csi"))
    };
    *running() = Some(Driver::start(options)?);
    let _ended = Ended;

    let room = Room::new(cluster, &log, "drivers")?;
    room.create(&json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": { "name": DRIVER },
        "spec": {
            "attachRequired": false,
            "podInfoOnMount": true,
            "fsGroupPolicy": "File",
            "volumeLifecycleModes": ["Persistent", "Ephemeral"],
        },
    }))?;
    room.during("registration", |room| registered(room, true))?;
    side_by_side(cluster, &log, TOGETHER)?;

    room.during("a restart of the driver", a_driver_comes_back)?;
    let room = Room::new(cluster, &log, "drivers-and-deaths")?;
    room.create(&volume(&room, "kept", json!({}))?)?;
    room.create(&claim(&room, "kept", json!({})))?;
    room.create_ready(&with_claim("keeper", &format!("echo before > /data/word; {QUIET}"), "kept"))?;
    node.kubelet().kill9()?;
    drop(node);
    let node = cluster.join(NodeOptions::new(kubelet()))?;
    room.during("a restart of the kubelet", |room| {
        // Upstream's kubelet is ready before it knows its pods again.
        room.until("the pod has what it wrote", || {
            let said = room.kubectl(&["exec", "keeper", "--", "cat", "/data/word"]);
            Ok(said.is_ok_and(|said| said.trim() == "before"))
        })?;
        room.delete(&["pod", "keeper"])?;
        is_let_go_of(room, "kept")
    })?;
    room.during("deregistration", |room| {
        with_driver(|driver| {
            driver.retire();
            Ok(())
        })?;
        registered(room, false)
    })?;
    drop(node);
    Ok(())
}

/// Steps that run side by side know only the cluster.
fn root_of(node: &crablet_testbed::cluster::Node) -> PathBuf {
    node.home().join("root")
}

fn registered(room: &Room<'_>, wanted: bool) -> Result<()> {
    room.until("the CSINode tells of the driver", || {
        let csi_node = room.get("csinode/node")?;
        let drivers = csi_node["spec"]["drivers"].as_array().cloned().unwrap_or_default();
        Ok(drivers.iter().any(|driver| driver["name"] == DRIVER) == wanted)
    })?;
    let (csi_node, node) = (room.get("csinode/node")?, room.get("node/node")?);
    let annotation = node["metadata"]["annotations"]["csi.volume.kubernetes.io/nodeid"].as_str();
    if !wanted {
        return room.until("the Node has forgotten it", || {
            let node = room.get("node/node")?;
            Ok(node["metadata"]["annotations"].get("csi.volume.kubernetes.io/nodeid").is_none())
        });
    }
    let expected = json!([{
        "name": DRIVER, "nodeID": "node-of-the-driver", "topologyKeys": [ZONE], "allocatable": { "count": 17 },
    }]);
    ensure!(csi_node["spec"]["drivers"] == expected, "the CSINode has {}", csi_node["spec"]);
    ensure!(node["metadata"]["labels"][ZONE] == "east", "no label tells where the node is");
    ensure!(annotation == Some(&*json!({ DRIVER: "node-of-the-driver" }).to_string()), "{annotation:?}");
    Ok(())
}

pub fn a_claim_of_the_driver_is_mounted(room: &Room<'_>) -> Result<()> {
    room.create(&volume(room, "data", json!({ "volumeAttributes": { "colour": "blue" } }))?)?;
    room.create(&claim(room, "data", json!({})))?;
    let handle = handle_of(room, "data");
    let content = with_driver(|driver| Ok(driver.content(&handle)))?;
    fs::write(content.join("greeting"), "hello\n")?;
    room.create_ready(&with_claim(
        "one",
        &format!("cat /data/greeting; echo one > /data/one; {QUIET}"),
        "data",
    ))?;
    room.create_ready(&with_claim("two", &format!("cat /data/one; {QUIET}"), "data"))?;
    room.says("one", "hello")?;
    room.says("two", "one")?;

    let uid = room.get("pod/one")?["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let published = seen(&handle, "NodePublishVolume")?;
    ensure!(seen(&handle, "NodeStageVolume")?.len() == 1, "it is staged once for both");
    let first = published.first().context("it was published")?;
    for (key, value) in [
        ("colour", "blue"),
        ("csi.storage.k8s.io/pod.name", "one"),
        ("csi.storage.k8s.io/pod.uid", &*uid),
        ("csi.storage.k8s.io/serviceAccount.name", "default"),
        ("csi.storage.k8s.io/ephemeral", "false"),
    ] {
        ensure!(first["context"][key] == value, "the driver was told {first}");
    }
    let target = first["path"].as_str().unwrap_or_default();
    ensure!(
        target.ends_with(&format!("/pods/{uid}/volumes/kubernetes.io~csi/{}/mount", pv(room, "data"))),
        "{target}"
    );
    let data = fs::read(Path::new(target).with_file_name("vol_data.json"))?;
    let data: Value = serde_json::from_slice(&data)?;
    ensure!(data["volumeHandle"] == handle.as_str() && data["driverName"] == DRIVER, "{data}");

    room.delete(&["pod", "one"])?;
    ensure!(seen(&handle, "NodeUnstageVolume")?.is_empty(), "the other pod still has it");
    ensure!(!Path::new(target).exists(), "the target is still there");
    room.delete(&["pod", "two"])?;
    is_let_go_of(room, "data")?;
    ensure!(fs::read_to_string(content.join("one"))? == "one\n", "the data went with the pod");
    Ok(())
}

pub fn an_inline_volume_lives_with_its_pod(room: &Room<'_>) -> Result<()> {
    let mut pod = shell_pod("scratch", &format!("echo mine > /data/word; cat /data/word; {QUIET}"));
    pod["spec"]["volumes"] = json!([{ "name": "data", "csi": {
        "driver": DRIVER, "volumeAttributes": { "size": "1Mi" },
    } }]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "data", "mountPath": "/data" }]);
    room.create_ready(&pod)?;
    room.says("scratch", "mine")?;
    let uid = room.get("pod/scratch")?["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let handle = format!("csi-{}", crablet_testbed::sha256::hex(format!("{uid}data").as_bytes()));
    let published = seen(&handle, "NodePublishVolume")?;
    let first = published.first().context("it was published under upstream's handle")?;
    ensure!(first["context"]["csi.storage.k8s.io/ephemeral"] == "true", "{first}");
    ensure!(first["staging"] == "", "nothing is staged");
    room.delete(&["pod", "scratch"])?;
    ensure!(seen(&handle, "NodeUnpublishVolume")?.len() == 1, "it was not unpublished");
    with_driver(|driver| {
        ensure!(!driver.content(&handle).exists(), "the volume is still there");
        Ok(())
    })
}

pub fn a_volume_is_a_device(room: &Room<'_>) -> Result<()> {
    room.create(&{
        let mut volume = volume(room, "disk", json!({}))?;
        volume["spec"]["volumeMode"] = json!("Block");
        volume
    })?;
    room.create(&claim(room, "disk", json!({ "volumeMode": "Block" })))?;
    let script =
        format!("echo on the disk | dd of=/dev/disk conv=notrunc; dd if=/dev/disk bs=12 count=1; {QUIET}");
    let mut pod = with_claim("writer", &script, "disk");
    let container = &mut pod["spec"]["containers"][0];
    container["volumeMounts"] = Value::Null;
    container["volumeDevices"] = json!([{ "name": "data", "devicePath": "/dev/disk" }]);
    room.create_ready(&pod)?;
    room.says("writer", "on the disk")?;
    room.delete(&["pod", "writer"])?;
    is_let_go_of(room, "disk")
}

pub fn a_group_owns_the_files_of_a_driver(room: &Room<'_>) -> Result<()> {
    room.create(&volume(room, "shared", json!({}))?)?;
    room.create(&claim(room, "shared", json!({})))?;
    let mut pod = with_claim("grouped", &format!("stat -c %g /data; touch /data/mine; {QUIET}"), "shared");
    pod["spec"]["securityContext"] = json!({ "fsGroup": 4321, "runAsUser": 1000, "runAsGroup": 1000 });
    room.create_ready(&pod)?;
    room.says("grouped", "4321")?;
    room.delete(&["pod", "grouped"])?;
    is_let_go_of(room, "shared")
}

pub fn a_volume_grows(room: &Room<'_>) -> Result<()> {
    room.create(&volume(room, "growing", json!({}))?)?;
    room.create(&claim(room, "growing", json!({})))?;
    room.wait("pvc/growing", "jsonpath={.status.phase}=Bound")?;
    resize(room, "growing")?;
    room.create_ready(&with_claim("grower", QUIET, "growing"))?;
    has_grown(room, "grower", "growing")
}

pub fn a_volume_grows_under_its_pod(room: &Room<'_>) -> Result<()> {
    room.create(&volume(room, "alive", json!({}))?)?;
    room.create(&claim(room, "alive", json!({})))?;
    room.create_ready(&with_claim("keeper", QUIET, "alive"))?;
    let handle = handle_of(room, "alive");
    ensure!(seen(&handle, "NodeExpandVolume")?.is_empty(), "it was expanded before it has grown");
    resize(room, "alive")?;
    // A kubelet may not watch claims: it looks about once a minute.
    has_grown(room, "keeper", "alive")
}

/// What a resize controller would do is done by hand: it is not part of the test bed.
fn resize(room: &Room<'_>, name: &str) -> Result<()> {
    let patch = json!({ "spec": { "capacity": { "storage": "20Mi" } } }).to_string();
    room.kubectl(&["patch", "pv", &pv(room, name), "--type=merge", "-p", &patch])?;
    let patch = json!({ "status": {
        "allocatedResources": { "storage": "20Mi" },
        "allocatedResourceStatuses": { "storage": "NodeResizePending" },
    } })
    .to_string();
    room.kubectl(&["patch", "pvc", name, "--subresource=status", "--type=merge", "-p", &patch]).map(drop)
}

fn has_grown(room: &Room<'_>, pod: &str, name: &str) -> Result<()> {
    room.wait(&format!("pvc/{name}"), "jsonpath={.status.capacity.storage}=20Mi")?;
    let status = room.get(&format!("pvc/{name}"))?["status"].clone();
    ensure!(status["allocatedResourceStatuses"].is_null(), "the claim still says {status}");
    let expanded = seen(&handle_of(room, name), "NodeExpandVolume")?;
    ensure!(expanded.first().is_some_and(|seen| seen["bytes"] == 20 << 20), "{expanded:?}");
    let text = format!("MountVolume.NodeExpandVolume succeeded for volume {:?} node", pv(room, name));
    for object in [format!("pod/{pod}"), format!("pvc/{name}")] {
        ensure_has(&room.event(&object, "FileSystemResizeSuccessful")?, &[&text])?;
    }
    room.delete(&["pod", pod])?;
    is_let_go_of(room, name)
}

pub fn figures_tell_of_volumes(room: &Room<'_>) -> Result<()> {
    room.create(&volume(room, "measured", json!({}))?)?;
    room.create(&claim(room, "measured", json!({})))?;
    let content = with_driver(|driver| Ok(driver.content(&handle_of(room, "measured"))))?;
    fs::write(content.join("data"), [0; 1000])?;
    room.create_ready(&with_claim("measurer", QUIET, "measured"))?;
    let namespace = room.namespace();
    let plugin = format!("kubernetes.io/csi:{DRIVER}");
    let of_claim = format!("{{namespace=\"{namespace}\",persistentvolumeclaim=\"measured\"}}");
    let staged = format!(
        "csi_operations_seconds_count{{driver_name=\"{DRIVER}\",grpc_status_code=\"OK\",\
         method_name=\"/csi.v1.Node/NodeStageVolume\",migrated=\"false\"}} "
    );
    let mounted = format!(
        "storage_operation_duration_seconds_count{{migrated=\"false\",operation_name=\"volume_mount\",\
         status=\"success\",volume_plugin=\"{plugin}\"}} "
    );
    let whole = format!(
        "volume_operation_total_seconds_count{{operation_name=\"overall_volume_mount\",\
         plugin_name=\"{plugin}\"}} "
    );
    let total =
        format!("volume_manager_total_volumes{{plugin_name=\"{plugin}\",state=\"actual_state_of_world\"}} ");
    let full = format!("kubelet_volume_stats_capacity_bytes{of_claim} 1.048576e+07");
    let used = format!("kubelet_volume_stats_used_bytes{of_claim} 1000");
    // Kubelets measure volumes about once a minute.
    room.until("the figures tell of the volume", || {
        let figures = room.kubectl(&["get", "--raw", "/api/v1/nodes/node/proxy/metrics"])?;
        let has = |part: &str| figures.lines().any(|line| line.starts_with(part));
        Ok([staged.as_str(), &mounted, &whole, &total, &full, &used].into_iter().all(has))
    })?;
    room.delete(&["pod", "measurer"])?;
    is_let_go_of(room, "measured")
}

/// While the driver is away a pod waits and says for what; it runs as soon as the driver is back.
fn a_driver_comes_back(room: &Room<'_>) -> Result<()> {
    room.create(&volume(room, "late", json!({}))?)?;
    room.create(&claim(room, "late", json!({})))?;
    with_driver(|driver| {
        driver.retire();
        Ok(())
    })?;
    registered(room, false)?;
    room.create(&with_claim("waiter", QUIET, "late"))?;
    let told = room.event("pod/waiter", "FailedMount")?;
    ensure_has(&told, &[&format!("driver name {DRIVER} not found in the list of registered CSI drivers")])?;
    with_driver(|driver| driver.restart())?;
    registered(room, true)?;
    room.wait_ready("waiter")?;
    // A crash leaves the sockets; the one that comes after makes new ones.
    with_driver(|driver| driver.restart())?;
    registered(room, true)?;
    room.delete(&["pod", "waiter"])?;
    is_let_go_of(room, "late")
}

/// Names of persistent volumes are the cluster's, so they begin with the room's.
fn pv(room: &Room<'_>, name: &str) -> String {
    format!("{}-{name}", room.namespace())
}

fn handle_of(room: &Room<'_>, name: &str) -> String {
    // As the driver makes it of the name.
    format!("vol-{}", &crablet_testbed::sha256::hex(pv(room, name).as_bytes())[..24])
}

fn volume(room: &Room<'_>, name: &str, source: Value) -> Result<Value> {
    let handle = with_driver(|driver| driver.create_volume(&pv(room, name), 10 << 20))?;
    let mut csi = json!({ "driver": DRIVER, "volumeHandle": handle });
    for (key, value) in source.as_object().into_iter().flatten() {
        csi[key] = value.clone();
    }
    Ok(json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": { "name": pv(room, name) },
        "spec": {
            "capacity": { "storage": "10Mi" },
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": { "namespace": room.namespace(), "name": name },
            "csi": csi,
        },
    }))
}

fn claim(room: &Room<'_>, name: &str, spec: Value) -> Value {
    let mut whole = json!({
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "volumeName": pv(room, name),
        "resources": { "requests": { "storage": "10Mi" } },
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        whole[key] = value.clone();
    }
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name }, "spec": whole,
    })
}

fn with_claim(name: &str, script: &str, claim: &str) -> Value {
    let mut pod = shell_pod(name, script);
    pod["spec"]["volumes"] = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "data", "mountPath": "/data" }]);
    pod
}

/// The requests of a method that were begun for a volume.
fn seen(handle: &str, method: &str) -> Result<Vec<Value>> {
    let all = with_driver(|driver| Ok(driver.seen()))?;
    let begun = all.into_iter().filter(|seen| seen.begun && seen.volume == handle && seen.method == method);
    Ok(begun.map(|seen| seen.request).collect())
}

/// Unstaged, and nowhere mounted. A pod's end does not wait for it.
fn is_let_go_of(room: &Room<'_>, name: &str) -> Result<()> {
    let handle = handle_of(room, name);
    room.until("it is unstaged", || Ok(!seen(&handle, "NodeUnstageVolume")?.is_empty()))?;
    let name = pv(room, name);
    room.until("it is nowhere mounted", || {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        Ok(!mounts.lines().any(|line| line.contains(&name) || line.contains(&handle)))
    })
}
