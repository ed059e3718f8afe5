//! Who goes first where the machine has more to do than it can.
//!
//! - Calls that make or end something in the runtime pass a [`gate`], some at a time. A runtime that gets a hundred at once
//!   finishes none of them for a long time; so each pod that has begun is done soon, and its status is told once.
//! - Removing what has ended can wait: nobody watches for it, and a runtime that removes has less time for what somebody
//!   waits for. It waits for a moment in which no pod begins or ends, and not for long.

mod gate;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crablet_planner::pod::Action;
use tokio::sync::Notify;
use tokio::time::timeout;

use self::gate::Gate;
pub use self::gate::Kind;

/// Calls to the runtime at a time. Four keep two cores busy; a large machine needs more, and a call that hangs should be
/// one of many.
const AT_ONCE: usize = 16;
/// On a node that is never quiet, removals begin after this.
const PATIENCE: Duration = Duration::from_secs(10);
/// An operation that takes longer waits for something of its own, such as a volume, a hook or a container that takes its
/// time to end: nobody is held back for it.
const SOON_DONE: Duration = Duration::from_secs(5);

/// Shared by all workers.
pub struct Order {
    gate: Arc<Gate>,
    /// Operations under way that somebody waits for.
    awaited: AtomicUsize,
    quiet: Notify,
}

/// Holds others back while it lives.
struct Place(Option<Arc<Order>>);

impl Default for Order {
    fn default() -> Self {
        Self { gate: Gate::new(AT_ONCE), awaited: AtomicUsize::new(0), quiet: Notify::new() }
    }
}

impl Order {
    /// Makes a call to the runtime when it is its turn.
    pub async fn pass<T>(&self, kind: Kind, call: impl Future<Output = T>) -> T {
        self.gate.pass(kind, call).await
    }

    /// Does the work of an operation when it is its turn. `is_static`: the next pod of the same name waits for the removal
    /// of this one.
    pub async fn in_turn<T>(
        self: Arc<Self>,
        action: &Action,
        is_static: bool,
        work: impl Future<Output = T>,
    ) -> T {
        let place = self.place(action, is_static).await;
        tokio::pin!(work);
        match timeout(SOON_DONE, &mut work).await {
            Ok(done) => done,
            Err(_) => {
                drop(place);
                work.await
            }
        }
    }

    async fn place(self: Arc<Self>, action: &Action, is_static: bool) -> Place {
        match action {
            Action::CreateSandbox { .. }
            | Action::StartContainer { .. }
            | Action::StartCreated { .. }
            | Action::StopContainer { .. }
            | Action::StopSandbox { .. }
            | Action::Release => {
                self.awaited.fetch_add(1, Ordering::AcqRel);
                Place(Some(self))
            }
            Action::RemoveContainer { .. } | Action::RemoveSandbox { .. } | Action::Cleanup if !is_static => {
                let _ = timeout(PATIENCE, self.is_quiet()).await; // either way it is time
                Place(None)
            }
            _ => Place(None),
        }
    }

    async fn is_quiet(&self) {
        loop {
            let quiet = self.quiet.notified();
            tokio::pin!(quiet);
            // From here on no end of work is missed.
            quiet.as_mut().enable();
            if self.awaited.load(Ordering::Acquire) == 0 {
                return;
            }
            quiet.await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(order) = &self.0
            && order.awaited.fetch_sub(1, Ordering::AcqRel) == 1
        {
            order.quiet.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remove() -> Action {
        Action::RemoveSandbox { id: "s".to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn removals_wait_for_a_quiet_moment_and_not_for_ever() {
        let order = Arc::new(Order::default());
        let stop = order.clone().place(&Action::StopSandbox { id: "s".to_owned() }, false).await;
        let release = order.clone().place(&Action::Release, false).await;
        let removal = tokio::spawn({
            let order = order.clone();
            async move { order.place(&remove(), false).await }
        });
        drop(stop);
        tokio::task::yield_now().await;
        assert!(!removal.is_finished());
        drop(release);
        drop(removal.await.unwrap());

        let _busy = order.clone().place(&Action::Release, false).await;
        // Nobody else is asked to wait, and time passes by itself here.
        drop(order.clone().place(&remove(), true).await);
        drop(order.place(&remove(), false).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hook_of_an_hour_holds_nobody_back() {
        let order = Arc::new(Order::default());
        let start = Action::StartCreated { container: "slow".to_owned(), id: "c".to_owned() };
        let hook = tokio::spawn({
            let order = order.clone();
            async move { order.in_turn(&start, false, std::future::pending::<()>()).await }
        });
        tokio::time::sleep(SOON_DONE * 2).await;
        let begun = tokio::time::Instant::now();
        order.in_turn(&remove(), false, async {}).await;
        assert!(begun.elapsed().is_zero(), "the clock of this test moves only while everybody waits");
        hook.abort();
    }
}
