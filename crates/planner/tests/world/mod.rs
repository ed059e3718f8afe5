//! A runtime, a disk and a worker as one value.

use std::collections::BTreeMap;

use crablet_model::hash::container_hash;
use crablet_model::runtime::{Container, ContainerState, Exit, PodRuntime, Sandbox, SandboxState};
use crablet_model::{PodRef, api};
use crablet_planner::pod::{
    Action, Ending, Facts, Memory, NodeFacts, OpKey, Operation, Outcome, PreparedImage, Session, Wish, plan,
};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

/// More turns than any honest story needs.
const TURNS: usize = 400;

pub struct World {
    id: PodRef,
    pod: api::Pod,
    wish: Wish,
    runtime: PodRuntime,
    memory: Memory,
    session: Session,
    node: NodeFacts,
    now: Timestamp,
    next_id: u32,
    under_way: Vec<Action>,
    forgotten: bool,
    highest_attempt: BTreeMap<String, u32>,
    published: BTreeMap<String, i32>,
    pub broken: Vec<String>,
}

/// Only what a reader of a failed story needs.
impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let containers = self.runtime.containers.iter();
        let sandboxes = self.runtime.sandboxes.iter();
        let plan = plan(&self.facts());
        f.debug_struct("World")
            .field("policy", &self.pod.spec.as_ref().and_then(|s| s.restart_policy.as_ref()))
            .field("wish", &self.wish)
            .field("sandboxes", &sandboxes.map(|s| (&s.id, s.attempt, s.state)).collect::<Vec<_>>())
            .field(
                "containers",
                &containers.map(|c| (&c.id, &c.name, c.restart_count, &c.state)).collect::<Vec<_>>(),
            )
            .field("under_way", &self.under_way)
            .field("failures", &self.memory.failures)
            .field("next", &plan.actions)
            .field("why", &plan.why)
            .field("wake_at", &plan.wake_at)
            .field("phase", &plan.status.and_then(|s| s.phase))
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

/// Something that happens to the pod or to the agent.
#[derive(Clone, Copy, Debug)]
pub enum Happening {
    /// A plan is made and its operations begin.
    Turn,
    /// The n-th operation under way ends well, or not.
    End {
        which: usize,
        well: bool,
    },
    /// The n-th running container ends by itself.
    Exit {
        which: usize,
        code: i32,
    },
    /// The sandbox dies, its containers with it.
    SandboxDies,
    /// The runtime loses a container's state.
    Lose {
        which: usize,
    },
    /// Somebody removes the n-th container behind the agent's back.
    Vanish {
        which: usize,
    },
    /// The agent is killed and comes back: what is under way is cut off before or after it took effect.
    AgentRestarts {
        took_effect: bool,
    },
    Wait {
        seconds: i64,
    },
    Delete,
}

pub fn any_happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        8 => Just(Happening::Turn),
        8 => (0..8usize, prop::bool::weighted(0.8)).prop_map(|(which, well)| Happening::End { which, well }),
        2 => (0..4usize, prop_oneof![Just(0), Just(1), Just(137)]).prop_map(|(which, code)| Happening::Exit { which, code }),
        1 => Just(Happening::SandboxDies),
        1 => (0..4usize).prop_map(|which| Happening::Lose { which }),
        1 => (0..4usize).prop_map(|which| Happening::Vanish { which }),
        1 => any::<bool>().prop_map(|took_effect| Happening::AgentRestarts { took_effect }),
        3 => (0..700i64).prop_map(|seconds| Happening::Wait { seconds }),
        1 => Just(Happening::Delete),
    ]
}

pub fn any_world() -> impl Strategy<Value = World> {
    let policy = prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")];
    (1..4usize, policy, any::<bool>(), 0..40i64).prop_map(|(containers, policy, host_network, grace)| {
        World::new(containers, policy, host_network, grace)
    })
}

