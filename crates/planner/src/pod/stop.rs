//! Stopping containers: with their hook, in their turn, within their grace.
//!
//! ```text
//!   preStop hook ──> turn of a sidecar ──> StopContainer(what is left of the grace, at least 2 s)
//!   at most the grace, counted once over all three
//! ```

use std::time::Duration;

use crablet_model::events::Event;
use crablet_model::names::{annotation, event_reason};
use crablet_model::roster::{init_role, roster};
use crablet_model::runtime::{Container, ContainerState, SandboxState};
use crablet_model::{Role, api};
use jiff::Timestamp;

use super::draft::Draft;
use super::facts::{Ending, Verdict};
use super::grace::{Grace, MINIMUM_GRACE_SECONDS};
use super::memory::later;
use super::plan::{Action, OpKey};

/// A container that the runtime refused to stop or to remove this often goes with its sandbox instead, once its grace is
/// over.
pub(super) const TRIES: u32 = 3;

/// Why a container is stopped. Decides the event's message and the grace.
#[derive(Clone, Copy)]
pub(super) enum StopReason<'a> {
    PodEnds(&'a Ending),
    Verdict(&'a Verdict),
    PodFinished,
    SandboxChanged,
    NotInSpec,
    UnknownState,
    DefinitionChanged {
        restart: bool,
    },
    LivenessFailed {
        restart: bool,
    },
    StartupFailed {
        restart: bool,
    },
    /// It was granted other resources, and its policy asks for a restart.
    Resized,
    /// Its hook has run, and the reason for that is gone. A container that has prepared for its end is not kept.
    HookRan,
    /// Another container asked for all of them to begin afresh.
    EverythingRestarts,
}

impl StopReason<'_> {
    fn message(self, role: Role, container: &str) -> String {
        let (what, restart) = match self {
            Self::PodEnds(_)
            | Self::Verdict(_)
            | Self::PodFinished
            | Self::SandboxChanged
            | Self::NotInSpec
            | Self::HookRan => return format!("Stopping container {container}"),
            Self::EverythingRestarts => return "killing".to_owned(),
            Self::Resized => return format!("Container {container} resize requires restart"),
            Self::UnknownState => {
                let who = if role.is_init() { "Init container" } else { "Container" };
                return format!("{who} is in \"unknown\" state, try killing it before restart");
            }
            Self::DefinitionChanged { restart } => ("definition changed", restart),
            Self::LivenessFailed { restart } => ("failed liveness probe", restart),
            Self::StartupFailed { restart } => ("failed startup probe", restart),
        };
        match (role.is_init(), restart) {
            (true, _) => format!("Init container {container} {what}"),
            (false, true) => format!("Container {container} {what}, will be restarted"),
            (false, false) => format!("Container {container} {what}"),
        }
    }

    fn why(self) -> String {
        match self {
            Self::PodEnds(end) => return end.why.clone(),
            Self::Verdict(verdict) => return format!("{}: {}", verdict.reason, verdict.message),
            Self::PodFinished => "the pod is finished",
            Self::SandboxChanged => "its sandbox is replaced",
            Self::NotInSpec => "the pod's specification does not name it",
            Self::UnknownState => "the runtime does not know its state",
            Self::DefinitionChanged { .. } => "its definition changed",
            Self::LivenessFailed { .. } => "it failed its liveness probe",
            Self::StartupFailed { .. } => "it failed its startup probe",
            Self::Resized => "it was granted other resources, and its policy asks for a restart",
            Self::HookRan => "its preStop hook has run",
            Self::EverythingRestarts => "all containers of the pod begin afresh",
        }
        .to_owned()
    }
}

/// No container runs, no sandbox is up, and nothing is under way that would change that.
pub(super) fn is_down(draft: &Draft<'_>) -> bool {
    let runtime = draft.facts.runtime;
    runtime.containers.iter().all(|c| !is_alive(draft, c))
        && runtime.sandboxes.iter().all(|s| is_torn_down(draft, &s.id))
}

