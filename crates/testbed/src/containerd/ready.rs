//! Waiting for the daemon without asking it again and again.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::wait::{self, Deadline};

/// How long the daemon may take to say that it is ready; a second is usual.
const BOOT: Duration = Duration::from_secs(60);

/// Hears containerd's `READY=1`, which it says to systemd's interface when all of it serves.
pub struct ReadySocket {
    socket: UnixDatagram,
    pub path: PathBuf,
}

impl ReadySocket {
    pub fn bind(path: &Path) -> Result<ReadySocket> {
        let _ = fs::remove_file(path);
        let socket = UnixDatagram::bind(path).with_context(|| format!("cannot bind `{}`", path.display()))?;
        Ok(ReadySocket { socket, path: path.to_owned() })
    }

    pub fn wait(&self, pid: u32) -> Result<()> {
        let pid = Pid::from_raw(pid as i32).context("a child has a process id")?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        let deadline = Deadline::after(BOOT);
        let mut message = [0u8; 1024];
        loop {
            let ready = wait::readable(&[self.socket.as_fd(), process.as_fd()], deadline)?;
            if ready[0] {
                let length = self.socket.recv(&mut message)?;
                if String::from_utf8_lossy(&message[..length]).lines().any(|line| line == "READY=1") {
                    return Ok(());
                }
            } else if ready[1] {
                bail!("it ended");
            } else {
                bail!("it was not ready after {} s", BOOT.as_secs());
            }
        }
    }
}

impl Drop for ReadySocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
