//! Pods that ask for other resources than they were granted: each has its turn when the node may have room.
//!
//! ```text
//!  specification changes ─> asks ──┬─ granted: noted on disk, then its worker acts on it
//!          ^                       ├─ deferred: asks again when a pod ends, shrinks or leaves, or the node grows
//!          └── changes again ──────┴─ infeasible: not asked again as long as it asks for the same
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crablet_model::allocation::Allocation;
use crablet_model::events::Event;
use crablet_model::names::{condition, event_reason};
use crablet_model::{PodRef, PodUid, api};
use crablet_planner::node::admission::{Answer, Turn};
use crablet_planner::pod::Pending;
use crablet_planner::pod::resize::words;
use jiff::Timestamp;
use tokio::time::{Instant, sleep_until};

use super::Registry;
use crate::sources::DesiredPod;

/// The net below all that may give room.
const AGAIN: Duration = Duration::from_secs(180);

/// Who asks for other resources.
#[derive(Default)]
pub(super) struct Resizes {
    asking: BTreeMap<PodUid, Asking>,
    /// Pods that were granted less than they still have.
    shrinking: BTreeSet<PodUid>,
    /// Something happened that may give room, or somebody new asks.
    due: bool,
    again: Option<Instant>,
}

#[derive(Default)]
struct Asking {
    /// What the pod's status says: why it waits, for which generation, and since when.
    told: Option<(String, Option<i64>, Option<Timestamp>)>,
    /// What it asks for cannot be.
    hopeless: bool,
    /// Others end first.
    makes_room: bool,
}

impl Resizes {
    /// Room may have been made.
    pub fn room(&mut self) {
        self.due |= !self.asking.is_empty();
    }

    /// Those who were in this pod's way have ended, or had the time to.
    pub fn room_for(&mut self, uid: &PodUid) {
        if let Some(asking) = self.asking.get_mut(uid) {
            asking.makes_room = false;
            self.due = true;
        }
    }

    pub fn is_due(&self) -> bool {
        self.due
    }

    pub fn forget(&mut self, uid: &PodUid) {
        self.asking.remove(uid);
        self.shrinking.remove(uid);
        self.room();
    }

