//! A runtime, a disk and a worker as one value.

mod effects;
mod laws;
mod moves;
mod pods;
mod resizes;
pub mod seen;
mod story;
mod trace;

use std::collections::{BTreeMap, BTreeSet};

use crablet_model::roster::{self, Role, roster};
use crablet_model::runtime::{Container, ContainerState, PodRuntime, SandboxState};
use crablet_model::{PodRef, api};
use crablet_planner::pod::{
    Action, Ending, Facts, Grants, Memory, NodeFacts, OpKey, Operation, Plan, PreStop, Probed, Probes,
    Session, Verdict, Wish, plan,
};
use jiff::{SignedDuration, Timestamp};

use effects::exited;
use laws::Laws;
pub use pods::{Part, Sketch};
use resizes::Books;
pub use story::{Happening, Probe, any_happening, any_world};

/// More turns than any honest story needs.
const TURNS: usize = 800;

/// What makes plans: the planner, or one that is wrong on purpose.
pub type Planner = fn(&Facts<'_>) -> Plan;

pub struct World {
    planner: Planner,
    id: PodRef,
    pod: api::Pod,
    wish: Wish,
    runtime: PodRuntime,
    memory: Memory,
    session: Session,
    probes: Probes,
    verdict: Option<Verdict>,
    grants: Grants,
    books: Books,
    node: NodeFacts,
    now: Timestamp,
    next_id: u32,
    under_way: Vec<Action>,
    /// Containers whose start is under way, that run already and whose hook has not ended.
    in_hook: BTreeSet<String>,
    /// Calls that were given up while the runtime was at work on them: they may take effect at any time.
    late: Vec<Action>,
    /// The last plan gave something up, and the end of that is followed by another.
    gave_up: bool,
    forgotten: bool,
    /// The last plan said that the pod holds nothing of the node.
    released: bool,
    was_set_back: bool,
    highest_attempt: BTreeMap<String, u32>,
    laws: Laws,
    /// What was begun, in short words.
    trace: Vec<String>,
    /// Kinds of things that happened.
    pub seen: BTreeSet<String>,
    pub broken: Vec<String>,
}

/// Only what a reader of a failed story needs.
impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let containers = self.runtime.containers.iter();
        let sandboxes = self.runtime.sandboxes.iter();
        let plan = (self.planner)(&self.facts());
        f.debug_struct("World")
            .field("pod", &self.pod.spec.as_ref().and_then(|spec| serde_json::to_string(spec).ok()))
            .field("wish", &self.wish)
            .field("sandboxes", &sandboxes.map(|s| (&s.id, s.attempt, s.state)).collect::<Vec<_>>())
            .field(
                "containers",
                &containers
                    .map(|c| (&c.id, &c.sandbox_id, &c.name, c.restart_count, &c.state))
                    .collect::<Vec<_>>(),
            )
            .field("probes", &self.probes)
            .field("grants", &self.grants)
            .field("books", &self.books)
            .field("under_way", &self.under_way)
            .field("memory", &Memory { status: None, ..self.memory.clone() })
            .field("next", &plan.actions)
            .field("why", &plan.why)
            .field("wake_at", &plan.wake_at)
            .field("phase", &plan.status.and_then(|s| s.phase))
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

impl World {
    pub fn new(sketch: &Sketch) -> Self {
        Self {
            planner: plan,
            id: PodRef::new("p", "default", "u1"),
            pod: sketch.pod(),
            wish: Wish::Run,
            runtime: PodRuntime::default(),
            memory: Memory::default(),
            session: Session::default(),
            probes: Probes::default(),
            verdict: None,
            grants: Grants::default(),
            books: Books::default(),
            node: NodeFacts { network_ready: true, max_crash_loop_seconds: 300, ..NodeFacts::default() },
            now: Timestamp::from_second(1_800_000_000).expect("in range"),
            next_id: 0,
            under_way: Vec::new(),
            in_hook: BTreeSet::new(),
            late: Vec::new(),
            gave_up: false,
            forgotten: false,
            released: false,
            was_set_back: false,
            highest_attempt: BTreeMap::new(),
            laws: Laws::default(),
            trace: Vec::new(),
            seen: BTreeSet::new(),
            broken: Vec::new(),
        }
    }

    pub fn facts(&self) -> Facts<'_> {
        Facts {
            id: &self.id,
            pod: Some(&self.pod),
            refused: None,
            wish: &self.wish,
            runtime: &self.runtime,
            memory: &self.memory,
            session: &self.session,
            probes: &self.probes,
            verdict: self.verdict.as_ref(),
            grants: &self.grants,
            node: &self.node,
            now: self.now,
        }
    }

    pub fn happen(&mut self, happening: Happening) {
        self.saw_happening(&happening);
        match happening {
            Happening::Turn => drop(self.turn()),
            Happening::End { which, well } => self.end(which, well),
            Happening::Reaches { which } => self.reaches_runtime(which),
            Happening::Late => self.comes_late(),
            Happening::Runs { which } => self.reaches_hook(which),
            Happening::Exit { which, code, out_of_memory } => self.exit(which, code, out_of_memory),
            Happening::Probed { which, probe, passed } => self.probed(which, probe, passed),
            Happening::SandboxDies => self.sandbox_dies(),
            Happening::Lose { which } => {
                if let Some(c) = self.nth_running(which) {
                    c.state = ContainerState::Unknown;
                }
            }
            Happening::Vanish { which } => {
                let count = self.runtime.containers.len();
                if count > 0 {
                    self.runtime.containers.remove(which % count);
                }
            }
            Happening::AgentRestarts { took_effect } => self.agent_restarts(took_effect),
            Happening::Wait { seconds } => self.pass(seconds),
            Happening::Evicted { grace } => self.evict(grace),
            Happening::Delete => self.delete(),
            Happening::Hurry { grace } => {
                if let Wish::End(end) = &mut self.wish {
                    end.grace_seconds = end.grace_seconds.min(grace.max(1));
                }
            }
            other => self.moves(other),
        }
        self.watch_progress();
    }

    /// From now on everything goes well.
    pub fn calm_down(&mut self) {
        self.network_is(true);
        self.is_answered();
        while !self.late.is_empty() {
            self.comes_late();
        }
        while !self.under_way.is_empty() {
            self.end(0, true);
        }
    }

    /// Turns, operations that go well, containers that do their work, and waits until a plan asks for nothing more.
    pub fn run_until_quiet(&mut self) -> Result<(), String> {
        for _ in 0..TURNS {
            if self.forgotten {
                return Ok(());
            }
            self.watch_progress();
            let wake_at = self.turn();
            if self.under_way.is_empty() && !self.work_goes_on() {
                match wake_at {
                    None => return Ok(()),
                    Some(time) => self.now = self.now.max(time),
                }
            }
            while !self.under_way.is_empty() {
                self.end(0, true);
            }
        }
        Err(format!("still not quiet after {TURNS} turns: {self:#?}"))
    }

    /// A container that runs and has not been found started is; an init container that runs succeeds.
    fn work_goes_on(&mut self) -> bool {
        let Some(spec) = self.pod.spec.clone() else { return false };
        for index in 0..self.runtime.containers.len() {
            let instance = &self.runtime.containers[index];
            let Some((role, container)) = roster::find(&spec, &instance.name) else { continue };
            if !instance.state.is_running() {
                continue;
            }
            let probed = self.probes.0.entry(instance.id.clone()).or_default();
            if container.startup_probe.is_some() && probed.startup.is_none() {
                probed.startup = Some(true);
                return true;
            }
            if role == Role::Init {
                self.runtime.containers[index].state = exited(0, self.now);
                return true;
            }
        }
        false
    }

    pub fn is_gone(&self) -> bool {
        self.forgotten && self.runtime.is_empty()
    }

    /// Running, or finished as its policy allows.
    pub fn is_as_wanted(&self) -> bool {
        let Some(spec) = &self.pod.spec else { return false };
        let phase = self.memory.status.as_ref().and_then(|s| s.phase.as_deref());
        let all_run = roster(spec).all(|(role, c)| {
            let newest = self.runtime.instances(&c.name).next();
            match role {
                Role::Sidecar => newest.is_some_and(|n| self.runs_well(&c, n)),
                Role::Regular => newest.map_or_else(
                    || self.was_told_to_rest(&c),
                    |newest| self.runs_well(&c, newest) || self.rests(&c, newest),
                ),
                Role::Init | Role::Ephemeral => true,
            }
        });
        match phase {
            Some("Running" | "Pending") if self.is_past_deadline() || self.verdict.is_some() => false,
            Some("Running") => all_run && self.memory.resizing.is_none(),
            // Upstream's behaviour: a pod that never restarts gets no second sandbox, even for a container that never ran.
            Some("Pending") => {
                spec.restart_policy.as_deref() == Some("Never") && !self.runtime.containers.is_empty()
            }
            Some("Succeeded" | "Failed") => {
                self.runtime.containers.iter().all(|c| !c.state.is_running()) && !self.gave_up_too_early()
            }
            _ => false,
        }
    }

    fn turn(&mut self) -> Option<Timestamp> {
        self.session.observe(&self.runtime);
        let ids = &self.runtime.containers;
        self.probes.0.retain(|id, _| ids.iter().any(|c| c.id == *id && c.state.is_running()));
        let plan = (self.planner)(&self.facts());
        self.watch_plan(&plan);
        self.saw_plan(&plan);
        self.session.told(&plan.events, self.now);
        self.memory = plan.memory;
        self.released = plan.released;
        if plan.finished {
            self.forgotten = true;
        }
        self.gave_up = !plan.cancel.is_empty();
        for key in plan.cancel {
            self.give_up(&key);
        }
        for action in plan.actions {
            self.begin(action);
        }
        plan.wake_at
    }

    fn begin(&mut self, action: Action) {
        let key = action.key();
        self.trace.extend(trace::words(&action));
        self.give_up(&key);
        if let Action::PreStop { id, .. } = &action {
            self.session.pre_stops.insert(id.clone(), PreStop { since: self.now, ended: false });
        }
        self.session.done.remove(&key);
        self.session.ops.insert(key, Operation::of(&action, self.now));
        self.under_way.push(action);
    }

    fn give_up(&mut self, key: &OpKey) {
        let with_runtime = self.session.ops.remove(key).is_some_and(|operation| operation.with_runtime);
        let given_up = self.under_way.extract_if(.., |a| a.key() == *key);
        self.late.extend(given_up.filter(|_| with_runtime));
        if let OpKey::Start(name) = key {
            self.in_hook.remove(name);
        }
    }

    fn end(&mut self, which: usize, well: bool) {
        if self.under_way.is_empty() {
            return;
        }
        let action = self.under_way.remove(which % self.under_way.len());
        let key = action.key();
        self.session.ops.remove(&key);
        self.saw_end(&action, well);
        let outcome = if well { self.take_effect(&action) } else { self.fail(&action) };
        if well {
            self.session.succeeded(action, self.now);
        }
        self.memory.absorb(&mut self.session, outcome, self.now);
    }

    /// The n-th operation under way that makes something is a call of the runtime from now on.
    fn reaches_runtime(&mut self, which: usize) {
        let makes = |key: &OpKey| match key {
            OpKey::CreateSandbox => true,
            OpKey::Start(name) => !self.in_hook.contains(name),
            _ => false,
        };
        let making: Vec<_> = self.session.ops.keys().filter(|key| makes(key)).cloned().collect();
        let nth = making.get(which % making.len().max(1));
        if let Some(operation) = nth.and_then(|key| self.session.ops.get_mut(key)) {
            operation.with_runtime = true;
        }
    }

    /// A call that nobody waits for any longer has its effect, if the runtime still can.
    fn comes_late(&mut self) {
        if self.late.is_empty() {
            return;
        }
        let action = self.late.remove(0);
        let is_ready =
            |id: &str| self.runtime.sandboxes.iter().any(|s| s.id == id && s.state == SandboxState::Ready);
        let possible = match &action {
            Action::StartContainer { sandbox_id, .. } => is_ready(sandbox_id),
            Action::StartCreated { id, .. } => {
                let of = self.runtime.containers.iter().find(|c| c.id == *id);
                of.is_some_and(|c| is_ready(&c.sandbox_id))
            }
            // The runtime reserves the names of sandboxes, and would have refused the next one.
            Action::CreateSandbox { .. } => self.runtime.sandboxes.is_empty(),
            _ => true,
        };
        if possible && !self.forgotten {
            self.take_effect(&action);
        }
    }

    fn reaches_hook(&mut self, which: usize) {
        let spec = self.pod.spec.clone().unwrap_or_default();
        let has_hook = |name: &str| {
            let found = roster::find(&spec, name);
            found.is_some_and(|(_, c)| c.lifecycle.as_ref().is_some_and(|l| l.post_start.is_some()))
        };
        let starts = self.under_way.iter().filter_map(|action| match action {
            Action::StartContainer { container, attempt, sandbox_id, .. } if has_hook(container) => {
                Some((container.clone(), *attempt, sandbox_id.clone()))
            }
            _ => None,
        });
        let waiting: Vec<_> = starts.filter(|(name, ..)| !self.in_hook.contains(name)).collect();
        if let Some((name, attempt, sandbox)) = waiting.get(which % waiting.len().max(1)) {
            self.create_container(name, *attempt, sandbox);
            self.start_newest(name);
            // The runtime tells of it.
            self.session.observe(&self.runtime);
            self.in_hook.insert(name.clone());
            if let Some(operation) = self.session.ops.get_mut(&OpKey::Start(name.clone())) {
                operation.with_runtime = false;
            }
        }
    }

    fn exit(&mut self, which: usize, code: i32, out_of_memory: bool) {
        let now = self.now;
        if let Some(c) = self.nth_running(which) {
            c.state = exited(code, now);
            if let (ContainerState::Exited(exit), true) = (&mut c.state, out_of_memory) {
                exit.reason = "OOMKilled".to_owned();
            }
        }
    }

    /// A result that is bad stays so, as with upstream's probes: they wait for the next instance.
    fn probed(&mut self, which: usize, probe: Probe, passed: bool) {
        let spec = self.pod.spec.clone().unwrap_or_default();
        let Some(instance) = self.nth_running(which).map(|c| c.clone()) else { return };
        let Some((_, container)) = roster::find(&spec, &instance.name) else { return };
        let Probed { startup, liveness, readiness } = self.probes.0.entry(instance.id).or_default();
        let has_started = container.startup_probe.is_none() || *startup == Some(true);
        match probe {
            Probe::Startup if container.startup_probe.is_some() && startup.is_none() => {
                *startup = Some(passed);
            }
            Probe::Liveness if container.liveness_probe.is_some() && has_started => {
                *liveness = Some(passed && *liveness != Some(false));
            }
            Probe::Readiness if container.readiness_probe.is_some() && has_started => {
                *readiness = Some(passed);
            }
            _ => {}
        }
    }

    fn nth_running(&mut self, which: usize) -> Option<&mut Container> {
        let running = self.runtime.containers.iter().filter(|c| c.state.is_running()).count();
        let nth = if running == 0 { return None } else { which % running };
        self.runtime.containers.iter_mut().filter(|c| c.state.is_running()).nth(nth)
    }

    fn sandbox_dies(&mut self) {
        let ready = self.runtime.sandboxes.iter().find(|s| s.state == SandboxState::Ready);
        if let Some(id) = ready.map(|s| s.id.clone()) {
            self.stop_sandbox(&id);
        }
    }

    /// What is under way is cut off; its effect may have come before that. Only the memory survives.
    fn agent_restarts(&mut self, took_effect: bool) {
        for action in std::mem::take(&mut self.under_way) {
            self.saw_death(&action, took_effect);
            match &action {
                Action::StartContainer { container, .. } if self.in_hook.remove(container) => {}
                Action::StartContainer { container, attempt, sandbox_id, .. } if !took_effect => {
                    let (container, attempt, sandbox_id) = (container.clone(), *attempt, sandbox_id.clone());
                    self.create_container(&container, attempt, &sandbox_id);
                }
                _ if took_effect => drop(self.take_effect(&action)),
                _ => {}
            }
        }
        self.late.clear();
        self.forgets_grants();
        self.laws.agent_restarted();
        self.probes = Probes::default();
        // Log files stay, and tell of instances that are gone.
        self.session = Session { seen_attempts: self.highest_attempt.clone(), ..Session::default() };
    }

    fn evict(&mut self, grace_seconds: Option<i64>) {
        if self.verdict.is_none() {
            self.verdict = Some(Verdict {
                reason: "Evicted".to_owned(),
                message: "The node was low on resource: memory.".to_owned(),
                since: self.now,
                grace_seconds,
                disruption: None,
            });
        }
    }

    fn delete(&mut self) {
        if let Wish::Run = self.wish {
            let grace_seconds =
                self.pod.spec.as_ref().and_then(|s| s.termination_grace_period_seconds).unwrap_or(30);
            let why = "the test wants it".to_owned();
            self.wish =
                Wish::End(Ending { since: self.now, grace_seconds: grace_seconds.max(1), forget: true, why });
        }
    }

    fn pass(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    fn fresh(&mut self, prefix: &str) -> String {
        self.next_id += 1;
        // Things made later are newer, as with a real clock.
        self.now += SignedDuration::from_millis(1);
        format!("{prefix}{}", self.next_id)
    }
}
