//! One worker per pod: gather facts, plan, operate, publish, sleep.
//!
//! ```text
//!        ┌────────────────────────── turn ──────────────────────────┐
//!  ──> look ─────> plan ──> remember (disk) ──> publish ──> begin operations ──> wait ──┐
//!        ^                                                                              │
//!        └── an operation ended · the assignment changed · a nudge · `wake_at` · resync ┘
//! ```
//!
//! Nothing in a turn waits for an operation, so an end of the pod is acted on at once, whatever is under way. Between
//! turns a pod is bytes: its specification, its record, and its running operations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crablet_cri::{CriError, Runtime};
use crablet_host::Clock;
use crablet_model::events::Event;
use crablet_model::hash::fnv1a_128;
use crablet_model::names::{annotation, event_reason};
use crablet_model::runtime::{PodRuntime, RuntimeEventKind};
use crablet_model::{PodRef, api};
use crablet_planner::pod::{
    self as planner, Action, Ending, Facts, Memory, NodeFacts, OpKey, Plan, Session, Urgency, Wish,
};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::PlanFn;
use crate::cluster::Cluster;
use crate::events::EventSink;
use crate::hands::{Hands, Operation, Performed, Seen};
use crate::inspect::{log_attempts, read_last_words};
use crate::nudge::{Nudge, Told};
use crate::order::Order;
use crate::record;
use crate::sight::{Sight, Touched};
use crate::view::View;

/// Looking at one pod takes a few quick calls. A runtime that hangs on one pod holds up that pod only.
const INSPECT_DEADLINE: Duration = Duration::from_secs(30);
/// Pauses after a failed inspection.
const INSPECT_RETRY_FIRST: Duration = Duration::from_secs(1);
const INSPECT_RETRY_MAX: Duration = Duration::from_secs(10);
/// The safety net below all events and deadlines; spread over the workers.
const RESYNC: Duration = Duration::from_secs(600);
/// A status that tells of a step on the way waits this long for the next step. Upstream looks at the runtime once in a
/// second, and tells of such a step no sooner.
const SOON: Duration = Duration::from_secs(1);
/// What an operation of ours brings about is announced by an event just before the operation ends. One that does not
/// end by then is not waited for.
const ECHO: Duration = Duration::from_secs(1);
/// An operation whose task broke is not begun again at once.
const AFTER_PANIC: Duration = Duration::from_secs(10);

/// What all workers share.
pub struct Shared {
    pub hands: Hands,
    pub clock: Arc<dyn Clock>,
    pub view: Arc<View>,
    /// `None` in standalone mode.
    pub cluster: Option<Arc<Cluster>>,
    /// Read at each turn. A change of it nudges every worker.
    pub node: watch::Receiver<Arc<NodeFacts>>,
    pub plan: PlanFn,
}

impl Shared {
    fn runtime(&self) -> &dyn Runtime {
        &*self.hands.runtime
    }

    fn events(&self) -> &dyn EventSink {
        &*self.hands.events
    }
}

/// What a worker is to do.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// JSON of the pod; `None` for a pod that only the runtime knows.
    pub pod: Option<Arc<[u8]>>,
    pub is_static: bool,
    /// What the pod asks for and this version cannot do.
    pub refused: Option<Arc<str>>,
    pub wish: Wish,
}

pub struct Worker {
    shared: Arc<Shared>,
    order: Arc<Order>,
    id: PodRef,
    assignment: watch::Receiver<Assignment>,
    nudge: Arc<Nudge>,
    random: fastrand::Rng,
    /// The memory of the pod, encoded: decoded for each turn.
    record: Vec<u8>,
    /// Of the record that is on disk.
    on_disk: u128,
    saved: bool,
    sight: Sight,
    session: Session,
    operations: JoinSet<(u64, Performed)>,
    running: BTreeMap<OpKey, Running>,
    begun: u64,
    inspect_failures: u32,
    pause_until: Option<Timestamp>,
    /// Since when a status waits to be told.
    untold_since: Option<Timestamp>,
    /// When to look at what an event announced, should the operation behind it not end.
    look_by: Option<Timestamp>,
    /// The refusal that was told last.
    refused: Option<Arc<str>>,
}

struct Running {
    number: u64,
    action: Action,
    abort: AbortHandle,
}

enum Next {
    Finished,
    /// Until something happens, or this time comes.
    Wait(Option<Timestamp>),
}

