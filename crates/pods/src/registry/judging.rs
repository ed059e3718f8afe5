//! Whether the node lets a new pod run, and who makes room for it.
//!
//! ```text
//!  New ──┬─ began in an earlier life, runs, is over, or is asked to go ──────────────> LetIn
//!        ├─ admitted ─────────────────────────────────────────────────────────────────> LetIn
//!        ├─ admitted instead of others ─> MakesRoom ── they have ended, or had their time ─> LetIn
//!        ├─ the node's labels are in its way ─> LooksAgain ─> LookedAgain ─> judged by what the API server has now
//!        └─ rejected ─────────────────────────────────────> LetIn, with a verdict: its worker only shows that
//! ```

use std::sync::Arc;
use std::time::Duration;

use crablet_model::events::Event;
use crablet_model::{PodRef, PodUid, api};
use crablet_planner::node::admission::{AdmissionNode, Decision, Rejection};
use crablet_planner::pod::{REJECTED, Verdict};
use tokio::time::{Instant, timeout, timeout_at};

use super::Registry;
use super::lines::Waiting;
use super::terms::Terms;
use crate::admission::has_finished;
use crate::figures;

/// How long the API server may take to say what the Node is like.
const NODE_PATIENCE: Duration = Duration::from_secs(10);
/// Those who make room have half as much again as their grace, and at least this, as upstream.
const LEAST_PATIENCE_SECONDS: i64 = 10;

const PREEMPTING: &str = "Preempting";
const PREEMPTED: &str = "Preempted in order to admit critical pod";

/// Where a pod stands that has no worker yet.
#[derive(Clone)]
pub(super) enum Standing {
    New,
    LooksAgain,
    LookedAgain(Arc<AdmissionNode>),
    MakesRoom,
    LetIn,
}

impl Standing {
    pub fn is_new(&self) -> bool {
        !matches!(self, Self::LetIn)
    }
}

/// What was found out for a pod that waits.
pub(super) enum Told {
    /// The Node as the API server has it; `None` if it did not say.
    Node(PodUid, Option<Arc<AdmissionNode>>),
    /// Who was in the way has ended, or had the time to. Those who have not are named.
    Room(PodUid, Vec<PodRef>),
}

impl Registry {
    /// Whether the first in this line may begin now. Judges it, if nobody has.
    pub(super) fn may_begin(&mut self, line: &str) -> bool {
        let Some(first) = self.waiting.get(line).and_then(|line| line.front()) else { return false };
        if self.unread.contains(&first.pod.id.uid) {
            return false;
        }
        let (id, json, is_static) = (first.pod.id.clone(), first.pod.json.clone(), first.is_static);
        let terms = Terms::of(&json);
        let asked_to_go = !is_static && terms.deletion(self.shared.clock.now()).is_some();
        let fresh = match &first.standing {
            Standing::LetIn => return true,
            Standing::LooksAgain | Standing::MakesRoom if !asked_to_go => return false,
            Standing::LookedAgain(node) => Some(node.clone()),
            _ => None,
        };
        if !is_static && terms.is_over() {
            return true;
        }
        // What does not decode is the worker's to say.
        let Ok(pod) = serde_json::from_slice::<api::Pod>(&json) else { return true };
        // One that was here before is judged by what it was granted then.
        let pod = self.as_granted(&id.uid, pod);
        if asked_to_go || self.runs(&id.uid) || self.half_ended.contains_key(&id.uid) {
            self.count(&id.uid, &pod);
            return true;
        }
        if !self.settled && !self.unread.is_empty() {
            return false;
        }
        let Some(node) = fresh.clone().or_else(|| self.admission.node()) else { return false };
        let decision = self.admission.judge(&id.uid, &pod, &node, &self.shared.view);
        self.judged(line, &id, &pod, decision, fresh.is_some())
    }

    fn judged(
        &mut self,
        line: &str,
        id: &PodRef,
        pod: &api::Pod,
        decision: Decision,
        is_fresh: bool,
    ) -> bool {
        match decision {
            Decision::Admitted => self.count(&id.uid, pod),
            Decision::AdmittedInsteadOf(victims) => {
                self.count(&id.uid, pod);
                self.make_room(id, &victims);
                self.stand(line, Standing::MakesRoom);
                return false;
            }
            Decision::Rejected(why) if why.labels_only && !is_fresh && self.look_again(id) => {
                self.stand(line, Standing::LooksAgain);
                return false;
            }
            Decision::Rejected(why) => self.reject(line, id, &why),
        }
        self.stand(line, Standing::LetIn);
        true
    }

