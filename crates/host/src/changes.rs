//! Waiting for a change in any of several folders, whatever it is.

use std::io;
use std::path::PathBuf;

use futures_util::StreamExt;
use inotify::{EventStream, Inotify, WatchMask};

/// Enough for a burst; an event with the longest possible name takes 272 bytes.
const BUFFER: usize = 4096;

/// Watches that stand.
pub struct Changes(EventStream<Vec<u8>>);

impl Changes {
    /// Watches the folders that exist. Blocking: looks the paths up. Must be called inside a tokio runtime.
    pub fn of(folders: impl IntoIterator<Item = PathBuf>) -> io::Result<Self> {
        let mask = WatchMask::CREATE
            | WatchMask::MOVED_TO
            | WatchMask::CLOSE_WRITE
            | WatchMask::MOVED_FROM
            | WatchMask::DELETE
            | WatchMask::DELETE_SELF
            | WatchMask::MOVE_SELF;
        let inotify = Inotify::init()?;
        for folder in folders {
            match inotify.watches().add(&folder, mask) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                added => drop(added?),
            }
        }
        Ok(Self(inotify.into_event_stream(vec![0; BUFFER])?))
    }

    /// Until something happened. Cancel-safe: an event is taken or stays.
    pub async fn next(&mut self) -> io::Result<()> {
        match self.0.next().await {
            Some(event) => event.map(drop),
            None => std::future::pending().await,
        }
    }
}
