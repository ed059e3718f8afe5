//! The pod's sandbox: whether it is fit, and how a new one takes its place.

use crablet_model::events::Event;
use crablet_model::names::event_reason;
use crablet_model::roster::roster;
use crablet_model::runtime::{Sandbox, SandboxState};
use crablet_model::{Role, api};

use super::draft::Draft;
use super::facts::NetworkTold;
use super::plan::{Action, OpKey};
use super::restart::{self, Restart, RestartPolicy};
use super::stop::{self, StopReason};
use super::{containers, ending};

pub(super) enum Need<'a> {
    Keep(&'a Sandbox),
    New { attempt: u32, why: String },
}

/// Upstream's table: one ready sandbox in the right network with an address is kept, anything else is replaced.
pub(super) fn need<'a>(draft: &Draft<'a>, pod: &api::Pod) -> Need<'a> {
    let sandboxes = &draft.facts.runtime.sandboxes;
    let Some(newest) = sandboxes.first() else {
        return Need::New { attempt: 0, why: "the pod has no sandbox".to_owned() };
    };
    let attempt = newest.attempt.saturating_add(1);
    let new = |why: String| Need::New { attempt, why };
    let ready = sandboxes.iter().filter(|s| s.state == SandboxState::Ready).count();
    if ready > 1 {
        return new(format!("{ready} sandboxes are ready and only one may be"));
    }
    if newest.state != SandboxState::Ready {
        return new(format!("sandbox {} is not ready", newest.id));
    }
    let host_network = wants_host_network(pod);
    if newest.host_network != host_network {
        return new(format!("sandbox {} is in the wrong network namespace", newest.id));
    }
    if !host_network && newest.ips.is_empty() {
        return new(format!("sandbox {} has no address", newest.id));
    }
    Need::Keep(newest)
}

pub(super) fn wants_host_network(pod: &api::Pod) -> bool {
    pod.spec.as_ref().and_then(|s| s.host_network).unwrap_or(false)
}

pub(super) fn replace(draft: &mut Draft<'_>, pod: &api::Pod, attempt: u32, why: &str) {
    let create = is_worth_it(draft, pod, attempt);
    if attempt > 0 && create && !stop::is_down(draft) {
        let text = "Pod sandbox changed, it will be killed and re-created.";
        if draft.memory.stopping_since.is_none() {
            draft.event(Event::normal(draft.id(), event_reason::SANDBOX_CHANGED, text));
        }
        draft.why(format!("{why}: everything in it is stopped and a new one made"));
        note_replaced(draft, pod);
    }
    if !stop::wind_down(draft, StopReason::SandboxChanged) {
        return;
    }
    if !create {
        draft.why(format!("{why}, and no container is left that would run in a new one"));
        return;
    }
    if forget_init(draft, pod) {
        create_sandbox(draft, pod, attempt, why);
    }
}

/// What runs now is to run on in the new sandbox.
fn note_replaced(draft: &mut Draft<'_>, pod: &api::Pod) {
    for spec in pod.spec.iter().flat_map(|spec| &spec.containers) {
        let newest = draft.facts.runtime.instances(&spec.name).next();
        if let Some(running) = newest.filter(|c| stop::is_alive(draft, c)) {
            containers::note_replaced(draft, pod, spec, running);
        }
    }
}

/// A new sandbox is made only if some container is to run in it. A pod that never restarts gets a second one only for
/// containers that say otherwise for themselves (upstream: not even for those, and the pod hangs).
fn is_worth_it(draft: &Draft<'_>, pod: &api::Pod, attempt: u32) -> bool {
    let runtime = draft.facts.runtime;
    let never = RestartPolicy::of(pod) == RestartPolicy::Never;
    let has_run = never && attempt != 0 && !runtime.containers.is_empty();
    let mut regular = pod.spec.iter().flat_map(|spec| &spec.containers);
    regular.any(|spec| match runtime.instances(&spec.name).next() {
        Some(newest) if !has_run || newest.state.exit().is_some() => {
            restart::after(&draft.memory, pod, Role::Regular, spec, newest) != Restart::No
        }
        _ => !has_run || restart::restarts_when_stopped(pod, spec),
    })
}

/// In a new sandbox the pod begins with its first init container again, so what is left of earlier runs goes. Returns
/// whether it has gone. A runtime that refuses to remove it holds nothing up.
fn forget_init(draft: &mut Draft<'_>, pod: &api::Pod) -> bool {
    let runtime = draft.facts.runtime;
    let mut gone = true;
    for (role, spec) in pod.spec.iter().flat_map(roster) {
        for instance in runtime.instances(&spec.name).filter(|_| role.is_init()) {
            ending::remove(draft, instance, "the pod begins afresh in a new sandbox");
            gone &= draft.memory.teardown_failures.contains_key(&instance.id);
        }
    }
    gone
}

fn create_sandbox(draft: &mut Draft<'_>, pod: &api::Pod, attempt: u32, why: &str) {
    if draft.busy(&OpKey::CreateSandbox) || draft.busy(&OpKey::Release) {
        return;
    }
    if !draft.facts.node.network_ready && !wants_host_network(pod) {
        draft.why(format!("the sandbox waits for the network: {}", draft.facts.node.network_message));
        tell_of_network(draft);
        return; // a change of the network wakes every worker
    }
    if let Some(failure) = &draft.memory.sandbox_failure
        && draft.facts.now < failure.retry_at
    {
        let (retry_at, text) = (failure.retry_at, failure.message.clone());
        draft.wake(retry_at);
        draft.why(format!("the sandbox is tried again at {retry_at}: {text}"));
        return;
    }
    draft.act(Action::CreateSandbox { attempt }, format!("{why}: making one (attempt {attempt})"));
}

/// Says on the pod what its sandbox waits for, again and again: events age, and often this is the only hint.
fn tell_of_network(draft: &mut Draft<'_>) {
    let facts = draft.facts;
    let Some(problem) = &facts.node.network_problem else { return };
    let text = format!("network is not ready: container runtime network not ready: {problem}");
    let told = facts.session.network_told.as_ref();
    if let Some(told) = told.filter(|told| told.is_fresh(&text, facts.now)) {
        draft.wake(told.due());
        return;
    }
    draft.wake(NetworkTold::after(told, &text, facts.now).due());
    draft.event(Event::warning(draft.id(), event_reason::NETWORK_NOT_READY, text));
}
