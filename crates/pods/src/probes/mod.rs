//! Probes: what the containers of a pod are asked while they run, and what they answered.
//!
//! ```text
//!  worker's turn ── the pod's status ──> Prober ── targets ──> Board <── verdicts ── Watch (one task per probe)
//!        ^                                                       │                     │ ask, at its pace
//!        └── facts: Probes ──────────────────────────────────────┘                     │
//!        └── nudge: a verdict has changed ─────────────────────────────────────────────┘
//! ```
//!
//! A [`Prober`] belongs to one pod's worker. At the end of each turn it learns which instances run and whether they count
//! as started, and wakes the watches for which that is news. Between two questions a watch sleeps on a timer, or without
//! one if there is nobody to ask: before the container runs, while the startup probe holds the others back, and after a
//! verdict that ends its instance.
//!
//! A verdict belongs to an instance, by its container id. After a restart of the agent there is none, which is not a
//! failure: what was published counts until a probe says otherwise.

use std::collections::BTreeMap;
use std::sync::Arc;

use crablet_cri::Runtime;
use crablet_host::Clock;
use crablet_model::names::phase;
use crablet_model::roster::{Role, roster};
use crablet_model::runtime::{ContainerState, PodRuntime};
use crablet_model::{PodRef, api};
use crablet_planner::pod::Probes;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::events::EventSink;
use crate::figures::OfProbe;
use crate::nudge::Nudge;

mod board;
mod question;
mod watch;

use board::{Board, Target};
use question::{Question, Timing};
use watch::Watch;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Startup,
    Readiness,
    Liveness,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Startup, Self::Readiness, Self::Liveness];

    /// As events name it.
    fn name(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        }
    }

    fn of(self, container: &api::Container) -> Option<&api::Probe> {
        match self {
            Self::Startup => container.startup_probe.as_ref(),
            Self::Readiness => container.readiness_probe.as_ref(),
            Self::Liveness => container.liveness_probe.as_ref(),
        }
    }
}

/// What watches work with.
pub(crate) struct Means {
    pub runtime: Arc<dyn Runtime>,
    pub events: Arc<dyn EventSink>,
    pub clock: Arc<dyn Clock>,
}

/// All probes of one pod.
pub(crate) struct Prober {
    means: Arc<Means>,
    nudge: Arc<Nudge>,
    id: PodRef,
    random: fastrand::Rng,
    board: Arc<Board>,
    watches: BTreeMap<(Box<str>, Kind), Watcher>,
}

/// A running watch. It ends with its owner.
struct Watcher {
    poke: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Prober {
    pub fn new(means: Means, nudge: Arc<Nudge>, id: PodRef, random: fastrand::Rng) -> Self {
        let board = Arc::new(Board::new(means.clock.now()));
        Self { means: Arc::new(means), nudge, id, random, board, watches: BTreeMap::new() }
    }

    /// What is known of the instances that run.
    pub fn verdicts(&self) -> Probes {
        self.board.verdicts()
    }

    /// Every instance that runs has been found started and ready or not.
    pub fn has_spoken(&self) -> bool {
        self.watches.keys().all(|(container, kind)| self.board.has_verdict(container, *kind))
    }

    /// Takes in what a turn has found out. `ending`: the pod is being stopped.
    pub fn attend(&mut self, pod: &api::Pod, status: &api::PodStatus, runtime: &PodRuntime, ending: bool) {
        let Some(spec) = &pod.spec else { return };
        if status.phase.as_deref().is_some_and(phase::is_terminal) {
            return self.clear();
        }
        for (role, container) in roster(spec) {
            if !matches!(role, Role::Regular | Role::Sidecar) {
                continue;
            }
            for kind in Kind::ALL {
                let Some(probe) = kind.of(&container) else { continue };
                let key = (Box::from(&*container.name), kind);
                if ending && role == Role::Regular && kind != Kind::Readiness {
                    // Who is told to stop may stop answering, and is not to be restarted for that.
                    self.watches.remove(&key);
                    continue;
                }
                let works = self.watches.get(&key).is_some_and(|watcher| !watcher.task.is_finished());
                if !works && !ending {
                    let watcher = self.watch(role, &container, kind, probe);
                    self.watches.insert(key, watcher);
                }
            }
        }
        if !self.watches.is_empty() {
            self.show(status, runtime);
        }
    }

    /// Nobody is asked any more.
    pub fn clear(&mut self) {
        self.watches.clear();
        self.board.clear();
    }

    /// Tells the watches whom to ask, and wakes those for which it is news.
    fn show(&self, status: &api::PodStatus, runtime: &PodRuntime) {
        let mut containers: Vec<_> = self.watches.keys().map(|(name, _)| &**name).collect();
        containers.dedup();
        let targets = containers.into_iter().map(|name| (name, target(name, status, runtime)));
        let changed = self.board.show(targets, status.pod_ip.as_deref().unwrap_or_default());
        for ((name, kind), watcher) in &self.watches {
            if *kind == Kind::Startup {
                self.board.seed_startup(name);
            }
            if changed.contains(&**name) {
                watcher.poke.notify_one();
            }
        }
    }

    fn watch(&mut self, role: Role, container: &api::Container, kind: Kind, probe: &api::Probe) -> Watcher {
        let poke = Arc::new(Notify::new());
        let watch = Watch {
            means: self.means.clone(),
            board: self.board.clone(),
            nudge: self.nudge.clone(),
            poke: poke.clone(),
            pod: self.id.clone(),
            container: Box::from(&*container.name),
            role,
            kind,
            question: Question::of(&self.id, container, probe),
            timing: Timing::of(probe),
            random: self.random.fork(),
            instance: None,
            figures: OfProbe::new(&self.id, &container.name, kind.name()),
        };
        Watcher { poke, task: tokio::spawn(watch.run()) }
    }
}

/// The instance of a container that the status shows.
fn target(name: &str, status: &api::PodStatus, runtime: &PodRuntime) -> Option<Target> {
    let regular = status.container_statuses.iter().flatten();
    let init = status.init_container_statuses.iter().flatten();
    let shown = regular.chain(init).find(|shown| shown.name == name)?;
    let id = shown.container_id.as_deref()?;
    let id = id.split_once("://").map_or(id, |(_, id)| id);
    let running = shown.state.as_ref().and_then(|state| state.running.as_ref());
    // A status knows whole seconds only.
    let seen = runtime.containers.iter().find(|c| c.id == id);
    let exact = seen.and_then(|container| match container.state {
        ContainerState::Running { started_at } => Some(started_at),
        _ => None,
    });
    let rounded = running.and_then(|running| running.started_at.as_ref()).map(|time| time.0);
    Some(Target {
        id: Arc::from(id),
        running_since: running.and(exact.or(rounded)),
        started: shown.started == Some(true),
    })
}

#[cfg(test)]
mod tests;
