//! Processes seen from outside: who is alive, who descends from whom, and their certain end.
//!
//! A process is named by its id and its start time, since ids are used again.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::wait::{self, Deadline};

/// Where [`stat_fields`] has the number of threads and the start time.
const THREADS: usize = 17;
const START_TIME: usize = 19;

/// One process, for its whole life and never for its id's next owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProcessId {
    pub pid: i32,
    /// In clock ticks since boot, field 22 of `/proc/<pid>/stat`.
    pub started: u64,
}

impl ProcessId {
    pub fn of(pid: u32) -> Option<ProcessId> {
        let pid = i32::try_from(pid).ok()?;
        Some(ProcessId { pid, started: stat_fields(pid)?.get(START_TIME)?.parse().ok()? })
    }

    pub fn of_self() -> ProcessId {
        ProcessId::of(std::process::id()).expect("this process has an entry in /proc")
    }

    /// Whether it runs. A zombie does not, unless only its first thread has ended: the others still hold its memory
    /// and files, and nobody can reap it.
    pub fn is_alive(self) -> bool {
        let Some(fields) = stat_fields(self.pid) else { return false };
        let same = fields.get(START_TIME).is_some_and(|started| started.parse() == Ok(self.started));
        let ended =
            fields[0] == "Z" && fields.get(THREADS).is_none_or(|threads| threads == "0" || threads == "1");
        same && !ended && fields[0] != "X"
    }

    /// Sends `signal` if it is still the same process; says whether it was.
    pub fn signal(self, signal: Signal) -> bool {
        let Some(pid) = Pid::from_raw(self.pid) else { return false };
        // The descriptor pins the process, so the identity check and the signal cannot be about two processes.
        let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
        self.is_alive() && pidfd_send_signal(fd.as_fd(), signal).is_ok()
    }

    /// Waits until it is gone; `false` when the deadline came first.
    pub fn wait_gone(self, deadline: Deadline) -> bool {
        let Some(pid) = Pid::from_raw(self.pid) else { return true };
        let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else { return true };
        if !self.is_alive() {
            return true;
        }
        wait::readable(&[fd.as_fd()], deadline).is_ok_and(|ready| ready[0])
    }
}

impl std::fmt::Display for ProcessId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.pid, self.started)
    }
}

impl FromStr for ProcessId {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<ProcessId> {
        let (pid, started) =
            text.trim().split_once(' ').ok_or_else(|| anyhow!("not `<pid> <start time>`: {text}"))?;
        Ok(ProcessId { pid: pid.parse()?, started: started.parse()? })
    }
}

/// The process that a pid file names, if the file is there and whole.
pub fn read_pid_file(path: &Path) -> Option<ProcessId> {
    fs::read_to_string(path).ok()?.parse().ok()
}

/// All processes on the machine that this one may see.
pub fn all() -> Vec<ProcessId> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(ProcessId::of)
        .filter(|process| process.is_alive())
        .collect()
}

/// The command line; empty for kernel threads and for processes that just died.
pub fn command_line(process: ProcessId) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
    bytes
        .split(|byte| *byte == 0)
        .filter(|part| !part.is_empty())
        .map(|part| String::from_utf8_lossy(part).into())
        .collect()
}

/// `roots` and everything that descends from them.
pub fn with_descendants(roots: &[ProcessId]) -> Vec<ProcessId> {
    let everyone: Vec<(ProcessId, i32)> = all()
        .into_iter()
        .filter_map(|process| Some((process, stat_fields(process.pid)?.get(1)?.parse().ok()?)))
        .collect();
    let mut family: Vec<ProcessId> = roots.to_vec();
    let mut next = 0;
    while next < family.len() {
        let parent = family[next].pid;
        let children = everyone.iter().filter(|(_, ppid)| *ppid == parent).map(|(process, _)| *process);
        let new: Vec<ProcessId> = children.filter(|child| !family.contains(child)).collect();
        family.extend(new);
        next += 1;
    }
    family
}

/// SIGKILL for all of them, then waits for each end.
pub fn kill_all(processes: &[ProcessId], deadline: Deadline) {
    for process in processes {
        process.signal(Signal::KILL);
    }
    for process in processes {
        process.wait_gone(deadline);
    }
}

/// The fields of `/proc/<pid>/stat` after the name, so that index 0 is the state and 1 the parent.
fn stat_fields(pid: i32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold both blanks and parentheses.
    let (_, after) = stat.rsplit_once(") ")?;
    Some(after.split_whitespace().map(str::to_owned).collect())
}

/// Runs a command to its end and gives its standard output; a failure shows what it said on stderr.
pub fn output_of(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let Output { status, stdout, stderr } =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot run `{name}`"))?;
    if !status.success() {
        bail!("`{}` failed ({status}): {}", shown(command), String::from_utf8_lossy(&stderr).trim());
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

/// A command as a person would type it, for messages.
pub fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Waits for a child's end without blocking past the deadline; `None` when it still runs.
pub fn wait_child(
    child: &mut std::process::Child,
    limit: Duration,
) -> std::io::Result<Option<std::process::ExitStatus>> {
    if let Some(status) = child.try_wait()? {
        return Ok(Some(status));
    }
    // A child that nobody has reaped keeps its id. Its descriptor is readable when its last thread has ended, which
    // is when it can be reaped.
    let pid = Pid::from_child(child);
    let fd = pidfd_open(pid, PidfdFlags::empty())?;
    wait::readable(&[fd.as_fd()], Deadline::after(limit))?;
    child.try_wait()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_id_and_start_time() {
        let me = ProcessId::of_self();
        assert!(me.is_alive());
        assert!(!ProcessId { started: me.started + 1, ..me }.is_alive());
        assert_eq!(me.to_string().parse::<ProcessId>().unwrap(), me);
    }

    #[test]
    fn descendants_are_found_and_killed() {
        let mut shell = Command::new("sh").args(["-c", "sleep 1000 & wait"]).spawn().unwrap();
        let root = ProcessId::of(shell.id()).unwrap();
        assert!(
            wait::until(Deadline::after(Duration::from_secs(10)), || with_descendants(&[root]).len() == 2)
        );
        let family = with_descendants(&[root]);
        kill_all(&family, Deadline::after(Duration::from_secs(10)));
        assert!(wait_child(&mut shell, Duration::from_secs(10)).unwrap().is_some());
        assert!(!family.iter().any(|process| process.is_alive()));
    }
}
