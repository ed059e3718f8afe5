//! Volumes that outlive pods: claims, what they are bound to, and what a pod waits for.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use crablet_testbed::cluster::{Cluster, NodeOptions};
use crablet_testbed::process::output_of;
use serde_json::{Value, json};

use super::storage as this;
use super::support::{QUIET, Room, Step, ensure_has, kubelet, shell_pod, side_by_side, step};

pub fn all(cluster: &Cluster) -> Result<()> {
    const TOGETHER: &[Step] = &[
        step!(this::a_claim_is_a_folder_of_the_node),
        step!(this::a_disk_gets_a_file_system),
        step!(this::a_disk_is_given_as_it_is),
        step!(this::a_claim_is_waited_for),
        step!(this::a_claim_lives_as_long_as_its_pod),
        step!(this::a_group_owns_the_files),
        step!(this::parts_of_a_volume_are_shown),
    ];
    let node = cluster.join(NodeOptions::new(kubelet()))?;
    let log = node.log_path().to_owned();
    side_by_side(cluster, &log, TOGETHER)?;

    let room = Room::new(cluster, &log, "volumes-and-deaths")?;
    let folder = room.folder().join("data");
    fs::create_dir(&folder)?;
    room.create(&volume(&room, "kept", json!({ "local": { "path": folder } })))?;
    room.create(&claim(&room, "kept"))?;
    room.create_ready(&with_claim("keeper", &format!("echo before > /data/word; {QUIET}"), "kept"))?;
    node.kubelet().kill9()?;
    drop(node);
    let _node = cluster.join(NodeOptions::new(kubelet()))?;
    room.during("a restart of the agent", |room| {
        // It has taken stock once it does something new.
        room.create_ready(&shell_pod("afterwards", QUIET))?;
        let said = room.kubectl(&["exec", "keeper", "--", "cat", "/data/word"])?;
        ensure!(said.trim() == "before", "the volume has {said:?}");
        room.delete(&["pod", "keeper", "afterwards"])?;
        ensure!(fs::read_to_string(folder.join("word"))? == "before\n", "the data went with the pod");
        nothing_mounted(&folder)
    })
}

/// A volume for a claim of the same name.
fn volume(room: &Room<'_>, name: &str, source: Value) -> Value {
    let here = json!({ "key": "kubernetes.io/hostname", "operator": "Exists" });
    let mut spec = json!({
        "capacity": { "storage": "10Mi" },
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": { "namespace": room.namespace(), "name": name },
        "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [here] }] } },
    });
    if let Value::Object(fields) = source {
        for (field, value) in fields {
            spec[field] = value;
        }
    }
    json!({ "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": { "name": volume_name(room, name) }, "spec": spec })
}

fn volume_name(room: &Room<'_>, name: &str) -> String {
    format!("{}-{name}", room.namespace())
}

fn claim(room: &Room<'_>, name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name }, "spec": {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "volumeName": volume_name(room, name),
        "resources": { "requests": { "storage": "10Mi" } },
    } })
}

fn with_claim(pod: &str, script: &str, claim: &str) -> Value {
    let mut pod = shell_pod(pod, script);
    pod["spec"]["volumes"] = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "data", "mountPath": "/data" }]);
    pod
}

/// Where something is mounted that has the path's name in its source or root.
fn nothing_mounted(path: &Path) -> Result<()> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    let path = path.display().to_string();
    let left: Vec<&str> = table.lines().filter(|line| line.contains(&path)).collect();
    ensure!(left.is_empty(), "still mounted: {left:#?}");
    Ok(())
}

pub fn a_claim_is_a_folder_of_the_node(room: &Room<'_>) -> Result<()> {
    let folder = room.folder().join("data");
    fs::create_dir(&folder)?;
    room.create(&volume(room, "data", json!({ "local": { "path": folder } })))?;
    room.create(&claim(room, "data"))?;
    room.create_ready(&with_claim("writer", &format!("echo hello > /data/word; {QUIET}"), "data"))?;
    let mut reader = with_claim("reader", &format!("cat /data/word > /tmp/word; {QUIET}"), "data");
    reader["spec"]["volumes"][0]["persistentVolumeClaim"]["readOnly"] = json!(true);
    room.create_ready(&reader)?;
    let word = room.kubectl(&["exec", "reader", "--", "cat", "/data/word"])?;
    ensure!(word.trim() == "hello", "the other pod reads {word:?}");
    let refused = room.kubectl(&["exec", "reader", "--", "sh", "-c", "echo no > /data/word"]);
    ensure!(refused.is_err(), "a claim that is only read was written to");
    room.delete(&["pods", "--all"])?;
    ensure!(fs::read_to_string(folder.join("word"))? == "hello\n", "the data went with the pods");
    nothing_mounted(&folder)
}

