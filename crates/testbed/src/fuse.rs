//! A file system that a test serves by itself, over the kernel's FUSE: one that can fall silent, as a server of NFS does
//! that is gone, or answer everything with an error, and come back.
//!
//! It shows a file `word` with the text `hello` and an empty folder `part`, and remembers nothing that is written. The
//! kernel asks for everything anew each time.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::wait::{self, Deadline};

/// How it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Well,
    /// Not at all: whoever asks waits.
    Silent,
    /// With this error: `ESTALE`, for one.
    Fails(Errno),
}

struct State {
    mood: Mood,
    /// What nobody answered yet.
    unanswered: Vec<Vec<u8>>,
    ended: bool,
}

type Shared = Arc<Mutex<State>>;

fn lock(state: &Shared) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A mounted file system. Dropping it unmounts it, and whoever waits for it gets an error.
pub struct Fuse {
    target: PathBuf,
    device: Arc<File>,
    state: Shared,
    server: Option<JoinHandle<()>>,
}

impl Fuse {
    /// The folder is there already.
    pub fn mount(target: &Path) -> Result<Fuse> {
        let device = File::options().read(true).write(true).open("/dev/fuse");
        let device = Arc::new(device.context("cannot open `/dev/fuse`")?);
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let options = std::ffi::CString::new(options)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount("crablet-test", target, "fuse.crablet-test", flags, options.as_c_str())
            .with_context(|| format!("cannot mount on `{}`", target.display()))?;
        let state = State { mood: Mood::Well, unanswered: Vec::new(), ended: false };
        let state: Shared = Arc::new(Mutex::new(state));
        let (for_server, device_of_server) = (state.clone(), device.clone());
        let server = thread::spawn(move || serve(&device_of_server, &for_server));
        Ok(Fuse { target: target.to_owned(), device, state, server: Some(server) })
    }

    pub fn path(&self) -> &Path {
        &self.target
    }

    /// What was asked in silence is answered now, if there is an answer.
    pub fn set(&self, mood: Mood) {
        let mut state = lock(&self.state);
        state.mood = mood;
        if mood != Mood::Silent {
            for request in std::mem::take(&mut state.unanswered) {
                answer(&self.device, &request, mood);
            }
        }
    }

