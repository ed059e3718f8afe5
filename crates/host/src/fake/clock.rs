use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use crate::clock::Clock;

/// A wall clock that follows tokio's time, paused or not, from a fixed beginning, and that a test can make jump as NTP
/// or an operator would.
#[derive(Clone)]
pub struct SimClock {
    base: Timestamp,
    started: Instant,
    offset: Arc<Mutex<SignedDuration>>,
}

impl SimClock {
    /// Must be made inside the tokio runtime whose time it follows.
    pub fn starting_at(base: Timestamp) -> Self {
        Self { base, started: Instant::now(), offset: Arc::default() }
    }

    /// Moves the wall clock, not tokio's time: deadlines that run keep their length.
    pub fn jump(&self, by: SignedDuration) {
        *self.offset.lock().unwrap() += by;
    }

    /// How far the wall clock is from where it would be without jumps.
    pub fn offset(&self) -> SignedDuration {
        *self.offset.lock().unwrap()
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.started.elapsed()).expect("a run is shorter than an age");
        self.base + elapsed + self.offset()
    }
}
