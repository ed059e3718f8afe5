//! A pod that should run: sandbox first, then images, then starts in the order of the specification.

use crablet_model::api;
use crablet_model::events::Event;
use crablet_model::hash::container_hash;
use crablet_model::image::with_default_tag;
use crablet_model::names::{container_reason, event_reason};
use crablet_model::runtime::{Container, ContainerState, Sandbox, SandboxState};

use super::draft::Draft;
use super::ending::{self, StopReason};
use super::memory::later;
use super::plan::{Action, OpKey, PullPolicy};
use super::restart::{self, RestartPolicy};
use super::status;

/// Upstream: a failed pull is retried no sooner than its back-off; until half of it has passed the status shows the
/// failure itself, afterwards the back-off.
const PULL_HALVES: i64 = 2;

pub(super) fn decide(draft: &mut Draft<'_>, pod: &api::Pod) {
    if draft.memory.ending.take().is_some() {
        // Its end was begun in an earlier life of the agent, and now it is wanted again: neither the grace of that end
        // nor the final status that it came to may hold it down.
        if let Some(status) = &mut draft.memory.status {
            (status.phase, status.reason, status.message) = (None, None, None);
            for container in status.container_statuses.iter_mut().flatten() {
                // Restart counts and ids stay: counts never fall.
                (container.state, container.last_state) = (None, None);
            }
        }
        draft.why("the pod was ending and is wanted again");
    }
    stop_strangers(draft, pod);
    if let Some(phase) = status::is_terminal(draft.facts, pod, &draft.memory) {
        draft.why(format!("the pod is {phase}: its sandbox goes, its containers stay for their logs"));
        if ending::wind_down(draft, &StopReason::PodFinished) {
            ending::release(draft);
        }
        return;
    }
    if let Some(refused) = draft.facts.refused {
        draft.why(format!("the pod is not begun: {refused}"));
        return;
    }
    match sandbox_need(draft, pod) {
        SandboxNeed::Keep(sandbox) => {
            take_over(draft);
            containers(draft, pod, sandbox);
        }
        SandboxNeed::New { attempt, why } => replace_sandbox(draft, pod, attempt, &why),
    }
}

/// A sandbox that was there before this life of the agent: nobody has looked after the pod's volumes since.
fn take_over(draft: &mut Draft<'_>) {
    let session = draft.facts.session;
    if session.taken_over || draft.busy(&OpKey::TakeOver) {
        return;
    }
    match session.take_over_at {
        Some(at) if draft.facts.now < at => draft.wake(at),
        _ => draft
            .act(Action::TakeOver, "the pod was started before this agent was: looking after its volumes"),
    }
}

enum SandboxNeed<'a> {
    Keep(&'a Sandbox),
    New { attempt: u32, why: String },
}

/// Upstream's table: one ready sandbox in the right network with an address is kept, anything else is replaced.
fn sandbox_need<'a>(draft: &Draft<'a>, pod: &api::Pod) -> SandboxNeed<'a> {
    let sandboxes = &draft.facts.runtime.sandboxes;
    let Some(newest) = sandboxes.first() else {
        return SandboxNeed::New { attempt: 0, why: "the pod has no sandbox".to_owned() };
    };
    let attempt = newest.attempt.saturating_add(1);
    let new = |why: String| SandboxNeed::New { attempt, why };
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
    SandboxNeed::Keep(newest)
}

pub(super) fn wants_host_network(pod: &api::Pod) -> bool {
    pod.spec.as_ref().and_then(|s| s.host_network).unwrap_or(false)
}

fn replace_sandbox(draft: &mut Draft<'_>, pod: &api::Pod, attempt: u32, why: &str) {
    let create = worth_a_sandbox(draft, pod, attempt);
    if attempt > 0 && create && !ending::is_down(draft) {
        let text = "Pod sandbox changed, it will be killed and re-created.";
        if draft.facts.session.ops.is_empty() {
            draft.event(Event::normal(draft.id(), event_reason::SANDBOX_CHANGED, text));
        }
        draft.why(format!("{why}: everything in it is stopped and a new one made"));
    }
    if !ending::wind_down(draft, &StopReason::SandboxChanged) {
        return;
    }
    if !create {
        draft.why(format!("{why}, and no container is left that would run in a new one"));
        return;
    }
    create_sandbox(draft, pod, attempt, why);
}

/// A new sandbox is made only if some container is to run in it.
fn worth_a_sandbox(draft: &Draft<'_>, pod: &api::Pod, attempt: u32) -> bool {
    let runtime = draft.facts.runtime;
    let policy = RestartPolicy::of(pod);
    if policy == RestartPolicy::Never && attempt != 0 && !runtime.containers.is_empty() {
        return false;
    }
    containers_of(pod).iter().any(|c| restart::should_run(policy, runtime.instances(&c.name).next()))
}

