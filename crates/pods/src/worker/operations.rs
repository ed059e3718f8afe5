//! What a worker has under way.

use std::sync::Arc;

use crablet_model::api;
use crablet_model::runtime::PodRuntime;
use crablet_planner::pod::{self as planner, Action, Memory, NodeFacts, OpKey, PreStop};
use jiff::Timestamp;
use tokio::task::{AbortHandle, JoinError};

use super::{AFTER_PANIC, Worker};
use crate::hands::{Operation, Performed, Seen};
use crate::record;
use crate::sight::Touched;
use crate::stage::Stage;

pub(super) struct Running {
    pub number: u64,
    pub action: Action,
    pub abort: AbortHandle,
    pub stage: Arc<Stage>,
}

impl Worker {
    pub(super) fn begin(
        &mut self,
        action: Action,
        runtime: &PodRuntime,
        pod: Option<Arc<api::Pod>>,
        node: Arc<NodeFacts>,
        now: Timestamp,
    ) {
        let key = action.key();
        self.cancel(&key);
        self.begun += 1;
        let number = self.begun;
        if let Action::PreStop { id, .. } = &action {
            self.session.pre_stops.insert(id.clone(), PreStop { since: now, ended: false });
        }
        let seen = self.seen_of(&action, runtime);
        let token = self.random.u32(..);
        let (order, stage) = (self.order.clone(), Arc::<Stage>::default());
        let operation = Operation {
            id: self.id.clone(),
            pod,
            node,
            action: action.clone(),
            seen,
            token,
            order: order.clone(),
            stage: stage.clone(),
        };
        let (shared, asked) = (self.shared.clone(), action.clone());
        let is_static = self.assignment.borrow().is_static;
        let task = async move {
            let work = Box::pin(shared.hands.perform(operation));
            (number, order.in_turn(&asked, is_static, work).await)
        };
        let abort = self.operations.spawn(task);
        self.session.done.remove(&key);
        self.session.ops.insert(key.clone(), planner::Operation::of(&action, now));
        self.running.insert(key, Running { number, action, abort, stage });
    }

    /// What is known of the thing that an action works on.
    fn seen_of(&self, action: &Action, runtime: &PodRuntime) -> Seen {
        match action {
            Action::StartContainer { sandbox_id, .. } => {
                let sandbox = runtime.sandboxes.iter().find(|s| s.id == *sandbox_id);
                sandbox.cloned().map_or(Seen::Nothing, |s| Seen::Sandbox(Box::new(s)))
            }
            // Images are made ready for the newest.
            Action::EnsureImage { .. } => {
                let sandbox = runtime.sandboxes.first();
                sandbox.cloned().map_or(Seen::Nothing, |s| Seen::Sandbox(Box::new(s)))
            }
            Action::RemoveContainer { id, .. } => {
                let container = runtime.containers.iter().find(|c| c.id == *id);
                container.cloned().map_or(Seen::Nothing, |c| Seen::Container(Box::new(c)))
            }
            Action::RemoveSandbox { id } if self.session.stopped_sandboxes.contains(id) => Seen::Stopped,
            _ => Seen::Nothing,
        }
    }

    /// Finds out what the runtime is at work on, for the plan that is made next.
    pub(super) fn look_at_operations(&mut self) {
        for (key, running) in &self.running {
            if let Some(operation) = self.session.ops.get_mut(key) {
                operation.with_runtime = running.stage.is_with_runtime();
            }
        }
    }

    /// Lets operations know that the pod ends, those that are not given up for it, too.
    pub(super) fn tell_end(&self) {
        self.running.values().for_each(|running| running.stage.end_pod());
    }

    /// Gives an operation up, unless the plan took it for waiting and the runtime has begun with it since.
    pub(super) fn give_up(&mut self, key: &OpKey) -> bool {
        let was_known = self.session.ops.get(key).is_some_and(|operation| operation.with_runtime);
        let has_begun = self.running.get(key).is_some_and(|running| !running.stage.give_up());
        if has_begun && !was_known {
            return false;
        }
        self.cancel(key);
        true
    }

    fn cancel(&mut self, key: &OpKey) {
        if let Some(running) = self.running.remove(key) {
            running.abort.abort();
            self.session.ops.remove(key);
            self.sight.touched(Touched::Unknown);
        }
    }

    /// Takes in all operations that have ended by now.
    pub(super) fn collect(&mut self, memory: &mut Memory) {
        while let Some(ended) = self.operations.try_join_next() {
            self.absorb(memory, ended);
        }
    }

    pub(super) fn absorb(&mut self, memory: &mut Memory, ended: Result<(u64, Performed), JoinError>) {
        let now = self.shared.clock.now();
        match ended {
            Ok((number, Performed { outcome, touched })) => {
                // An operation that was given up may have ended just before: what replaced it has another number.
                let Some(key) = self.running.iter().find(|(_, r)| r.number == number).map(|(k, _)| k.clone())
                else {
                    return;
                };
                let Some(running) = self.running.remove(&key) else { return };
                self.session.ops.remove(&key);
                self.sight.touched(touched);
                if !is_failure(&outcome) {
                    self.session.succeeded(running.action, now);
                }
                memory.absorb(&mut self.session, outcome, now);
                self.record = record::encode(&self.id, memory);
            }
            Err(error) if error.is_cancelled() => {}
            Err(error) => {
                tracing::error!(%error, pod = self.id.object_ref(), podUID = %self.id.uid, "an operation broke, which is a bug; its pod pauses");
                let finished: Vec<_> = self
                    .running
                    .iter()
                    .filter(|(_, r)| r.abort.is_finished())
                    .map(|(k, _)| k.clone())
                    .collect();
                for key in finished {
                    self.running.remove(&key);
                    self.session.ops.remove(&key);
                }
                self.sight.forget();
                self.pause_until = now.checked_add(AFTER_PANIC).ok();
            }
        }
    }
}

fn is_failure(outcome: &planner::Outcome) -> bool {
    use planner::Outcome::{
        CleanupFailed, ImageFailed, ImageMissing, ReleaseFailed, ResizeFailed, SandboxFailed, StartFailed,
        TakeOverFailed, TeardownFailed,
    };
    matches!(
        outcome,
        SandboxFailed { .. }
            | ImageFailed { .. }
            | ImageMissing { .. }
            | StartFailed { .. }
            | TeardownFailed { .. }
            | TakeOverFailed { .. }
            | ReleaseFailed { .. }
            | ResizeFailed { .. }
            | CleanupFailed { .. }
    )
}
