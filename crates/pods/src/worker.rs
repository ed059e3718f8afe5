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

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crablet_apiserver::ObjectKey;
use crablet_cri::{CriError, Runtime};
use crablet_host::Clock;
use crablet_model::allocation::Allocation;
use crablet_model::events::Event;
use crablet_model::names::event_reason;
use crablet_model::runtime::PodRuntime;
use crablet_model::{PodRef, api};
use crablet_planner::pod::{
    Action, Facts, Grants, Memory, NodeFacts, OpKey, Pending, Plan, Session, Verdict, Wish,
};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::PlanFn;
use crate::cluster::Cluster;
use crate::events::EventSink;
use crate::hands::{Hands, Performed};
use crate::inspect::read_last_words;
use crate::nudge::Nudge;
use crate::order::Order;
use crate::probes::{Means, Prober};
use crate::sight::Sight;
use crate::view::View;

mod handler;
mod memory;
mod operations;
mod takeover;
mod telling;
mod waiting;
mod wishes;

use operations::Running;
use takeover::Past;
use wishes::{begins_again, effective_wish};

/// Looking at one pod takes a few quick calls. A runtime that hangs on one pod holds up that pod only.
const INSPECT_DEADLINE: Duration = Duration::from_secs(30);
/// Pauses after a failed inspection.
const INSPECT_RETRY_FIRST: Duration = Duration::from_secs(1);
const INSPECT_RETRY_MAX: Duration = Duration::from_secs(10);
/// The safety net below all events and deadlines; spread over the workers.
const RESYNC: Duration = Duration::from_secs(600);
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
    /// The node does not let it run.
    pub verdict: Option<Arc<Verdict>>,
    /// What the pod was granted, where that is not what its JSON says.
    pub instead: Option<Arc<Allocation>>,
    /// Whether it waits for more than it was granted.
    pub pending: Pending,
    /// The generation of the last resize that was granted.
    pub granted: Option<i64>,
    pub wish: Wish,
    /// Of one that ends: it is wanted again. What is dead of it then stays, as its past.
    pub again: bool,
}

/// What a worker leaves when it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    Nothing,
    /// Dead containers of a pod that begins again.
    Past,
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
    prober: Prober,
    operations: JoinSet<(u64, Performed)>,
    running: BTreeMap<OpKey, Running>,
    begun: u64,
    inspect_failures: u32,
    pause_until: Option<Timestamp>,
    /// Whether another agent had the pod before.
    past: Past,
    /// Since when a status waits to be told.
    untold_since: Option<Timestamp>,
    /// When to look at what an event announced, should the operation behind it not end.
    look_by: Option<Timestamp>,
    /// The refusal that was told last.
    refused: Option<Arc<str>>,
    /// Objects that came or changed and that nothing was tried with yet; `None` for any.
    objects: BTreeSet<Option<ObjectKey>>,
    /// The number of the operation that was begun last when they came, and how many of those that were under way then still
    /// are: each that has failed since is tried again at once, and what was begun later is not.
    came_before: u64,
    older_tries: Option<usize>,
    waits_for_objects: bool,
}