fn create_sandbox(draft: &mut Draft<'_>, pod: &api::Pod, attempt: u32, why: &str) {
    if draft.busy(&OpKey::CreateSandbox) || draft.busy(&OpKey::Release) {
        return;
    }
    if !draft.facts.node.network_ready && !wants_host_network(pod) {
        draft.why(format!("the sandbox waits for the network: {}", draft.facts.node.network_message));
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

fn containers_of(pod: &api::Pod) -> &[api::Container] {
    pod.spec.as_ref().map(|s| s.containers.as_slice()).unwrap_or_default()
}

/// Containers that run although the specification does not name them: left over from an earlier version of the pod.
fn stop_strangers(draft: &mut Draft<'_>, pod: &api::Pod) {
    let runtime = draft.facts.runtime;
    for stranger in runtime.containers.iter().filter(|c| !containers_of(pod).iter().any(|s| s.name == c.name))
    {
        if matches!(stranger.state, ContainerState::Running { .. } | ContainerState::Unknown) {
            ending::stop(draft, stranger, &StopReason::NotInSpec);
        }
    }
}

fn containers(draft: &mut Draft<'_>, pod: &api::Pod, sandbox: &Sandbox) {
    let policy = RestartPolicy::of(pod);
    // Starts happen in the order of the specification: while an earlier container is on its way, later ones only
    // prepare their images.
    let mut in_order = true;
    for spec in containers_of(pod) {
        in_order &= container(draft, policy, spec, sandbox, in_order);
    }
}

/// Decides for one container. Returns whether the next one may be started now.
fn container(
    draft: &mut Draft<'_>,
    policy: RestartPolicy,
    spec: &api::Container,
    sandbox: &Sandbox,
    in_order: bool,
) -> bool {
    let runtime = draft.facts.runtime;
    let mut instances = runtime.instances(&spec.name);
    if let Some(elsewhere) = instances.find(|c| c.state.is_running() && c.sandbox_id != sandbox.id) {
        ending::stop(draft, elsewhere, &StopReason::SandboxChanged);
        return true;
    }
    if draft.busy(&OpKey::Start(spec.name.clone())) {
        return false;
    }
    let newest = runtime.instances(&spec.name).next();
    match newest.map(|c| (c, &c.state)) {
        Some((running, ContainerState::Running { .. })) => {
            keep_or_replace(draft, policy, spec, running);
            true
        }
        Some((created, ContainerState::Created)) => start_created(draft, spec, sandbox, created, in_order),
        Some((unknown, ContainerState::Unknown)) => {
            if draft.was_stopped(&unknown.id) {
                ending::remove(
                    draft,
                    unknown,
                    "it was stopped and the runtime still does not know its state",
                );
            } else {
                ending::stop(draft, unknown, &StopReason::UnknownState);
            }
            true
        }
        Some((exited, ContainerState::Exited(exit))) => {
            if policy.restarts(exit.code) {
                start(draft, spec, sandbox, Some(exited), in_order)
            } else {
                true
            }
        }
        None => start(draft, spec, sandbox, None, in_order),
    }
}

fn keep_or_replace(draft: &mut Draft<'_>, policy: RestartPolicy, spec: &api::Container, running: &Container) {
    // It runs: why an earlier try failed is history.
    draft.memory.failures.remove(&spec.name);
    let hash = container_hash(&spec.name, spec.image.as_deref().unwrap_or_default());
    if !running.hash.is_empty() && running.hash != hash {
        let restart = policy != RestartPolicy::Never;
        ending::stop(draft, running, &StopReason::DefinitionChanged { restart });
    }
}

/// An instance that was created but not started: an earlier life of the agent died in between. It is started if it is
/// what the specification wants; otherwise it makes room.
fn start_created(
    draft: &mut Draft<'_>,
    spec: &api::Container,
    sandbox: &Sandbox,
    created: &Container,
    in_order: bool,
) -> bool {
    let hash = container_hash(&spec.name, spec.image.as_deref().unwrap_or_default());
    if created.sandbox_id != sandbox.id || created.hash != hash {
        ending::remove(draft, created, "it was created for an earlier version of the pod and never started");
        return true;
    }
    if waits_after_failure(draft, spec) {
        return true;
    }
    if !in_order {
        return false;
    }
    if draft.memory.failures.contains_key(&spec.name) {
        // Starting it failed before. A fresh instance is the better second try.
        ending::remove(draft, created, "it could not be started");
        return false;
    }
    let action = Action::StartCreated { container: spec.name.clone(), id: created.id.clone() };
    draft.act(action, format!("container {} was created and never started: starting it", spec.name));
    false
}

/// Starts a container, or does the next thing on the way to it. Returns whether the next one may be started now.
fn start(
    draft: &mut Draft<'_>,
    spec: &api::Container,
    sandbox: &Sandbox,
    exited: Option<&Container>,
    in_order: bool,
) -> bool {
    if let Some(exited) = exited
        && waits_in_crash_loop(draft, spec, exited)
    {
        return true;
    }
    if waits_after_failure(draft, spec) {
        return true;
    }
    let Some(image) = draft.facts.session.images.get(&spec.name).cloned() else {
        return prepare_image(draft, spec);
    };
    if !in_order {
        return false;
    }
    let attempt = next_attempt(draft, &spec.name);
    if let Some(exited) = exited {
        let facts = draft.facts;
        restart::advance(facts, &mut draft.memory, spec, exited);
    }
    let why = match exited.and_then(|c| c.state.exit()) {
        Some(exit) => format!("container {} ended with {}: starting it again", spec.name, exit.code),
        None => format!("container {} is not there: starting it", spec.name),
    };
    let action = Action::StartContainer {
        container: spec.name.clone(),
        attempt,
        sandbox_id: sandbox.id.clone(),
        image,
    };
    draft.act(action, why);
    false
}

fn waits_in_crash_loop(draft: &mut Draft<'_>, spec: &api::Container, exited: &Container) -> bool {
    let Some(waiting) = restart::waiting(draft.facts, &draft.memory, spec, exited) else {
        return false;
    };
    draft.wake(waiting.until);
    draft.why(format!(
        "container {} keeps ending: it waits {} s after each end now, until {}",
        spec.name, waiting.delay_seconds, waiting.until
    ));
    let name = &spec.name;
    if let Some(entry) = draft.memory.crash_loops.get_mut(name)
        && entry.announced != exited.id
    {
        entry.announced.clone_from(&exited.id);
        let text = format!("Back-off restarting failed container {name} in pod {}", draft.id());
        draft.event(Event::warning(draft.id(), event_reason::BACK_OFF, text).on_container(name));
    }
    true
}

fn waits_after_failure(draft: &mut Draft<'_>, spec: &api::Container) -> bool {
    let Some(failure) = draft.memory.failures.get(&spec.name) else {
        return false;
    };
    if draft.facts.now >= failure.retry_at {
        return false;
    }
    let (retry_at, reason) = (failure.retry_at, failure.reason.clone());
    draft.wake(retry_at);
    draft.why(format!("container {} is tried again at {retry_at}: {reason}", spec.name));
    true
}

/// Makes the image ready, unless its pulls fail and it is not time yet. Returns whether the next container may be
/// started meanwhile: not while an image is on its way, as upstream, but a failing one holds nobody up.
fn prepare_image(draft: &mut Draft<'_>, spec: &api::Container) -> bool {
    if draft.busy(&OpKey::Image(spec.name.clone())) {
        return false;
    }
    let wanted = spec.image.as_deref().unwrap_or_default();
    let image = with_default_tag(wanted).unwrap_or_else(|_| wanted.to_owned());
    if let Some(back_off) = draft.memory.pulls.get(&image)
        && draft.facts.now < back_off.retry_at()
    {
        pull_waits(draft, spec, &image);
        return true;
    }
    let policy = match spec.image_pull_policy.as_deref() {
        Some("Always") => PullPolicy::Always,
        Some("Never") => PullPolicy::Never,
        _ => PullPolicy::IfNotPresent,
    };
    let action = Action::EnsureImage { container: spec.name.clone(), image: image.clone(), policy };
    draft.act(action, format!("container {} needs image {image}", spec.name));
    false
}

fn pull_waits(draft: &mut Draft<'_>, spec: &api::Container, image: &str) {
    let (id, now) = (draft.id(), draft.facts.now);
    let Some(back_off) = draft.memory.pulls.get_mut(image) else {
        return;
    };
    let shown = later(back_off.failed_at, back_off.delay_seconds / PULL_HALVES);
    let retry_at = back_off.retry_at();
    let announce = now >= shown && back_off.announced != Some(back_off.failed_at);
    if announce {
        back_off.announced = Some(back_off.failed_at);
    }
    let reason = back_off.reason.clone();
    if announce {
        let text = format!("Back-off pulling image \"{image}\"");
        draft.event(Event::normal(id, event_reason::BACK_OFF, text).on_container(&spec.name));
    }
    draft.wake(if now < shown { shown } else { retry_at });
    let waiting = container_reason::IMAGE_PULL_BACK_OFF;
    draft.why(format!("image {image} is pulled again at {retry_at} ({waiting} after {reason})"));
}

/// The next instance's restart count: one more than that of any instance that was seen, started or published. It never
/// falls, whatever was lost.
fn next_attempt(draft: &Draft<'_>, container: &str) -> u32 {
    let session = draft.facts.session;
    let known = draft.facts.runtime.instances(container).map(|c| c.restart_count).max();
    let seen = session.seen_attempts.get(container).copied();
    let newest = known.max(seen).max(published_attempt(draft, container));
    newest.map_or(0, |n| n.saturating_add(1))
}

/// The restart count of the instance that the last status told of, if it told of one.
fn published_attempt(draft: &Draft<'_>, container: &str) -> Option<u32> {
    let statuses = draft.facts.memory.status.as_ref()?.container_statuses.as_ref()?;
    let status = statuses.iter().find(|s| s.name == container)?;
    status.container_id.as_ref().filter(|id| !id.is_empty())?;
    u32::try_from(status.restart_count).ok()
}
