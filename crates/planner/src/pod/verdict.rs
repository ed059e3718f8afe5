//! What the node itself decides about a pod: not admitted, evicted, pre-empted, too long on the node.

use crablet_model::api;
use crablet_model::events::Event;
use crablet_model::names::phase;
use jiff::Timestamp;

use super::draft::Draft;
use super::facts::Verdict;
use super::memory::later;

/// Reason of the pod and of its event.
const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
const DEADLINE_MESSAGE: &str = "Pod was active on the node longer than the specified deadline";

/// Takes in a verdict about a pod that has none yet and that is not known to be finished. As upstream, one that somebody
/// has asked to go is told of it, too, as long as it has not come to its end.
pub(super) fn consider(draft: &mut Draft<'_>, pod: &api::Pod) {
    let known = [draft.memory.status.as_ref(), pod.status.as_ref()];
    let finished = |s: &api::PodStatus| s.phase.as_deref().is_some_and(phase::is_terminal);
    if draft.memory.verdict.is_some() || known.into_iter().flatten().any(finished) {
        return;
    }
    if let Some(verdict) = draft.facts.verdict {
        draft.memory.verdict = Some(verdict.clone());
        return;
    }
    let Some(deadline) = deadline(draft, pod) else { return };
    let now = draft.facts.now;
    if now < deadline {
        // One that goes anyway has nothing to wait for.
        if !draft.is_ending() {
            draft.wake(deadline);
        }
        return;
    }
    draft.event(Event::normal(draft.id(), DEADLINE_EXCEEDED, DEADLINE_MESSAGE));
    draft.memory.verdict = Some(Verdict {
        reason: DEADLINE_EXCEEDED.to_owned(),
        message: DEADLINE_MESSAGE.to_owned(),
        since: now,
        grace_seconds: None,
        disruption: None,
    });
}

/// Counted from the start time that the status tells.
fn deadline(draft: &Draft<'_>, pod: &api::Pod) -> Option<Timestamp> {
    let seconds = pod.spec.as_ref()?.active_deadline_seconds?;
    let published = draft.memory.status.as_ref().and_then(|s| s.start_time.as_ref());
    let start = published.map_or(draft.facts.now, |start| start.0);
    Some(later(start, seconds))
}
