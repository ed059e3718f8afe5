//! Cgroups that a runtime made for its containers, in every hierarchy (v1 has many, v2 one).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::process::{self, ProcessId};
use crate::wait::{self, Deadline};

const MOUNT: &str = "/sys/fs/cgroup";

/// The cgroups named after one of `ids`, children before parents.
pub fn of_containers(ids: &[String]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if !ids.is_empty() {
        collect(Path::new(MOUNT), &mut found, &|path| is_named_after(path, ids));
    }
    found
}

/// `<id>` (cgroupfs) or `cri-containerd-<id>.scope` (systemd). Short names as people give to `ctr run` count only
/// in containerd's own folder: `test` may be anyone's.
fn is_named_after(path: &Path, ids: &[String]) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    let id =
        name.strip_prefix("cri-containerd-").and_then(|name| name.strip_suffix(".scope")).unwrap_or(name);
    let in_own_folder = path.parent().is_some_and(|parent| parent.ends_with("k8s.io"));
    (id.len() == 64 || in_own_folder) && ids.iter().any(|known| known == id)
}

fn collect(dir: &Path, found: &mut Vec<PathBuf>, wanted: &dyn Fn(&Path) -> bool) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.filter_map(Result::ok) {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let path = entry.path();
            if wanted(&path) {
                collect(&path, found, &|_| true);
                found.push(path);
            } else {
                collect(&path, found, wanted);
            }
        }
    }
}

/// The processes in these cgroups.
pub fn processes(cgroups: &[PathBuf]) -> Vec<ProcessId> {
    let read = |cgroup: &PathBuf| fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    let mut found = Vec::new();
    for line in cgroups.iter().map(read).collect::<String>().lines() {
        if let Some(process) = line.parse().ok().and_then(ProcessId::of)
            && !found.contains(&process)
        {
            found.push(process);
        }
    }
    found
}

/// Removes empty cgroups and the pods' cgroups around them; with `last`, also the parents that runtimes share, which
/// containerd and kubelets make and nobody removes.
pub fn remove(cgroups: &[PathBuf], last: bool) {
    for cgroup in cgroups {
        // A cgroup stays busy for a moment after its last process died, and nothing tells when it no longer is.
        wait::until(Deadline::after(Duration::from_secs(2)), || {
            fs::remove_dir(cgroup).is_ok() || !cgroup.exists()
        });
        if let Some(pod) = cgroup.parent().filter(|parent| is_pod(parent)) {
            // Refused, rightly, as long as another container is in it.
            let _ = fs::remove_dir(pod);
        }
    }
    if last {
        remove_shared_parents();
    }
}

/// Makes a cgroup in every hierarchy of cgroup v1, or in the one of v2.
pub fn create(path: &str) -> Result<()> {
    for hierarchy in hierarchies() {
        let cgroup = hierarchy.join(path.trim_start_matches('/'));
        fs::create_dir_all(&cgroup).with_context(|| format!("cannot make cgroup `{}`", cgroup.display()))?;
        // A new cpuset of v1 is empty, and no process may enter it before it is told what its parent has.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if hierarchy.ends_with("cpuset")
                && let Ok(parents) = fs::read_to_string(hierarchy.join(file))
            {
                fs::write(cgroup.join(file), parents)?;
            }
        }
    }
    Ok(())
}

/// Removes a cgroup and all below it, in every hierarchy, with the processes that are in it.
pub fn remove_tree(path: &str) {
    let mut found = Vec::new();
    for hierarchy in hierarchies() {
        let cgroup = hierarchy.join(path.trim_start_matches('/'));
        if cgroup.exists() {
            collect(&cgroup, &mut found, &|_| true);
            found.push(cgroup);
        }
    }
    process::kill_all(&processes(&found), Deadline::after(Duration::from_secs(10)));
    remove(&found, false);
}

/// The folders in which cgroup v1 mounts its hierarchies; v2 has one.
fn hierarchies() -> Vec<PathBuf> {
    if Path::new(MOUNT).join("cgroup.controllers").exists() {
        return vec![MOUNT.into()];
    }
    let Ok(entries) = fs::read_dir(MOUNT) else { return Vec::new() };
    let folders =
        entries.filter_map(Result::ok).filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

fn is_pod(dir: &Path) -> bool {
    let named_so = dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with("pod"));
    named_so && dir.iter().any(|part| part == "kubepods")
}

/// Removes what is below the shared parents, and them. Not on a machine where something runs in them, i.e. a real node
/// of a cluster: there they are not ours, even where they are empty.
fn remove_shared_parents() {
    let mut found = Vec::new();
    let is_root = |path: &Path| path.ends_with("kubepods") || path.ends_with("k8s.io");
    collect(Path::new(MOUNT), &mut found, &is_root);
    if processes(&found).is_empty() {
        for cgroup in &found {
            let _ = fs::remove_dir(cgroup);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_whole_ids_only() {
        let id = "a".repeat(64);
        let ids = [id.clone(), "test".to_string()];
        assert!(is_named_after(&Path::new("/x/kubepods/pod1").join(&id), &ids));
        assert!(is_named_after(&Path::new("/x").join(format!("cri-containerd-{id}.scope")), &ids));
        assert!(is_named_after(Path::new("/x/k8s.io/test"), &ids));
        assert!(!is_named_after(Path::new("/x/other/test"), &ids));
        assert!(!is_named_after(&Path::new("/x").join(&id[1..]), &ids));
    }
}
