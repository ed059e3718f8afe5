use std::io;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::faults::{errno, hit};
use super::tree::RealPath;
use crate::files::{FolderEvent, FolderEvents};

/// How badly the agent is told of changes. The default tells everything at once, exactly once.
#[derive(Clone, Debug, Default)]
pub struct WatchFaults {
    /// The chance that an event is lost, without a word.
    pub lose: f64,
    /// The chance that an event comes twice.
    pub double: f64,
    /// Each event comes up to this much virtual time late. Order is kept, as inotify keeps it.
    pub delay: Duration,
    /// `watch` fails, as when the user's inotify instances are used up.
    pub refuse: bool,
}

struct Watcher {
    path: RealPath,
    /// A watched file is told of without a name, as the port says.
    is_file: bool,
    sender: mpsc::UnboundedSender<(Instant, io::Result<FolderEvent>)>,
}

#[derive(Default)]
pub(super) struct Watches {
    pub faults: WatchFaults,
    watchers: Vec<Watcher>,
    /// Of the last rename.
    cookie: u32,
}

impl Watches {
    pub fn add(&mut self, path: RealPath, is_file: bool) -> io::Result<FolderEvents> {
        if self.faults.refuse {
            return Err(errno(libc::EMFILE));
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        self.watchers.push(Watcher { path, is_file, sender });
        let events = stream::unfold(receiver, async |mut receiver| {
            let (at, event) = receiver.recv().await?;
            tokio::time::sleep_until(at).await;
            Some((event, receiver))
        });
        Ok(events.fuse().boxed())
    }

    pub fn changed(&mut self, path: &[String], rng: &mut fastrand::Rng) {
        self.tell(path, rng, FolderEvent::Changed);
    }

    pub fn gone(&mut self, path: &[String], rng: &mut fastrand::Rng) {
        self.tell(path, rng, FolderEvent::Gone);
        self.end(path);
    }

    /// Gives the cookie for the other half of the rename.
    pub fn moved_away(&mut self, path: &[String], rng: &mut fastrand::Rng) -> u32 {
        self.cookie += 1;
        let cookie = self.cookie;
        self.tell(path, rng, |name| FolderEvent::MovedAway { name, cookie });
        self.end(path);
        cookie
    }

    pub fn moved_here(&mut self, path: &[String], cookie: u32, rng: &mut fastrand::Rng) {
        self.tell(path, rng, |name| FolderEvent::MovedHere { name, cookie });
    }

    fn end(&mut self, path: &[String]) {
        // A watch does not outlive what it watches, and says so even when events get lost: the kernel does too.
        self.watchers.retain(|watcher| {
            let gone = watcher.path.starts_with(path);
            if gone {
                let _ = watcher.sender.send((Instant::now(), Ok(FolderEvent::Rescan)));
            }
            !gone
        });
    }

    /// Every watch that stands fails and ends.
    pub fn break_all(&mut self) {
        for watcher in self.watchers.drain(..) {
            let _ = watcher.sender.send((Instant::now(), Err(errno(libc::EIO))));
        }
    }

    /// Every watcher hears that the kernel's queue overflowed.
    pub fn overflow(&mut self) {
        for watcher in &self.watchers {
            let _ = watcher.sender.send((Instant::now(), Ok(FolderEvent::Rescan)));
        }
    }

    fn tell(
        &mut self,
        path: &[String],
        rng: &mut fastrand::Rng,
        event: impl Fn(Option<String>) -> FolderEvent,
    ) {
        self.watchers.retain(|watcher| !watcher.sender.is_closed());
        let Some((name, folder)) = path.split_last() else { return };
        for watcher in &self.watchers {
            let event = if watcher.is_file && watcher.path == path {
                event(None)
            } else if !watcher.is_file && watcher.path == folder {
                event(Some(name.clone()))
            } else {
                continue;
            };
            if hit(rng, self.faults.lose) {
                continue;
            }
            let copies = if hit(rng, self.faults.double) { 2 } else { 1 };
            for _ in 0..copies {
                let late = Duration::from_millis(rng.u64(0..=self.faults.delay.as_millis() as u64));
                let _ = watcher.sender.send((Instant::now() + late, Ok(event.clone())));
            }
        }
    }
}
