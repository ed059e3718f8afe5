//! A whole node in a virtual machine: Debian with systemd as process 1, cgroup v2 and a containerd that is its own. For
//! what only such a machine can judge: slices over D-Bus, cgroup files, swap, the agent as a unit.
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! let outcome = crablet_testbed::vm::Vm::new("#!/bin/sh\nuname -r\n").run()?;
//! assert_eq!(outcome.exit_code, 0);
//! # Ok(())
//! # }
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `disk` | the disk: made once, kept in the cache, never written to |
//! | `payload` | the files of one boot, on a drive of their own |
//! | `qemu` | the machine itself, emulated where the processor cannot help |
//! | `wire` | its network, where it is part of a cluster |
//! | `folder` | what a boot keeps on this machine, and its removal after any end |
//! | `guest/` | what runs inside |
//!
//! Deliberately absent: a network to the outside, except towards the cluster that a machine is wired to. Images come with
//! the boot.

mod disk;
mod folder;
mod payload;
mod qemu;
mod wire;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use self::folder::Folder;
use self::payload::File;
use self::qemu::{Ended, Hardware};
use self::wire::Wire;
use crate::network::Network;
use crate::wait::Deadline;
use crate::{images, packages, say};

/// Where [`Vm::kubelet`] goes.
pub const KUBELET: &str = "/usr/local/bin/kubelet";
/// The test bed's own files in the machine.
const HOME: &str = "/usr/local/lib/crablet-vm";
/// From power-on to power-off, script included.
const DEADLINE: Duration = Duration::from_secs(15 * 60);
/// How much of a console or an output an error shows.
const SHOWN_LINES: usize = 30;

/// A machine that was not booted yet.
#[must_use]
pub struct Vm {
    files: Vec<File>,
    script: String,
    hardware: Hardware,
    deadline: Duration,
}

/// What a boot came to.
#[derive(Debug)]
pub struct Outcome {
    /// What the script wrote to its standard output and error, byte for byte.
    pub output: Vec<u8>,
    pub exit_code: u8,
    /// What the kernel and systemd said on the serial console.
    pub console: String,
}

impl Vm {
    /// A machine that runs `script` (any program: it begins with `#!`) as root once containerd is up, and ends with it.
    /// Helpers for shell scripts are in `guest/lib.sh`, at `/usr/local/lib/crablet-vm/lib.sh` in the machine.
    pub fn new(script: impl Into<String>) -> Vm {
        Vm {
            files: Vec::new(),
            script: script.into(),
            hardware: Hardware { cpus: 2, memory_mib: 2048, wire: None, reboots: false },
            deadline: DEADLINE,
        }
    }

    /// Puts a kubelet at [`KUBELET`]. Nothing starts it but the script.
    pub fn kubelet(self, binary: &Path) -> Vm {
        self.program(KUBELET, binary)
    }

    /// Puts a program of this machine into the other.
    pub fn program(mut self, to: &str, from: &Path) -> Vm {
        self.files.push(File::copy(to, from, 0o755));
        self
    }

    /// Puts a file into the machine, at an absolute path.
    pub fn file(mut self, to: &str, content: impl Into<Vec<u8>>) -> Vm {
        self.files.push(File::text(to, content));
        self
    }

    /// Gives it a network, by which it reaches the cluster that has this network; the cluster reaches its kubelet's port.
    pub fn wired_to(mut self, network: Network) -> Vm {
        self.hardware.wire = Some(Wire::to(network));
        self
    }

    /// The script may have it rebooted, and is run again after that.
    pub fn may_reboot(mut self) -> Vm {
        self.hardware.reboots = true;
        self
    }

    /// How long it may run, from power-on to power-off; 15 minutes unless said.
    pub fn deadline(mut self, deadline: Duration) -> Vm {
        self.deadline = deadline;
        self
    }

    /// Boots, runs the script, and gives what it said.
    pub fn run(self) -> Result<Outcome> {
        self.run_showing(|_| ())
    }

    /// The same; `sink` also gets the script's output as it comes.
    pub fn run_showing(mut self, mut sink: impl FnMut(&[u8])) -> Result<Outcome> {
        packages::ensure_runtime()?;
        packages::ensure_vm()?;
        let disk = disk::ensure()?;
        let archives = images::ensure()?;
        let folder = Folder::claim()?;
        let mut files = self.own_files(&archives)?;
        files.append(&mut self.files);
        payload::write(&files, &folder.path("payload"))?;
        if let Some(wire) = self.hardware.wire {
            wire.lay()?;
        }
        say::step("booting the virtual node");
        let started = Instant::now();
        let ended = qemu::run(&disk, &folder, self.hardware, Deadline::after(self.deadline), &mut sink)?;
        let outcome = judge(ended, self.deadline)?;
        say::note(format!("it ran {} s", started.elapsed().as_secs()));
        Ok(outcome)
    }

