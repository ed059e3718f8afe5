//! A pod that should run: its sandbox first, then its containers in their order.

use crablet_model::api;
use crablet_model::roster::roster;
use crablet_model::runtime::ContainerState;

use super::draft::Draft;
use super::ending;
use super::memory::{START_RETRY_SECONDS, later};
use super::plan::{Action, OpKey};
use super::sandbox::{self, Need};
use super::stop::{self, StopReason};
use super::{containers, reset, resize, status, verdict};

pub(super) fn decide(draft: &mut Draft<'_>, pod: &api::Pod) {
    begin_again(draft);
    resize::follow(draft, pod);
    forget_replaced(draft);
    stop_strangers(draft, pod);
    verdict::consider(draft, pod);
    if let Some(verdict) = draft.memory.verdict.clone() {
        draft.why(format!("the node does not let the pod run: {}: {}", verdict.reason, verdict.message));
        ending::retire(draft, StopReason::Verdict(&verdict));
        return;
    }
    if let Some(phase) = status::is_terminal(draft.facts, pod, &draft.memory) {
        draft.why(format!("the pod is {phase}: its sandbox goes, its containers stay for their logs"));
        ending::retire(draft, StopReason::PodFinished);
        return;
    }
    if let Some(refused) = draft.facts.refused {
        draft.why(format!("the pod is not begun: {refused}"));
        return;
    }
    match sandbox::need(draft, pod) {
        Need::Keep(sandbox) => {
            take_over(draft);
            if reset::decide(draft, pod) {
                draft.memory.stopping_since = None;
            } else {
                containers::decide(draft, pod, sandbox);
            }
        }
        Need::New { attempt, why } => sandbox::replace(draft, pod, attempt, &why),
    }
}

/// Its end was begun in an earlier life of the agent, and now it is wanted again: neither the grace of that end nor the
/// final status that it came to may hold it down.
fn begin_again(draft: &mut Draft<'_>) {
    if draft.memory.ending.take().is_none() {
        return;
    }
    draft.memory.verdict = None;
    if let Some(status) = &mut draft.memory.status {
        (status.phase, status.reason, status.message) = (None, None, None);
        let init = status.init_container_statuses.iter_mut().flatten();
        let ephemeral = status.ephemeral_container_statuses.iter_mut().flatten();
        for container in status.container_statuses.iter_mut().flatten().chain(init).chain(ephemeral) {
            // Restart counts and ids stay: counts never fall.
            (container.state, container.last_state) = (None, None);
        }
    }
    draft.why("the pod was ending and is wanted again");
}

/// What was to be started again has run since, or is gone. While it is on its way, looks at the runtime may or may not
/// show it, and what was only created may have to go again.
fn forget_replaced(draft: &mut Draft<'_>) {
    let facts = draft.facts;
    draft.memory.replaced.retain(|name, id| {
        let newest = facts.runtime.instances(name).next();
        newest.is_some_and(|c| c.id == *id || c.state == ContainerState::Created)
            || facts.session.ops.contains_key(&OpKey::Start(name.clone()))
    });
}

/// A sandbox that was there before this life of the agent: nobody has looked after the pod's volumes since.
fn take_over(draft: &mut Draft<'_>) {
    let session = draft.facts.session;
    if session.taken_over || draft.busy(&OpKey::TakeOver) {
        return;
    }
    match session.take_over_at {
        // Further away than a next try can be: the clock was set back.
        Some(at) if draft.facts.now < at && at <= later(draft.facts.now, START_RETRY_SECONDS) => {
            draft.wake(at);
        }
        _ => draft
            .act(Action::TakeOver, "the pod was started before this agent was: looking after its volumes"),
    }
}

/// Containers that run although the specification does not name them: left over from an earlier version of the pod.
fn stop_strangers(draft: &mut Draft<'_>, pod: &api::Pod) {
    let runtime = draft.facts.runtime;
    let is_named = |name: &str| pod.spec.iter().flat_map(roster).any(|(_, c)| c.name == name);
    for stranger in runtime.containers.iter().filter(|c| !is_named(&c.name)) {
        if matches!(stranger.state, ContainerState::Running { .. } | ContainerState::Unknown) {
            stop::stop(draft, stranger, StopReason::NotInSpec);
        }
    }
}
