//! A program whose lines are waited for: `kubectl logs -f`, `kubectl get --watch`, `kubectl attach`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;

use anyhow::{Context, Result, bail};
use crablet_testbed::process::shown;
use crablet_testbed::wait::Deadline;

use super::support::PATIENCE;

/// Dropping it ends the program.
pub struct Follow {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    seen: Vec<String>,
    what: String,
}

impl Follow {
    pub fn start(mut command: Command) -> Result<Follow> {
        command.stdin(Stdio::null());
        Follow::start_with_input(command)
    }

    /// One that is talked to as well.
    pub fn start_talking(mut command: Command) -> Result<Follow> {
        command.stdin(Stdio::piped());
        Follow::start_with_input(command)
    }

    fn start_with_input(mut command: Command) -> Result<Follow> {
        let what = shown(&command);
        command.stdout(Stdio::piped());
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
        let input = child.stdin.take();
        Ok(Follow { child, input, lines, seen: Vec::new(), what })
    }

    pub fn say(&mut self, text: &str) -> Result<()> {
        let input = self.input.as_mut().context("nobody listens")?;
        input.write_all(text.as_bytes())?;
        Ok(input.flush()?)
    }

    /// The program sees the end of its input.
    pub fn say_no_more(&mut self) {
        self.input = None;
    }

    /// SIGKILL: no farewell to anybody.
    pub fn kill9(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
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

    /// Whether it has said this by now.
    pub fn has_said(&mut self, part: &str) -> bool {
        self.seen.extend(self.lines.try_iter());
        self.seen.iter().any(|line| line.contains(part))
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
