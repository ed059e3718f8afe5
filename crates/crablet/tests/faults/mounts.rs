//! Mounts that are absent, busy or stale.

use std::fs::{self, File};
use std::io::Write;

use anyhow::{Result, ensure};
use crablet_testbed::fuse::{Fuse, Mood};
use rustix::io::Errno;
use serde_json::json;

use super::objects::{claimed, is_upstream, mounted, nothing_left, pod_with, put_local, root, uid_of};
use crate::cluster::support::{QUIET, Room, ensure_has};

pub fn what_is_absent_is_waited_for(room: &Room<'_>) -> Result<()> {
    let folder = room.folder().join("late");
    let volume = json!({ "name": "late", "hostPath": { "path": folder, "type": "Directory" } });
    room.create(&pod_with("early", &format!("cat /late/word; {QUIET}"), &[volume]))?;
    let told = room.event("pod/early", "FailedMount")?;
    let why = format!("hostPath type check failed: {} is not a directory", folder.display());
    ensure_has(&told, &["MountVolume.SetUp failed for volume \"late\" : ", &why])?;
    let local = room.folder().join("local");
    put_local(room, "local", &local)?;
    room.create(&pod_with("as-early", QUIET, &[claimed("local")]))?;
    let told = room.event("pod/as-early", "FailedMount")?;
    ensure_has(&told, &[&format!("path {:?} does not exist", local.display().to_string())])?;

    fs::create_dir(&folder)?;
    fs::create_dir(&local)?;
    room.wait_ready("early")?;
    room.wait_ready("as-early")?;
    room.delete(&["pods", "--all"])
}

/// Somebody on the node has a file of the volume open. Nothing in the volumes is lost meanwhile.
pub fn a_busy_volume_is_let_go_of_later(room: &Room<'_>) -> Result<()> {
    let folder = room.folder().join("data");
    fs::create_dir(&folder)?;
    fs::write(folder.join("precious"), "data\n")?;
    put_local(room, "data", &folder)?;
    let memory = json!({ "name": "memory", "emptyDir": { "medium": "Memory" } });
    room.create_ready(&pod_with("busy", QUIET, &[claimed("data"), memory]))?;
    let uid = uid_of(room, "busy")?;
    let volumes = root(room.cluster).join("pods").join(&uid).join("volumes");
    let mut held = File::create(volumes.join("kubernetes.io~empty-dir/memory/held"))?;
    held.write_all(b"still needed\n")?;
    let name = super::objects::volume_name(room, "data");
    let also_held = File::open(volumes.join(format!("kubernetes.io~local-volume/{name}/precious")))?;

    room.kubectl(&["delete", "pod", "busy", "--wait=false"])?;
    room.until("its container to end", || Ok(room.running("busy")?.is_empty()))?;
    if !is_upstream() {
        let told = room.event("pod/busy", "FailedUnMount")?;
        let one = |volume: &str| format!("UnmountVolume.TearDown failed for volume {volume:?} : unmount ");
        ensure_has(&told, &[&one("memory"), &one(&name), "busy"])?;
    }
    room.get("pod/busy")?;
    ensure!(fs::read_to_string(folder.join("precious"))? == "data\n", "the data is gone");
    ensure!(!mounted(&uid)?.is_empty(), "nothing was busy");
    // One after the other: what can go goes.
    drop(also_held);
    room.until("the volume to be unmounted", || Ok(!mounted(&uid)?.iter().any(|line| line.contains(&name))))?;
    room.get("pod/busy")?;
    drop(held);
    room.wait("pod/busy", "delete")?;
    ensure!(fs::read_to_string(folder.join("precious"))? == "data\n", "the data is gone");
    nothing_left(room, &uid)
}

/// As a server of NFS that has forgotten what it gave out: before the pod begins, and while it ends.
pub fn a_stale_handle_is_told_and_comes_back(room: &Room<'_>) -> Result<()> {
    let folder = room.folder().join("far");
    fs::create_dir(&folder)?;
    let fuse = Fuse::mount(&folder)?;
    put_local(room, "far", &folder)?;
    fuse.set(Mood::Fails(Errno::STALE));
    room.create(&pod_with("reader", &format!("cat /far/word; {QUIET}"), &[claimed("far")]))?;
    let told = room.event("pod/reader", "FailedMount")?;
    ensure_has(&told, &["stale", "file handle", &folder.display().to_string()])?;
    fuse.set(Mood::Well);
    room.wait_ready("reader")?;
    room.until("what it has read", || Ok(room.kubectl(&["logs", "reader"])?.contains("hello")))?;
    let uid = uid_of(room, "reader")?;
    fuse.set(Mood::Fails(Errno::STALE));
    room.delete(&["pod", "reader"])?;
    nothing_left(room, &uid)
}
