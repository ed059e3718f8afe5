//! A program at a terminal: what a person in front of one would see and type.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::process::{shown, wait_child};
use crate::wait::{self, Deadline};

/// Dropping it hangs up and ends the program.
pub struct Terminal {
    child: Child,
    master: File,
    shown: Vec<u8>,
    what: String,
}

impl Terminal {
    /// Starts `command` with the terminal as its standard streams and as its controlling terminal.
    pub fn start(command: &Command, rows: u16, columns: u16) -> Result<Terminal> {
        let master: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?.into_string().context("a terminal without a name")?;
        tcsetwinsize(&master, size(rows, columns))?;
        let open = || OpenOptions::new().read(true).write(true).open(&name);
        // Makes a session of its own whose terminal is its standard input, and becomes the program.
        let mut whole = Command::new("setsid");
        whole.arg("--ctty").arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => whole.env(name, value),
                None => whole.env_remove(name),
            };
        }
        whole.env("TERM", "dumb").stdin(open()?).stdout(open()?).stderr(open()?);
        let what = shown(command);
        let child = whole.spawn().with_context(|| format!("cannot run `{what}` with `setsid`"))?;
        Ok(Terminal { child, master: master.into(), shown: Vec::new(), what })
    }

    pub fn write(&mut self, text: &str) -> Result<()> {
        Ok(self.master.write_all(text.as_bytes())?)
    }

    /// The program is told as by a person who drags a window's corner.
    pub fn resize(&self, rows: u16, columns: u16) -> Result<()> {
        Ok(tcsetwinsize(&self.master, size(rows, columns))?)
    }

    /// Waits until the terminal has shown `text` behind all that was waited for before.
    pub fn until(&mut self, text: &str, limit: Duration) -> Result<()> {
        let deadline = Deadline::after(limit);
        loop {
            if let Some(at) = find(&self.shown, text.as_bytes()) {
                self.shown.drain(..at + text.len());
                return Ok(());
            }
            if !self.read(deadline)? {
                bail!("`{}` did not show {text:?}, but:\n{}", self.what, self.said());
            }
        }
    }

    /// Waits for the program's own end; its exit code, if it has one.
    pub fn until_its_end(mut self, limit: Duration) -> Result<Option<i32>> {
        let deadline = Deadline::after(limit);
        while self.read(deadline)? {}
        let left = deadline.left().unwrap_or_default();
        match wait_child(&mut self.child, left)? {
            Some(status) => Ok(status.code()),
            None => bail!("`{}` does not end; it showed:\n{}", self.what, self.said()),
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `false` once there is nothing more, or no time left.
    fn read(&mut self, deadline: Deadline) -> Result<bool> {
        if !wait::readable(&[self.master.as_fd()], deadline)?[0] {
            return Ok(false);
        }
        let mut bytes = [0; 4096];
        // When the last one at the other side has gone, reading is an error.
        let Ok(count @ 1..) = self.master.read(&mut bytes) else { return Ok(false) };
        self.shown.extend(&bytes[..count]);
        Ok(true)
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&self.shown).into_owned()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn a_program_sees_its_terminal_change() {
        let mut command = Command::new("sh");
        command
            .args(["-c", "trap 'stty size' WINCH; stty size; while ! read -r line; do :; done; exit $line"]);
        let mut terminal = Terminal::start(&command, 24, 80).unwrap();
        terminal.until("24 80", LIMIT).unwrap();
        terminal.resize(30, 100).unwrap();
        terminal.until("30 100", LIMIT).unwrap();
        terminal.write("7\n").unwrap();
        assert_eq!(terminal.until_its_end(LIMIT).unwrap(), Some(7));
    }
}
