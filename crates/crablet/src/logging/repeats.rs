//! Lines that were said within the last minute. Bounded: of more than [`CAPACITY`] different lines a minute, the oldest are
//! forgotten early and may be printed again early.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use super::Place;

const WINDOW: Duration = Duration::from_secs(60);
const CAPACITY: usize = 128;
/// A line that is only counted is kept for telling the count: whole up to this length, else the start of its message.
const KEPT_BYTES: usize = 1024;

#[derive(Default)]
pub struct Repeats {
    /// Oldest first.
    recent: VecDeque<Recent>,
    /// Counts that were pushed out before their minute was over.
    displaced: Option<Told>,
}

struct Recent {
    key: u64,
    since: Instant,
    told: Option<Told>,
}

/// A line that was counted instead of printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub place: Place,
    /// Without header.
    pub body: String,
    pub count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    New,
    Repeated,
}

impl Repeats {
    /// The counts whose time has come to be told. Call before [`Repeats::note`].
    pub fn expired(&mut self, now: Instant) -> Vec<Told> {
        let mut told: Vec<Told> = self.displaced.take().into_iter().collect();
        while let Some(oldest) = self.recent.front() {
            if now.duration_since(oldest.since) < WINDOW {
                break;
            }
            told.extend(self.recent.pop_front().and_then(|oldest| oldest.told));
        }
        told
    }

    /// `shortened` makes a body whose message is no longer than the limit that it is given.
    pub fn note(
        &mut self,
        now: Instant,
        place: Place,
        body: &str,
        shortened: impl FnOnce(usize) -> String,
    ) -> Seen {
        let mut hasher = DefaultHasher::new();
        (place, body).hash(&mut hasher);
        let key = hasher.finish();
        if let Some(known) = self.recent.iter_mut().find(|known| known.key == key) {
            let kept = || if body.len() > KEPT_BYTES { shortened(KEPT_BYTES) } else { body.to_owned() };
            let told = known.told.get_or_insert_with(|| Told { place, body: kept(), count: 0 });
            told.count = told.count.saturating_add(1);
            return Seen::Repeated;
        }
        if self.recent.len() >= CAPACITY {
            self.displaced = self.recent.pop_front().and_then(|oldest| oldest.told);
        }
        self.recent.push_back(Recent { key, since: now, told: None });
        Seen::New
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { level: tracing::Level::WARN, path: "some.rs", line: 7 };

    fn told(body: &str, count: u64) -> Told {
        Told { place: PLACE, body: body.to_owned(), count }
    }

    fn note(repeats: &mut Repeats, now: Instant, place: Place, body: &str) -> Seen {
        repeats.note(now, place, body, |limit| body[..limit].to_owned())
    }

    #[test]
    fn repeats_within_a_minute_are_counted_and_told_by_the_next_line_after_it() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut repeats = Repeats::default();

        assert_eq!(note(&mut repeats, start, PLACE, "a"), Seen::New);
        assert_eq!(note(&mut repeats, after(1), PLACE, "a"), Seen::Repeated);
        assert_eq!(note(&mut repeats, after(2), PLACE, "b"), Seen::New);
        assert_eq!(note(&mut repeats, after(59), PLACE, "a"), Seen::Repeated);
        assert_eq!(repeats.expired(after(59)), []);

        assert_eq!(repeats.expired(after(60)), [told("a", 2)]);
        assert_eq!(note(&mut repeats, after(60), PLACE, "a"), Seen::New);
        // Nothing was left out of "b": there is nothing to tell.
        assert_eq!(repeats.expired(after(70)), []);
    }

    #[test]
    fn the_same_words_from_another_place_are_another_line() {
        let now = Instant::now();
        let mut repeats = Repeats::default();
        assert_eq!(note(&mut repeats, now, PLACE, "a"), Seen::New);
        assert_eq!(note(&mut repeats, now, Place { line: 8, ..PLACE }, "a"), Seen::New);
    }

    #[test]
    fn a_flood_of_different_lines_takes_bounded_memory_and_loses_no_count() {
        let now = Instant::now();
        let mut repeats = Repeats::default();
        let mut counted = 0;
        for number in 0..10_000 {
            let text = format!("line {number} {}", "x".repeat(5_000));
            for _ in 0..2 {
                counted += repeats.expired(now).iter().map(|told| told.count).sum::<u64>();
                note(&mut repeats, now, PLACE, &text);
            }
        }
        assert_eq!(repeats.recent.len(), CAPACITY);
        assert!(repeats.recent.iter().all(|r| r.told.as_ref().is_some_and(|told| told.body.len() < 1100)));
        counted += repeats.expired(now + WINDOW).iter().map(|told| told.count).sum::<u64>();
        assert_eq!(counted, 10_000);
    }
}
