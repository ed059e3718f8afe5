//! A pod that should end, and everything else that stops containers.

use std::time::Duration;

use crablet_model::names::annotation;
use crablet_model::runtime::{Container, ContainerState, SandboxState};
use jiff::Timestamp;

use super::draft::Draft;
use super::facts::Ending;
use super::memory::{CLEANUP, RELEASE, later};
use super::plan::{Action, OpKey};

/// Upstream never gives a container less.
const MINIMUM_GRACE_SECONDS: i64 = 2;
/// An operation that makes something is left alone for this long when the pod ends; then it is given up.
const PATIENCE_SECONDS: i64 = 10;
/// A container that the runtime refused to stop this often goes down with its sandbox instead, once its grace is over.
const STOP_TRIES: u32 = 3;

/// Why a container is stopped. Decides the event's message and the grace.
pub(super) enum StopReason<'a> {
    PodEnds(&'a Ending),
    PodFinished,
    SandboxChanged,
    NotInSpec,
    UnknownState,
    DefinitionChanged { restart: bool },
}

impl StopReason<'_> {
    fn message(&self, container: &str) -> String {
        match self {
            Self::PodEnds(_) | Self::PodFinished | Self::SandboxChanged | Self::NotInSpec => {
                format!("Stopping container {container}")
            }
            Self::UnknownState => {
                "Container is in \"unknown\" state, try killing it before restart".to_owned()
            }
            Self::DefinitionChanged { restart: true } => {
                format!("Container {container} definition changed, will be restarted")
            }
            Self::DefinitionChanged { restart: false } => format!("Container {container} definition changed"),
        }
    }

    /// A sandbox that is stopped takes its containers with it at once: not before they had their time.
    fn grace_is_over(&self, now: Timestamp) -> bool {
        match self {
            Self::PodEnds(end) => now >= later(end.since, end.grace_seconds),
            _ => true,
        }
    }

    fn why(&self) -> String {
        match self {
            Self::PodEnds(end) => end.why.clone(),
            Self::PodFinished => "the pod is finished".to_owned(),
            Self::SandboxChanged => "its sandbox is replaced".to_owned(),
            Self::NotInSpec => "the pod's specification does not name it".to_owned(),
            Self::UnknownState => "the runtime does not know its state".to_owned(),
            Self::DefinitionChanged { .. } => "its definition changed".to_owned(),
        }
    }
}

pub(super) fn decide(draft: &mut Draft<'_>, end: &Ending) {
    give_up_starts(draft);
    if draft.memory.ending.as_ref() != Some(end) {
        draft.memory.ending = Some(end.clone());
    }
    if !wind_down(draft, &StopReason::PodEnds(end)) {
        return;
    }
    if !end.forget {
        if release(draft) {
            draft.released();
            draft.why("the pod has ended; its containers stay for their logs");
        }
        return;
    }
    if remove_everything(draft) {
        clean_up(draft);
    }
}

/// Operations that make something are in the way of an end. Pulls are given up at once; a sandbox or a start that is
/// nearly there is better finished than cut off, but not for long.
fn give_up_starts(draft: &mut Draft<'_>) {
    let facts = draft.facts;
    for (key, operation) in &facts.session.ops {
        match key {
            OpKey::Image(_) => {
                draft.cancel(key, "the pod ends: its image pull is given up");
            }
            OpKey::CreateSandbox | OpKey::Start(_) | OpKey::TakeOver => {
                let until = later(operation.since, PATIENCE_SECONDS);
                if facts.now < until {
                    draft.wake(until);
                } else {
                    draft.cancel(key, format!("the pod ends: {key:?} took too long"));
                }
            }
            OpKey::Sandbox(_) | OpKey::Container(_) | OpKey::Release | OpKey::Cleanup => {}
        }
    }
}

/// No container runs, no sandbox is up, and nothing is under way that would change that.
pub(super) fn is_down(draft: &Draft<'_>) -> bool {
    let runtime = draft.facts.runtime;
    runtime.containers.iter().all(|c| !is_alive(draft, c))
        && runtime.sandboxes.iter().all(|s| is_torn_down(draft, &s.id))
}

/// Stops containers, then sandboxes. Returns whether all of it is down.
pub(super) fn wind_down(draft: &mut Draft<'_>, reason: &StopReason<'_>) -> bool {
    let runtime = draft.facts.runtime;
    let mut stubborn = 0;
    let mut alive = 0;
    for container in &runtime.containers {
        if !is_alive(draft, container) {
            continue;
        }
        alive += 1;
        stop(draft, container, reason);
        let tries = draft.memory.teardown_failures.get(&container.id).map_or(0, |f| f.count);
        let refuses = tries >= STOP_TRIES || draft.was_stopped(&container.id);
        stubborn += usize::from(refuses && reason.grace_is_over(draft.facts.now));
    }
    let makes = |key: &OpKey| matches!(key, OpKey::Start(_) | OpKey::CreateSandbox | OpKey::TakeOver);
    let starting = draft.facts.session.ops.keys().any(makes);
    if alive > stubborn || starting {
        return false;
    }
    let mut down = alive == 0;
    for sandbox in &runtime.sandboxes {
        if !is_torn_down(draft, &sandbox.id) {
            down = false;
            let key = OpKey::Sandbox(sandbox.id.clone());
            if !draft.busy(&key) && !waits_after_refusal(draft, &sandbox.id) {
                let state =
                    if sandbox.state == SandboxState::Ready { "up" } else { "dead, its network may not be" };
                let why = format!("{}: stopping sandbox {}, which is {state}", reason.why(), sandbox.id);
                draft.act(Action::StopSandbox { id: sandbox.id.clone() }, why);
            }
        }
    }
    down
}