    /// Whether somebody waits for an answer.
    pub fn is_asked(&self) -> bool {
        !lock(&self.state).unanswered.is_empty()
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        self.set(Mood::Well);
        let _ = rustix::mount::unmount(&self.target, UnmountFlags::DETACH);
        lock(&self.state).ended = true;
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

fn serve(device: &File, state: &Shared) {
    // The kernel wants room for the largest request.
    let mut space = vec![0; 1 << 18];
    while !lock(state).ended {
        let moment = Deadline::after(Duration::from_millis(100));
        if !wait::readable(&[device.as_fd()], moment).is_ok_and(|readable| readable == [true]) {
            continue;
        }
        let Ok(size) = (&*device).read(&mut space) else { return };
        let request = space[..size].to_vec();
        let mut state = lock(state);
        match state.mood {
            Mood::Silent => state.unanswered.push(request),
            mood => answer(device, &request, mood),
        }
    }
}

const ROOT: u64 = 1;
const WORD: u64 = 2;
const PART: u64 = 3;
const TEXT: &[u8] = b"hello\n";

/// The kernel's numbers of what is asked.
mod ask {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const ACCESS: u32 = 34;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const BATCH_FORGET: u32 = 42;
}

/// In the head: length, what is asked, number, node. The body begins after 40 bytes.
fn answer(mut device: &File, request: &[u8], mood: Mood) {
    let (what, number, node) = (word(request, 4), long(request, 8), long(request, 16));
    if matches!(what, ask::FORGET | ask::BATCH_FORGET | ask::INTERRUPT) {
        return;
    }
    let body = request.get(40..).unwrap_or_default();
    let answer = match mood {
        Mood::Fails(error) if !matches!(what, ask::INIT | ask::DESTROY) => Err(error),
        _ => answer_of(what, node, body),
    };
    let (error, body) = match answer {
        Ok(body) => (0, body),
        Err(error) => (-error.raw_os_error(), Vec::new()),
    };
    let mut reply = Vec::with_capacity(16 + body.len());
    reply.extend((16 + body.len() as u32).to_ne_bytes());
    reply.extend(error.to_ne_bytes());
    reply.extend(number.to_ne_bytes());
    reply.extend(body);
    // Who asked may have been killed meanwhile.
    let _ = device.write_all(&reply);
}

fn answer_of(what: u32, node: u64, body: &[u8]) -> Result<Vec<u8>, Errno> {
    Ok(match what {
        ask::INIT => init(body),
        ask::LOOKUP => match body.split(|byte| *byte == 0).next().unwrap_or_default() {
            b"word" if node == ROOT => entry(WORD),
            b"part" if node == ROOT => entry(PART),
            _ => return Err(Errno::NOENT),
        },
        ask::GETATTR | ask::SETATTR => [vec![0; 16], attributes(node)].concat(),
        ask::OPEN | ask::OPENDIR => vec![0; 16],
        ask::READ => TEXT.get(long(body, 8) as usize..).unwrap_or_default().to_vec(),
        ask::READDIR if node == ROOT && long(body, 8) == 0 => {
            [listed(WORD, 1, b"word", 8), listed(PART, 2, b"part", 4)].concat()
        }
        ask::READDIR => Vec::new(),
        ask::WRITE => [word(body, 16).to_ne_bytes(), [0; 4]].concat(),
        ask::STATFS => vec![0; 80],
        ask::RELEASE | ask::RELEASEDIR | ask::FLUSH | ask::FSYNC | ask::ACCESS | ask::DESTROY => Vec::new(),
        _ => return Err(Errno::NOSYS),
    })
}

/// Version 7.31, nothing beyond what every kernel does, and requests of 128 KiB at most.
fn init(body: &[u8]) -> Vec<u8> {
    let read_ahead = word(body, 8);
    let mut words = [7, 31, read_ahead, 0, 0, 128 << 10, 1];
    // Two halves: requests in the background, and from how many on they count as too many.
    words[4] = (12 << 16) | 16;
    let mut answer: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
    answer.resize(64, 0);
    answer
}

/// Valid for no time at all.
fn entry(node: u64) -> Vec<u8> {
    let mut answer: Vec<u8> = [node, 0, 0, 0, 0].into_iter().flat_map(u64::to_ne_bytes).collect();
    answer.extend(attributes(node));
    answer
}

fn attributes(node: u64) -> Vec<u8> {
    let (mode, size) = match node {
        WORD => (0o100644, TEXT.len() as u64),
        _ => (0o040777, 0),
    };
    let mut answer: Vec<u8> = [node, size, 0, 0, 0, 0].into_iter().flat_map(u64::to_ne_bytes).collect();
    // Parts of seconds, mode, links, owner, group, device, block size, flags.
    answer.extend([0, 0, 0, mode, 1, 0, 0, 0, 4096, 0].into_iter().flat_map(u32::to_ne_bytes));
    answer
}

fn listed(node: u64, next: u64, name: &[u8], kind: u32) -> Vec<u8> {
    let mut answer: Vec<u8> = [node, next].into_iter().flat_map(u64::to_ne_bytes).collect();
    answer.extend([name.len() as u32, kind].into_iter().flat_map(u32::to_ne_bytes));
    answer.extend(name);
    answer.resize(answer.len().next_multiple_of(8), 0);
    answer
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|part| part.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|part| part.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn it_shows_its_file_fails_falls_silent_and_comes_back() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not run: mounting takes root");
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let fuse = Fuse::mount(home.path()).unwrap();
        let word = home.path().join("word");
        assert_eq!(fs::read_to_string(&word).unwrap(), "hello\n");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2);
        fuse.set(Mood::Fails(Errno::STALE));
        let error = fs::read_to_string(&word).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::STALE.raw_os_error()));
        fuse.set(Mood::Silent);
        let reader = thread::spawn(move || fs::read_to_string(word));
        assert!(wait::until(Deadline::after(Duration::from_secs(20)), || fuse.is_asked()));
        assert!(!reader.is_finished());
        fuse.set(Mood::Well);
        assert_eq!(reader.join().unwrap().unwrap(), "hello\n");
    }
}
