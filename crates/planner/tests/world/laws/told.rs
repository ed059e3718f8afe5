//! What statuses may not do from one to the next, and how long a plan may wait.

use crablet_planner::pod::{Plan, Wish};

use super::super::World;

/// Longer than any back-off or grace that a story draws.
const LONGEST_WAIT: i64 = 700;

impl World {
    pub(super) fn watch_words(&mut self, plan: &Plan) {
        let Some(status) = &plan.status else { return };
        if let Some(before) = &self.laws.told {
            if before.start_time.is_some() && before.start_time != status.start_time {
                self.broken.push(format!("{:?} became {:?}", before.start_time, status.start_time));
            }
            for earlier in before.conditions.iter().flatten() {
                let later = status.conditions.iter().flatten().find(|c| c.type_ == earlier.type_);
                // Upstream counts another reason for which a resize waits, or fails, as a transition.
                let is_resize = earlier.type_.starts_with("PodResize");
                let later = later.filter(|c| !is_resize || c.reason == earlier.reason);
                if let Some(later) = later.filter(|c| c.status == earlier.status)
                    && later.last_transition_time != earlier.last_transition_time
                {
                    self.broken.push(format!("{} stayed {} and moved", later.type_, later.status));
                }
            }
        }
        let ready = status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
        let not_ready = status.container_statuses.iter().flatten().any(|c| !c.ready);
        if ready && not_ready {
            self.broken.push("the pod is ready and a container is not".to_owned());
        }
        self.laws.told = Some(status.clone());
    }

    /// A pod that should run and has no deadline waits for back-offs only, also after the clock was set back.
    pub(super) fn watch_wait(&mut self, plan: &Plan) {
        let has_deadline = self.pod.spec.as_ref().is_some_and(|spec| spec.active_deadline_seconds.is_some());
        let is_idle = plan.actions.is_empty() && self.session.ops.is_empty();
        if self.wish != Wish::Run || has_deadline || !is_idle {
            return;
        }
        if let Some(wait) = plan.wake_at.map(|at| at.duration_since(self.now).as_secs())
            && wait > LONGEST_WAIT
        {
            self.broken.push(format!("a plan waits for {wait} s: {:?}", plan.why));
        }
    }
}
