//! The manifest folder as a source: inotify tells what changed, and a full check from time to time catches what it did
//! not tell.

use std::collections::BTreeMap;
use std::future::pending;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crablet_host::{Files, FolderEvent, FolderEvents};
use futures_util::StreamExt;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, timeout_at};

use super::control::changed;
use super::deadline::{Patient, at};
use super::outlet::{Closed, Outlet};
use super::shelf::{Dirty, Shelf, is_hidden};
use super::{Source, SourceSettings};

/// Changes that come closer together than this are one change.
const QUIET: Duration = Duration::from_millis(5);
/// A file that is missed is looked for again after this much quiet: an editor may be about to put it back.
const DOUBT: Duration = Duration::from_millis(50);
/// A folder that never gets quiet is looked at this often all the same.
const LONGEST_NOISE: Duration = Duration::from_millis(250);
const RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(20);
/// At start, files that the disk does not give are waited for this long: what is stated without them stops their pods.
pub(super) const FIRST_PATIENCE: Duration = Duration::from_secs(60);

pub(super) async fn run(
    path: PathBuf,
    settings: SourceSettings,
    pace: watch::Receiver<Duration>,
    files: Arc<dyn Files>,
    outlet: Outlet,
) {
    // Without a trailing separator: paths are part of UIDs.
    let path: PathBuf = path.components().collect();
    let shelf = Shelf::new(path.clone(), Source::File, settings.node_name, settings.gates, files.clone());
    let watch = Watch {
        path,
        files,
        state: WatchState::Due { at: Instant::now(), wait: RETRY },
        starting: Patient::default(),
        trouble: None,
    };
    let folder = Folder {
        shelf,
        watch,
        dirty: Dirty::everything(),
        moved: BTreeMap::new(),
        start: Instant::now(),
        has_stated: false,
    };
    let Err(Closed) = folder.run(pace, outlet).await;
}

struct Folder {
    shelf: Shelf,
    watch: Watch,
    dirty: Dirty,
    /// Names that files moved away from, by their cookies, until it is known that they left the folder. The kernel tells
    /// both halves of a rename one after the other.
    moved: BTreeMap<u32, String>,
    start: Instant,
    has_stated: bool,
}

impl Folder {
    async fn run(
        mut self,
        mut pace: watch::Receiver<Duration>,
        outlet: Outlet,
    ) -> Result<std::convert::Infallible, Closed> {
        let mut check = checks(*pace.borrow_and_update());
        loop {
            // Watched first, so that nothing falls between the look and the watch.
            if self.watch.start_if_due().await {
                self.dirty.everything = true;
            }
            self.look().await;
            let retry = self.state(&outlet).await?;
            if !self.dirty.is_empty() {
                continue;
            }
            let watch_due = self.watch.due();
            // Every arm is cancel-safe: the next item of a stream, a tick, a new pace, an instant.
            tokio::select! {
                biased;
                event = self.watch.next() => {
                    self.note(event);
                    self.settle(QUIET).await;
                }
                _ = check.tick() => self.dirty.everything = true,
                () = changed(&mut pace) => check = checks(*pace.borrow_and_update()),
                () = at(watch_due) => {}
                () = at(retry) => self.dirty.everything = true,
            }
        }
    }

    /// Looks until what was seen is certain.
    async fn look(&mut self) {
        let noise_ends = Instant::now() + LONGEST_NOISE;
        while !self.dirty.is_empty() {
            let dirty = std::mem::take(&mut self.dirty);
            self.moved.clear();
            self.shelf.look(&dirty).await;
            let doubtful = self.shelf.doubtful();
            if !doubtful.is_empty() {
                self.settle(DOUBT).await;
                self.dirty.names.extend(doubtful);
            }
            if Instant::now() >= noise_ends {
                break;
            }
        }
        self.shelf.log();
    }

    /// States the pods, unless it would be wrong to. Says when to look again in that case.
    async fn state(&mut self, outlet: &Outlet) -> Result<Option<Instant>, Closed> {
        if !self.has_stated {
            let is_patient = self.start.elapsed() < FIRST_PATIENCE;
            if !self.shelf.is_readable() || (is_patient && !self.shelf.unread().is_empty()) {
                return Ok(Some(Instant::now() + RETRY));
            }
            self.has_stated = true;
        }
        self.shelf.state(outlet).await?;
        self.shelf.log();
        Ok(None)
    }

