//! How far an operation has come that makes a sandbox or a container.
//!
//! ```text
//!   Waits ── call ──> WithRuntime ── answer ──> Waits      for volumes and objects before, for a hook after
//!     └─── give up ──> GivenUp, for good
//! ```
//!
//! Waiting can be given up at any moment, and leaves nothing in the runtime. A call that has begun has an effect whoever
//! waits for it, so whoever wants to give it up has to know.

use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

const WAITS: u8 = 0;
const WITH_RUNTIME: u8 = 1;
const GIVEN_UP: u8 = 2;

#[derive(Default)]
pub(crate) struct Stage {
    at: AtomicU8,
    pod_ends: AtomicBool,
}

impl Stage {
    /// Makes the call, unless the operation was given up: then this never ends, and is dropped with the operation.
    pub async fn call<T>(&self, call: impl Future<Output = T>) -> T {
        if !self.moves(WAITS, WITH_RUNTIME) {
            return pending().await;
        }
        let answer = call.await;
        self.moves(WITH_RUNTIME, WAITS);
        answer
    }

    pub fn is_with_runtime(&self) -> bool {
        self.at.load(Ordering::Acquire) == WITH_RUNTIME
    }

    /// The pod is to end, for good.
    pub fn end_pod(&self) {
        self.pod_ends.store(true, Ordering::Release);
    }

    /// Whether what the operation makes is not wanted any more, so that nobody misses it should it fail.
    pub fn pod_ends(&self) -> bool {
        self.pod_ends.load(Ordering::Acquire)
    }

    /// No call begins from now on. Says whether that is so: not while one is under way.
    pub fn give_up(&self) -> bool {
        self.moves(WAITS, GIVEN_UP) || self.at.load(Ordering::Acquire) == GIVEN_UP
    }

    fn moves(&self, from: u8, to: u8) -> bool {
        self.at.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_is_not_given_up_and_what_was_given_up_calls_nobody() {
        let stage = Stage::default();
        let (answer, answered) = oneshot::channel();
        let mut call = std::pin::pin!(stage.call(answered));
        assert!(timeout(Duration::from_secs(1), &mut call).await.is_err());
        assert!(stage.is_with_runtime() && !stage.give_up());
        answer.send(7).unwrap();
        assert_eq!(call.await, Ok(7));
        // What follows can be given up again.
        assert!(!stage.is_with_runtime() && stage.give_up() && stage.give_up());
        assert!(timeout(Duration::from_secs(1), stage.call(async {})).await.is_err());
    }
}
