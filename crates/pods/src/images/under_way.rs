//! Pulls that are under way: who asked for them, since when, and how far they are.
//!
//! CRI answers a pull when it is over and not before. How many bytes have come is told by runtimes that say more than CRI,
//! for the node as a whole: which part belongs to which image is not told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crablet_cri::Runtime;
use crablet_model::runtime::Incoming;
use jiff::Timestamp;
use serde::Serialize;

/// A runtime that takes longer to say how far it is has said nothing.
const PATIENCE: Duration = Duration::from_secs(5);

/// A pull that takes longer is told of again, and again after each doubling.
const LONG: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(8 * 60);

/// All pulls that somebody waits for.
#[derive(Default)]
pub(super) struct UnderWay {
    pulls: Mutex<Numbered>,
}

#[derive(Default)]
struct Numbered {
    next: u64,
    by_number: BTreeMap<u64, Pull>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pull {
    pub image: String,
    pub namespace: String,
    pub pod: String,
    pub container: String,
    pub asked: Timestamp,
    /// `None`: it waits for its turn.
    pub began: Option<Timestamp>,
}

/// How far all of them are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pulls {
    /// Those that were asked for first come first.
    pub pulls: Vec<Pull>,
    /// `None` where the runtime does not say.
    pub incoming: Option<Vec<Part>>,
}

/// A part of an image that is on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    pub name: String,
    pub bytes: u64,
    pub of: Option<u64>,
}

/// Keeps a pull on the list for as long as somebody waits for it.
pub(super) struct Ticket {
    list: Arc<UnderWay>,
    number: u64,
}

impl UnderWay {
    pub fn add(self: &Arc<Self>, pull: Pull) -> Ticket {
        let mut pulls = self.lock();
        let number = pulls.next;
        pulls.next += 1;
        pulls.by_number.insert(number, pull);
        Ticket { list: self.clone(), number }
    }

    pub fn all(&self) -> Vec<Pull> {
        self.lock().by_number.values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Numbered> {
        self.pulls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    pub fn begins(&self, now: Timestamp) {
        if let Some(pull) = self.list.lock().by_number.get_mut(&self.number) {
            pull.began = Some(now);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.list.lock().by_number.remove(&self.number);
    }
}

/// What the runtime says is on its way.
pub(super) async fn incoming(runtime: &dyn Runtime) -> Option<Vec<Incoming>> {
    match tokio::time::timeout(PATIENCE, runtime.incoming()).await {
        Ok(Ok(incoming)) => incoming,
        Ok(Err(error)) => {
            tracing::debug!(%error, "the runtime does not say how far its pulls are");
            None
        }
        Err(_) => None,
    }
}

/// When a pull that has taken this long is told of next.
pub(super) fn next_word(so_far: Duration) -> Duration {
    if so_far < LONG { LONG - so_far } else { so_far.min(LONGEST) }
}

/// What is told of a pull that takes long.
pub(super) fn word(image: &str, so_far: Duration, incoming: Option<&[Incoming]>) -> String {
    let so_far = crablet_model::duration::format(Duration::from_secs(so_far.as_secs()));
    let begin = format!("Still pulling image \"{image}\" after {so_far}");
    let Some(parts) = incoming.filter(|parts| !parts.is_empty()) else {
        return begin;
    };
    let bytes: u64 = parts.iter().fold(0, |sum, part| sum.saturating_add(part.bytes));
    let of = parts.iter().try_fold(0u64, |sum, part| Some(sum.saturating_add(part.of?)));
    let of = of.map(|of| format!(" of {of}")).unwrap_or_default();
    format!("{begin}. On their way to this node: {} parts, {bytes}{of} bytes.", parts.len())
}

impl From<Incoming> for Part {
    fn from(incoming: Incoming) -> Self {
        Self { name: incoming.name, bytes: incoming.bytes, of: incoming.of }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_pull_is_told_of_ever_more_rarely() {
        let mut so_far = Duration::ZERO;
        let mut told = Vec::new();
        while so_far < Duration::from_secs(40 * 60) {
            so_far += next_word(so_far);
            told.push(so_far.as_secs());
        }
        assert_eq!(told, [30, 60, 120, 240, 480, 960, 1440, 1920, 2400]);
    }

    #[test]
    fn what_is_known_is_told() {
        let part = |bytes, of| Incoming { name: "layer-sha256:aa".to_owned(), bytes, of };
        let told = |parts: Option<&[Incoming]>| word("r.io/a:1", Duration::from_millis(30_004), parts);
        assert_eq!(told(None), "Still pulling image \"r.io/a:1\" after 30s");
        assert_eq!(told(Some(&[])), told(None));
        assert_eq!(
            told(Some(&[part(5, Some(10)), part(1, Some(2))])),
            "Still pulling image \"r.io/a:1\" after 30s. On their way to this node: 2 parts, 6 of 12 bytes."
        );
        assert_eq!(
            told(Some(&[part(5, Some(10)), part(u64::MAX, None)])),
            format!(
                "Still pulling image \"r.io/a:1\" after 30s. On their way to this node: 2 parts, {} bytes.",
                u64::MAX
            )
        );
    }
}
