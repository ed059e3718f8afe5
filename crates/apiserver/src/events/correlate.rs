//! Many occurrences, few events: aggregation, de-duplication and the spam filter, with upstream's numbers (v1.36).
//!
//! Keys are hashes, so the caches stay small however long the messages are.

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::{SignedDuration, Timestamp};

use super::lru::Lru;
use super::wire::{Occurrence, Outgoing, name};

/// Entries of each cache.
const ROOM: usize = 4096;
/// So many messages that differ, and they become one event.
const AGGREGATE_AT: usize = 10;
/// This long without a similar one, and counting begins anew.
const AGGREGATE_WITHIN: SignedDuration = SignedDuration::from_mins(10);
/// Events of one type about one object that are sent in a row; then one every five minutes.
const SPAM_BURST: f64 = 25.0;
const SPAM_PER_SECOND: f64 = 1.0 / 300.0;

pub(super) struct Correlator {
    random: fastrand::Rng,
    similar: Lru<Similar>,
    sent: Lru<Option<Sent>>,
    spam: Lru<Bucket>,
    /// Names are made of times, which must not repeat.
    last_nanoseconds: i128,
}

struct Similar {
    messages: Vec<u64>,
    last: Timestamp,
}

struct Sent {
    name: Box<str>,
    first: Timestamp,
    count: u32,
}

struct Bucket {
    tokens: f64,
    at: Timestamp,
}

impl Correlator {
    pub fn new(seed: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            similar: Lru::new(ROOM),
            sent: Lru::new(ROOM),
            spam: Lru::new(ROOM),
            last_nanoseconds: 0,
        }
    }

    /// What is to be sent, if anything.
    pub fn correlate(&mut self, mut occurrence: Occurrence, now: Timestamp) -> Option<Outgoing> {
        let combined = self.aggregated(&occurrence, now);
        let key = if combined.is_some() {
            occurrence.message = format!("(combined from similar events): {}", occurrence.message);
            occurrence.at = now;
            similar_key(&occurrence)
        } else {
            same_key(&occurrence)
        };
        let nanoseconds = occurrence.at.as_nanosecond().max(self.last_nanoseconds + 1);
        self.last_nanoseconds = nanoseconds;
        let (object, first) = (&occurrence.involved.name, occurrence.at);
        let sent = self.sent.entry(key, || None);
        let sent = match sent {
            Some(sent) => {
                sent.count += 1;
                sent
            }
            None => {
                let name = name(object, nanoseconds, &mut self.random).into_boxed_str();
                sent.insert(Sent { name, first, count: 1 })
            }
        };
        let outgoing = Outgoing {
            name: sent.name.to_string(),
            first: sent.first,
            count: sent.count,
            combined: combined.is_some(),
            occurrence,
        };
        self.admitted(&outgoing.occurrence, now).then_some(outgoing)
    }

    fn aggregated(&mut self, occurrence: &Occurrence, now: Timestamp) -> Option<()> {
        let similar =
            self.similar.entry(similar_key(occurrence), || Similar { messages: Vec::new(), last: now });
        if now.duration_since(similar.last) > AGGREGATE_WITHIN {
            similar.messages.clear();
        }
        similar.last = now;
        let message = hash(&occurrence.message);
        if !similar.messages.contains(&message) {
            similar.messages.push(message);
        }
        (similar.messages.len() >= AGGREGATE_AT).then(|| {
            // Upstream drops any one of them; here it is the oldest.
            similar.messages.remove(0);
        })
    }

    fn admitted(&mut self, occurrence: &Occurrence, now: Timestamp) -> bool {
        let bucket = self.spam.entry(spam_key(occurrence), || Bucket { tokens: SPAM_BURST, at: now });
        let passed = now.duration_since(bucket.at).as_secs_f64().max(0.0);
        bucket.tokens = (bucket.tokens + passed * SPAM_PER_SECOND).min(SPAM_BURST);
        bucket.at = now;
        let admitted = bucket.tokens >= 1.0;
        if admitted {
            bucket.tokens -= 1.0;
        }
        admitted
    }
}

fn hash(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// Two hashes of different beginnings: nothing collides by accident.
fn key(what: impl Hash) -> u128 {
    u128::from(hash((1u8, &what))) << 64 | u128::from(hash((2u8, &what)))
}

fn same_key(occurrence: &Occurrence) -> u128 {
    let Occurrence { kind, reason, message, involved, .. } = occurrence;
    key(("same", involved, kind, reason, message))
}

/// Without the container and the message.
fn similar_key(occurrence: &Occurrence) -> u128 {
    let Occurrence { kind, reason, involved, .. } = occurrence;
    key(("similar", involved.kind, &involved.namespace, &involved.name, &involved.uid, kind, reason))
}

fn spam_key(occurrence: &Occurrence) -> u128 {
    let Occurrence { kind, involved, .. } = occurrence;
    key(("spam", involved.kind, &involved.namespace, &involved.name, &involved.uid, kind))
}