impl Worker {
    pub fn new(
        (shared, order): (Arc<Shared>, Arc<Order>),
        id: PodRef,
        assignment: watch::Receiver<Assignment>,
        nudge: Arc<Nudge>,
        seed: u64,
    ) -> Self {
        Self {
            shared,
            order,
            id,
            assignment,
            nudge,
            random: fastrand::Rng::with_seed(seed),
            record: Vec::new(),
            on_disk: 0,
            saved: true,
            sight: Sight::default(),
            session: Session::default(),
            operations: JoinSet::new(),
            running: BTreeMap::new(),
            begun: 0,
            inspect_failures: 0,
            pause_until: None,
            untold_since: None,
            look_by: None,
            refused: None,
        }
    }

    /// Works until nothing is left of the pod.
    pub async fn run(mut self) {
        let mut memory = Box::pin(self.remember()).await;
        loop {
            // Boxed: a resting worker should not carry the size of a whole turn.
            match Box::pin(self.turn(memory)).await {
                Next::Finished => return,
                Next::Wait(until) => self.wait(until).await,
            }
            memory = self.recall();
            self.collect(&mut memory);
        }
    }

    /// What an earlier life of the agent left on disk.
    async fn remember(&mut self) -> Memory {
        let files = &*self.shared.hands.files;
        let folders = &self.shared.hands.folders;
        self.session.seen_attempts = log_attempts(files, &folders.logs(&self.id)).await;
        let found = record::load_patiently(files, &folders.record(&self.id)).await;
        let memory = found.map(|(_, memory)| memory).unwrap_or_default();
        self.record = record::encode(&self.id, &memory);
        self.on_disk = fnv1a_128(&self.record);
        memory
    }

    fn recall(&self) -> Memory {
        record::decode(&self.record).map(|(_, memory)| memory).unwrap_or_default()
    }

    async fn turn(&mut self, memory: Memory) -> Next {
        let assignment = self.assignment.borrow_and_update().clone();
        let node = self.shared.node.borrow().clone();
        self.hear();
        self.look_by = None;
        let makes = |key: &OpKey| matches!(key, OpKey::CreateSandbox | OpKey::Start(_));
        let making = self.running.keys().any(makes);
        let look = self.sight.look(self.shared.runtime(), &self.id.uid, making);
        let runtime = match timeout(INSPECT_DEADLINE, look).await {
            Ok(Ok(runtime)) => runtime,
            Ok(Err(error)) => return self.inspection_failed(&error),
            Err(_) => return self.inspection_failed(&deadline_passed()),
        };
        self.inspect_failures = 0;
        let pod = assignment.pod.as_deref().and_then(|json| self.decode(json)).map(Arc::new);
        self.session.observe(&runtime);
        let all_read = self.read_last_words(pod.as_deref(), &runtime).await;

        let memory = taken_over(memory, pod.as_deref(), assignment.is_static);
        let now = self.shared.clock.now();
        let wish = effective_wish(&assignment.wish, pod.as_deref(), &memory, &runtime);
        let facts = Facts {
            id: &self.id,
            pod: pod.as_deref(),
            refused: assignment.refused.as_deref(),
            wish: &wish,
            runtime: &runtime,
            memory: &memory,
            session: &self.session,
            node: &node,
            now,
        };
        let mut plan = (self.shared.plan)(&facts);
        self.announce_refusal(assignment.refused.as_ref());
        let untold = self.hold_back(&mut plan, memory, now);
        let at_rest = wish == Wish::Run;
        let next = self.carry_out(plan, untold, &runtime, pod, assignment.is_static, &node, now).await;
        self.sight.keep(runtime);
        if at_rest && self.running.is_empty() {
            self.sight.rest();
        }
        match next {
            // The disk owes us something: ask again, even if nothing else happens.
            Next::Wait(until) if !all_read || !self.saved => {
                let again = now.checked_add(INSPECT_RETRY_MAX).ok();
                Next::Wait(until.into_iter().chain(again).min())
            }
            next => next,
        }
    }

    /// Decides whether the status waits to be told, and says so. What is not told is neither shown nor remembered: its
    /// times are those of the turn that tells it.
    fn hold_back(&mut self, plan: &mut Plan, told: Memory, now: Timestamp) -> bool {
        let until = self.untold_since.unwrap_or(now).checked_add(SOON).ok().filter(|until| now < *until);
        match (plan.urgency, until) {
            (Urgency::WithTheNext, _) => {}
            (Urgency::Soon, Some(until)) => {
                self.untold_since.get_or_insert(now);
                plan.wake_at = plan.wake_at.into_iter().chain([until]).min();
            }
            (Urgency::Soon | Urgency::Now, _) => {
                self.untold_since = None;
                return false;
            }
        }
        plan.memory.status = told.status;
        true
    }

