//! Killing what runs in a cgroup, and removing it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, kill_process};

use super::files;

#[derive(Debug, PartialEq, Eq)]
pub enum Left {
    /// No cgroup.
    Nothing,
    /// The cgroup, or one of its children, with nothing in it.
    Empty,
    /// Processes that were killed and are not gone.
    Processes(Vec<i32>),
}

/// One round over a cgroup in all its hierarchies. It takes several: a killed process needs a moment, and a process that
/// was forked meanwhile is only seen by the next round.
pub fn round(folders: &[PathBuf], removes: bool) -> Result<Left, String> {
    let mut all = Vec::new();
    for folder in folders {
        tree(folder, &mut all).map_err(|error| format!("cannot list `{}`: {error}", folder.display()))?;
    }
    if all.is_empty() {
        return Ok(Left::Nothing);
    }
    let processes = processes(&all);
    if !processes.is_empty() {
        all.iter().for_each(|folder| thaw(folder));
        kill(&processes)?;
        return Ok(Left::Processes(processes.into_iter().collect()));
    }
    if !removes {
        return Ok(Left::Empty);
    }
    let mut left = Left::Nothing;
    for folder in &all {
        match rustix::fs::rmdir(folder) {
            Ok(()) | Err(Errno::NOENT | Errno::NODEV) => {}
            Err(Errno::BUSY | Errno::NOTEMPTY) => left = Left::Empty,
            Err(error) => return Err(format!("cannot remove the cgroup `{}`: {error}", folder.display())),
        }
    }
    Ok(left)
}

/// A folder and all below it, children first. A folder that is not there has nothing.
fn tree(folder: &Path, all: &mut Vec<PathBuf>) -> io::Result<()> {
    if !folder.try_exists()? {
        return Ok(());
    }
    for child in files::children(folder)? {
        tree(&folder.join(child), all)?;
    }
    all.push(folder.to_path_buf());
    Ok(())
}

/// Those of other process namespaces are listed as 0, which nobody can signal; ourselves we spare.
fn processes(folders: &[PathBuf]) -> BTreeSet<i32> {
    let ourselves = getpid().as_raw_nonzero().get();
    let mut found = BTreeSet::new();
    for folder in folders {
        // A threaded cgroup of v2 has no list of processes; they are in the list of the cgroup above.
        let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        let ids = text.lines().filter_map(|line| line.trim().parse().ok());
        found.extend(ids.filter(|id: &i32| *id > 0 && *id != ourselves));
    }
    found
}

/// A frozen process of cgroup v1 does not even die. Cgroup v2 kills frozen ones too.
fn thaw(folder: &Path) {
    let _ = files::write(folder, "freezer.state", "THAWED");
}

fn kill(processes: &BTreeSet<i32>) -> Result<(), String> {
    for id in processes.iter().filter_map(|id| Pid::from_raw(*id)) {
        match kill_process(id, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Err(format!("cannot kill the process {id:?}: {error}")),
        }
    }
    Ok(())
}
