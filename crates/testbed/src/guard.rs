//! Ctrl-C and SIGTERM for developer commands: a thread waits for the signal, removes what this process made, ends it.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::process::exit;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use crate::wait::{self, Deadline};
use crate::{say, scratch, teardown};

static STOPPING: AtomicBool = AtomicBool::new(false);
/// As shells report a program that a SIGINT ended.
static EXIT_CODE: AtomicI32 = AtomicI32::new(130);
/// Process groups of children that must not outlive us.
static GROUPS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// What is to be done after everything was stopped; drop handlers do not run on this way out.
type LastWords = Vec<Box<dyn FnOnce() + Send>>;
static LAST_WORDS: Mutex<LastWords> = Mutex::new(Vec::new());

/// From now on a signal removes everything before it ends the process. Call it once, early.
pub fn install() -> Result<()> {
    let (mut receiver, sender) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        pipe::register(signal, sender.try_clone()?).context("cannot handle signals")?;
    }
    thread::Builder::new().name("signals".into()).spawn(move || {
        let mut byte = [0];
        if receiver.read_exact(&mut byte).is_ok() {
            stop_everything();
        }
    })?;
    Ok(())
}

/// Has `work` done when a signal ends the process, after all processes were stopped.
pub fn at_interruption(work: impl FnOnce() + Send + 'static) {
    LAST_WORDS.lock().unwrap().push(Box::new(work));
}

/// A signal from now on is the expected end: the process will report success.
pub fn interruption_is_success() {
    EXIT_CODE.store(0, Ordering::SeqCst);
}

/// An error once a signal came: nothing new may be started behind the cleaning thread's back.
pub(crate) fn refuse_when_stopping() -> Result<()> {
    if STOPPING.load(Ordering::SeqCst) {
        bail!("interrupted");
    }
    Ok(())
}

/// Waits for the end if a signal came; comes back at once otherwise. For the end of `main`, which must not leave
/// while the other thread still cleans up.
pub fn let_it_finish() {
    while STOPPING.load(Ordering::SeqCst) {
        thread::park();
    }
}

/// While it lives, a signal also ends this child's process group (start it with `process_group(0)`).
pub struct Group(Pid);

impl Group {
    pub fn of(child: &std::process::Child) -> Group {
        let pid = Pid::from_child(child);
        GROUPS.lock().unwrap().push(pid);
        Group(pid)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        GROUPS.lock().unwrap().retain(|group| *group != self.0);
    }
}

fn stop_everything() {
    STOPPING.store(true, Ordering::SeqCst);
    eprintln!();
    let groups = GROUPS.lock().unwrap().clone();
    for group in &groups {
        let _ = kill_process_group(*group, Signal::TERM);
    }
    // Their parent may be gone, so no child's end is reported to us: ask the kernel.
    let all_gone = || groups.iter().all(|group| test_kill_process_group(*group).is_err());
    if !wait::until(Deadline::after(Duration::from_secs(5)), all_gone) {
        for group in &groups {
            let _ = kill_process_group(*group, Signal::KILL);
        }
    }
    let ours = scratch::ours();
    if !ours.is_empty() {
        say::step("stopping and removing everything");
        let failures: Vec<_> = ours.iter().filter_map(|folder| teardown::remove(folder).err()).collect();
        match failures.first() {
            Some(error) => say::note(format!("could not remove all of it: {error:#}")),
            None => say::step("all of it is gone"),
        }
    }
    // What the children made has lost its owner now.
    let _ = scratch::sweep();
    for work in LAST_WORDS.lock().unwrap().drain(..) {
        work();
    }
    exit(EXIT_CODE.load(Ordering::SeqCst));
}
