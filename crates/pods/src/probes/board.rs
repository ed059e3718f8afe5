//! What a pod's worker and the watches of its probes tell each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crablet_planner::pod::{Probed, Probes};
use jiff::{SignedDuration, Timestamp};

use super::Kind;

/// Start times may be rounded down to whole seconds.
const ROUNDING: SignedDuration = SignedDuration::from_secs(1);

/// The newest instance of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub id: Arc<str>,
    /// `None`: it does not run.
    pub running_since: Option<Timestamp>,
    /// The startup probe does not hold the others back, or not any more.
    pub started: bool,
}

pub(super) struct Board {
    /// When this life of the agent began to look after the pod.
    since: Timestamp,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By container name.
    targets: BTreeMap<Box<str>, Target>,
    pod_ip: Arc<str>,
    verdicts: Probes,
}

impl Board {
    pub fn new(since: Timestamp) -> Self {
        Self { since, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn verdicts(&self) -> Probes {
        self.state().verdicts.clone()
    }

    pub fn target(&self, container: &str) -> Option<Target> {
        self.state().targets.get(container).cloned()
    }

    pub fn pod_ip(&self) -> Arc<str> {
        self.state().pod_ip.clone()
    }

    /// It ran before this life of the agent knew of it.
    pub fn was_found(&self, running_since: Timestamp) -> bool {
        running_since.checked_add(ROUNDING).is_ok_and(|latest| latest <= self.since)
    }

    pub fn clear(&self) {
        *self.state() = State::default();
    }

    /// Takes all targets. Returns the containers for which something is new. What is known of instances that are no
    /// target any more is forgotten.
    pub fn show<'a>(
        &self,
        targets: impl Iterator<Item = (&'a str, Option<Target>)>,
        pod_ip: &str,
    ) -> BTreeSet<&'a str> {
        let mut guard = self.state();
        let state = &mut *guard;
        let mut changed = BTreeSet::new();
        for (name, target) in targets {
            let known = state.targets.get(name);
            // An instance that is not shown does not run; what is known of it stays until the next.
            let gone = || Some(Target { running_since: None, ..known?.clone() });
            let Some(target) = target.or_else(gone) else { continue };
            if known != Some(&target) {
                state.targets.insert(name.into(), target);
                changed.insert(name);
            }
        }
        if *state.pod_ip != *pod_ip {
            state.pod_ip = Arc::from(pod_ip);
        }
        let targets = &state.targets;
        state.verdicts.0.retain(|id, _| targets.values().any(|target| *target.id == **id));
        changed
    }

    /// An instance that counts as started passed its startup probe in an earlier life of the agent.
    pub fn seed_startup(&self, container: &str) {
        let mut guard = self.state();
        let state = &mut *guard;
        let Some(target) = state.targets.get(container) else { return };
        if target.started && target.running_since.is_some() {
            let verdict = state.verdicts.0.entry(target.id.to_string()).or_default();
            verdict.startup.get_or_insert(true);
        }
    }

    /// A verdict on the instance, or nobody there to be judged.
    pub fn has_verdict(&self, container: &str, kind: Kind) -> bool {
        let state = self.state();
        let target = state.targets.get(container).filter(|target| target.running_since.is_some());
        target.is_none_or(|target| {
            let known = state.verdicts.of(&target.id);
            kind == Kind::Liveness || slot(&mut { known }, kind).is_some()
        })
    }

    pub fn is_ready(&self, id: &str) -> bool {
        self.state().verdicts.of(id).readiness == Some(true)
    }

    /// Returns whether it is news.
    pub fn judge(&self, container: &str, id: &str, kind: Kind, is_well: bool) -> bool {
        let mut guard = self.state();
        let state = &mut *guard;
        if state.targets.get(container).is_none_or(|target| *target.id != *id) {
            return false;
        }
        let verdict = slot(state.verdicts.0.entry(id.to_owned()).or_default(), kind).replace(is_well);
        match kind {
            // Alive is what everybody took it for.
            Kind::Liveness => verdict.unwrap_or(true) != is_well,
            Kind::Startup | Kind::Readiness => verdict != Some(is_well),
        }
    }
}

fn slot(verdict: &mut Probed, kind: Kind) -> &mut Option<bool> {
    match kind {
        Kind::Startup => &mut verdict.startup,
        Kind::Readiness => &mut verdict.readiness,
        Kind::Liveness => &mut verdict.liveness,
    }
}