    fn stand(&mut self, line: &str, standing: Standing) {
        if let Some(first) = self.waiting.get_mut(line).and_then(|line| line.front_mut()) {
            first.standing = standing;
        }
    }

    fn reject(&mut self, line: &str, id: &PodRef, why: &Rejection) {
        let Rejection { reason, message, .. } = why;
        tracing::info!(pod = id.object_ref(), podUID = %id.uid, reason = &**reason, why = message, "Pod admission denied");
        self.shared.hands.events.emit(Event::warning(id, reason.clone(), message.clone()));
        figures::rejected(reason);
        let verdict = Verdict {
            reason: reason.to_string(),
            message: format!("{REJECTED}{message}"),
            since: self.shared.clock.now(),
            grace_seconds: None,
            disruption: None,
        };
        if let Some(first) = self.waiting.get_mut(line).and_then(|line| line.front_mut()) {
            first.verdict = Some(Arc::new(verdict));
        }
    }

    /// Asks the API server for the Node, where there is one. Says whether it does.
    fn look_again(&mut self, id: &PodRef) -> bool {
        let Some(fresh) = self.admission.fresh.clone() else { return false };
        let uid = id.uid.clone();
        self.inquiries.spawn(async move {
            let node = timeout(NODE_PATIENCE, fresh.fetch()).await.ok().flatten();
            Told::Node(uid, node)
        });
        true
    }

    /// Ends those who are in the way of a critical pod.
    pub(super) fn make_room(&mut self, id: &PodRef, victims: &[PodUid]) {
        let verdict = Arc::new(Verdict {
            reason: PREEMPTING.to_owned(),
            message: PREEMPTED.to_owned(),
            since: self.shared.clock.now(),
            grace_seconds: None,
            disruption: Some((
                "TerminationByKubelet".to_owned(),
                "Pod was preempted by Kubelet to accommodate a critical pod.".to_owned(),
            )),
        });
        let mut seconds = LEAST_PATIENCE_SECONDS;
        let mut told = Vec::new();
        for uid in victims {
            // At once: what they have is the critical pod's now.
            if let Some(claim) = self.admission.discount(uid) {
                seconds = seconds.max(claim.grace_seconds.saturating_mul(3) / 2);
            }
            let Some(victim) = self.condemn(uid, &verdict) else { continue };
            tracing::info!(
                pod = victim.object_ref(), podUID = %victim.uid, requestingPod = id.object_ref(),
                "Preempting pod to free up resources"
            );
            self.shared.hands.events.emit(Event::warning(&victim, PREEMPTING, PREEMPTED));
            told.push(victim);
        }
        let (view, uid) = (self.shared.view.clone(), id.uid.clone());
        let patience = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        self.inquiries.spawn(async move {
            let until = Instant::now() + patience;
            let mut changes = view.changes();
            let mut left = told;
            loop {
                left.retain(|victim| view.status(&victim.uid).is_some() && !has_finished(&view, &victim.uid));
                if left.is_empty() || !matches!(timeout_at(until, changes.changed()).await, Ok(Ok(()))) {
                    return Told::Room(uid, left);
                }
            }
        });
    }

    /// Gives a pod its verdict, whether it has begun or not.
    fn condemn(&mut self, uid: &PodUid, verdict: &Arc<Verdict>) -> Option<PodRef> {
        if let Some(handle) = self.workers.get(uid) {
            handle.assignment.send_modify(|known| known.verdict = Some(verdict.clone()));
            return Some(handle.id.clone());
        }
        let waiting = self.waiting_of(uid)?;
        waiting.verdict = Some(verdict.clone());
        waiting.standing = Standing::LetIn;
        Some(waiting.pod.id.clone())
    }

    fn waiting_of(&mut self, uid: &PodUid) -> Option<&mut Waiting> {
        self.waiting.values_mut().flatten().find(|waiting| waiting.pod.id.uid == *uid)
    }

    /// Takes in what a waiting pod waited for.
    pub(super) fn told(&mut self, told: Told) {
        match told {
            Told::Node(uid, node) => {
                let node = node.or_else(|| self.admission.node());
                if let (Some(waiting), Some(node)) = (self.waiting_of(&uid), node) {
                    waiting.standing = Standing::LookedAgain(node);
                }
            }
            Told::Room(uid, left) => {
                for victim in left {
                    let text = "Container runtime did not kill the pod within specified grace period.";
                    self.shared.hands.events.emit(Event::warning(&victim, "ExceededGracePeriod", text));
                }
                self.resizes.room_for(&uid);
                if let Some(waiting) = self.waiting_of(&uid) {
                    waiting.standing = Standing::LetIn;
                }
            }
        }
        self.advance_all();
    }
}
