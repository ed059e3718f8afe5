//! What the daemon knows, and the agenda by which time passes in it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use crablet_model::PodUid;
use crablet_model::names::annotation;
use crablet_model::paths::clean_from_root;
use crablet_model::runtime::{
    Container, ContainerConfig, ContainerListing, ContainerState, Incoming, ListedState, NamespaceMode,
    RuntimeEventKind, Sandbox, SandboxConfig, SandboxState,
};
use jiff::Timestamp;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::behaviour::{Behaviours, FakeImage};
use super::checks::{StartedAttempts, Violation};
use super::commands::Commands;
use super::events::Subscribers;
use super::faults::Faults;
use super::trace::{Cause, Subject, TraceEntry, What};
use super::works::Work;
use super::{Gate, MakeSource, Now, RuntimeSettings, WriteFile};
use crate::port::{CriError, ErrorKind, Result};

pub(super) struct SandboxRecord {
    pub id: String,
    pub reserved: String,
    pub uid: PodUid,
    pub config: SandboxConfig,
    pub state: SandboxState,
    pub created_at: Timestamp,
    /// In virtual time since the runtime was made.
    pub made: Duration,
    pub ips: Vec<IpAddr>,
    /// The agent asked for the stop and lived to hear of its success.
    pub stopped_by_agent: bool,
}

impl SandboxRecord {
    pub fn subject(&self) -> Subject {
        Subject {
            uid: Some(self.uid.clone()),
            pod: Arc::from(&*self.config.name),
            container: Arc::default(),
            id: Arc::from(&*self.id),
            attempt: self.config.attempt,
        }
    }

    /// As a status call tells it; a listing leaves addresses out.
    pub fn view(&self, in_listing: bool) -> Sandbox {
        Sandbox {
            id: self.id.clone(),
            uid: self.uid.clone(),
            name: self.config.name.clone(),
            namespace: self.config.namespace.clone(),
            attempt: self.config.attempt,
            state: self.state,
            created_at: self.created_at,
            ips: if in_listing { Vec::new() } else { self.ips.clone() },
            host_network: !in_listing && self.config.namespaces.network == NamespaceMode::Node,
        }
    }
}

/// An exit that lies ahead.
pub(super) struct PlannedExit {
    pub at: Instant,
    pub code: i32,
    pub reason: &'static str,
    pub cause: Cause,
}

pub(super) struct ContainerRecord {
    pub id: String,
    pub reserved: String,
    pub sandbox_id: String,
    pub uid: PodUid,
    pub pod: String,
    pub namespace: String,
    pub name: String,
    pub attempt: u32,
    pub config: ContainerConfig,
    pub log_path: String,
    pub created_at: Timestamp,
    pub state: ContainerState,
    /// A start is under way: the container can be neither started again nor removed.
    pub starting: bool,
    pub exit: Option<PlannedExit>,
    /// Stop calls that wait for the exit, by ticket.
    pub waiters: BTreeMap<u64, oneshot::Sender<Result<String>>>,
}

impl ContainerRecord {
    pub fn subject(&self) -> Subject {
        Subject {
            uid: Some(self.uid.clone()),
            pod: Arc::from(&*self.pod),
            container: Arc::from(&*self.name),
            id: Arc::from(&*self.id),
            attempt: self.attempt,
        }
    }

    pub fn listing(&self) -> ContainerListing {
        ContainerListing {
            id: self.id.clone(),
            sandbox_id: self.sandbox_id.clone(),
            uid: self.uid.clone(),
            pod_name: self.pod.clone(),
            pod_namespace: self.namespace.clone(),
            name: self.name.clone(),
            state: match self.state {
                ContainerState::Created => ListedState::Created,
                ContainerState::Running { .. } => ListedState::Running,
                ContainerState::Exited(_) => ListedState::Exited,
                ContainerState::Unknown => ListedState::Unknown,
            },
            created_at: self.created_at,
        }
    }

    pub fn view(&self) -> Container {
        let annotations = &self.config.annotations;
        let restart_count = annotations.get(annotation::CONTAINER_RESTART_COUNT);
        Container {
            id: self.id.clone(),
            sandbox_id: self.sandbox_id.clone(),
            uid: self.uid.clone(),
            name: self.name.clone(),
            restart_count: restart_count.and_then(|count| count.parse().ok()).unwrap_or(0),
            hash: annotations.get(annotation::CONTAINER_HASH).cloned().unwrap_or_default(),
            created_at: self.created_at,
            state: self.state.clone(),
            image: self.config.user_specified_image.clone(),
            image_ref: self.config.image_ref.clone(),
            annotations: annotations.clone(),
            log_path: self.log_path.clone(),
            termination_file: self.termination_file(),
            user: None,
            resources: Some(self.config.resources),
            stop_signal: self.config.stop_signal.clone(),
        }
    }

    pub fn termination_file(&self) -> Option<String> {
        let path = self.config.annotations.get(annotation::CONTAINER_TERMINATION_MESSAGE_PATH)?;
        let inside = clean_from_root(path);
        let mount = self.config.mounts.iter().find(|mount| mount.container_path == inside)?;
        Some(mount.host_path.clone())
    }
}

/// What will happen at a moment.
pub(super) enum Due {
    /// The container's planned exit, unless another plan took its place.
    Exit(String),
    /// The end of a stop call's grace.
    Kill { id: String, ticket: u64 },
    /// The end of work that takes time.
    Work(u64),
    /// The beginning of a call that was late.
    Request(u64),
}

pub(super) struct Agenda {
    due: BTreeMap<(Instant, u64), Due>,
    next_number: u64,
    wake: Arc<Notify>,
}

impl Agenda {
    pub fn next(&self) -> Option<Instant> {
        self.due.keys().next().map(|(at, _)| *at)
    }

