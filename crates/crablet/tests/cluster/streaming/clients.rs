//! The two programs that users have, and their runs.

use std::fmt;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, bail, ensure};
use crablet_testbed::kubectl;
use crablet_testbed::process::{shown, wait_child};

use crate::cluster::follow::Follow;
use crate::cluster::support::{PATIENCE, Room};

/// A `kubectl`, and so a protocol.
#[derive(Debug, Clone)]
pub struct Client {
    /// For messages and for names of pods.
    pub name: &'static str,
    /// The cluster's own unless said.
    program: Option<PathBuf>,
}

/// The new one speaks WebSocket; the old one has never heard of it.
pub fn both() -> Result<[Client; 2]> {
    let old = Some(kubectl::ensure_old()?);
    Ok([Client { name: "new", program: None }, Client { name: "old", program: old }])
}

impl Client {
    pub fn command(&self, room: &Room<'_>, args: &[&str]) -> Command {
        let Some(program) = &self.program else { return room.command(args) };
        let mut command = Command::new(program);
        command.arg("--kubeconfig").arg(room.cluster.kubeconfig());
        command.args(["--namespace", room.namespace()]).args(args);
        command
    }

    pub fn run(&self, room: &Room<'_>, args: &[&str]) -> Result<Said> {
        run(self.command(room, args), Vec::new())
    }

    /// The same with something on its standard input.
    pub fn run_with(&self, room: &Room<'_>, args: &[&str], input: impl Into<Vec<u8>>) -> Result<Said> {
        run(self.command(room, args), input.into())
    }

    /// A run that must go well; what it printed.
    pub fn output(&self, room: &Room<'_>, args: &[&str]) -> Result<String> {
        let said = self.run(room, args)?;
        ensure!(said.code == Some(0), "the {} kubectl with {args:?}: {said}", self.name);
        Ok(said.output_text())
    }

    pub fn follow(&self, room: &Room<'_>, args: &[&str]) -> Result<Follow> {
        Follow::start(self.command(room, args))
    }

    pub fn talk(&self, room: &Room<'_>, args: &[&str]) -> Result<Follow> {
        Follow::start_talking(self.command(room, args))
    }
}

/// How a run ended.
pub struct Said {
    pub code: Option<i32>,
    pub output: Vec<u8>,
    pub error: String,
}

impl Said {
    pub fn output_text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }

    /// It did not go well, and said why.
    pub fn ensure_refused(&self, parts: &[&str]) -> Result<()> {
        ensure!(self.code == Some(1), "it was not refused: {self}");
        for part in parts {
            ensure!(self.error.contains(part), "`{part}` was not said: {self}");
        }
        Ok(())
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let output = String::from_utf8_lossy(&self.output[..self.output.len().min(2000)]);
        write!(f, "exit code {:?}, output {output:?}, error {:?}", self.code, self.error)
    }
}

/// Ended at the latest when this is dropped.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs it to its end, or for as long as patience lasts.
fn run(mut command: Command, input: Vec<u8>) -> Result<Said> {
    let what = shown(&command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Ending(command.spawn().with_context(|| format!("cannot run `{what}`"))?);
    let mut stdin = child.0.stdin.take().context("the pipe was asked for")?;
    // A program that wants no more input closes its end: that is its own affair.
    let writer = thread::spawn(move || drop(stdin.write_all(&input)));
    let output = reader(child.0.stdout.take());
    let error = reader(child.0.stderr.take());
    let Some(status) = wait_child(&mut child.0, PATIENCE)? else {
        drop(child);
        let (output, error) = (joined(output), joined(error));
        bail!(
            "`{what}` does not end; it said {:?} and {:?}",
            String::from_utf8_lossy(&output),
            String::from_utf8_lossy(&error)
        );
    };
    drop(child);
    let _ = writer.join();
    let error = String::from_utf8_lossy(&joined(error)).into_owned();
    Ok(Said { code: status.code(), output: joined(output), error })
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

fn joined(thread: JoinHandle<Vec<u8>>) -> Vec<u8> {
    thread.join().unwrap_or_default()
}