    #[expect(clippy::too_many_arguments, reason = "a turn in two halves, the second of which acts")]
    async fn carry_out(
        &mut self,
        plan: Plan,
        untold: bool,
        runtime: &PodRuntime,
        pod: Option<Arc<api::Pod>>,
        is_static: bool,
        node: &Arc<NodeFacts>,
        now: Timestamp,
    ) -> Next {
        if !plan.why.is_empty() {
            self.shared.view.note(&self.id, now, plan.why);
        }
        if plan.finished {
            return Next::Finished;
        }
        let cleaning = plan.actions.contains(&Action::Cleanup) || self.running.contains_key(&OpKey::Cleanup);
        self.save(&plan.memory, cleaning).await;
        if let Some(status) = plan.status.as_ref().filter(|_| !untold) {
            self.publish(status, is_static, plan.released);
        }
        plan.events.into_iter().for_each(|event| self.shared.events().emit(event));
        if self.pause_until.is_some_and(|until| now < until) {
            return Next::Wait(self.pause_until);
        }
        self.pause_until = None;
        plan.cancel.iter().for_each(|key| self.cancel(key));
        for action in plan.actions {
            self.begin(action, runtime, pod.clone(), node.clone(), now);
        }
        Next::Wait(plan.wake_at)
    }

    fn decode(&self, json: &[u8]) -> Option<api::Pod> {
        serde_json::from_slice(json)
            .inspect_err(|error| tracing::error!(%error, pod = self.id.object_ref(), podUID = %self.id.uid, "a pod's own JSON does not decode"))
            .ok()
    }

    /// To disk, before anything of it is acted on. A disk that is full does not keep a pod from ending: it is said, and
    /// the next turn tries again.
    async fn save(&mut self, memory: &Memory, cleaning: bool) {
        self.record = record::encode(&self.id, memory);
        let digest = fnv1a_128(&self.record);
        if self.saved && digest == self.on_disk {
            return;
        }
        if cleaning {
            return; // the folder is going away
        }
        let hands = &self.shared.hands;
        let path = hands.folders.record(&self.id);
        match record::save(&*hands.files, &path, &self.record).await {
            Ok(()) => (self.saved, self.on_disk) = (true, digest),
            Err(error) => {
                self.saved = false;
                tracing::error!(path = %path.display(), %error, pod = self.id.object_ref(), podUID = %self.id.uid, "could not write a pod's record");
            }
        }
    }

    fn publish(&self, status: &api::PodStatus, is_static: bool, released: bool) {
        let json = serde_json::to_vec(status).unwrap_or_default();
        let json = match self.shared.view.status(&self.id.uid).filter(|known| **known == *json) {
            Some(known) => known,
            None => {
                let json: Arc<[u8]> = json.into();
                self.shared.view.set_status_json(&self.id, status, json.clone());
                json
            }
        };
        if let Some(cluster) = &self.shared.cluster {
            cluster.statuses.publish(&self.id, is_static, status, &json, released);
        }
    }

    /// Told once for each thing that cannot be done.
    fn announce_refusal(&mut self, refused: Option<&Arc<str>>) {
        if self.refused.as_ref() != refused {
            self.refused = refused.cloned();
            if let Some(text) = refused {
                let text = format!("Crablet cannot run this pod yet: {text}");
                self.shared.events().emit(Event::warning(&self.id, event_reason::FAILED_VALIDATION, text));
            }
        }
    }

    fn begin(
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
        let grace_seconds = match &action {
            Action::StopContainer { grace, .. } => i64::try_from(grace.as_secs()).ok(),
            _ => None,
        };
        let seen = self.seen_of(&action, runtime);
        let token = self.random.u32(..);
        let order = self.order.clone();
        let operation =
            Operation { id: self.id.clone(), pod, node, action: action.clone(), seen, token, order };
        let (shared, order) = (self.shared.clone(), self.order.clone());
        let is_static = self.assignment.borrow().is_static;
        let task = async move {
            let _place = order.place(&operation.action, is_static).await;
            (number, Box::pin(shared.hands.perform(operation)).await)
        };
        let abort = self.operations.spawn(task);
        self.session.done.remove(&key);
        self.session.ops.insert(key.clone(), planner::Operation { since: now, grace_seconds });
        self.running.insert(key, Running { number, action, abort });
    }

