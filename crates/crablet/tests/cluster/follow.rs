//! A program whose lines are waited for: `kubectl logs -f`, `kubectl get --watch`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;

use anyhow::{Context, Result, bail};
use crablet_testbed::process::shown;
use crablet_testbed::wait::Deadline;

use super::support::PATIENCE;

/// Dropping it ends the program.
pub struct Follow {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
    what: String,
}

impl Follow {
    pub fn start(mut command: Command) -> Result<Follow> {
        let what = shown(&command);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot run `{what}`"))?;
        let out = child.stdout.take().context("the pipe was asked for")?;
        let (sender, lines) = channel();
        // Ends with the program, which is ended at the latest when this is dropped.
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Follow { child, lines, seen: Vec::new(), what })
    }

    /// Waits for a line that is as wanted.
    pub fn until(&mut self, wanted: impl Fn(&str) -> bool) -> Result<String> {
        let deadline = Deadline::after(PATIENCE);
        loop {
            match self.lines.recv_timeout(deadline.left().unwrap_or_default()) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if wanted(&line) {
                        return Ok(line);
                    }
                }
                Err(RecvTimeoutError::Timeout) => bail!("`{}` said only:\n{}", self.what, self.said()),
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("`{}` ended after saying:\n{}", self.what, self.said())
                }
            }
        }
    }

    /// Waits for the program's own end; all that it said is the answer.
    pub fn until_its_end(mut self) -> Result<Vec<String>> {
        let deadline = Deadline::after(PATIENCE);
        loop {
            match self.lines.recv_timeout(deadline.left().unwrap_or_default()) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => return Ok(std::mem::take(&mut self.seen)),
                Err(RecvTimeoutError::Timeout) => {
                    bail!("`{}` does not end; it said:\n{}", self.what, self.said())
                }
            }
        }
    }

    fn said(&self) -> String {
        self.seen.join("\n")
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
