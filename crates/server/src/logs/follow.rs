//! Waiting until there is more to read.
//!
//! One inotify instance serves everybody who follows a log: the kernel grants a user 128 of them by default, and nodes have
//! more followers than that.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use inotify::{EventMask, EventStream, Inotify, WatchDescriptor, WatchMask, Watches};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tracing::debug;

/// As upstream's: where the kernel does not tell of changes, they are found this late.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Where it does tell, one that it missed is found this late.
const CHECK_WATCHED_EVERY: Duration = Duration::from_secs(10);
/// An event with the longest possible name takes 272 bytes.
const BUFFER: usize = 4096;

/// Why to look again. The later ones are about more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Noticed {
    /// There is more in the file.
    Written,
    /// Something else, or nothing for a while: there may be another file by now.
    Changed,
    /// The container has ended: nothing comes after what is there.
    Ended,
}

/// Watches folders for all followers. Begins with the first of them.
#[derive(Clone, Default)]
pub struct Watcher(Arc<Mutex<Shared>>);

#[derive(Default)]
struct Shared {
    running: Option<Running>,
    followers: HashMap<WatchDescriptor, Vec<Arc<Follower>>>,
}

struct Running {
    watches: Watches,
    task: AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Follower {
    name: OsString,
    pending: Mutex<Pending>,
    wake: Notify,
}

#[derive(Default)]
struct Pending {
    noticed: Option<Noticed>,
    /// The kernel tells nothing more.
    lost: bool,
}

impl Follower {
    fn notice(&self, noticed: Noticed) {
        let mut pending = lock(&self.pending);
        pending.noticed = pending.noticed.max(Some(noticed));
        self.wake.notify_one();
    }

    fn lose(&self) {
        lock(&self.pending).lost = true;
        self.notice(Noticed::Changed);
    }
}

/// Watches a log's folder, so that a new file of the same name is noticed too.
pub struct Watch {
    watcher: Watcher,
    /// `None`: the kernel grants no more watches.
    watched: Option<(WatchDescriptor, Arc<Follower>)>,
}

impl Watcher {
    pub fn start(&self, path: &Path) -> Watch {
        let watched = self.add(path);
        if let Err(error) = &watched {
            debug!(err = %error, path = %path.display(), "Cannot watch the log file, looking at it every second instead");
        }
        Watch { watcher: self.clone(), watched: watched.ok() }
    }

    fn add(&self, path: &Path) -> io::Result<(WatchDescriptor, Arc<Follower>)> {
        let mut shared = lock(&self.0);
        let running = match shared.running.take() {
            Some(running) => running,
            None => self.begin()?,
        };
        let running = shared.running.insert(running);
        let mask = WatchMask::MODIFY | WatchMask::CREATE | WatchMask::MOVED_TO;
        // A folder that is watched already gets the same descriptor.
        let descriptor = running.watches.add(path.parent().unwrap_or(Path::new(".")), mask)?;
        let name = path.file_name().unwrap_or_default().to_owned();
        let follower = Arc::new(Follower { name, pending: Mutex::default(), wake: Notify::new() });
        shared.followers.entry(descriptor.clone()).or_default().push(follower.clone());
        Ok((descriptor, follower))
    }

    fn begin(&self) -> io::Result<Running> {
        let inotify = Inotify::init()?;
        let watches = inotify.watches();
        let events = inotify.into_event_stream(vec![0; BUFFER])?;
        let task = tokio::spawn(tell(events, Arc::downgrade(&self.0))).abort_handle();
        Ok(Running { watches, task })
    }
}

async fn tell(mut events: EventStream<Vec<u8>>, shared: std::sync::Weak<Mutex<Shared>>) {
    while let Some(Ok(event)) = events.next().await {
        let Some(shared) = shared.upgrade() else { return };
        lock(&shared).tell(&event);
    }
    if let Some(shared) = shared.upgrade() {
        let mut shared = lock(&shared);
        // The next follower begins again.
        shared.running = None;
        for (_, followers) in shared.followers.drain() {
            followers.iter().for_each(|follower| follower.lose());
        }
    }
}

impl Shared {
    fn tell(&mut self, event: &inotify::Event<OsString>) {
        // Lost events may have been about any.
        if event.mask.contains(EventMask::Q_OVERFLOW) {
            self.followers.values().flatten().for_each(|follower| follower.notice(Noticed::Changed));
        } else if event.mask.contains(EventMask::IGNORED) {
            // The folder is gone.
            for follower in self.followers.remove(&event.wd).into_iter().flatten() {
                follower.lose();
            }
        } else {
            let noticed =
                if event.mask.contains(EventMask::MODIFY) { Noticed::Written } else { Noticed::Changed };
            let name: Option<&OsStr> = event.name.as_deref();
            let followers = self.followers.get(&event.wd).into_iter().flatten();
            followers
                .filter(|follower| Some(follower.name.as_os_str()) == name)
                .for_each(|follower| follower.notice(noticed));
        }
    }
}

impl Watch {
    /// Until the log may have changed, or the container has ended. Cancel-safe.
    pub async fn wait(&mut self, ended: &mut watch::Receiver<bool>) -> Noticed {
        let follower = self.watched.as_ref().map(|(_, follower)| follower);
        let lost = follower.is_none_or(|follower| lock(&follower.pending).lost);
        let told = async {
            match follower {
                Some(follower) => loop {
                    if let Some(noticed) = lock(&follower.pending).noticed.take() {
                        return noticed;
                    }
                    follower.wake.notified().await;
                },
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            ended = ended.wait_for(|ended| *ended) => {
                // A sender that is gone will not tell of an end any more.
                let _ = ended;
                Noticed::Ended
            }
            noticed = told => noticed,
            () = tokio::time::sleep(if lost { CHECK_EVERY } else { CHECK_WATCHED_EVERY }) => Noticed::Changed,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let Some((descriptor, follower)) = self.watched.take() else { return };
        let mut shared = lock(&self.watcher.0);
        let Some(others) = shared.followers.get_mut(&descriptor) else { return };
        others.retain(|other| !Arc::ptr_eq(other, &follower));
        if others.is_empty() {
            shared.followers.remove(&descriptor);
            if let Some(running) = &mut shared.running {
                // The folder may be gone, and its watch with it.
                let _ = running.watches.remove(descriptor);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
