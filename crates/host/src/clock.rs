//! Wall-clock time.

use jiff::Timestamp;

/// What time it is. Waiting is not asked of a clock: deadlines and sleeps are tokio's.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;
}

pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