/// Runs, or may run: a container whose state the runtime lost counts until a stop of it succeeded.
fn is_alive(draft: &Draft<'_>, container: &Container) -> bool {
    match container.state {
        ContainerState::Running { .. } => true,
        ContainerState::Unknown => !draft.was_stopped(&container.id),
        ContainerState::Created | ContainerState::Exited(_) => false,
    }
}

/// Torn down in this life of the agent, and not come back since.
fn is_torn_down(draft: &Draft<'_>, id: &str) -> bool {
    let session = draft.facts.session;
    let ready = draft.facts.runtime.sandboxes.iter().any(|s| s.id == id && s.state == SandboxState::Ready);
    !ready && session.stopped_sandboxes.contains(id)
}

/// Stops a container unless that is under way with no more grace than now, or was refused a moment ago.
pub(super) fn stop(draft: &mut Draft<'_>, container: &Container, reason: &StopReason<'_>) {
    let key = OpKey::Container(container.id.clone());
    let grace = grace_seconds(draft, container, reason);
    if let Some(operation) = draft.facts.session.ops.get(&key) {
        let kill_at = operation.grace_seconds.map(|g| later(operation.since, g));
        let shorter = kill_at.is_some_and(|t| later(draft.facts.now, grace) < t);
        if !shorter {
            return;
        }
    }
    if draft.busy(&key) && !draft.facts.session.ops.contains_key(&key)
        || waits_after_refusal(draft, &container.id)
    {
        return;
    }
    let action = Action::StopContainer {
        container: container.name.clone(),
        id: container.id.clone(),
        grace: Duration::from_secs(grace.unsigned_abs()),
        message: reason.message(&container.name),
    };
    draft
        .act(action, format!("container {}: {}; stopping it within {grace} s", container.name, reason.why()));
}

/// What is left of the pod's grace, or the whole of it where the pod itself does not end.
fn grace_seconds(draft: &Draft<'_>, container: &Container, reason: &StopReason<'_>) -> i64 {
    let grace = match reason {
        StopReason::PodEnds(end) => {
            let passed = draft.facts.now.duration_since(end.since).as_secs().max(0);
            end.grace_seconds - passed
        }
        _ => pod_grace_seconds(draft, container),
    };
    grace.max(MINIMUM_GRACE_SECONDS)
}

fn pod_grace_seconds(draft: &Draft<'_>, container: &Container) -> i64 {
    let spec = draft.facts.pod.and_then(|p| p.spec.as_ref());
    let annotated = container.annotations.get(annotation::POD_TERMINATION_GRACE_PERIOD);
    spec.and_then(|s| s.termination_grace_period_seconds)
        .or_else(|| annotated.and_then(|text| text.parse().ok()))
        .unwrap_or(MINIMUM_GRACE_SECONDS)
}

/// A refused stop or removal is tried again, but not at once.
fn waits_after_refusal(draft: &mut Draft<'_>, id: &str) -> bool {
    let Some(failure) = draft.memory.teardown_failures.get(id) else {
        return false;
    };
    let retry_at: Timestamp = failure.retry_at;
    if draft.facts.now >= retry_at {
        return false;
    }
    let text = failure.message.clone();
    draft.wake(retry_at);
    draft.why(format!("{id} could not be torn down and is tried again at {retry_at}: {text}"));
    true
}

pub(super) fn remove(draft: &mut Draft<'_>, container: &Container, why: &str) {
    let key = OpKey::Container(container.id.clone());
    if draft.busy(&key) || waits_after_refusal(draft, &container.id) {
        return;
    }
    let action = Action::RemoveContainer { container: container.name.clone(), id: container.id.clone() };
    draft.act(action, format!("removing container {} ({}): {why}", container.name, container.id));
}

pub(super) fn remove_sandbox(draft: &mut Draft<'_>, id: &str, why: &str) {
    if draft.busy(&OpKey::Sandbox(id.to_owned())) || waits_after_refusal(draft, id) {
        return;
    }
    draft.act(Action::RemoveSandbox { id: id.to_owned() }, format!("removing sandbox {id}: {why}"));
}

/// Containers, then sandboxes. Returns whether the runtime has nothing of the pod any more.
fn remove_everything(draft: &mut Draft<'_>) -> bool {
    let runtime = draft.facts.runtime;
    for container in &runtime.containers {
        remove(draft, container, "nobody wants the pod any more");
    }
    if runtime.containers.is_empty() {
        for sandbox in &runtime.sandboxes {
            remove_sandbox(draft, &sandbox.id, "nobody wants the pod any more");
        }
    }
    runtime.is_empty()
}

/// Gives back what a pod that is down still holds of the node. Returns whether it holds nothing any more.
pub(super) fn release(draft: &mut Draft<'_>) -> bool {
    if draft.facts.session.released {
        return true;
    }
    if !draft.busy(&OpKey::Release) && !waits_after_refusal(draft, RELEASE) {
        draft.act(Action::Release, "nothing of the pod runs any more: releasing its volumes and its cgroup");
    }
    false
}

fn clean_up(draft: &mut Draft<'_>) {
    if draft.facts.session.cleaned {
        draft.finished("nothing is left of the pod");
    } else if !draft.busy(&OpKey::Cleanup) && !waits_after_refusal(draft, CLEANUP) {
        draft.act(
            Action::Cleanup,
            "the runtime has nothing of the pod any more: removing its folders and logs",
        );
    }
}