    fn note(&mut self, event: Option<io::Result<FolderEvent>>) {
        match event {
            Some(Ok(FolderEvent::Changed(Some(name)))) => self.look_for(name),
            Some(Ok(FolderEvent::Gone(Some(name)))) => {
                self.shelf.tell_gone(&name);
                self.look_for(name);
            }
            Some(Ok(FolderEvent::MovedAway { name: Some(name), cookie })) => {
                if self.shelf.tell_gone(&name) {
                    self.moved.insert(cookie, name.clone());
                }
                self.look_for(name);
            }
            Some(Ok(FolderEvent::MovedHere { name: Some(name), cookie })) => {
                // An editor keeps the old version beside the new one. Behind a hidden name no manifest is kept.
                if let Some(from) = self.moved.remove(&cookie).filter(|_| !is_hidden(&name)) {
                    self.shelf.untell_gone(&from);
                }
                self.look_for(name);
            }
            Some(Ok(
                FolderEvent::Changed(None)
                | FolderEvent::Gone(None)
                | FolderEvent::MovedAway { name: None, .. }
                | FolderEvent::MovedHere { name: None, .. }
                | FolderEvent::Rescan,
            )) => self.dirty.everything = true,
            Some(Err(error)) => {
                self.dirty.everything = true;
                self.watch.fail(&error);
            }
            None => {
                self.dirty.everything = true;
                self.watch.end();
            }
        }
    }

    fn look_for(&mut self, name: String) {
        if !is_hidden(&name) {
            self.dirty.names.insert(name);
        }
    }

    /// Waits for quiet, and notes what happens until then.
    async fn settle(&mut self, quiet: Duration) {
        let noise_ends = Instant::now() + LONGEST_NOISE;
        loop {
            let end = (Instant::now() + quiet).min(noise_ends);
            match timeout_at(end, self.watch.next()).await {
                Ok(event) => self.note(event),
                Err(_) => return,
            }
        }
    }
}

/// The first comes after one period.
fn checks(period: Duration) -> Interval {
    let mut check = interval(period);
    check.set_missed_tick_behavior(MissedTickBehavior::Delay);
    check.reset();
    check
}

/// The watch on the folder: stands, or is tried again later.
struct Watch {
    path: PathBuf,
    files: Arc<dyn Files>,
    state: WatchState,
    starting: Patient<FolderEvents>,
    trouble: Option<String>,
}

enum WatchState {
    Stands {
        events: FolderEvents,
        since: Instant,
    },
    /// `wait` is how long to wait after the next failure.
    Due {
        at: Instant,
        wait: Duration,
    },
}

impl Watch {
    /// Whether a new watch stands.
    async fn start_if_due(&mut self) -> bool {
        let WatchState::Due { at, wait } = self.state else { return false };
        if at > Instant::now() {
            return false;
        }
        let (files, path) = (self.files.clone(), self.path.clone());
        match self.starting.run(|| Box::pin(async move { files.watch(&path).await })).await {
            Ok(events) => {
                self.state = WatchState::Stands { events, since: Instant::now() };
                if self.trouble.take().is_some() {
                    tracing::info!("changes in `{}` are noticed at once again", self.path.display());
                }
                true
            }
            // Looked for every second, without a word: the shelf says that it does not exist.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.state = WatchState::Due { at: Instant::now() + RETRY, wait: RETRY };
                false
            }
            Err(error) => {
                self.complain(&error);
                self.state =
                    WatchState::Due { at: Instant::now() + wait, wait: (wait * 2).min(LONGEST_RETRY) };
                false
            }
        }
    }

    /// Never ready while no watch stands.
    async fn next(&mut self) -> Option<io::Result<FolderEvent>> {
        match &mut self.state {
            WatchState::Stands { events, .. } => events.next().await,
            WatchState::Due { .. } => pending().await,
        }
    }

    fn due(&self) -> Option<Instant> {
        match self.state {
            WatchState::Stands { .. } => None,
            WatchState::Due { at, .. } => Some(at),
        }
    }

    fn fail(&mut self, error: &io::Error) {
        self.complain(error);
        self.end();
    }

    /// The watched path went away or was replaced: watch what is there now, but not in a busy loop.
    fn end(&mut self) {
        let at = match self.state {
            WatchState::Stands { since, .. } if since.elapsed() >= RETRY => Instant::now(),
            _ => Instant::now() + RETRY,
        };
        self.state = WatchState::Due { at, wait: RETRY };
    }

    fn complain(&mut self, error: &io::Error) {
        let trouble = error.to_string();
        if self.trouble.as_ref() != Some(&trouble) {
            let path = self.path.display();
            tracing::warn!(
                "cannot watch `{path}`: {trouble}; changes are noticed by the periodic check until it works"
            );
            self.trouble = Some(trouble);
        }
    }
}

#[cfg(test)]
mod tests;
