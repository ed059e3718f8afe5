//! The containers of a pod whose sandbox is fit: who is started, who is stopped, who may wait.

use crablet_model::api;
use crablet_model::hash::container_hash;
use crablet_model::roster::{Role, as_container};
use crablet_model::runtime::{Container, ContainerState, Sandbox};

use super::draft::Draft;
use super::ending;
use super::init::{self, Progress};
use super::plan::OpKey;
use super::resize;
use super::restart::{self, Restart};
use super::start::{self, Who};
use super::stop::{self, StopReason};

pub(super) fn decide(draft: &mut Draft<'_>, pod: &api::Pod, sandbox: &Sandbox) {
    if are_at_their_end(draft, pod, sandbox) {
        draft
            .why("every container has ended for good, or fails for good: what is left of the pod is stopped");
        ending::retire(draft, StopReason::PodFinished);
        return;
    }
    draft.memory.stopping_since = None;
    resize::decide(draft, pod, sandbox);
    ephemeral(draft, pod, sandbox);
    match init::decide(draft, pod, sandbox) {
        Progress::Failed => {
            draft.why("an init container has failed for good: the pod goes");
            ending::retire(draft, StopReason::PodFinished);
        }
        Progress::Waits => {}
        Progress::Initialised { mut in_order } => {
            // Starts happen in the order of the specification: while an earlier container is on its way, later ones only
            // prepare their images.
            for spec in pod.spec.iter().flat_map(|spec| &spec.containers) {
                let who = Who { role: Role::Regular, spec };
                in_order &= regular(draft, pod, who, sandbox, in_order);
            }
        }
    }
}

/// Has every regular container ended for good, or is it being stopped because it fails, never to be started again? Then the
/// pod goes as a whole, as upstream has it: what is left is told that it is stopped, and has the pod's own grace. Sidecars do
/// not keep a pod alive.
fn are_at_their_end(draft: &Draft<'_>, pod: &api::Pod, sandbox: &Sandbox) -> bool {
    let regular = pod.spec.as_ref().map(|s| s.containers.as_slice()).unwrap_or_default();
    !regular.is_empty()
        && regular.iter().all(|spec| {
            let Some(newest) = draft.facts.runtime.instances(&spec.name).next() else {
                return restart::is_over(draft.facts, &draft.memory, pod, spec);
            };
            if newest.state.is_running() {
                newest.sandbox_id == sandbox.id && fails_for_good(draft, pod, spec, newest)
            } else {
                restart::after(&draft.memory, pod, Role::Regular, spec, newest) == Restart::No
            }
        })
}

/// Whatever the probe says later: a container whose end has begun is not kept.
fn fails_for_good(draft: &Draft<'_>, pod: &api::Pod, spec: &api::Container, running: &Container) -> bool {
    let probed = draft.facts.probes.of(&running.id);
    let fails = probed.liveness == Some(false) || probed.startup == Some(false);
    let session = draft.facts.session;
    let ends = session.pre_stops.contains_key(&running.id)
        || session.ops.contains_key(&OpKey::Container(running.id.clone()));
    let starts_again = restart::restarts_when_stopped(pod, spec)
        || is_changed(spec, running)
        || draft.memory.replaced.get(&spec.name) == Some(&running.id);
    (fails || ends) && !starts_again
}

/// Decides for one container. Returns whether the next one may be started now.
fn regular(draft: &mut Draft<'_>, pod: &api::Pod, who: Who<'_>, sandbox: &Sandbox, in_order: bool) -> bool {
    if stop_elsewhere(draft, pod, who, sandbox) {
        return true;
    }
    if draft.busy(&OpKey::Start(who.spec.name.clone())) {
        return false;
    }
    let newest = draft.facts.runtime.instances(&who.spec.name).next();
    let Some(instance) = newest else {
        let is_over = restart::is_over(draft.facts, &draft.memory, pod, who.spec);
        return is_over || start::start(draft, who, sandbox, None, in_order);
    };
    match instance.state {
        ContainerState::Running { .. } => {
            keep_or_replace(draft, pod, who, instance);
            true
        }
        ContainerState::Created => start::start_created(draft, who, sandbox, instance, in_order),
        ContainerState::Unknown => {
            stop_unknown(draft, pod, who, instance);
            true
        }
        ContainerState::Exited(_) => match restart::after(&draft.memory, pod, who.role, who.spec, instance) {
            Restart::No => true,
            Restart::Yes | Restart::Everything => start::start(draft, who, sandbox, Some(instance), in_order),
        },
    }
}