    /// What every boot takes: containerd's settings, the pods' network, the images, and what runs the script.
    fn own_files(&self, archives: &[std::path::PathBuf]) -> Result<Vec<File>> {
        let mut files = vec![
            File::text("/etc/containerd/config.toml", containerd_config()),
            File::text("/etc/cni/net.d/10-vm.conflist", include_str!("guest/cni.conflist")),
            File::text(&format!("{HOME}/lib.sh"), include_str!("guest/lib.sh")),
            File::program(&format!("{HOME}/run"), include_str!("guest/run")),
            File::program(&format!("{HOME}/script"), self.script.as_str()),
        ];
        if let Some(wire) = self.hardware.wire {
            files.push(File::text("/etc/systemd/network/wire.network", wire.settings()));
        }
        for archive in archives {
            let name = archive.file_name().context("an archive has a name")?.to_string_lossy();
            files.push(File::copy(&format!("{HOME}/images/{name}"), archive, 0o644));
        }
        Ok(files)
    }
}

fn containerd_config() -> String {
    include_str!("guest/containerd.toml").replace("@PAUSE@", images::PAUSE)
}

/// A script that ended is an outcome, whatever its exit code; a machine that did not get there is an error that shows
/// what there is to see.
fn judge(ended: Ended, deadline: Duration) -> Result<Outcome> {
    if let Some(exit_code) = exit_code(&ended.exit_code) {
        return Ok(Outcome { output: ended.output, exit_code, console: ended.console });
    }
    let problem = if ended.late {
        format!("the virtual node did not finish within {} s", deadline.as_secs())
    } else {
        format!("the virtual node ended before its script did (QEMU: {})", ended.status)
    };
    let output = String::from_utf8_lossy(&ended.output).into_owned();
    let parts = [("the script", &output), ("its console", &ended.console), ("QEMU", &ended.complaints)];
    let said: Vec<String> = parts
        .iter()
        .filter(|(_, text)| !text.trim().is_empty())
        .map(|(who, text)| format!("{who} said last:\n{}", last_lines(text, SHOWN_LINES)))
        .collect();
    bail!("{problem}\n{}", said.join("\n"));
}

/// The line that `guest/run` writes; nothing else, and nothing half-written, counts.
fn exit_code(text: &str) -> Option<u8> {
    text.strip_suffix('\n')?.parse().ok()
}

/// The last lines of a log for people: without the control characters that consoles are sent.
fn last_lines(text: &str, count: usize) -> String {
    let clean = |line: &str| line.chars().filter(|letter| !letter.is_control()).collect::<String>();
    let lines: Vec<String> = text.lines().map(clean).filter(|line| !line.trim().is_empty()).collect();
    let from = lines.len().saturating_sub(count);
    lines[from..].iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(exit_code: &str, late: bool) -> Ended {
        Ended {
            output: b"hello\n".to_vec(),
            exit_code: exit_code.into(),
            console: "[  OK  ] Started something\r\n".into(),
            complaints: String::new(),
            status: std::process::ExitStatus::default(),
            late,
        }
    }

    #[test]
    fn only_a_whole_line_with_a_number_is_an_exit_code() {
        assert_eq!(exit_code("0\n"), Some(0));
        assert_eq!(exit_code("143\n"), Some(143));
        for text in ["", "1", "\n", "none\n", "1\n2\n", "300\n"] {
            assert_eq!(exit_code(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_script_that_failed_is_an_outcome() {
        assert_eq!(judge(ended("7\n", false), DEADLINE).unwrap().exit_code, 7);
    }

    #[test]
    fn a_machine_that_did_not_finish_is_an_error_that_shows_its_console() {
        let late = judge(ended("", true), DEADLINE).unwrap_err().to_string();
        assert!(late.starts_with("the virtual node did not finish within 900 s"), "{late}");
        let dead = judge(ended("", false), DEADLINE).unwrap_err().to_string();
        assert!(dead.contains("its console said last:\n  [  OK  ] Started something"), "{dead}");
        assert!(dead.contains("the script said last:\n  hello"), "{dead}");
    }

    #[test]
    fn containerds_settings_are_filled_in() {
        let config = containerd_config();
        assert!(config.contains(images::PAUSE) && !config.contains('@'));
    }
}
