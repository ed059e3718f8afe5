//! Pods, claims and volumes, a disk that is soon full, and looks at what is mounted.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use crablet_testbed::cluster::{Cluster, Kubelet};
use crablet_testbed::process::output_of;
use serde_json::{Value, json};

use crate::cluster::support::{Room, kubelet, shell_pod};

pub fn is_upstream() -> bool {
    kubelet() == Kubelet::Upstream
}

/// The root folder of the cluster's only node.
pub fn root(cluster: &Cluster) -> PathBuf {
    cluster.dir().join("node/root")
}

/// A pod with volumes; each is mounted at `/<name>`.
pub fn pod_with(name: &str, script: &str, volumes: &[Value]) -> Value {
    let mut pod = shell_pod(name, script);
    let mounts = volumes.iter().map(|volume| {
        let name = volume["name"].as_str().unwrap_or_default();
        json!({ "name": name, "mountPath": format!("/{name}") })
    });
    pod["spec"]["containers"][0]["volumeMounts"] = mounts.collect();
    pod["spec"]["volumes"] = json!(volumes);
    pod
}

pub fn claimed(name: &str) -> Value {
    json!({ "name": name, "persistentVolumeClaim": { "claimName": name } })
}

pub fn uid_of(room: &Room<'_>, pod: &str) -> Result<String> {
    let pod = room.get(&format!("pod/{pod}"))?;
    Ok(pod["metadata"]["uid"].as_str().context("a pod has a uid")?.to_owned())
}

pub fn volume_name(room: &Room<'_>, name: &str) -> String {
    format!("{}-{name}", room.namespace())
}

/// A volume of the node, and a claim of the same name that is bound to it.
pub fn put_local(room: &Room<'_>, name: &str, folder: &Path) -> Result<()> {
    let here = json!({ "key": "kubernetes.io/hostname", "operator": "Exists" });
    let affinity = json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [here] }] } });
    put_claim(room, name, json!({ "local": { "path": folder }, "nodeAffinity": affinity }))
}

pub fn put_claim(room: &Room<'_>, name: &str, source: Value) -> Result<()> {
    let mut spec = json!({
        "capacity": { "storage": "10Mi" },
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": { "namespace": room.namespace(), "name": name },
    });
    for (field, value) in source.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    let name_of_volume = volume_name(room, name);
    room.create(&json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name_of_volume }, "spec": spec,
    }))?;
    room.create(&json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name }, "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "volumeName": name_of_volume,
            "resources": { "requests": { "storage": "10Mi" } },
        },
    }))?;
    room.wait(&format!("pvc/{name}"), "jsonpath={.status.phase}=Bound")
}

/// Lines of the mount table that name this.
pub fn mounted(name: &str) -> Result<Vec<String>> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(table.lines().filter(|line| line.contains(name)).map(str::to_owned).collect())
}

/// Neither a mount nor a folder of the pod is on the node.
pub fn nothing_left(room: &Room<'_>, uid: &str) -> Result<()> {
    let folder = root(room.cluster).join("pods").join(uid);
    // The folder goes a moment after the pod itself.
    room.until("the folder of the pod to go", || Ok(!folder.exists()))?;
    let left = mounted(uid)?;
    ensure!(left.is_empty(), "still mounted: {left:#?}");
    Ok(())
}

/// A file system of its own with little room, mounted at a folder.
pub struct SmallDisk {
    folder: PathBuf,
    device: String,
}

impl SmallDisk {
    pub fn mount(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let file = folder.with_extension("img");
        File::create(&file)?.set_len(48 << 20)?;
        let device = output_of(Command::new("losetup").args(["-f", "--show"]).arg(&file))?.trim().to_owned();
        // From here on it is given back.
        let disk = Self { folder: folder.to_owned(), device };
        output_of(Command::new("mkfs.ext4").args(["-q", "-m", "0", &disk.device]))?;
        output_of(Command::new("mount").arg(&disk.device).arg(folder))?;
        Ok(disk)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: after a failure something may still lie on it.
        for _ in 0..2 {
            let _ = Command::new("umount").args(["-q", "-l"]).arg(&self.folder).status();
        }
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
    }
}