    /// Until it is time to ask again, though nothing has happened.
    pub async fn time(&self) {
        let waits = self.asking.values().any(|asking| !asking.hopeless);
        match self.again.filter(|_| waits) {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}

/// What a worker is told of its pod's resources.
pub(super) struct Granted {
    /// Where that is not what the specification says.
    pub instead: Option<Arc<Allocation>>,
    pub pending: Pending,
}

impl Registry {
    /// Compares what a pod asks for with what it was granted. `known` is what its worker was told before.
    pub(super) fn granted(&mut self, pod: &DesiredPod, known: Option<&Pending>) -> Granted {
        let uid = &pod.id.uid;
        let nothing = Granted { instead: None, pending: Pending::Nothing };
        let Some(granted) = self.shared.hands.ledgers.allocated.get(uid) else { return nothing };
        let Some(wanted) = Allocation::of_json(&pod.json) else { return nothing };
        if granted.is_same(&wanted) {
            self.resizes.asking.remove(uid);
            return nothing;
        }
        let told = known.is_none().then(|| told_before(&pod.json)).flatten();
        let asking = self.resizes.asking.entry(uid.clone()).or_insert(Asking { told, ..Asking::default() });
        asking.hopeless = false;
        self.resizes.due = true;
        let pending = known.filter(|known| **known != Pending::Nothing).cloned();
        Granted { instead: Some(granted), pending: pending.unwrap_or(Pending::Unjudged) }
    }

    /// The pod takes its part of the node from now on: as much as it was granted before, or as it asks for now.
    pub(super) fn count(&mut self, uid: &PodUid, pod: &api::Pod) {
        let ledger = &self.shared.hands.ledgers.allocated;
        if let Some(spec) = pod.spec.as_ref().filter(|_| ledger.get(uid).is_none()) {
            ledger.set(uid, Allocation::of(spec));
        }
        self.admission.count(uid, pod);
    }

    /// No source has the pod as it is: should it begin again, then with what it asks for by then.
    pub(super) fn ungrant(&mut self, uid: &PodUid) {
        self.shared.hands.ledgers.allocated.forget(uid);
        self.resizes.forget(uid);
    }

    /// The pod as it was granted.
    pub(super) fn as_granted(&self, uid: &PodUid, mut pod: api::Pod) -> api::Pod {
        let granted = self.shared.hands.ledgers.allocated.get(uid);
        if let (Some(granted), Some(spec)) = (granted, pod.spec.as_mut()) {
            granted.overlay(spec);
        }
        pod
    }

    /// A pod's status has changed: what it gave back is free.
    pub(super) fn look_at_shrinking(&mut self, pod: &DesiredPod) {
        let uid = &pod.id.uid;
        if !self.resizes.shrinking.contains(uid) {
            return;
        }
        let Ok(decoded) = serde_json::from_slice::<api::Pod>(&pod.json) else { return };
        let decoded = self.as_granted(uid, decoded);
        if self.admission.recount(uid, &decoded) {
            self.resizes.room();
        }
        if crablet_planner::node::admission::resize::as_it_counts(&decoded).is_none() {
            self.resizes.shrinking.remove(uid);
        }
    }

    /// Judges all that ask, each in its turn.
    pub(super) fn retry_resizes(&mut self) {
        let Some(node) = self.admission.node().filter(|_| self.settled) else { return };
        self.resizes.due = false;
        self.resizes.again = Some(Instant::now() + AGAIN);
        for (uid, pod, granted) in self.in_turn() {
            let view = self.shared.view.clone();
            match self.admission.judge_resize(&uid, &pod, &granted, &node, &view) {
                Answer::Granted => self.grant(&uid, pod),
                Answer::GrantedInsteadOf(victims) => {
                    if let Some(asking) = self.resizes.asking.get_mut(&uid) {
                        asking.makes_room = true;
                    }
                    self.make_room(&PodRef::of(&pod), &victims);
                }
                Answer::Deferred { reason, message } => self.put_off(&uid, &pod, &reason, message, false),
                Answer::Infeasible(message) => {
                    self.put_off(&uid, &pod, condition::REASON_RESIZE_INFEASIBLE, message, true);
                }
            }
        }
    }

    fn in_turn(&mut self) -> Vec<(PodUid, api::Pod, Arc<Allocation>)> {
        let (workers, ledger) = (&self.workers, &self.shared.hands.ledgers.allocated);
        let asking = self.resizes.asking.iter();
        let asking = asking.filter(|(_, asking)| !asking.hopeless && !asking.makes_room);
        let mut all: Vec<_> = asking
            .filter_map(|(uid, asking)| {
                let handle = workers.get(uid).filter(|handle| !handle.is_ending())?;
                let pod: api::Pod =
                    serde_json::from_slice(handle.assignment.borrow().pod.as_deref()?).ok()?;
                let granted = ledger.get(uid)?;
                let since = asking.told.as_ref().and_then(|(_, _, since)| *since);
                Some((Turn::of(&pod, &granted, since), uid.clone(), pod, granted))
            })
            .collect();
        all.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        all.into_iter().map(|(_, uid, pod, granted)| (uid, pod, granted)).collect()
    }

    fn grant(&mut self, uid: &PodUid, pod: api::Pod) {
        let (Some(spec), Some(handle)) = (pod.spec.as_ref(), self.workers.get(uid)) else { return };
        self.resizes.asking.remove(uid);
        self.resizes.shrinking.insert(uid.clone());
        self.shared.hands.ledgers.allocated.set(uid, Allocation::of(spec));
        self.admission.count(uid, &pod);
        let generation = pod.metadata.generation;
        tracing::info!(pod = handle.id.object_ref(), podUID = %uid, generation, "Pod resize successfully allocated");
        let text = words::text(words::STARTED, &pod, generation, "");
        self.shared.hands.events.emit(Event::normal(&handle.id, event_reason::RESIZE_STARTED, text));
        handle.assignment.send_modify(|known| {
            (known.instead, known.pending) = (None, Pending::Nothing);
            known.granted = generation;
        });
    }

    /// `said` is what the event calls it; the condition knows two reasons only.
    fn put_off(&mut self, uid: &PodUid, pod: &api::Pod, said: &str, message: String, hopeless: bool) {
        let reason =
            if hopeless { condition::REASON_RESIZE_INFEASIBLE } else { condition::REASON_RESIZE_DEFERRED };
        let Some(handle) = self.workers.get(uid) else { return };
        let generation = pod.metadata.generation;
        let asking = self.resizes.asking.entry(uid.clone()).or_default();
        asking.hopeless = hopeless;
        let (was, of, since) = asking.told.take().unwrap_or_default();
        let is_news = was != reason || of != generation;
        let since = since.filter(|_| was == reason).or_else(|| Some(self.shared.clock.now()));
        asking.told = Some((reason.to_owned(), generation, since));
        if is_news {
            tracing::info!(pod = handle.id.object_ref(), podUID = %uid, reason, message, "Pod resize has to wait");
            let name = if hopeless { event_reason::RESIZE_INFEASIBLE } else { event_reason::RESIZE_DEFERRED };
            let text = words::pending(said, &message, pod);
            self.shared.hands.events.emit(Event::warning(&handle.id, name, text));
        }
        let pending = Pending::Waits { reason, message, generation };
        handle.assignment.send_if_modified(|known| {
            let is_new = known.pending != pending;
            known.pending = pending;
            is_new
        });
    }
}

/// What an earlier life of the agent has told of a resize, as the API server has it.
fn told_before(pod: &[u8]) -> Option<(String, Option<i64>, Option<Timestamp>)> {
    #[derive(serde::Deserialize)]
    struct Pod {
        status: Status,
    }
    #[derive(serde::Deserialize)]
    struct Status {
        #[serde(default)]
        conditions: Vec<api::PodCondition>,
    }
    let Pod { status } = serde_json::from_slice(pod).ok()?;
    let told = status.conditions.into_iter().find(|c| c.type_ == condition::POD_RESIZE_PENDING)?;
    Some((told.reason.unwrap_or_default(), told.observed_generation, told.last_transition_time.map(|t| t.0)))
}
