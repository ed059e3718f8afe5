//! What lies below `pods` and belongs to no pod that anybody knows: left by an earlier life, another agent, or by hand.
//! What can be recognised goes; what cannot stays and is told; what is mounted or linked there from elsewhere is not
//! touched.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use crablet_testbed::cluster::{Cluster, Node, NodeOptions};
use crablet_testbed::process::output_of;

use super::objects::{is_upstream, mounted, root};
use crate::cluster::support::{QUIET, Room, kubelet, shell_pod};

pub fn are_removed_safely(cluster: &Cluster, node: Node) -> Result<()> {
    let log = node.log_path().to_owned();
    let room = Room::new(cluster, &log, "orphans")?;
    node.kubelet().kill9()?;
    drop(node);
    let precious = room.folder().join("precious");
    fs::create_dir(&precious)?;
    fs::create_dir(precious.join("inner"))?;
    for file in FILES {
        fs::write(precious.join(file), "data\n")?;
    }
    let planted = Planted::new(&root(cluster).join("pods"), &precious)?;
    let before = fs::read_to_string(&log)?.len();
    let _node = cluster.join(NodeOptions::new(kubelet()))?;
    room.during("orphans", |room| {
        for uid in planted.to_go() {
            let folder = planted.pods.join(uid);
            room.until(&format!("{} to go", folder.display()), || Ok(!folder.exists()))?;
            let left = mounted(uid)?;
            ensure!(left.is_empty(), "still mounted: {left:#?}");
        }
        // Meanwhile the node does its work.
        room.create_ready(&shell_pod("beside", QUIET))?;
        room.delete(&["pod", "beside"])?;
        for file in FILES {
            ensure!(fs::read_to_string(precious.join(file))? == "data\n", "the data is gone");
        }
        let kept = planted.pods.join(UNKNOWN).join("volumes/vendor~unknown/volume/file");
        ensure!(kept.exists(), "what nobody knows was removed");
        let kept = planted.pods.join(WRITTEN).join("volumes/kubernetes.io~nfs/share/file");
        ensure!(kept.exists(), "files were taken for a mount point");
        if !is_upstream() {
            let log = fs::read_to_string(&log)?[before..].to_owned();
            for uid in [UNKNOWN, WRITTEN] {
                let told =
                    log.lines().filter(|line| line.contains(uid) && line.starts_with(['W', 'E'])).count();
                ensure!((1..=6).contains(&told), "{uid} was complained of {told} times");
            }
        }
        Ok(())
    })
}

/// What somebody needs.
const FILES: [&str; 2] = ["file", "inner/file"];

const MEMORY: &str = "00000000-0000-4000-8000-000000000001";
const BOUND: &str = "00000000-0000-4000-8000-000000000002";
const LINKED: &str = "00000000-0000-4000-8000-000000000003";
const PART: &str = "00000000-0000-4000-8000-000000000004";
const EMPTY: &str = "00000000-0000-4000-8000-000000000005";
const UNKNOWN: &str = "00000000-0000-4000-8000-000000000006";
const WRITTEN: &str = "00000000-0000-4000-8000-000000000007";

struct Planted {
    pods: PathBuf,
}

impl Planted {
    fn new(pods: &Path, precious: &Path) -> Result<Self> {
        let planted = Self { pods: pods.to_owned() };
        let folder = |uid: &str, path: &str| -> Result<PathBuf> {
            let folder = pods.join(uid).join(path);
            fs::create_dir_all(&folder)?;
            Ok(folder)
        };
        let tmpfs = folder(MEMORY, "volumes/kubernetes.io~empty-dir/memory")?;
        output_of(Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&tmpfs))?;
        fs::write(tmpfs.join("file"), "old")?;
        let bound = folder(BOUND, "volumes/kubernetes.io~local-volume/volume")?;
        output_of(Command::new("mount").arg("--bind").arg(precious).arg(&bound))?;
        // Where a volume would be, and inside of one.
        symlink(precious, folder(LINKED, "volumes/kubernetes.io~empty-dir")?.join("link"))?;
        symlink(precious, folder(LINKED, "volumes/kubernetes.io~configmap/map")?.join("link"))?;
        symlink(precious, folder(LINKED, "volumes")?.join("kubernetes.io~secret"))?;
        symlink(precious, pods.join(LINKED).join("volume-subpaths"))?;
        let part = folder(PART, "volume-subpaths/volume/container/0")?;
        output_of(Command::new("mount").arg("--bind").arg(precious).arg(&part))?;
        folder(EMPTY, "volumes")?;
        fs::write(folder(UNKNOWN, "volumes/vendor~unknown/volume")?.join("file"), "what is this?")?;
        fs::write(folder(WRITTEN, "volumes/kubernetes.io~nfs/share")?.join("file"), "beside the mount")?;
        Ok(planted)
    }

    /// Upstream leaves links and what it cannot make sense of.
    fn to_go(&self) -> &'static [&'static str] {
        if is_upstream() { &[EMPTY] } else { &[MEMORY, BOUND, LINKED, PART, EMPTY] }
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        for uid in [MEMORY, BOUND, LINKED, PART, EMPTY, UNKNOWN, WRITTEN] {
            let left = mounted(uid).unwrap_or_default();
            for point in left.iter().rev().filter_map(|line| line.split(' ').nth(4)) {
                let _ = Command::new("umount").args(["-q", "-l", point]).status();
            }
            if mounted(uid).is_ok_and(|left| left.is_empty()) {
                let _ = fs::remove_dir_all(self.pods.join(uid));
            }
        }
    }
}