/// A disk of 64 MiB, given back at the end.
struct Disk(String);

impl Disk {
    fn new(folder: &Path) -> Result<Self> {
        let file = folder.join("disk.img");
        File::create(&file)?.set_len(64 << 20)?;
        let device = output_of(Command::new("losetup").args(["-f", "--show"]).arg(&file))?;
        Ok(Self(device.trim().to_owned()))
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(&self.0)
    }

    /// Loop devices that lie on this one, or on what is bound to it.
    fn holders(&self, room: &Room<'_>) -> Result<usize> {
        let listed = output_of(Command::new("losetup").args(["-l", "-n", "-O", "BACK-FILE"]))?;
        let name = volume_name(room, "raw");
        Ok(listed.lines().filter(|line| line.contains(&name)).count())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

pub fn a_disk_gets_a_file_system(room: &Room<'_>) -> Result<()> {
    let disk = Disk::new(&room.folder())?;
    room.create(&volume(room, "disk", json!({ "local": { "path": disk.path(), "fsType": "ext4" } })))?;
    room.create(&claim(room, "disk"))?;
    room.create_ready(&with_claim("first", &format!("echo hello > /data/word; {QUIET}"), "disk"))?;
    room.delete(&["pod", "first"])?;
    let global = volume_name(room, "disk");
    room.until("the disk to be unmounted", || {
        Ok(!fs::read_to_string("/proc/self/mountinfo")?.contains(&global))
    })?;
    room.create_ready(&with_claim("second", QUIET, "disk"))?;
    let word = room.kubectl(&["exec", "second", "--", "cat", "/data/word"])?;
    ensure!(word.trim() == "hello", "the disk has {word:?}");
    room.delete(&["pod", "second"])?;
    room.until("the disk to be unmounted", || {
        Ok(!fs::read_to_string("/proc/self/mountinfo")?.contains(&global))
    })
}

pub fn a_disk_is_given_as_it_is(room: &Room<'_>) -> Result<()> {
    let disk = Disk::new(&room.folder())?;
    let source = json!({ "local": { "path": disk.path() }, "volumeMode": "Block" });
    room.create(&volume(room, "raw", source))?;
    let mut wanted = claim(room, "raw");
    wanted["spec"]["volumeMode"] = json!("Block");
    room.create(&wanted)?;
    let mut pod = with_claim("raw", &format!("printf mark > /dev/disk; sync; {QUIET}"), "raw");
    let container = &mut pod["spec"]["containers"][0];
    container["volumeMounts"] = json!([]);
    container["volumeDevices"] = json!([{ "name": "data", "devicePath": "/dev/disk" }]);
    room.create_ready(&pod)?;
    ensure_has(&room.event("pod/raw", "SuccessfulMountVolume")?, &["MapVolume.MapPodDevice succeeded"])?;
    let kind = room.kubectl(&["exec", "raw", "--", "sh", "-c", "test -b /dev/disk && echo block"])?;
    ensure!(kind.trim() == "block", "the container has no device: {kind:?}");
    ensure!(disk.holders(room)? == 1, "nothing holds the device");
    room.until("the mark", || {
        let head = output_of(Command::new("head").args(["-c", "4"]).arg(disk.path()))?;
        Ok(head == "mark")
    })?;
    room.delete(&["pod", "raw"])?;
    room.until("the device to be let go", || Ok(disk.holders(room)? == 0))?;
    let name = volume_name(room, "raw");
    room.until("the device to be unmounted", || {
        Ok(!fs::read_to_string("/proc/self/mountinfo")?.contains(&name))
    })
}

pub fn a_claim_is_waited_for(room: &Room<'_>) -> Result<()> {
    let folder = room.folder().join("data");
    fs::create_dir(&folder)?;
    let late = claim(room, "late");
    // The scheduler would wait for the claim itself; who names a node goes past it.
    let mut pod = with_claim("early", QUIET, "late");
    pod["spec"]["nodeName"] = json!("node");
    room.create(&late)?;
    room.create(&pod)?;
    let told = room.event("pod/early", "FailedMount")?;
    let why = format!(
        "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], \
         failed to process volumes=[data]: error processing PVC {}/late: PVC is not bound",
        room.namespace()
    );
    // The token's volume may be missing as well at that moment.
    let why = match told.contains("kube-api-access") {
        true => "error processing PVC".to_owned(),
        false => why,
    };
    ensure_has(&told, &[&why])?;
    room.create(&volume(room, "late", json!({ "local": { "path": folder } })))?;
    room.wait_ready("early")?;
    room.delete(&["pod", "early"])
}

pub fn a_claim_lives_as_long_as_its_pod(room: &Room<'_>) -> Result<()> {
    let folder = room.folder().join("data");
    fs::create_dir(&folder)?;
    room.create(&volume(room, "short-data", json!({ "hostPath": { "path": folder } })))?;
    let mut pod = shell_pod("short", &format!("echo hello > /data/word; {QUIET}"));
    let template = json!({ "spec": claim(room, "short-data")["spec"] });
    pod["spec"]["volumes"] = json!([{ "name": "data", "ephemeral": { "volumeClaimTemplate": template } }]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "data", "mountPath": "/data" }]);
    room.create_ready(&pod)?;
    room.until("the word", || Ok(folder.join("word").exists()))?;
    room.delete(&["pod", "short"])?;
    room.wait("pvc/short-data", "delete")?;
    ensure!(folder.join("word").exists(), "a path of the host is not the pod's to remove");
    Ok(())
}

