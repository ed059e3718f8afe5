//! The disk of the agent's own folder: full, and read-only. Pods say so, nothing that runs is harmed, and all goes on by
//! itself afterwards.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use crablet_testbed::process::output_of;
use serde_json::{Value, json};

use super::objects::{nothing_left, pod_with, root, uid_of};
use crate::cluster::support::{QUIET, Room, ensure_has};

fn volumes() -> [Value; 4] {
    [
        json!({ "name": "map", "configMap": { "name": "map" } }),
        json!({ "name": "secret", "secret": { "secretName": "secret" } }),
        json!({ "name": "own", "emptyDir": {} }),
        json!({ "name": "memory", "emptyDir": { "medium": "Memory" } }),
    ]
}

fn put_objects(room: &Room<'_>) -> Result<()> {
    room.kubectl(&["create", "configmap", "map", "--from-literal=word=before"])?;
    room.kubectl(&["create", "secret", "generic", "secret", "--from-literal=password=sesame"])?;
    Ok(())
}

/// Until there is no room for a single block more.
fn fill(file: &Path) -> Result<()> {
    let mut file = File::create(file)?;
    for size in [1 << 20, 64 << 10, 4 << 10, 512] {
        let block = vec![1; size];
        while file.write_all(&block).is_ok() {}
    }
    Ok(file.sync_all()?)
}

fn word(room: &Room<'_>, pod: &str) -> Result<String> {
    Ok(room.kubectl(&["exec", pod, "--", "cat", "/map/word"])?.trim().to_owned())
}

/// The pod that came too late says why.
fn is_told(room: &Room<'_>, pod: &str, why: &str) -> Result<()> {
    room.until("an event that says why", || {
        let about = format!("--field-selector=involvedObject.name={pod},type=Warning");
        let all = room.kubectl(&["get", "events", &about, "-o", "jsonpath={.items[*].message}"])?;
        Ok(all.to_lowercase().contains(why))
    })
}

pub fn a_full_disk(room: &Room<'_>) -> Result<()> {
    put_objects(room)?;
    room.create_ready(&pod_with("runs", QUIET, &volumes()))?;
    room.create_ready(&pod_with("goes", QUIET, &volumes()))?;
    let filler = root(room.cluster).join("filler");
    fill(&filler)?;
    room.create(&pod_with("late", QUIET, &volumes()))?;
    is_told(room, "late", "no space left on device")?;
    // What runs is not harmed, and a pod can go.
    let goes = uid_of(room, "goes")?;
    room.delete(&["pod", "goes"])?;
    nothing_left(room, &goes)?;
    // What that gave back is taken again.
    fill(&root(room.cluster).join("filler-2"))?;
    room.kubectl(&["patch", "configmap", "map", "--patch", r#"{"data":{"word":"after"}}"#])?;
    let told = room.event("pod/runs", "FailedMount")?;
    ensure_has(&told, &["MountVolume.SetUp failed for volume \"map\" : ", "no space left on device"])?;
    ensure!(word(room, "runs")? == "before", "half of a change is seen");
    fs::remove_file(filler)?;
    fs::remove_file(root(room.cluster).join("filler-2"))?;
    room.wait_ready("late")?;
    room.until("the change", || Ok(word(room, "runs")? == "after"))?;
    ensure!(word(room, "late")? == "after", "the late one shows the past");
    let all = [uid_of(room, "runs")?, uid_of(room, "late")?];
    room.delete(&["pods", "--all"])?;
    all.iter().try_for_each(|uid| nothing_left(room, uid))
}

pub fn a_read_only_disk(room: &Room<'_>) -> Result<()> {
    put_objects(room)?;
    room.create_ready(&pod_with("runs", QUIET, &volumes()))?;
    room.create_ready(&pod_with("goes", QUIET, &volumes()))?;
    let remount = |how: &str| output_of(Command::new("mount").args(["-o", how]).arg(root(room.cluster)));
    remount("remount,ro")?;
    let faulty = || -> Result<()> {
        room.create(&pod_with("late", QUIET, &volumes()))?;
        is_told(room, "late", "read-only file system")?;
        room.kubectl(&["delete", "pod", "goes", "--wait=false"])?;
        room.until("its container to end", || Ok(room.running("goes")?.is_empty()))?;
        ensure_has(&room.event("pod/goes", "FailedUnMount")?.to_lowercase(), &["read-only file system"])
    };
    let result = faulty();
    remount("remount,rw")?;
    result?;
    room.wait("pod/goes", "delete")?;
    room.wait_ready("late")?;
    let all = [uid_of(room, "runs")?, uid_of(room, "late")?];
    room.delete(&["pods", "--all"])?;
    all.iter().try_for_each(|uid| nothing_left(room, uid))
}
