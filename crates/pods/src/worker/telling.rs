//! What a worker tells others of its pod, and when.

use std::sync::Arc;
use std::time::Duration;

use crablet_model::api;
use crablet_model::events::Event;
use crablet_model::names::event_reason;
use crablet_planner::pod::{Memory, Plan, Urgency};
use jiff::Timestamp;

use super::Worker;

/// A status that tells of a step on the way waits this long for the next step. Upstream looks at the runtime once in a
/// second, and tells of such a step no sooner.
const SOON: Duration = Duration::from_secs(1);

impl Worker {
    /// Decides whether the status waits to be told, and says so. What is not told is neither shown nor remembered: its
    /// times are those of the turn that tells it.
    pub(super) fn hold_back(&mut self, plan: &mut Plan, told: Memory, now: Timestamp) -> bool {
        if self.holds_back_for_past(plan, now) {
            plan.memory.status = told.status;
            return true;
        }
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

    pub(super) fn publish(&self, status: &api::PodStatus, is_static: bool, released: bool) {
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
    pub(super) fn announce_refusal(&mut self, refused: Option<&Arc<str>>) {
        if self.refused.as_ref() != refused {
            self.refused = refused.cloned();
            if let Some(text) = refused {
                let text = format!("Crablet cannot run this pod yet: {text}");
                self.shared.events().emit(Event::warning(&self.id, event_reason::FAILED_VALIDATION, text));
            }
        }
    }
}