pub fn a_group_owns_the_files(room: &Room<'_>) -> Result<()> {
    let folder = room.folder().join("data");
    fs::create_dir(&folder)?;
    fs::write(folder.join("old"), "old")?;
    room.create(&volume(room, "shared", json!({ "local": { "path": folder } })))?;
    room.create(&claim(room, "shared"))?;
    let grouped = |name: &str, policy: &str| {
        let mut pod = with_claim(name, &format!("touch /data/{name}; {QUIET}"), "shared");
        pod["spec"]["securityContext"] =
            json!({ "runAsUser": 1000, "fsGroup": 2000, "fsGroupChangePolicy": policy });
        pod
    };
    room.create_ready(&grouped("first", "Always"))?;
    let access = |name: &str| -> Result<(u32, u32)> {
        let found = fs::metadata(folder.join(name))?;
        Ok((found.gid(), found.mode() & 0o7777))
    };
    room.until("the file", || Ok(folder.join("first").exists()))?;
    ensure!(access("old")? == (2000, 0o664), "the old file is {:?}", access("old")?);
    ensure!(access("")?.0 == 2000 && access("")?.1 & 0o2770 == 0o2770, "the folder is {:?}", access("")?);
    ensure!(access("first")?.0 == 2000, "a new file is {:?}", access("first")?);
    room.delete(&["pod", "first"])?;
    // The folder is right, so nothing in it is looked at.
    std::os::unix::fs::chown(folder.join("old"), None, Some(0))?;
    room.create_ready(&grouped("second", "OnRootMismatch"))?;
    ensure!(access("old")?.0 == 0, "the volume was walked though its folder is right");
    room.delete(&["pod", "second"])
}

pub fn parts_of_a_volume_are_shown(room: &Room<'_>) -> Result<()> {
    let folder = room.folder().join("data");
    fs::create_dir(&folder)?;
    room.create(&volume(room, "parts", json!({ "local": { "path": folder } })))?;
    room.create(&claim(room, "parts"))?;
    let mut pod = with_claim("parts", &format!("echo hello > /part/word; {QUIET}"), "parts");
    let container = &mut pod["spec"]["containers"][0];
    container["env"] = json!([{ "name": "WHO", "value": "me" }]);
    container["volumeMounts"] = json!([{ "name": "data", "mountPath": "/part", "subPathExpr": "of/$(WHO)" }]);
    room.create_ready(&pod)?;
    room.until("the word", || Ok(folder.join("of/me/word").exists()))?;
    room.delete(&["pod", "parts"])?;
    nothing_mounted(&folder)
}
