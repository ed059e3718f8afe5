//! A collection as a map in memory, each object as small as its use allows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tokio::sync::Semaphore;

use crate::reflector::Reflected;

/// Namespace and name.
pub(super) type Key = (Arc<str>, Arc<str>);

/// Reads an object: its key, and what is kept of it, if anything.
pub(super) type Read<T> = fn(&[u8]) -> Result<(Key, Option<T>), serde_json::Error>;

pub(super) struct Mirror<T> {
    items: Mutex<BTreeMap<Key, T>>,
    /// Closed once all has been seen. Those who wait go on in the order in which they came, which a `watch` leaves to chance:
    /// a simulated night has to be the same each time.
    known: Semaphore,
}

impl<T: Send + 'static> Mirror<T> {
    pub fn new() -> Self {
        Self { items: Mutex::default(), known: Semaphore::new(0) }
    }

    pub fn items(&self) -> MutexGuard<'_, BTreeMap<Key, T>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all has been seen once. False if that takes too long.
    pub async fn known_within(&self, time: Duration) -> bool {
        tokio::time::timeout(time, self.known.acquire()).await.is_ok_and(|closed| closed.is_err())
    }

    /// Follows a reflection for ever.
    pub async fn follow(&self, what: &str, mut stream: BoxStream<'static, Reflected>, read: Read<T>) {
        while let Some(reflected) = stream.next().await {
            match reflected {
                Reflected::Replaced(objects) => {
                    let new = objects.iter().filter_map(|object| understood(what, object, read));
                    let new = new.filter_map(|(key, item)| item.map(|item| (key, item))).collect();
                    *self.items() = new;
                    self.known.close();
                }
                Reflected::Applied(object) => match understood(what, &object, read) {
                    Some((key, Some(item))) => drop(self.items().insert(key, item)),
                    Some((key, None)) => drop(self.items().remove(&key)),
                    None => {}
                },
                Reflected::Deleted(object) => {
                    if let Some((key, _)) = understood(what, &object, read) {
                        self.items().remove(&key);
                    }
                }
                Reflected::Failed(error) => {
                    tracing::warn!(resource = what, err = %error, "Failed to watch, will try again");
                }
            }
        }
    }
}

fn understood<T>(what: &str, object: &Bytes, read: Read<T>) -> Option<(Key, Option<T>)> {
    read(object)
        .inspect_err(
            |error| tracing::warn!(resource = what, err = %error, "Object cannot be read, ignoring it"),
        )
        .ok()
}
