//! File calls that a dead disk cannot hold up for ever.

use std::future::pending;
use std::io;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep_until, timeout};

/// How long a call on a disk may take before it counts as failed.
pub(super) const DISK_PATIENCE: Duration = Duration::from_secs(5);

/// At most one call of a kind under way. One that overran is kept and waited for: starting it anew each time would use
/// up the threads on which file calls block.
pub(super) struct Patient<T> {
    overdue: Option<BoxFuture<'static, io::Result<T>>>,
}

impl<T> Default for Patient<T> {
    fn default() -> Self {
        Self { overdue: None }
    }
}

impl<T> Patient<T> {
    /// The result of the call, or of the earlier one that is still under way.
    pub async fn run(&mut self, call: impl FnOnce() -> BoxFuture<'static, io::Result<T>>) -> io::Result<T> {
        let mut under_way = self.overdue.take().unwrap_or_else(call);
        match timeout(DISK_PATIENCE, &mut under_way).await {
            Ok(result) => result,
            Err(_) => {
                self.overdue = Some(under_way);
                Err(overdue())
            }
        }
    }

    /// Waits for a call that overran. `Ok(true)` when there was one: what it did or did not do is to be looked at.
    pub async fn finish_overdue(&mut self) -> io::Result<bool> {
        if self.overdue.is_none() {
            return Ok(false);
        }
        match self.run(|| Box::pin(async { Err(overdue()) })).await {
            Err(_) if self.overdue.is_some() => Err(overdue()),
            _ => Ok(true),
        }
    }
}

fn overdue() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("the disk did not answer within {DISK_PATIENCE:?}"))
}

/// An instant that may never come.
pub(super) async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => pending().await,
    }
}
