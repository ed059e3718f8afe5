//! What becomes of a pod, if more than its assignment has a say in it.

use crablet_apiserver::{ObjectKey, ObjectKind};
use crablet_model::api;
use crablet_model::names::annotation;
use crablet_model::runtime::PodRuntime;
use crablet_planner::pod::{Ending, Memory, OpKey, Wish};
use jiff::Timestamp;

use super::Worker;

/// A pod's end outlives the agent: grace that has begun goes on, and a pod whose specification is lost gets the grace
/// that its containers were annotated with.
pub(super) fn effective_wish(
    wish: &Wish,
    pod: Option<&api::Pod>,
    memory: &Memory,
    runtime: &PodRuntime,
) -> Wish {
    let Wish::End(end) = wish else {
        return Wish::Run;
    };
    if let Some(begun) = &memory.ending {
        if pod.is_none() {
            // Nobody who asks for its end knows its grace; what was found out when it began does.
            return Wish::End(Ending { forget: end.forget || begun.forget, ..begun.clone() });
        }
        let kill_at = |e: &Ending| e.since.as_second().saturating_add(e.grace_seconds);
        let sooner = if kill_at(begun) <= kill_at(end) { begun } else { end };
        return Wish::End(Ending { forget: end.forget || begun.forget, ..sooner.clone() });
    }
    let mut end = end.clone();
    if pod.is_none() {
        let annotated = runtime.containers.iter().filter_map(|c| {
            c.annotations
                .get(annotation::POD_TERMINATION_GRACE_PERIOD)
                .and_then(|text| text.parse::<i64>().ok())
        });
        end.grace_seconds = annotated.max().unwrap_or(1).max(1);
    }
    Wish::End(end)
}

/// Whether the pod, wanted again before its end, keeps its dead containers: the next ones are counted as restarts, as
/// upstream has it. Where its policy makes an exit final, or may do so because nobody knows it, it has to begin without a past.
pub(super) fn begins_again(wish: &mut Wish, pod: Option<&api::Pod>) -> bool {
    let spec = pod.and_then(|pod| pod.spec.as_ref());
    let goes_on =
        |spec: &api::PodSpec| spec.restart_policy.as_deref().is_none_or(|policy| policy == "Always");
    match wish {
        Wish::End(end) if spec.is_some_and(goes_on) => {
            end.forget = false;
            true
        }
        _ => false,
    }
}

impl Worker {
    /// Takes in which objects came. Says whether any did.
    pub(super) fn take_objects(&mut self) -> bool {
        let came = self.nudge.take_objects();
        if came.is_empty() {
            return false;
        }
        self.objects.extend(came);
        (self.came_before, self.older_tries) = (self.begun, None);
        true
    }

    /// What failed for want of an object is tried again once one came.
    pub(super) fn heed_objects(&mut self, memory: &mut Memory, pod: Option<&api::Pod>, now: Timestamp) {
        // A try that was under way may have looked for it just before it came. What was begun since had it.
        let is_try = |key: &OpKey| matches!(key, OpKey::Start(_) | OpKey::Image(_));
        let older = self.running.iter().filter(|(key, op)| is_try(key) && op.number <= self.came_before);
        let older = older.count();
        if self.objects.is_empty() || self.older_tries == Some(older) {
            return;
        }
        self.older_tries = Some(older);
        let for_pulls = self.objects.iter().any(|key| key.as_ref().is_none_or(|key| pulls_with(pod, key)));
        memory.objects_came(for_pulls, now);
        if older == 0 {
            self.objects.clear();
        }
    }
}

fn pulls_with(pod: Option<&api::Pod>, key: &ObjectKey) -> bool {
    let spec = pod.and_then(|pod| pod.spec.as_ref());
    let mut secrets = spec.into_iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten());
    key.kind == ObjectKind::Secret && secrets.any(|secret| *secret.name == *key.name)
}