impl World {
    pub fn new(containers: usize, policy: &str, host_network: bool, grace: i64) -> Self {
        let spec: Vec<_> = (0..containers)
            .map(|i| serde_json::json!({"name": format!("c{i}"), "image": format!("example.test/i{i}:1")}))
            .collect();
        let pod = serde_json::json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default", "uid": "u1",
                         "annotations": {"kubernetes.io/config.source": "file"}},
            "spec": {"containers": spec, "restartPolicy": policy, "hostNetwork": host_network,
                     "terminationGracePeriodSeconds": grace},
        });
        Self {
            id: PodRef::new("p", "default", "u1"),
            pod: serde_json::from_value(pod).expect("the world's own pod decodes"),
            wish: Wish::Run,
            runtime: PodRuntime::default(),
            memory: Memory::default(),
            session: Session::default(),
            node: NodeFacts { network_ready: true, max_crash_loop_seconds: 300, ..NodeFacts::default() },
            now: Timestamp::from_second(1_800_000_000).expect("in range"),
            next_id: 0,
            under_way: Vec::new(),
            forgotten: false,
            highest_attempt: BTreeMap::new(),
            published: BTreeMap::new(),
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
            node: &self.node,
            now: self.now,
        }
    }

    pub fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Turn => drop(self.turn()),
            Happening::End { which, well } => self.end(which, well),
            Happening::Exit { which, code } => self.exit(which, code),
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
            Happening::Delete => self.delete(),
        }
    }

    /// From now on everything goes well.
    pub fn calm_down(&mut self) {
        while !self.under_way.is_empty() {
            self.end(0, true);
        }
    }

    /// Turns, operations that go well, and waits until a plan asks for nothing more.
    pub fn run_until_quiet(&mut self) -> Result<(), String> {
        for _ in 0..TURNS {
            if self.forgotten {
                return Ok(());
            }
            let wake_at = self.turn();
            if self.under_way.is_empty() {
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

    pub fn is_gone(&self) -> bool {
        self.forgotten && self.runtime.is_empty()
    }

    /// Running, or finished as its policy allows.
    pub fn is_as_wanted(&self) -> bool {
        let phase = self.memory.status.as_ref().and_then(|s| s.phase.as_deref());
        let names = self.pod.spec.iter().flat_map(|s| &s.containers);
        let all_run = names.into_iter().all(|c| {
            let newest = self.runtime.instances(&c.name).next();
            newest.is_some_and(|n| n.state.is_running() || n.state.exit().is_some())
        });
        match phase {
            Some("Running") => all_run,
            // Upstream's behaviour: a pod that never restarts gets no second sandbox, even for a container that never ran.
            Some("Pending") => {
                let spec = self.pod.spec.as_ref();
                let never = spec.and_then(|s| s.restart_policy.as_deref()) == Some("Never");
                never && !self.runtime.containers.is_empty()
            }
            Some("Succeeded" | "Failed") => self.runtime.containers.iter().all(|c| !c.state.is_running()),
            _ => false,
        }
    }

    fn turn(&mut self) -> Option<Timestamp> {
        self.session.observe(&self.runtime);
        let plan = plan(&self.facts());
        self.memory = plan.memory;
        self.watch_status();
        if plan.finished {
            self.forgotten = true;
        }
        for key in plan.cancel {
            self.give_up(&key);
        }
        for action in plan.actions {
            let key = action.key();
            self.give_up(&key);
            let grace_seconds = match &action {
                Action::StopContainer { grace, .. } => Some(grace.as_secs() as i64),
                _ => None,
            };
            self.session.done.remove(&key);
            self.session.ops.insert(key, Operation { since: self.now, grace_seconds });
            self.under_way.push(action);
        }
        plan.wake_at
    }

    fn give_up(&mut self, key: &OpKey) {
        self.session.ops.remove(key);
        self.under_way.retain(|a| a.key() != *key);
    }

    fn watch_status(&mut self) {
        for status in self.memory.status.iter().flat_map(|s| s.container_statuses.iter().flatten()) {
            let highest = self.published.entry(status.name.clone()).or_default();
            if status.restart_count < *highest {
                self.broken.push(format!("{}: published restart count fell", status.name));
            }
            *highest = status.restart_count;
        }
    }

    fn end(&mut self, which: usize, well: bool) {
        if self.under_way.is_empty() {
            return;
        }
        let action = self.under_way.remove(which % self.under_way.len());
        let key = action.key();
        self.session.ops.remove(&key);
        let outcome = if well { self.take_effect(&action) } else { failure(&action) };
        if well {
            self.session.succeeded(action, self.now);
        }
        self.memory.absorb(&mut self.session, outcome, self.now);
    }

    fn take_effect(&mut self, action: &Action) -> Outcome {
        match action {
            Action::CreateSandbox { attempt } => self.create_sandbox(*attempt),
            Action::StopSandbox { id } => {
                self.stop_sandbox(id);
                Outcome::SandboxStopped { id: id.clone() }
            }
            Action::RemoveSandbox { id } => {
                self.stop_sandbox(id);
                self.runtime.sandboxes.retain(|s| s.id != *id);
                self.runtime.containers.retain(|c| c.sandbox_id != *id);
                Outcome::SandboxRemoved
            }
            Action::EnsureImage { container, image, .. } => Outcome::ImageReady {
                container: container.clone(),
                image: image.clone(),
                prepared: PreparedImage { image_ref: image.clone(), uid: None, username: String::new() },
            },
            Action::StartContainer { container, attempt, sandbox_id, .. } => {
                self.create_container(container, *attempt, sandbox_id);
                self.start_newest(container)
            }
            Action::StartCreated { container, id } => {
                let created =
                    self.runtime.containers.iter().any(|c| c.id == *id && c.state == ContainerState::Created);
                if created { self.start_newest(container) } else { failure(action) }
            }
            Action::StopContainer { id, .. } => {
                let now = self.now;
                for c in
                    self.runtime.containers.iter_mut().filter(|c| c.id == *id && c.state.exit().is_none())
                {
                    c.state = exited(143, now);
                }
                Outcome::ContainerStopped { id: id.clone() }
            }
            Action::RemoveContainer { id, .. } => {
                self.runtime.containers.retain(|c| c.id != *id);
                Outcome::ContainerRemoved { id: id.clone() }
            }
            Action::TakeOver => Outcome::TakenOver,
            Action::Release => Outcome::Released,
            Action::Cleanup => Outcome::Cleaned,
        }
    }

    fn create_sandbox(&mut self, attempt: u32) -> Outcome {
        if self.runtime.sandboxes.iter().any(|s| s.state == SandboxState::Ready) {
            self.broken.push("a second ready sandbox".to_owned());
        }
        if self.runtime.sandboxes.iter().any(|s| s.attempt == attempt) {
            self.broken.push(format!("sandbox attempt {attempt} twice"));
        }
        let host_network = self.pod.spec.as_ref().and_then(|s| s.host_network).unwrap_or(false);
        let sandbox = Sandbox {
            id: self.fresh("s"),
            uid: self.id.uid.clone(),
            name: "p".to_owned(),
            namespace: "default".to_owned(),
            attempt,
            state: SandboxState::Ready,
            created_at: self.now,
            ips: if host_network { vec![] } else { vec!["10.0.0.7".parse().expect("an address")] },
            host_network,
        };
        self.runtime.sandboxes.insert(0, sandbox);
        Outcome::SandboxCreated
    }

    fn stop_sandbox(&mut self, id: &str) {
        let now = self.now;
        for s in self.runtime.sandboxes.iter_mut().filter(|s| s.id == id) {
            s.state = SandboxState::NotReady;
        }
        for c in self.runtime.containers.iter_mut().filter(|c| c.sandbox_id == id) {
            if matches!(c.state, ContainerState::Running { .. } | ContainerState::Unknown) {
                c.state = exited(137, now);
            }
        }
    }

    fn create_container(&mut self, name: &str, attempt: u32, sandbox_id: &str) {
        if self.highest_attempt.get(name).is_some_and(|highest| attempt <= *highest) {
            self.broken.push(format!("{name}: restart count {attempt} again"));
        }
        self.highest_attempt.insert(name.to_owned(), attempt);
        let index: usize = name[1..].parse().expect("names are c0, c1, ...");
        let image = format!("example.test/i{index}:1");
        let container = Container {
            id: self.fresh("c"),
            sandbox_id: sandbox_id.to_owned(),
            uid: self.id.uid.clone(),
            name: name.to_owned(),
            restart_count: attempt,
            hash: container_hash(name, &image),
            created_at: self.now,
            state: ContainerState::Created,
            image: image.clone(),
            image_ref: image,
            annotations: BTreeMap::new(),
            log_path: String::new(),
            termination_file: None,
            user: None,
        };
        self.runtime.containers.insert(0, container);
    }

    fn start_newest(&mut self, name: &str) -> Outcome {
        if self.runtime.instances(name).any(|c| c.state.is_running()) {
            self.broken.push(format!("{name}: a second live instance"));
        }
        let now = self.now;
        let sandboxes = &self.runtime.sandboxes;
        let newest = self.runtime.containers.iter_mut().find(|c| c.name == name);
        if let Some(c) = newest {
            let alive = sandboxes.iter().any(|s| s.id == c.sandbox_id && s.state == SandboxState::Ready);
            if !alive {
                c.state = exited(128, now);
                let reason = "RunContainerError";
                return Outcome::StartFailed {
                    container: name.to_owned(),
                    reason,
                    message: "no sandbox".to_owned(),
                };
            }
            c.state = ContainerState::Running { started_at: now };
        }
        Outcome::ContainerStarted { container: name.to_owned() }
    }

    fn exit(&mut self, which: usize, code: i32) {
        let now = self.now;
        if let Some(c) = self.nth_running(which) {
            c.state = exited(code, now);
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
            let half_done = matches!(action, Action::StartContainer { .. }) && !took_effect;
            if let (Action::StartContainer { container, attempt, sandbox_id, .. }, true) =
                (&action, half_done)
            {
                let (container, attempt, sandbox_id) = (container.clone(), *attempt, sandbox_id.clone());
                self.create_container(&container, attempt, &sandbox_id);
            } else if took_effect {
                drop(self.take_effect(&action));
            }
        }
        // Log files stay, and tell of instances that are gone.
        self.session = Session { seen_attempts: self.highest_attempt.clone(), ..Session::default() };
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

fn exited(code: i32, now: Timestamp) -> ContainerState {
    ContainerState::Exited(Exit {
        code,
        reason: String::new(),
        message: String::new(),
        started_at: None,
        finished_at: now,
    })
}

fn failure(action: &Action) -> Outcome {
    let message = "bad luck".to_owned();
    match action {
        Action::CreateSandbox { .. } => Outcome::SandboxFailed { message },
        Action::StopSandbox { id }
        | Action::RemoveSandbox { id }
        | Action::StopContainer { id, .. }
        | Action::RemoveContainer { id, .. } => Outcome::TeardownFailed { id: id.clone(), message },
        Action::EnsureImage { container, image, .. } => Outcome::ImageFailed {
            container: container.clone(),
            image: image.clone(),
            reason: "ErrImagePull".to_owned(),
            message,
            pulled: true,
        },
        Action::StartContainer { container, .. } | Action::StartCreated { container, .. } => {
            Outcome::StartFailed { container: container.clone(), reason: "RunContainerError", message }
        }
        Action::TakeOver => Outcome::TakeOverFailed { message },
        Action::Release => Outcome::ReleaseFailed { message },
        Action::Cleanup => Outcome::CleanupFailed { message },
    }
}
