//! Servers that give no answer: each holds its own pod and nobody else, the pod says what it waits for and since when, it
//! can be deleted, and it goes on by itself when the server is back.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use crablet_testbed::csi::{Driver, DriverOptions, Fault};
use crablet_testbed::fuse::{Fuse, Mood};
use crablet_testbed::wait::{self, Deadline};
use serde_json::{Value, json};

use super::objects::{claimed, mounted, nothing_left, pod_with, put_claim, put_local, root, uid_of};
use crate::cluster::support::{QUIET, Room, ensure_has, shell_pod};

fn hung(room: &Room<'_>, name: &str) -> Result<Fuse> {
    let folder = room.folder().join(name);
    fs::create_dir(&folder)?;
    let fuse = Fuse::mount(&folder)?;
    fuse.set(Mood::Silent);
    Ok(fuse)
}

fn host_path(fuse: &Fuse, kind: &str) -> Value {
    json!({ "name": "far", "hostPath": { "path": fuse.path(), "type": kind } })
}

fn until_asked(fuse: &Fuse) -> Result<()> {
    let asked = wait::until(Deadline::after(Duration::from_secs(60)), || fuse.is_asked());
    ensure!(asked, "nobody looked at {}", fuse.path().display());
    Ok(())
}

/// Other pods begin, answer and end; the kubelet answers for all of them.
fn others_live(room: &Room<'_>, held: &str) -> Result<()> {
    let mut beside = shell_pod("beside", QUIET);
    beside["spec"]["containers"][0]["readinessProbe"] =
        json!({ "exec": { "command": ["true"] }, "periodSeconds": 1 });
    beside["spec"]["volumes"] = json!([{ "name": "own", "emptyDir": { "medium": "Memory" } }]);
    beside["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "own", "mountPath": "/own" }]);
    room.create_ready(&beside)?;
    let said = room.kubectl(&["exec", "beside", "--", "echo", "hello"])?;
    ensure!(said.trim() == "hello", "exec says {said:?}");
    let known = room.kubectl(&["get", "--raw", "/api/v1/nodes/node/proxy/pods"])?;
    ensure_has(&known, &[&format!("\"name\":{held:?}"), "\"name\":\"beside\""])?;
    room.delete(&["pod", "beside"])
}

/// What it waits for, and since when.
fn told(room: &Room<'_>, pod: &str, whom: &str) -> Result<()> {
    let told = room.event(&format!("pod/{pod}"), "FailedMount")?;
    ensure_has(
        &told,
        &[
            "MountVolume.SetUp for volume \"far\" is taking longer than expected: ",
            &format!("waiting for {whom} since 2"),
        ],
    )
}

pub fn a_hung_path_holds_its_pod_alone(room: &Room<'_>) -> Result<()> {
    let fuse = hung(room, "hung")?;
    room.create(&pod_with("waiter", QUIET, &[host_path(&fuse, "Directory")]))?;
    until_asked(&fuse)?;
    others_live(room, "waiter")?;
    told(room, "waiter", &format!("the host's path {:?}", fuse.path().display().to_string()))?;
    let uid = uid_of(room, "waiter")?;
    // It goes while it hangs.
    room.delete(&["pod", "waiter"])?;
    nothing_left(room, &uid)?;
    // A new one that hangs in the same place goes on by itself.
    room.create(&pod_with("second", &format!("cat /far/word; {QUIET}"), &[host_path(&fuse, "Directory")]))?;
    fuse.set(Mood::Well);
    room.wait_ready("second")?;
    room.delete(&["pod", "second"])
}

/// Of a persistent volume: at its begin, when parts of it are shown, and at its end.
pub fn a_hung_volume_comes_back(room: &Room<'_>) -> Result<()> {
    let fuse = hung(room, "far")?;
    put_local(room, "far", fuse.path())?;
    let mut pod = pod_with("reader", &format!("cat /far/word; {QUIET}"), &[claimed("far")]);
    let mounts = pod["spec"]["containers"][0]["volumeMounts"].as_array_mut().context("it has mounts")?;
    mounts.push(json!({ "name": "far", "mountPath": "/part", "subPath": "part" }));
    room.create(&pod)?;
    until_asked(&fuse)?;
    told(room, "reader", "the volume of claim \"far\"")?;
    fuse.set(Mood::Well);
    room.wait_ready("reader")?;
    room.until("what it has read", || Ok(room.kubectl(&["logs", "reader"])?.contains("hello")))?;
    let uid = uid_of(room, "reader")?;
    fuse.set(Mood::Silent);
    room.delete(&["pod", "reader"])?;
    nothing_left(room, &uid)
}

/// A path that the kubelet is not asked to look at hangs in the runtime.
pub fn a_runtime_that_hangs_in_a_path_lets_the_pod_go(room: &Room<'_>) -> Result<()> {
    let fuse = hung(room, "hung")?;
    room.create(&pod_with("waiter", QUIET, &[host_path(&fuse, "")]))?;
    until_asked(&fuse)?;
    others_live(room, "waiter")?;
    let uid = uid_of(room, "waiter")?;
    room.kubectl(&["delete", "pod", "waiter", "--wait=false"])?;
    others_live(room, "waiter").ok();
    fuse.set(Mood::Well);
    room.wait("pod/waiter", "delete")?;
    nothing_left(room, &uid)
}

/// A dozen pods, each with a server of its own that is gone.
pub fn more_hang_than_there_are_threads(room: &Room<'_>) -> Result<()> {
    let mut all = Vec::new();
    for number in 0..12 {
        let fuse = hung(room, &format!("hung-{number}"))?;
        room.create(&pod_with(&format!("waiter-{number}"), QUIET, &[host_path(&fuse, "Directory")]))?;
        all.push(fuse);
    }
    for fuse in &all {
        until_asked(fuse)?;
    }
    others_live(room, "waiter-11")?;
    room.delete(&["pods", "--all"])
}

/// A driver that is there and gives no answer: when it shall publish and unpublish.
pub fn a_hung_driver_holds_its_pods_alone(room: &Room<'_>) -> Result<()> {
    const DRIVER: &str = "hung.csi.crablet.example";
    let driver = Driver::start(DriverOptions {
        registry: Some(root(room.cluster).join("plugins_registry")),
        capabilities: vec!["stage".to_owned()],
        ..DriverOptions::new(DRIVER, &room.folder().join("csi"))
    })?;
    room.create(&json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": DRIVER },
        "spec": { "attachRequired": false },
    }))?;
    room.until("the driver to be known", || {
        Ok(room.kubectl(&["get", "csinode/node", "-o", "jsonpath={.spec.drivers[*].name}"])?.contains(DRIVER))
    })?;
    let handle = driver.create_volume("far", 10 << 20)?;
    put_claim(room, "far", json!({ "csi": { "driver": DRIVER, "volumeHandle": handle } }))?;

    driver.fault("NodePublishVolume", &Fault::HangBefore)?;
    room.create(&pod_with("waiter", QUIET, &[claimed("far")]))?;
    told(room, "waiter", "the volume of claim \"far\"")?;
    others_live(room, "waiter")?;
    driver.heal("NodePublishVolume")?;
    room.wait_ready("waiter")?;
    driver.fault("NodeUnpublishVolume", &Fault::HangBefore)?;
    let uid = uid_of(room, "waiter")?;
    room.kubectl(&["delete", "pod", "waiter", "--wait=false"])?;
    let text = room.event("pod/waiter", "FailedUnMount")?;
    ensure_has(
        &text,
        &["UnmountVolume.TearDown for volume", "is taking longer than expected: waiting since 2"],
    )?;
    driver.heal("NodeUnpublishVolume")?;
    room.wait("pod/waiter", "delete")?;
    nothing_left(room, &uid)?;
    room.until("it to be unstaged", || Ok(mounted(DRIVER)?.is_empty()))
}
