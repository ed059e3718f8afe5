//! The conditions of a resize.

use crablet_model::api;
use crablet_model::names::condition;

use super::super::facts::Facts;
use super::super::memory::Memory;
use super::super::resize::Pending;
use super::conditions::find;
use super::{some_text, time};

/// What the pod waits for, and what it is being given: neither, one or both.
pub(super) fn conditions(facts: &Facts<'_>, memory: &Memory) -> Vec<api::PodCondition> {
    let old = memory.status.as_ref();
    let pending = match &facts.grants.pending {
        Pending::Nothing => None,
        Pending::Unjudged => find(old, condition::POD_RESIZE_PENDING).cloned(),
        Pending::Waits { reason, message, generation } => {
            Some(holding(facts, old, condition::POD_RESIZE_PENDING, reason, message, *generation))
        }
    };
    let in_progress = memory.resizing.as_ref().map(|resizing| {
        let failure = resizing.failure.as_ref();
        let reason = failure.map_or("", |_| condition::REASON_RESIZE_ERROR);
        let message = failure.map_or("", |failure| failure.message.as_str());
        holding(facts, old, condition::POD_RESIZE_IN_PROGRESS, reason, message, resizing.generation)
    });
    pending.into_iter().chain(in_progress).collect()
}

/// Upstream counts a new reason as a transition. It notes when it looked last, too: here that is when it last found
/// something new.
fn holding(
    facts: &Facts<'_>,
    old: Option<&api::PodStatus>,
    kind: &str,
    reason: &str,
    message: &str,
    generation: Option<i64>,
) -> api::PodCondition {
    let before = find(old, kind);
    let same_reason = before.filter(|c| c.reason.as_deref().unwrap_or_default() == reason);
    let same = same_reason.filter(|c| {
        c.message.as_deref().unwrap_or_default() == message && c.observed_generation == generation
    });
    let now = time(facts.now);
    api::PodCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: some_text(reason),
        message: some_text(message),
        observed_generation: generation,
        last_probe_time: same.and_then(|c| c.last_probe_time.clone()).or_else(|| Some(now.clone())),
        last_transition_time: same_reason.and_then(|c| c.last_transition_time.clone()).or(Some(now)),
    }
}