enum Next {
    Finished(Left),
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
        let mut random = fastrand::Rng::with_seed(seed);
        let means = Means {
            runtime: shared.hands.runtime.clone(),
            events: shared.hands.events.clone(),
            clock: shared.clock.clone(),
        };
        let prober = Prober::new(means, nudge.clone(), id.clone(), random.fork());
        Self {
            shared,
            order,
            id,
            assignment,
            nudge,
            random,
            record: Vec::new(),
            on_disk: 0,
            saved: true,
            sight: Sight::default(),
            session: Session::default(),
            prober,
            operations: JoinSet::new(),
            running: BTreeMap::new(),
            begun: 0,
            inspect_failures: 0,
            pause_until: None,
            past: Past::default(),
            untold_since: None,
            look_by: None,
            refused: None,
            objects: BTreeSet::new(),
            came_before: 0,
            older_tries: None,
            waits_for_objects: false,
        }
    }

    /// Works until nothing is left of the pod, or nothing that is alive of one that begins again.
    pub async fn run(mut self) -> Left {
        let mut memory = Box::pin(self.remember()).await;
        loop {
            // Boxed: a resting worker should not carry the size of a whole turn.
            match Box::pin(self.turn(memory)).await {
                Next::Finished(left) => return left,
                Next::Wait(until) => self.wait(until).await,
            }
            memory = self.recall();
            self.collect(&mut memory);
        }
    }

    async fn turn(&mut self, memory: Memory) -> Next {
        let assignment = self.assignment.borrow_and_update().clone();
        let node = self.shared.node.borrow().clone();
        if assignment.wish != Wish::Run || assignment.verdict.is_some() {
            self.tell_end();
        }
        self.hear();
        self.look_by = None;
        let makes = |key: &OpKey| matches!(key, OpKey::CreateSandbox | OpKey::Start(_));
        // Of a pod that ends everything is to be seen: a container whose start has only its hook left, too.
        let making = assignment.wish == Wish::Run && self.running.keys().any(makes);
        let look = self.sight.look(self.shared.runtime(), &self.id.uid, making);
        let runtime = match timeout(INSPECT_DEADLINE, look).await {
            Ok(Ok(runtime)) => runtime,
            Ok(Err(error)) => return self.inspection_failed(&error),
            Err(_) => return self.inspection_failed(&deadline_passed()),
        };
        self.inspect_failures = 0;
        let mut pod = assignment.pod.as_deref().and_then(|json| self.decode(json));
        let spec = pod.as_mut().and_then(|pod| pod.spec.as_mut());
        if let (Some(granted), Some(spec)) = (&assignment.instead, spec) {
            granted.overlay(spec);
        }
        let pod = pod.map(Arc::new);
        self.session.observe(&runtime);
        let all_read = self.read_last_words(pod.as_deref(), &runtime).await;
        let knows_handler = self.find_handler(pod.as_deref());

        let now = self.shared.clock.now();
        let mut memory = self.taken_over(memory, pod.as_deref(), assignment.is_static, &runtime, now);
        self.heed_objects(&mut memory, pod.as_deref(), now);
        self.look_at_operations();
        let mut wish = effective_wish(&assignment.wish, pod.as_deref(), &memory, &runtime);
        let again = assignment.again && begins_again(&mut wish, pod.as_deref());
        let probes = self.prober.verdicts();
        let grants = Grants {
            actuated: self.shared.hands.ledgers.actuated.get(&self.id.uid),
            granted: assignment.granted,
            pending: assignment.pending,
        };
        let facts = Facts {
            id: &self.id,
            pod: pod.as_deref(),
            refused: assignment.refused.as_deref(),
            wish: &wish,
            runtime: &runtime,
            memory: &memory,
            session: &self.session,
            probes: &probes,
            verdict: assignment.verdict.as_deref(),
            grants: &grants,
            node: &node,
            now,
        };
        let mut plan = (self.shared.plan)(&facts);
        if let Some(ending) = plan.memory.ending.as_mut().filter(|_| again) {
            ending.forget = true; // for the next life of the agent, should this one not come so far
        }
        let is_down = again && plan.released && self.running.is_empty();
        self.waits_for_objects = plan.memory.waits_for_objects();
        self.announce_refusal(assignment.refused.as_ref());
        let untold = self.hold_back(&mut plan, memory, now);
        match (pod.as_deref(), &plan.status) {
            (Some(pod), Some(status)) => {
                let ending = wish != Wish::Run || plan.memory.verdict.is_some();
                self.prober.attend(pod, status, &runtime, ending);
            }
            (Some(_), None) => {}
            (None, _) => self.prober.clear(),
        }
        let at_rest = wish == Wish::Run;
        let mut next = self.carry_out(plan, untold, &runtime, pod, assignment.is_static, &node, now).await;
        if is_down {
            self.save(&Memory::default(), false).await;
            if self.saved {
                next = Next::Finished(Left::Past);
            }
        }
        self.sight.keep(runtime);
        // Until its probes have spoken, turns will come that need nothing else of the runtime.
        if at_rest && self.running.is_empty() && self.prober.has_spoken() {
            self.sight.rest();
        }
        match next {
            // The disk or the API server owes us something: ask again, even if nothing else happens.
            Next::Wait(until) if !all_read || !self.saved || !knows_handler => {
                let again = now.checked_add(INSPECT_RETRY_MAX).ok();
                Next::Wait(until.into_iter().chain(again).min())
            }
            next => next,
        }
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
            return Next::Finished(Left::Nothing);
        }
        let cleaning = plan.actions.contains(&Action::Cleanup) || self.running.contains_key(&OpKey::Cleanup);
        self.save(&plan.memory, cleaning).await;
        if let Some(status) = plan.status.as_ref().filter(|_| !untold) {
            self.publish(status, is_static, plan.released);
        }
        self.session.told(&plan.events, now);
        plan.events.into_iter().for_each(|event| self.shared.events().emit(event));
        if self.pause_until.is_some_and(|until| now < until) {
            return Next::Wait(self.pause_until);
        }
        self.pause_until = None;
        let mut wake_at = plan.wake_at;
        for key in &plan.cancel {
            if !self.give_up(key) {
                wake_at = Some(now); // the plan could not know: another has to be made
            }
        }
        for action in plan.actions {
            self.begin(action, runtime, pod.clone(), node.clone(), now);
        }
        Next::Wait(wake_at)
    }

    fn decode(&self, json: &[u8]) -> Option<api::Pod> {
        serde_json::from_slice(json)
            .inspect_err(|error| tracing::error!(%error, pod = self.id.object_ref(), podUID = %self.id.uid, "a pod's own JSON does not decode"))
            .ok()
    }

    fn inspection_failed(&mut self, error: &CriError) -> Next {
        let text = format!("error determining status: {}", error.with_code());
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

fn deadline_passed() -> CriError {
    CriError::new(crablet_cri::ErrorKind::DeadlineExceeded, "the runtime does not answer")
}

#[cfg(test)]
mod tests;