/// Stops containers, then sandboxes. Returns whether all of it is down.
pub(super) fn wind_down(draft: &mut Draft<'_>, reason: StopReason<'_>) -> bool {
    if matches!(reason, StopReason::PodFinished | StopReason::SandboxChanged) {
        let since = draft.memory.stopping_since.unwrap_or(draft.facts.now);
        draft.memory.stopping_since = (!is_down(draft)).then_some(since);
    }
    let runtime = draft.facts.runtime;
    let (mut alive, mut stubborn) = (0, 0);
    for container in &runtime.containers {
        if is_alive(draft, container) {
            alive += 1;
            stubborn += usize::from(stop_in_turn(draft, container, reason));
        }
    }
    let makes = |key: &OpKey| matches!(key, OpKey::Start(_) | OpKey::CreateSandbox | OpKey::TakeOver);
    let starting = draft.facts.session.ops.keys().any(makes);
    if alive > stubborn || starting {
        return false;
    }
    stop_sandboxes(draft, reason) && alive == 0
}

/// Stops a container once nobody needs it any more. Returns whether the runtime refuses to, and the container had its
/// time: a sandbox that is stopped takes its containers with it at once.
fn stop_in_turn(draft: &mut Draft<'_>, container: &Container, reason: StopReason<'_>) -> bool {
    let first = needed_by(draft, container);
    end_container(draft, container, reason, first.as_deref());
    let refuses = refusals(draft, &container.id) >= TRIES || draft.was_stopped(&container.id);
    refuses && draft.facts.now >= Grace::of(draft, container, reason).until()
}

fn stop_sandboxes(draft: &mut Draft<'_>, reason: StopReason<'_>) -> bool {
    let mut down = true;
    for sandbox in &draft.facts.runtime.sandboxes {
        if is_torn_down(draft, &sandbox.id) {
            continue;
        }
        down = false;
        if !draft.busy(&OpKey::Sandbox(sandbox.id.clone())) && !waits_after_refusal(draft, &sandbox.id) {
            let ready = sandbox.state == SandboxState::Ready;
            let state = if ready { "up" } else { "dead, its network may not be" };
            let why = format!("{}: stopping sandbox {}, which is {state}", reason.why(), sandbox.id);
            draft.act(Action::StopSandbox { id: sandbox.id.clone() }, why);
        }
    }
    down
}

