//! The processes of the machine, as far as `/proc` shows them.

use std::fs;
use std::path::Path;

use super::super::facts::{Process, Read};
use super::{bytes, failed, text};

/// All but this one. Those that end meanwhile are left out.
pub fn all() -> Read<Vec<Process>> {
    let entries = fs::read_dir("/proc").map_err(failed)?;
    let own = std::process::id();
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(pids.filter(|pid| *pid != own).filter_map(one).collect())
}

pub fn one(pid: u32) -> Option<Process> {
    let folder = Path::new("/proc").join(pid.to_string());
    let name = text(folder.join("comm")).ok()?.trim_end().to_owned();
    let line = bytes(folder.join("cmdline")).unwrap_or_default();
    let arguments = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let arguments = arguments.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    Some(Process { pid, name, arguments })
}