    /// What is known of the thing that an action works on.
    fn seen_of(&self, action: &Action, runtime: &PodRuntime) -> Seen {
        match action {
            Action::StartContainer { sandbox_id, .. } => {
                let sandbox = runtime.sandboxes.iter().find(|s| s.id == *sandbox_id);
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

    fn cancel(&mut self, key: &OpKey) {
        if let Some(running) = self.running.remove(key) {
            running.abort.abort();
            self.session.ops.remove(key);
            self.sight.touched(Touched::Unknown);
        }
    }

    /// Takes in all operations that have ended by now.
    fn collect(&mut self, memory: &mut Memory) {
        while let Some(ended) = self.operations.try_join_next() {
            self.absorb(memory, ended);
        }
    }

    fn absorb(&mut self, memory: &mut Memory, ended: Result<(u64, Performed), tokio::task::JoinError>) {
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

    /// Until something happens. Every arm is cancel-safe: nothing is taken out before its arm is chosen, except an ended
    /// operation, which is put into the record at once.
    async fn wait(&mut self, until: Option<Timestamp>) {
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
    fn hear(&mut self) -> bool {
        let mut now = false;
        for told in self.nudge.take() {
            match told {
                Told::Look => {
                    self.sight.forget();
                    now = true;
                }
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

    fn inspection_failed(&mut self, error: &CriError) -> Next {
        let text = format!("error determining status: {error}");
        if self.inspect_failures == 0 {
            self.shared.events().emit(Event::warning(&self.id, event_reason::FAILED_SYNC, text.clone()));
        }
        let now = self.shared.clock.now();
        self.shared.view.note(&self.id, now, vec![format!("nothing is done: {text}")]);
        let pause = (INSPECT_RETRY_FIRST * (1 << self.inspect_failures.min(4))).min(INSPECT_RETRY_MAX);
        self.inspect_failures = self.inspect_failures.saturating_add(1);
        Next::Wait(now.checked_add(pause).ok())
    }

    /// What exited containers left to say, read once each. Returns whether the disk gave all of it.
    async fn read_last_words(&mut self, pod: Option<&api::Pod>, runtime: &PodRuntime) -> bool {
        let mut all_read = true;
        for container in runtime.containers.iter().filter(|c| pod.is_some() && c.state.exit().is_some()) {
            if self.session.termination_messages.contains_key(&container.id) {
                continue;
            }
            match read_last_words(&*self.shared.hands.files, container).await {
                Ok(words) => {
                    self.session.termination_messages.insert(container.id.clone(), words);
                }
                Err(error) => {
                    all_read = false;
                    tracing::warn!(%error, pod = self.id.object_ref(), podUID = %self.id.uid, containerName = container.name, "cannot read last words yet");
                }
            }
        }
        all_read
    }
}

/// A pod's end outlives the agent: grace that has begun goes on, and a pod whose specification is lost gets the grace
/// that its containers were annotated with.
fn effective_wish(wish: &Wish, pod: Option<&api::Pod>, memory: &Memory, runtime: &PodRuntime) -> Wish {
    let Wish::End(end) = wish else {
        return Wish::Run;
    };
    if let Some(begun) = &memory.ending {
        if pod.is_none() {
            // Nobody who asks for its end knows its grace; what was found out when it began does.
            return Wish::End(Ending { forget: end.forget || begun.forget, ..begun.clone() });
        }
        let kill_at = |e: &Ending| e.since.as_second().saturating_add(e.grace_seconds);
        let sooner = if kill_at(begun) <= kill_at(end) { begun } else { end };
        return Wish::End(Ending { forget: end.forget || begun.forget, ..sooner.clone() });
    }
    let mut end = end.clone();
    if pod.is_none() {
        let annotated = runtime.containers.iter().filter_map(|c| {
            c.annotations
                .get(annotation::POD_TERMINATION_GRACE_PERIOD)
                .and_then(|text| text.parse::<i64>().ok())
        });
        end.grace_seconds = annotated.max().unwrap_or(1).max(1);
    }
    Wish::End(end)
}

/// A pod of the API server that has no record here was run by another agent on this node: what that one published is
/// what is remembered of it.
fn taken_over(mut memory: Memory, pod: Option<&api::Pod>, is_static: bool) -> Memory {
    if memory.status.is_none() && !is_static {
        let theirs = pod.and_then(|p| p.status.as_ref());
        memory.status = theirs.filter(|s| s.start_time.is_some()).cloned();
    }
    memory
}

fn is_failure(outcome: &planner::Outcome) -> bool {
    use planner::Outcome::{
        CleanupFailed, ImageFailed, ReleaseFailed, SandboxFailed, StartFailed, TakeOverFailed, TeardownFailed,
    };
    matches!(
        outcome,
        SandboxFailed { .. }
            | ImageFailed { .. }
            | StartFailed { .. }
            | TeardownFailed { .. }
            | TakeOverFailed { .. }
            | ReleaseFailed { .. }
            | CleanupFailed { .. }
    )
}

fn until_then(now: Timestamp, then: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now)).unwrap_or(Duration::ZERO)
}

fn deadline_passed() -> CriError {
    CriError::new(crablet_cri::ErrorKind::DeadlineExceeded, "the runtime does not answer")
}
