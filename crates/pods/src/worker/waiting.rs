//! How a worker waits, and what it is told meanwhile.

use std::time::Duration;

use crablet_model::runtime::RuntimeEventKind;
use crablet_planner::pod::OpKey;
use jiff::Timestamp;
use tokio::time::sleep;

use super::{ECHO, RESYNC, Worker};
use crate::nudge::Told;

impl Worker {
    /// Until something happens. Every arm is cancel-safe: nothing is taken out before its arm is chosen, except an ended
    /// operation, which is put into the record at once.
    pub(super) async fn wait(&mut self, until: Option<Timestamp>) {
        let resync = RESYNC.mul_f64(1.0 + self.random.f64() / 2.0);
        let asleep = tokio::time::Instant::now();
        loop {
            let now = self.shared.clock.now();
            let asked = until.into_iter().chain(self.look_by).min().map(|until| until_then(now, until));
            let rest = resync.saturating_sub(asleep.elapsed());
            tokio::select! {
                biased;
                changed = self.assignment.changed() => {
                    if changed.is_err() {
                        // The registry has gone; the agent ends and takes this task with it.
                        std::future::pending::<()>().await;
                    }
                    return;
                }
                Some(ended) = self.operations.join_next(), if !self.operations.is_empty() => {
                    let mut memory = self.recall();
                    self.absorb(&mut memory, ended);
                    return;
                }
                () = self.nudge.given() => {
                    if self.hear() {
                        return;
                    }
                }
                () = sleep(asked.unwrap_or(rest).min(rest)) => {
                    // What nothing has announced for so long is looked at afresh.
                    if self.untold_since.is_none() {
                        self.sight.forget();
                    }
                    return;
                }
            }
        }
    }

    /// Takes hints in. Returns whether to look now.
    pub(super) fn hear(&mut self) -> bool {
        let mut now = self.take_objects() && self.waits_for_objects;
        for told in self.nudge.take() {
            match told {
                Told::Look => {
                    self.sight.forget();
                    now = true;
                }
                Told::Probed => now = true,
                Told::Event { id, kind } => now |= self.sight.heard(&id, kind) && !self.is_echo(&id, kind),
            }
        }
        now
    }

    /// An event that an operation of ours has brought about: the end of the operation follows, and looks.
    fn is_echo(&mut self, id: &str, kind: RuntimeEventKind) -> bool {
        if self.running.is_empty() {
            return false;
        }
        let ends = matches!(kind, RuntimeEventKind::Stopped | RuntimeEventKind::Deleted);
        let ours = self.running.keys().any(|key| match key {
            OpKey::Sandbox(of) | OpKey::Container(of) => of == id,
            _ => false,
        });
        if ends && !ours {
            return false;
        }
        if ends {
            let by = self.shared.clock.now().checked_add(ECHO).ok();
            self.look_by = self.look_by.into_iter().chain(by).min();
        }
        true
    }
}

fn until_then(now: Timestamp, then: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now)).unwrap_or(Duration::ZERO)
}
