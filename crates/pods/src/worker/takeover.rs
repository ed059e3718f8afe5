//! A pod that another agent ran on this node before: what that one told of it is what is remembered of it.

use std::time::Duration;

use crablet_model::api;
use crablet_model::names::annotation;
use crablet_model::runtime::{PodRuntime, SandboxState};
use crablet_planner::pod::{Memory, Plan};
use jiff::Timestamp;

use super::Worker;

/// The status of a static pod stands in its mirror, which is known once the API server has told all it has. So long is
/// that waited for; meanwhile everything is done for the pod, and nothing told.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often is looked whether it is there.
const LOOK: Duration = Duration::from_millis(200);

/// What is known of an earlier agent's word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Past {
    #[default]
    NotLookedFor,
    /// It is in the mirror, if there is one.
    Awaited { until: Timestamp },
    /// It is known, or there is none.
    Settled,
}

impl Worker {
    /// What is remembered of the pod, with an earlier agent's word in the place of a record that is not there.
    pub(super) fn taken_over(
        &mut self,
        mut memory: Memory,
        pod: Option<&api::Pod>,
        is_static: bool,
        runtime: &PodRuntime,
        now: Timestamp,
    ) -> Memory {
        let Some(pod) = pod.filter(|_| memory.status.is_none()) else {
            self.past = Past::Settled;
            return memory;
        };
        memory.status = if is_static {
            self.told_by_mirror(pod, runtime, now)
        } else {
            pod.status.clone().filter(|status| status.start_time.is_some())
        };
        memory
    }

    fn told_by_mirror(
        &mut self,
        pod: &api::Pod,
        runtime: &PodRuntime,
        now: Timestamp,
    ) -> Option<api::PodStatus> {
        let until = match self.past {
            Past::Settled => return None,
            Past::Awaited { until } => until,
            Past::NotLookedFor => now.checked_add(PATIENCE).unwrap_or(now),
        };
        self.past = Past::Settled;
        let cluster = self.shared.cluster.as_ref()?;
        // Without one, the pod begins here, and has no past.
        runtime.sandboxes.iter().find(|sandbox| sandbox.state == SandboxState::Ready)?;
        let hash = pod.metadata.annotations.as_ref()?.get(annotation::CONFIG_HASH)?;
        let told = cluster.status_of_mirror(&self.id, hash);
        if told.is_none() && now < until && !cluster.mirrors.is_listed() {
            self.past = Past::Awaited { until };
        }
        told
    }

    /// Nothing is told while an earlier agent's word is waited for.
    pub(super) fn holds_back_for_past(&self, plan: &mut Plan, now: Timestamp) -> bool {
        let Past::Awaited { until } = self.past else { return false };
        let next = now.checked_add(LOOK).unwrap_or(until).min(until);
        plan.wake_at = plan.wake_at.into_iter().chain([next]).min();
        true
    }
}