/// An instance that runs in another sandbox makes room.
pub(super) fn stop_elsewhere(draft: &mut Draft<'_>, pod: &api::Pod, who: Who<'_>, sandbox: &Sandbox) -> bool {
    let mut instances = draft.facts.runtime.instances(&who.spec.name);
    let Some(elsewhere) = instances.find(|c| c.state.is_running() && c.sandbox_id != sandbox.id) else {
        return false;
    };
    note_replaced(draft, pod, who.spec, elsewhere);
    stop::stop(draft, elsewhere, StopReason::SandboxChanged);
    true
}

pub(super) fn stop_unknown(draft: &mut Draft<'_>, pod: &api::Pod, who: Who<'_>, unknown: &Container) {
    note_replaced(draft, pod, who.spec, unknown);
    if draft.was_stopped(&unknown.id) {
        ending::remove(draft, unknown, "it was stopped and the runtime still does not know its state");
    } else {
        stop::stop(draft, unknown, StopReason::UnknownState);
    }
}

/// What the agent stops in order to start it again has not done its work, though it may end with 0.
pub(super) fn note_replaced(
    draft: &mut Draft<'_>,
    pod: &api::Pod,
    spec: &api::Container,
    instance: &Container,
) {
    if restart::restarts_when_stopped(pod, spec) {
        draft.memory.replaced.insert(spec.name.clone(), instance.id.clone());
    }
}

fn keep_or_replace(draft: &mut Draft<'_>, pod: &api::Pod, who: Who<'_>, running: &Container) {
    // It runs: why an earlier try failed is history.
    draft.memory.failures.remove(&who.spec.name);
    let probed = draft.facts.probes.of(&running.id);
    // It has not ended yet, so its rules have nothing to say.
    let restart = restart::restarts_when_stopped(pod, who.spec);
    let reason = if is_changed(who.spec, running) {
        StopReason::DefinitionChanged { restart: true }
    } else if probed.liveness == Some(false) {
        StopReason::LivenessFailed { restart }
    } else if probed.startup == Some(false) {
        StopReason::StartupFailed { restart }
    } else if resize::must_restart(draft.facts, pod, who.spec) {
        StopReason::Resized
    } else if draft.facts.session.pre_stops.contains_key(&running.id) {
        StopReason::HookRan
    } else {
        return;
    };
    if restart || matches!(reason, StopReason::DefinitionChanged { .. } | StopReason::Resized) {
        draft.memory.replaced.insert(who.spec.name.clone(), running.id.clone());
    }
    stop::stop(draft, running, reason);
}

pub(super) fn is_changed(spec: &api::Container, instance: &Container) -> bool {
    let hash = container_hash(&spec.name, spec.image.as_deref().unwrap_or_default());
    !instance.hash.is_empty() && instance.hash != hash
}

/// Ephemeral containers run once, whatever the others do: also beside a pod that is not initialised.
fn ephemeral(draft: &mut Draft<'_>, pod: &api::Pod, sandbox: &Sandbox) {
    let all = pod.spec.iter().flat_map(|spec| spec.ephemeral_containers.iter().flatten());
    let mut in_order = true;
    for spec in all.map(as_container) {
        let who = Who { role: Role::Ephemeral, spec: &spec };
        if draft.busy(&OpKey::Start(spec.name.clone())) {
            in_order = false;
            continue;
        }
        let newest = draft.facts.runtime.instances(&spec.name).next();
        match newest.map(|c| (c, &c.state)) {
            None if start::next_attempt(draft, &spec.name) == 0 => {
                in_order &= start::start(draft, who, sandbox, None, in_order);
            }
            // Cut off between two steps of its first start.
            Some((created, ContainerState::Created))
                if created.sandbox_id == sandbox.id && !draft.memory.failures.contains_key(&spec.name) =>
            {
                in_order &= start::start_created(draft, who, sandbox, created, in_order);
            }
            Some((_, ContainerState::Running { .. })) => {
                draft.memory.failures.remove(&spec.name);
            }
            _ => {}
        }
    }
}
