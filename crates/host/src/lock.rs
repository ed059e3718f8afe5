//! A file that one process at a time may hold, as upstream's `--lock-file`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use futures_util::StreamExt;
use inotify::{EventStream, Inotify, WatchMask};
use rustix::fs::{FlockOperation, flock};

/// Held until it is dropped, or until the process ends in any way.
#[derive(Debug)]
pub struct FileLock {
    _file: File,
}

impl FileLock {
    /// Blocks for as long as another process holds it.
    pub fn acquire(path: &Path) -> io::Result<Self> {
        let options =
            OpenOptions::new().create(true).read(true).write(true).truncate(false).mode(0o600).clone();
        let file = options.open(path)?;
        loop {
            match flock(&file, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(Self { _file: file }),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Notices that somebody else wants the lock: the file is opened, or removed.
pub struct Contention(EventStream<[u8; 1024]>);

impl Contention {
    /// Must be called inside a tokio runtime.
    pub fn watch(path: &Path) -> io::Result<Self> {
        let inotify = Inotify::init()?;
        inotify.watches().add(path, WatchMask::OPEN | WatchMask::DELETE_SELF)?;
        Ok(Self(inotify.into_event_stream([0; 1024])?))
    }

    /// Until the first such event.
    pub async fn noticed(&mut self) -> io::Result<()> {
        match self.0.next().await {
            Some(event) => event.map(drop),
            None => std::future::pending().await,
        }
    }
}
