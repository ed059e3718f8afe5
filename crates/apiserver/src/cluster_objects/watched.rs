//! Strategy `Watch`: one watch for each object that some pod refers to, all of them in one task.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::SelectAll;
use tokio::sync::{Notify, broadcast, oneshot};

use super::kept::Kept;
use super::{collection, not_registered};
use crate::objects::{ObjectError, ObjectKey};
use crate::port::{ApiServer, Lane};
use crate::reflector::{NoStreaming, Reflected, Reflection, reflect_sharing};

/// How long a read waits for the first sight of an object.
const PATIENCE: Duration = Duration::from_secs(1);

pub(super) struct Watched {
    state: Mutex<State>,
    /// There are watches to begin.
    wake: Notify,
    /// Some object has been seen for the first time.
    seen: Notify,
    changes: broadcast::Sender<ObjectKey>,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<ObjectKey, Entry>,
    starts: Vec<Start>,
    epoch: u64,
}

struct Start {
    key: ObjectKey,
    epoch: u64,
    /// Ends when nobody wants the watch any more.
    unwanted: oneshot::Receiver<()>,
}

struct Entry {
    /// How many pods refer to it.
    pods: usize,
    /// Tells this watch from an earlier one of the same object, of which something may still be under way.
    epoch: u64,
    sight: Sight,
    /// Dropped to end the watch. None for objects that cannot change.
    watch: Option<oneshot::Sender<()>>,
    /// A read has not waited for the first sight.
    gave_up: bool,
}

enum Sight {
    NotYet,
    Absent,
    Present(Kept),
}

impl Watched {
    pub fn new(changes: broadcast::Sender<ObjectKey>) -> Self {
        Self { state: Mutex::default(), wake: Notify::new(), seen: Notify::new(), changes }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more pod refers to the object.
    pub fn add(&self, key: ObjectKey) {
        let mut state = self.state();
        if let Some(entry) = state.entries.get_mut(&key) {
            entry.pods += 1;
            return;
        }
        state.epoch += 1;
        let epoch = state.epoch;
        let (watch, unwanted) = oneshot::channel();
        let entry = Entry { pods: 1, epoch, sight: Sight::NotYet, watch: Some(watch), gave_up: false };
        state.entries.insert(key.clone(), entry);
        state.starts.push(Start { key, epoch, unwanted });
        self.wake.notify_one();
    }

    /// One pod less.
    pub fn remove(&self, key: &ObjectKey) {
        let mut state = self.state();
        if let Some(entry) = state.entries.get_mut(key) {
            entry.pods -= 1;
            if entry.pods == 0 {
                state.entries.remove(key);
            }
        }
    }

    pub async fn get(&self, key: &ObjectKey) -> Result<Bytes, ObjectError> {
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            let seen = self.seen.notified();
            tokio::pin!(seen);
            // From here on no sight is missed.
            seen.as_mut().enable();
            match self.state().entries.get(key).map(|entry| &entry.sight) {
                None => return Err(not_registered(key)),
                Some(Sight::Present(kept)) => return Ok(kept.json.clone()),
                Some(Sight::Absent) => {
                    return Err(ObjectError::NotFound(format!(
                        "{} {:?} not found",
                        key.kind.name(),
                        key.name
                    )));
                }
                Some(Sight::NotYet) => {}
            }
            if tokio::time::timeout_at(until, seen).await.is_err() {
                if let Some(entry) = self.state().entries.get_mut(key) {
                    entry.gave_up = true;
                }
                return Err(ObjectError::Unavailable(format!(
                    "failed to sync {} cache: timed out waiting for the condition",
                    key.kind.name()
                )));
            }
        }
    }

    /// Runs the watches, for ever.
    pub async fn run(&self, api: Arc<dyn ApiServer>, seed: u64) {
        let no_streaming = NoStreaming::default();
        let mut watches = SelectAll::new();
        loop {
            for Start { key, epoch, unwanted } in std::mem::take(&mut self.state().starts) {
                let stream =
                    reflect_sharing(api.clone(), reflection(&key), seed ^ epoch, no_streaming.clone());
                watches.push(stream.map(move |told| (key.clone(), epoch, told)).take_until(unwanted));
            }
            // Both arms lose nothing when the other is taken: a stream keeps what it has not given, and the starts are in
            // the state.
            tokio::select! {
                biased;
                () = self.wake.notified() => {}
                Some((key, epoch, told)) = watches.next(), if !watches.is_empty() => self.told(&key, epoch, told),
            }
        }
    }

    fn told(&self, key: &ObjectKey, epoch: u64, told: Reflected) {
        let sight = match told {
            Reflected::Replaced(objects) => {
                objects.last().map_or(Some(Sight::Absent), |object| sight(key, object))
            }
            Reflected::Applied(object) => sight(key, &object),
            Reflected::Deleted(_) => Some(Sight::Absent),
            Reflected::Failed(error) => {
                let object = format!("{}/{}", key.namespace, key.name);
                tracing::warn!(kind = key.kind.name(), object, err = %error, "Failed to watch, will try again");
                return;
            }
        };
        let Some(sight) = sight else { return };
        let mut state = self.state();
        let Some(entry) = state.entries.get_mut(key).filter(|entry| entry.epoch == epoch) else { return };
        let first = matches!(entry.sight, Sight::NotYet);
        let changed = match (&entry.sight, &sight) {
            (Sight::NotYet, _) => entry.gave_up,
            (Sight::Absent, Sight::Absent) => false,
            (Sight::Present(old), Sight::Present(new)) => old.version != new.version,
            _ => true,
        };
        if matches!(&sight, Sight::Present(kept) if kept.immutable) {
            entry.watch = None;
        }
        entry.sight = sight;
        drop(state);
        if first {
            self.seen.notify_waiters();
        }
        if changed {
            // Without a listener nobody has to be told.
            let _ = self.changes.send(key.clone());
        }
    }
}

/// What cannot be read changes nothing, and that is said.
fn sight(key: &ObjectKey, object: &Bytes) -> Option<Sight> {
    let unreadable = |error: &serde_json::Error| {
        let object = format!("{}/{}", key.namespace, key.name);
        tracing::error!(
            kind = key.kind.name(),
            object,
            line = error.line(),
            "Object cannot be read, ignoring it"
        );
    };
    Kept::of(object).inspect_err(unreadable).ok().map(Sight::Present)
}

fn reflection(key: &ObjectKey) -> Reflection {
    Reflection {
        path: collection(key),
        selector: Some(format!("metadata.name={}", key.name)),
        lane: Lane::Objects,
        timeout: (1800, 3600),
    }
}
