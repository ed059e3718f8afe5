//! How long to wait after a failure.

use std::time::Duration;

use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(800);
const LONGEST: Duration = Duration::from_secs(30);
/// This long without a failure, and the next one is a first one again.
const RESET: Duration = Duration::from_secs(120);
/// The Node authorizer learns of a pod a moment after the agent does, so a refusal of one of its objects is asked about
/// again soon: 100, 200 and 400 ms, then as any other failure.
const REFUSED: Duration = Duration::from_millis(100);
const REFUSED_TIMES: u32 = 3;

pub(super) struct Backoff {
    random: fastrand::Rng,
    failures: u32,
    refusals: u32,
    /// When the last wait ends.
    last: Option<Instant>,
}

impl Backoff {
    pub fn new(seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), failures: 0, refusals: 0, last: None }
    }

    /// A failure has happened: how long to wait for the next try.
    pub fn wait(&mut self, refused: bool, at_least: Option<Duration>) -> Duration {
        let now = Instant::now();
        if self.last.is_some_and(|last| now.saturating_duration_since(last) > RESET) {
            self.failures = 0;
            self.refusals = 0;
        }
        let wait = if refused && self.refusals < REFUSED_TIMES {
            self.refusals += 1;
            REFUSED * 2u32.pow(self.refusals - 1)
        } else {
            let plain = FIRST.saturating_mul(2u32.saturating_pow(self.failures)).min(LONGEST);
            self.failures = (self.failures + 1).min(16);
            plain.mul_f64(1.0 + self.random.f64())
        };
        let wait = wait.max(at_least.unwrap_or_default());
        self.last = Some(now + wait);
        wait
    }

    /// A number of seconds in a range, for watches that are not all to end at the same time.
    pub fn between(&mut self, (from, to): (u64, u64)) -> u64 {
        self.random.u64(from..=to.max(from))
    }
}