    pub fn add(&mut self, at: Instant, due: Due) {
        let is_next = self.next().is_none_or(|next| at < next);
        self.next_number += 1;
        self.due.insert((at, self.next_number), due);
        if is_next {
            self.wake.notify_one();
        }
    }

    fn take_due(&mut self, now: Instant) -> Option<Due> {
        let first = self.due.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    pub fn forget(&mut self, is_moot: impl Fn(&Due) -> bool) {
        self.due.retain(|_, due| !is_moot(due));
    }
}

/// A call that has not begun yet.
pub(super) type Request = Box<dyn FnOnce(&mut State) + Send>;

pub(super) struct State {
    pub settings: RuntimeSettings,
    pub rng: fastrand::Rng,
    pub now: Now,
    pub write_file: Option<WriteFile>,
    pub make_source: Option<MakeSource>,
    pub gate: Option<Gate>,

    pub sandboxes: BTreeMap<String, SandboxRecord>,
    pub containers: BTreeMap<String, ContainerRecord>,
    /// Names of sandboxes and containers that are there or being made, and whose they are.
    pub names: BTreeMap<String, String>,
    pub images: BTreeMap<String, FakeImage>,
    /// What the runtime says is on its way, if it says so at all.
    pub incoming: Option<Vec<Incoming>>,
    pub behaviours: Behaviours,
    pub commands: Option<Commands>,
    pub network_ready: bool,

    pub agenda: Agenda,
    pub works: BTreeMap<u64, Work>,
    pub requests: BTreeMap<u64, Request>,
    pub faults: Faults,
    /// How much longer the work of the call takes that is being carried out.
    pub stall: Duration,
    pub events: Subscribers,
    pub away: bool,
    /// Told when calls that hang are to end: the daemon dies, or all faults are over.
    pub let_go: Arc<Notify>,

    pub started: Instant,
    pub trace: Vec<TraceEntry>,
    pub violations: Vec<Violation>,
    pub started_attempts: StartedAttempts,
    next_ticket: u64,
    next_address: u32,
}

impl State {
    pub fn new(settings: RuntimeSettings, rng: fastrand::Rng, now: Now, wake: Arc<Notify>) -> Self {
        Self {
            settings,
            rng,
            now,
            write_file: None,
            make_source: None,
            gate: None,
            sandboxes: BTreeMap::new(),
            containers: BTreeMap::new(),
            names: BTreeMap::new(),
            images: BTreeMap::new(),
            incoming: None,
            behaviours: Behaviours::default(),
            commands: None,
            network_ready: true,
            agenda: Agenda { due: BTreeMap::new(), next_number: 0, wake },
            works: BTreeMap::new(),
            requests: BTreeMap::new(),
            faults: Faults::default(),
            stall: Duration::ZERO,
            events: Subscribers::default(),
            away: false,
            let_go: Arc::default(),
            started: Instant::now(),
            trace: Vec::new(),
            violations: Vec::new(),
            started_attempts: StartedAttempts::default(),
            next_ticket: 0,
            next_address: 0,
        }
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub fn record(&mut self, what: What) {
        let entry = TraceEntry { at: (self.now)(), elapsed: self.elapsed(), what };
        self.trace.push(entry);
    }

    /// Tells subscribers, unless the daemon is not there to notice.
    pub fn tell(&mut self, uid: &PodUid, id: &str, kind: RuntimeEventKind) {
        if !self.away {
            self.events.tell(&mut self.rng, uid, id, kind);
        }
    }

    pub fn run_due(&mut self) {
        let now = Instant::now();
        while let Some(due) = self.agenda.take_due(now) {
            match due {
                Due::Exit(id) => self.exit_as_planned(&id, now),
                Due::Kill { id, ticket } => self.kill_after_grace(&id, ticket),
                Due::Work(ticket) => self.work_is_over(ticket),
                Due::Request(ticket) => {
                    if let Some(request) = self.requests.remove(&ticket) {
                        request(self);
                    }
                }
            }
        }
    }

    pub fn new_ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    /// 64 hex digits, as containerd's.
    pub fn new_id(&mut self) -> String {
        format!("{:032x}{:032x}", self.rng.u128(..), self.rng.u128(..))
    }

    pub fn new_address(&mut self) -> IpAddr {
        self.next_address += 1;
        Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 88, 0, 1)) + self.next_address).into()
    }

    /// Reserves a name for an id, with containerd's words where it is taken.
    pub fn reserve(&mut self, kind: &str, name: &str, id: &str) -> Result<()> {
        if let Some(owner) = self.names.get(name) {
            let message =
                format!("failed to reserve {kind} name {name:?}: name {name:?} is reserved for {owner:?}");
            return Err(CriError::new(ErrorKind::Refused, message));
        }
        self.names.insert(name.to_owned(), id.to_owned());
        Ok(())
    }

    pub fn release(&mut self, name: &str, id: &str) {
        if self.names.get(name).is_some_and(|owner| owner == id) {
            self.names.remove(name);
        }
    }

    pub fn sandbox_subject(&self, id: &str) -> Subject {
        self.sandboxes.get(id).map_or_else(|| unknown(id), SandboxRecord::subject)
    }

    pub fn container_subject(&self, id: &str) -> Subject {
        self.containers.get(id).map_or_else(|| unknown(id), ContainerRecord::subject)
    }
}

fn unknown(id: &str) -> Subject {
    Subject { id: Arc::from(id), ..Subject::default() }
}

pub(super) fn not_found(kind: &str, id: &str) -> CriError {
    CriError::new(ErrorKind::NotFound, format!("an error occurred when try to find {kind} {id:?}: not found"))
}

pub(super) fn refused(message: String) -> CriError {
    CriError::new(ErrorKind::Refused, message)
}
