//! What a run of the node suite leaves outside its scratch folder, beyond what any kubelet leaves: the kubelet's own
//! folder, pods' logs, cgroups at the root. What was there before is noted in the scratch folder, before anything starts, so that the removal of
//! that folder, by whoever and whenever, also removes the rest.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::process::{self, ProcessId};
use crate::scratch::Scratch;
use crate::wait::Deadline;
use crate::{cgroups, mounts, traces};

/// The suite gives the kubelet no other.
const KUBELET: &str = "/var/lib/kubelet";
/// Folders to which the suite's parts add entries; those that were there before stay.
const SHARED: &[&str] =
    &["/var/log/pods", "/var/log/containers", "/var/run/kubernetes", "/var/lib/cni/results"];
/// Cgroups that the kubelet makes at the root of each hierarchy.
const CGROUPS: &[&str] = &["kubepods", "kubelet.slice"];
/// Programs of a suite, known as one run's by the scratch folder in their command line.
const PROGRAMS: &[&str] = &["ginkgo", "e2e.test", "e2e_node.test", "kubelet", "crablet"];

/// The machine before the run.
#[derive(Debug, Serialize, Deserialize)]
struct Before {
    /// Names in each of the shared folders; a folder that is missing here did not exist.
    entries: BTreeMap<String, Vec<String>>,
    cgroups: Vec<String>,
}

/// An error on a machine on which a kubelet lives that is not of the test bed.
pub fn refuse_foreign_kubelet() -> Result<()> {
    if is_in_use(Path::new(KUBELET)) {
        bail!(
            "`{KUBELET}` is in use: the node suite's kubelet knows no other place\n\
             hint: if no kubelet belongs to this machine, remove that folder"
        );
    }
    Ok(())
}

/// Notes how the machine is.
pub fn note(scratch: &Scratch) -> Result<()> {
    traces::note(scratch)?;
    let before = Before {
        entries: SHARED
            .iter()
            .chain([&KUBELET])
            .filter_map(|folder| Some((folder.to_string(), names_in(folder)?)))
            .collect(),
        cgroups: CGROUPS.iter().filter(|name| cgroup_exists(name)).map(|name| name.to_string()).collect(),
    };
    fs::write(file(scratch), serde_json::to_vec(&before)?).context("cannot note the state of the machine")
}

/// Ends the suites of a run, whoever started them; they must not go on while all else is removed.
pub(crate) fn kill(scratch: &Scratch, deadline: Deadline) {
    let victims: Vec<ProcessId> =
        process::all().into_iter().filter(|process| is_of(*process, scratch)).collect();
    process::kill_all(&process::with_descendants(&victims), deadline);
}

/// Puts everything back that [`note`] saw. Nothing to do for a scratch folder without a node suite.
pub(crate) fn remove(scratch: &Scratch) -> Result<()> {
    let Ok(text) = fs::read(file(scratch)) else { return Ok(()) };
    let Ok(before) = serde_json::from_slice::<Before>(&text) else { return Ok(()) };
    for folder in SHARED {
        remove_new_entries(Path::new(folder), before.entries.get(*folder));
    }
    for cgroup in CGROUPS.iter().filter(|name| !before.cgroups.iter().any(|old| old == *name)) {
        cgroups::remove_tree(cgroup);
    }
    mounts::remove_below(Path::new(KUBELET))?;
    remove_new_entries(Path::new(KUBELET), before.entries.get(KUBELET));
    if is_in_use(Path::new(KUBELET)) {
        bail!("cannot remove all of `{KUBELET}`");
    }
    Ok(())
}

fn file(scratch: &Scratch) -> PathBuf {
    scratch.dir().join("before-node-suite.json")
}

/// In a hierarchy of cgroup v1, or in the one of v2.
fn cgroup_exists(name: &str) -> bool {
    let root = Path::new("/sys/fs/cgroup");
    let hierarchies = fs::read_dir(root).into_iter().flatten().filter_map(Result::ok);
    root.join(name).exists() || hierarchies.into_iter().any(|hierarchy| hierarchy.path().join(name).exists())
}

fn is_of(process: ProcessId, scratch: &Scratch) -> bool {
    let command = process::command_line(process);
    let program = command.first().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
    let folder = format!("{}/", scratch.dir().display());
    PROGRAMS.contains(&program) && command.iter().any(|word| word.contains(&folder))
}

/// Whether it holds more than what every kubelet makes there, whatever folder it was given: a place for device plugins.
fn is_in_use(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries.into_iter().any(|entry| entry.file_name() != "device-plugins")
}

fn names_in(folder: &str) -> Option<Vec<String>> {
    let entries = fs::read_dir(folder).ok()?;
    Some(entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect())
}

fn remove_new_entries(folder: &Path, before: Option<&Vec<String>>) {
    for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if before.is_some_and(|names| names.contains(&name)) {
            continue;
        }
        let path = entry.path();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let _ = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
    }
    if before.is_none() {
        // Refused, rightly, when something else is in it by now.
        let _ = fs::remove_dir(folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_new_goes() {
        let folder = std::env::temp_dir().join(format!("crablet-traces-{}", std::process::id()));
        fs::create_dir_all(folder.join("old")).unwrap();
        fs::create_dir_all(folder.join("new/inner")).unwrap();
        fs::write(folder.join("link"), "").unwrap();
        assert!(is_in_use(&folder));
        remove_new_entries(&folder, Some(&vec!["old".to_string()]));
        assert_eq!(names_in(&folder.to_string_lossy()).unwrap(), ["old"]);
        remove_new_entries(&folder, None);
        assert!(!folder.exists());
    }
}
