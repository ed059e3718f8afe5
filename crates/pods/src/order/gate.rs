//! A few calls at a time, the more urgent first.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

/// What a call does, the most urgent first: what has been begun is brought to its end before something new begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    StopSandbox,
    StartContainer,
    StopContainer,
    RunSandbox,
}

impl Kind {
    /// A call that takes longer goes on, but no longer keeps others waiting. Stopping a container takes as long as the
    /// container likes.
    fn patience(self) -> Duration {
        match self {
            Self::StopContainer => Duration::from_millis(200),
            Self::StopSandbox | Self::StartContainer | Self::RunSandbox => Duration::from_secs(5),
        }
    }
}

pub struct Gate {
    state: Mutex<State>,
}

struct State {
    free: usize,
    waiting: BTreeMap<Kind, VecDeque<oneshot::Sender<Slot>>>,
}

/// Lets the next one in when it is dropped.
struct Slot(Arc<Gate>);

impl Gate {
    pub fn new(at_once: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { free: at_once, waiting: BTreeMap::new() }) })
    }

    /// Makes the call when it is its turn.
    pub async fn pass<T>(self: &Arc<Self>, kind: Kind, call: impl Future<Output = T>) -> T {
        let slot = self.slot(kind).await;
        tokio::pin!(call);
        match timeout(kind.patience(), &mut call).await {
            Ok(answer) => answer,
            Err(_) => {
                drop(slot);
                call.await
            }
        }
    }

    async fn slot(self: &Arc<Self>, kind: Kind) -> Slot {
        let turn = {
            let mut state = self.lock();
            if state.free > 0 {
                state.free -= 1;
                return Slot(self.clone());
            }
            let (give, turn) = oneshot::channel();
            state.waiting.entry(kind).or_default().push_back(give);
            turn
        };
        // The other end is dropped only after it was used.
        turn.await.unwrap_or_else(|_| Slot(self.clone()))
    }

    /// Who waits longest among the most urgent.
    fn next(&self) -> Option<oneshot::Sender<Slot>> {
        let mut state = self.lock();
        let next = state.waiting.values_mut().find_map(VecDeque::pop_front);
        if next.is_none() {
            state.free += 1;
        }
        next
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(next) = self.0.next() {
            // Who has given up meanwhile drops the slot, which lets the next one in.
            drop(next.send(Slot(self.0.clone())));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    /// Calls in the order in which they are let in.
    type Log = Arc<Mutex<Vec<&'static str>>>;

    fn call(gate: &Arc<Gate>, kind: Kind, name: &'static str, log: &Log) -> tokio::task::JoinHandle<()> {
        let (gate, log) = (gate.clone(), log.clone());
        tokio::spawn(async move {
            gate.pass(kind, async {
                log.lock().unwrap().push(name);
                tokio::time::sleep(Duration::from_millis(10)).await;
            })
            .await;
        })
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_begun_goes_first_and_who_gave_up_holds_nobody_up() {
        let (gate, log) = (Gate::new(1), Log::default());
        let calls = [
            call(&gate, Kind::RunSandbox, "first", &log),
            call(&gate, Kind::RunSandbox, "new", &log),
            call(&gate, Kind::StartContainer, "given up", &log),
            call(&gate, Kind::StopContainer, "stop", &log),
            call(&gate, Kind::StartContainer, "begun", &log),
        ];
        tokio::task::yield_now().await;
        calls[2].abort();
        for call in calls {
            let _ = call.await;
        }
        assert_eq!(*log.lock().unwrap(), ["first", "begun", "stop", "new"]);
        // All have left.
        gate.pass(Kind::RunSandbox, async {}).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_hangs_does_not_keep_its_place() {
        let gate = Gate::new(1);
        let stuck = tokio::spawn({
            let gate = gate.clone();
            async move { gate.pass(Kind::RunSandbox, pending::<()>()).await }
        });
        tokio::task::yield_now().await;
        gate.pass(Kind::RunSandbox, async {}).await;
        stuck.abort();
    }
}