/// Runs, or may run: a container whose state the runtime lost counts until a stop of it succeeded.
pub(super) fn is_alive(draft: &Draft<'_>, container: &Container) -> bool {
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

/// Of a sidecar, who has to end before it: regular containers, and sidecars that were started after it.
fn needed_by(draft: &Draft<'_>, container: &Container) -> Option<String> {
    let spec = draft.facts.pod.and_then(|p| p.spec.as_ref());
    let sidecars = spec.map_or_else(|| draft.memory.sidecars.clone(), sidecars);
    let own = sidecars.iter().position(|name| *name == container.name)?;
    let regular = |name: &str| match spec {
        Some(spec) => spec.containers.iter().any(|c| c.name == name),
        None => !sidecars.iter().any(|sidecar| sidecar == name),
    };
    let needs_it = |name: &str| regular(name) || sidecars[own + 1..].iter().any(|later| later == name);
    let alive = draft.facts.runtime.containers.iter().filter(|c| is_alive(draft, c)).map(|c| c.name.as_str());
    let starting = draft.facts.session.ops.keys().filter_map(|key| match key {
        OpKey::Start(name) => Some(name.as_str()),
        _ => None,
    });
    alive.chain(starting).find(|name| needs_it(name)).map(str::to_owned)
}

/// Names of the sidecars, in the order of their start.
pub(super) fn sidecars(spec: &api::PodSpec) -> Vec<String> {
    let init = spec.init_containers.iter().flatten();
    init.filter(|c| init_role(c) == Role::Sidecar).map(|c| c.name.clone()).collect()
}

/// Stops a container: its hook first, then the runtime.
pub(super) fn stop(draft: &mut Draft<'_>, container: &Container, reason: StopReason<'_>) {
    end_container(draft, container, reason, None);
}

/// Does the next thing on the way to a container's end, unless that is under way with no more grace than now, or was
/// refused a moment ago. `first` is who has to end before it.
fn end_container(draft: &mut Draft<'_>, container: &Container, reason: StopReason<'_>, first: Option<&str>) {
    let key = OpKey::Container(container.id.clone());
    let grace = Grace::of(draft, container, reason);
    let left = grace.left(draft.facts.now);
    let timeout = left.max(MINIMUM_GRACE_SECONDS);
    if let Some(operation) = draft.facts.session.ops.get(&key) {
        let kill_at = operation.grace_seconds.map(|g| later(operation.since, g));
        if kill_at.is_none_or(|at| later(draft.facts.now, timeout) >= at) {
            return;
        }
    } else {
        if draft.busy(&key) || waits_after_refusal(draft, &container.id) {
            return;
        }
        if left > 0 && hook_runs(draft, container, reason, grace) {
            return;
        }
        if let Some(first) = first.filter(|_| left > 0) {
            announce(draft, container, reason);
            draft.wake(grace.until());
            draft.why(format!("container {} is stopped after {first}", container.name));
            return;
        }
    }
    let message = reason.message(role_of(draft, &container.name), &container.name);
    let action = Action::StopContainer {
        container: container.name.clone(),
        id: container.id.clone(),
        grace: Duration::from_secs(timeout.unsigned_abs()),
        message: if is_told(draft, &container.id) { String::new() } else { message },
    };
    let why = format!("container {}: {}; stopping it within {timeout} s", container.name, reason.why());
    draft.act(action, why);
}

/// Has it been told that this container is stopped?
fn is_told(draft: &Draft<'_>, id: &str) -> bool {
    draft.facts.session.pre_stops.contains_key(id) || draft.memory.told_stops.contains(id)
}

/// As upstream, a stop is told when it begins, also if it begins with waiting for others.
fn announce(draft: &mut Draft<'_>, container: &Container, reason: StopReason<'_>) {
    if is_told(draft, &container.id) {
        return;
    }
    draft.memory.told_stops.insert(container.id.clone());
    let role = role_of(draft, &container.name);
    let message = reason.message(role, &container.name);
    draft.event(Event::normal(draft.id(), event_reason::KILLING, message).on(role, &container.name));
}

/// Begins the container's hook, or waits for it as long as there is grace.
fn hook_runs(draft: &mut Draft<'_>, container: &Container, reason: StopReason<'_>, grace: Grace) -> bool {
    if !container.state.is_running() || !has_hook(draft, container) {
        return false;
    }
    let begun = draft.facts.session.pre_stops.get(&container.id);
    if begun.is_some_and(|hook| hook.ended) {
        return false;
    }
    draft.wake(grace.until());
    let key = OpKey::PreStop(container.id.clone());
    if begun.is_some() || draft.busy(&key) {
        draft.why(format!("container {}: its preStop hook runs", container.name));
        return true;
    }
    let left = grace.left(draft.facts.now);
    let action = Action::PreStop {
        container: container.name.clone(),
        id: container.id.clone(),
        limit: Duration::from_secs(left.unsigned_abs()),
        message: reason.message(role_of(draft, &container.name), &container.name),
    };
    let why =
        format!("container {}: {}; its preStop hook has {left} s at most", container.name, reason.why());
    draft.act(action, why);
    true
}

/// What the specification says; of a container that has none any more, what it was started with.
fn has_hook(draft: &Draft<'_>, container: &Container) -> bool {
    let spec = draft.facts.pod.and_then(|p| p.spec.as_ref());
    match spec.and_then(|spec| crablet_model::roster::find(spec, &container.name)) {
        Some((_, spec)) => spec.lifecycle.as_ref().is_some_and(|l| l.pre_stop.is_some()),
        None => container.annotations.contains_key(annotation::CONTAINER_PRE_STOP_HANDLER),
    }
}

/// Of a container that the specification does not name nobody knows more.
fn role_of(draft: &Draft<'_>, container: &str) -> Role {
    let spec = draft.facts.pod.and_then(|p| p.spec.as_ref());
    let found = spec.and_then(|spec| roster(spec).find(|(_, c)| c.name == container));
    found.map_or(Role::Regular, |(role, _)| role)
}

/// How often the runtime has refused to stop or to remove this, in a row.
pub(super) fn refusals(draft: &Draft<'_>, id: &str) -> u32 {
    draft.memory.teardown_failures.get(id).map_or(0, |failure| failure.count)
}

/// A refused stop or removal is tried again, but not at once.
pub(super) fn waits_after_refusal(draft: &mut Draft<'_>, id: &str) -> bool {
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
