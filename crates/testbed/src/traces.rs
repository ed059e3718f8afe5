//! What a kubelet changes on the machine outside its own folders and cannot be told not to: noted before it starts, in
//! the scratch folder, and put back when the folder is removed, by whoever removes it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::scratch::{self, Scratch};

/// It sets these to its own liking at every start.
const SYSCTLS: &[&str] = &[
    "/proc/sys/kernel/panic",
    "/proc/sys/kernel/panic_on_oops",
    "/proc/sys/kernel/keys/root_maxbytes",
    "/proc/sys/kernel/keys/root_maxkeys",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/panic_on_oom",
];

/// It makes these folders, children before parents.
const FOLDERS: &[&str] = &["/var/lib/kubelet/device-plugins", "/var/lib/kubelet", "/var/log/containers"];

/// The machine as it was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Before {
    sysctls: BTreeMap<String, String>,
    absent_folders: Vec<String>,
}

impl Before {
    fn now() -> Before {
        let read = |path: &&str| Some((path.to_string(), fs::read_to_string(path).ok()?));
        let absent = |folder: &&&str| !Path::new(folder).exists();
        Before {
            sysctls: SYSCTLS.iter().filter_map(read).collect(),
            absent_folders: FOLDERS.iter().filter(absent).map(|folder| folder.to_string()).collect(),
        }
    }

    fn put_back(&self) {
        for (path, value) in &self.sysctls {
            if fs::read_to_string(path).is_ok_and(|now| now != *value) {
                let _ = fs::write(path, value);
            }
        }
        for folder in &self.absent_folders {
            for socket_or_checkpoint in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
                let _ = fs::remove_file(socket_or_checkpoint.path());
            }
            // Refused, rightly, when something else is in it by now.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Notes the machine's state before a kubelet starts that belongs to `scratch`.
pub fn note(scratch: &Scratch) -> Result<()> {
    if file(scratch).exists() {
        return Ok(());
    }
    // Where another kubelet runs already, what it found is how the machine was.
    let before = scratch::others(scratch).iter().find_map(read).unwrap_or_else(Before::now);
    let text = serde_json::to_string(&before)?;
    fs::write(file(scratch), text).with_context(|| format!("cannot write `{}`", file(scratch).display()))
}

/// Puts back what was noted, unless another kubelet of ours still runs: then that one's removal does it.
pub(crate) fn put_back(scratch: &Scratch) {
    let Some(before) = read(scratch) else { return };
    if scratch::others(scratch).iter().all(|other| read(other).is_none()) {
        before.put_back();
    }
}

fn file(scratch: &Scratch) -> PathBuf {
    scratch.dir().join("machine-before.json")
}

fn read(scratch: &Scratch) -> Option<Before> {
    serde_json::from_str(&fs::read_to_string(file(scratch)).ok()?).ok()
}
