//! Strategies `Get` and `Cache`: objects are asked for when they are read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::kept::Kept;
use super::{collection, not_registered};
use crate::objects::{ObjectError, ObjectKey};
use crate::port::{ApiError, ApiServer, Call, ErrorKind, Lane};

/// How long an answer is good under `Cache`.
const LIFE: Duration = Duration::from_secs(60);

pub(super) struct Fetched {
    api: Arc<dyn ApiServer>,
    /// None: every read asks.
    life: Option<Duration>,
    entries: Mutex<BTreeMap<ObjectKey, Entry>>,
}

#[derive(Default)]
struct Entry {
    pods: usize,
    answer: Option<(Instant, Result<Kept, ObjectError>)>,
}

impl Fetched {
    pub fn new(api: Arc<dyn ApiServer>, cached: bool) -> Self {
        Self { api, life: cached.then_some(LIFE), entries: Mutex::default() }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more pod refers to the object: it is asked for again.
    pub fn add(&self, key: ObjectKey) {
        let mut entries = self.entries();
        let entry = entries.entry(key).or_default();
        entry.pods += 1;
        entry.answer = None;
    }

    pub fn remove(&self, key: &ObjectKey) {
        let mut entries = self.entries();
        if let Some(entry) = entries.get_mut(key) {
            entry.pods -= 1;
            if entry.pods == 0 {
                entries.remove(key);
            }
        }
    }

    pub fn keys(&self) -> Vec<ObjectKey> {
        self.entries().keys().cloned().collect()
    }

    pub async fn get(&self, key: &ObjectKey) -> Result<Bytes, ObjectError> {
        let Some(life) = self.life else {
            return self.fetch(key, "").await.map(|kept| kept.json).map_err(|error| as_object_error(&error));
        };
        let known = match self.entries().get(key) {
            None => return Err(not_registered(key)),
            Some(entry) => entry.answer.clone(),
        };
        if let Some((at, answer)) = &known
            && at.elapsed() < life
            && answer.is_ok()
        {
            return answer.clone().map(|kept| kept.json);
        }
        let old = known.and_then(|(_, answer)| answer.ok());
        // What was fetched before may come from the server's cache.
        let query = if old.is_some() { "?resourceVersion=0" } else { "" };
        let answer = match (self.fetch(key, query).await, old) {
            (Ok(new), Some(old)) if new.is_older_than(&old) => return Ok(old.json),
            (Ok(new), _) => Ok(new),
            (Err(error), _) if error.is_not_found() => Err(as_object_error(&error)),
            (Err(_), Some(old)) => return Ok(old.json),
            (Err(error), None) => return Err(as_object_error(&error)),
        };
        if let Some(entry) = self.entries().get_mut(key) {
            entry.answer = Some((Instant::now(), answer.clone()));
        }
        answer.map(|kept| kept.json)
    }

    async fn fetch(&self, key: &ObjectKey, query: &str) -> Result<Kept, ApiError> {
        let path = format!("{}/{}{query}", collection(key), key.name);
        let body = self.api.call(Call::get(Lane::Main, path)).await?;
        let unreadable = |error: serde_json::Error| {
            let text = format!("the server's {} cannot be read, line {}", key.kind.name(), error.line());
            ApiError::new(ErrorKind::Other, text)
        };
        Kept::of(&body).map_err(unreadable)
    }
}

fn as_object_error(error: &ApiError) -> ObjectError {
    if error.is_not_found() {
        ObjectError::NotFound(error.message.clone())
    } else {
        ObjectError::Unavailable(error.message.clone())
    }
}
