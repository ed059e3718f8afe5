//! A program that runs in the background for as long as its owner wants: in a process group of its own, its output in
//! a log file, noted in the scratch folder so that also the next run could end it.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::containerd::tail_of;
use crate::scratch::Scratch;
use crate::wait::{self, Deadline};
use crate::{guard, process};

/// How long a program may take to leave when it is asked to.
const FAREWELL: Duration = Duration::from_secs(10);

/// A running program. Dropping it kills it.
#[derive(Debug)]
pub struct Daemon {
    name: String,
    log: PathBuf,
    child: Mutex<Child>,
}

impl Daemon {
    /// Starts it with its output in `<scratch>/<name>.log`.
    pub fn start(scratch: &Scratch, name: &str, command: &mut Command) -> Result<Daemon> {
        guard::refuse_when_stopping()?;
        let log_path = scratch.dir().join(format!("{name}.log"));
        let log = fs::File::options().create(true).append(true).open(&log_path)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().with_context(|| format!("cannot start `{program}`"))?;
        // Dropping it from here on ends it.
        let daemon = Daemon { name: name.into(), log: log_path, child: Mutex::new(child) };
        scratch.note_process(name, daemon.pid()).with_context(|| daemon.last_words())?;
        Ok(daemon)
    }

    pub fn pid(&self) -> u32 {
        self.child.lock().unwrap().id()
    }

    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// Readable once it ended.
    pub fn end(&self) -> Result<OwnedFd> {
        let child = self.child.lock().unwrap();
        Ok(pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?)
    }

    /// How it ended, if it did.
    pub fn ended(&self) -> Result<Option<ExitStatus>> {
        Ok(self.child.lock().unwrap().try_wait()?)
    }

    /// An error that shows its last words, if it ended.
    pub fn check(&self) -> Result<()> {
        match self.ended()? {
            Some(status) => bail!("`{}` ended by itself ({status}); {}", self.name, self.last_words()),
            None => Ok(()),
        }
    }

    /// Waits until `ready` holds. For foreign programs, which announce nothing; fails at once when the program ends.
    pub fn wait_ready(&self, limit: Duration, mut ready: impl FnMut() -> bool) -> Result<()> {
        let deadline = Deadline::after(limit);
        let mut ended = false;
        let done = wait::until(deadline, || {
            ended = self.ended().is_ok_and(|status| status.is_some());
            ended || ready()
        });
        self.check()?;
        if !done {
            bail!("`{}` is not ready after {} s; {}", self.name, limit.as_secs(), self.last_words());
        }
        Ok(())
    }

    /// SIGTERM, a wait, SIGKILL.
    pub fn stop(&self) -> Result<()> {
        let mut child = self.child.lock().unwrap();
        if child.try_wait()?.is_some() {
            return Ok(());
        }
        kill_process(Pid::from_child(&child), Signal::TERM)?;
        if process::wait_child(&mut child, FAREWELL)?.is_none() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// SIGKILL: what a crash or the OOM killer does.
    pub fn kill9(&self) -> Result<()> {
        let mut child = self.child.lock().unwrap();
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    fn last_words(&self) -> String {
        format!("the end of its log:\n{}", tail_of(&self.log, 20))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap();
        let _ = child.kill();
        let _ = child.wait();
    }
}
