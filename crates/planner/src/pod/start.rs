//! The way to a running container: its waits, its image, its start.

use crablet_model::api;
use crablet_model::events::Event;
use crablet_model::hash::container_hash;
use crablet_model::image::with_default_tag;
use crablet_model::names::{container_reason, event_reason};
use crablet_model::roster::Role;
use crablet_model::runtime::{Container, Sandbox};

use super::draft::Draft;
use super::ending;
use super::images::{self, NeededImage};
use super::memory::later;
use super::plan::{Action, OpKey, PullPolicy};
use super::restart;

/// An image whose pulls wait is looked for so often, as upstream does each time that it looks at the pod.
const LOOK_SECONDS: i64 = 10;

/// A container of the specification and the part that it plays.
#[derive(Clone, Copy)]
pub(super) struct Who<'s> {
    pub role: Role,
    pub spec: &'s api::Container,
}

/// An instance that was created but not started: an earlier life of the agent died in between. It is started if it is
/// what the specification wants; otherwise it makes room.
pub(super) fn start_created(
    draft: &mut Draft<'_>,
    who: Who<'_>,
    sandbox: &Sandbox,
    created: &Container,
    in_order: bool,
) -> bool {
    let spec = who.spec;
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
    if waits_for_resize(draft, spec) {
        return false;
    }
    let action = Action::StartCreated { container: spec.name.clone(), id: created.id.clone() };
    draft.act(action, format!("container {} was created and never started: starting it", spec.name));
    false
}

/// Starts a container, or does the next thing on the way to it. Returns whether the next one may be started now.
pub(super) fn start(
    draft: &mut Draft<'_>,
    who: Who<'_>,
    sandbox: &Sandbox,
    exited: Option<&Container>,
    in_order: bool,
) -> bool {
    let spec = who.spec;
    if let Some(exited) = exited
        && waits_in_crash_loop(draft, who, exited)
    {
        return true;
    }
    if waits_after_failure(draft, spec) {
        return true;
    }
    let ready = draft.facts.session.images.get(&spec.name).filter(|(name, _)| *name == wanted_image(spec));
    let Some((_, image)) = ready.cloned() else {
        return prepare_image(draft, who);
    };
    // Those of volumes have come, too: they are made ready first.
    for needed in images::needed(draft.facts.pod, spec) {
        draft.memory.pulls.remove(&needed.tagged);
    }
    if !in_order {
        return false;
    }
    if waits_for_resize(draft, spec) {
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

/// The pod's cgroup gets ready for what starts. Where that fails, nobody waits for it.
fn waits_for_resize(draft: &mut Draft<'_>, spec: &api::Container) -> bool {
    let waits = draft.busy(&OpKey::Resize);
    if waits {
        draft.why(format!("container {} waits for the resize of its pod", spec.name));
    }
    waits
}

fn waits_in_crash_loop(draft: &mut Draft<'_>, who: Who<'_>, exited: &Container) -> bool {
    let spec = who.spec;
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
        draft.event(Event::warning(draft.id(), event_reason::BACK_OFF, text).on(who.role, name));
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

/// Makes the image ready. While its pulls fail and wait, it is only looked for, now and then. Returns whether
/// the next container may be started meanwhile: not while an image is on its way, as upstream, but a failing one
/// holds nobody up.
fn prepare_image(draft: &mut Draft<'_>, who: Who<'_>) -> bool {
    let spec = who.spec;
    if draft.busy(&OpKey::Image(spec.name.clone())) {
        return false;
    }
    let now = draft.facts.now;
    let mut held = images::needed(draft.facts.pod, spec);
    held.retain(|image| draft.memory.pulls.get(&image.tagged).is_some_and(|pull| now < pull.retry_at()));
    if let Some(first) = held.first() {
        pull_waits(draft, who, first);
        if !is_look_due(draft, &spec.name, &held) {
            return true;
        }
    }
    let image = wanted_image(spec);
    // One pull of an image for all containers of the pod. If it fails, they wait for the next together, as upstream's.
    if draft.fetches(&image) {
        draft.why(format!("container {} needs image {image}, which is on its way", spec.name));
        return false;
    }
    let policy = match spec.image_pull_policy.as_deref() {
        Some("Always") => PullPolicy::Always,
        Some("Never") => PullPolicy::Never,
        _ => PullPolicy::IfNotPresent,
    };
    let why = match held.first() {
        None => format!("container {} needs image {image}", spec.name),
        Some(held) => format!("image {} may have come by another way: looking for it", held.tagged),
    };
    let held: Vec<String> = held.into_iter().map(|image| image.tagged).collect();
    let is_look = !held.is_empty();
    draft.act(Action::EnsureImage { container: spec.name.clone(), image, policy, held }, why);
    is_look
}

/// The container's own, with the tag that it has if the pod writes none.
fn wanted_image(spec: &api::Container) -> String {
    let written = spec.image.as_deref().unwrap_or_default();
    with_default_tag(written).unwrap_or_else(|_| written.to_owned())
}

/// The last try to pull was a look, too. What is always pulled is never looked for.
fn is_look_due(draft: &mut Draft<'_>, container: &str, held: &[NeededImage<'_>]) -> bool {
    if held.iter().any(|image| image.pull_policy == Some("Always")) {
        return false;
    }
    let now = draft.facts.now;
    let failed = held.iter().filter_map(|image| draft.memory.pulls.get(&image.tagged)).map(|p| p.failed_at);
    // A look that lies in the future was made before the clock was set back.
    let looked = draft.facts.session.image_looks.get(container).copied().filter(|at| *at <= now);
    let Some(last) = failed.chain(looked).max() else {
        return false;
    };
    let due = later(last, LOOK_SECONDS);
    if now < due {
        draft.wake(due);
    }
    now >= due
}

fn pull_waits(draft: &mut Draft<'_>, who: Who<'_>, needed: &NeededImage<'_>) {
    let image = needed.tagged.as_str();
    let (id, now) = (draft.id(), draft.facts.now);
    let Some(back_off) = draft.memory.pulls.get_mut(image) else {
        return;
    };
    let (shown, retry_at) = (back_off.shown_at(), back_off.retry_at());
    let announce = now >= shown && back_off.announced != Some(back_off.failed_at);
    if announce {
        back_off.announced = Some(back_off.failed_at);
    }
    let reason = back_off.reason.clone();
    if announce {
        let text = format!("Back-off pulling image {:?}", needed.name);
        let event = Event::normal(id, event_reason::BACK_OFF, text);
        // What a volume shows is the whole pod's, as upstream tells it.
        let is_own = needed.volume.is_none();
        draft.event(if is_own { event.on(who.role, &who.spec.name) } else { event });
        let text = format!("Error: {}", container_reason::IMAGE_PULL_BACK_OFF);
        draft.event(Event::warning(id, event_reason::FAILED, text).on(who.role, &who.spec.name));
    }
    draft.wake(if now < shown { shown } else { retry_at });
    let waiting = container_reason::IMAGE_PULL_BACK_OFF;
    draft.why(format!("image {image} is pulled again at {retry_at} ({waiting} after {reason})"));
}

/// The next instance's restart count: one more than that of any instance that was seen, started or published. It never
/// falls, whatever was lost.
pub(super) fn next_attempt(draft: &Draft<'_>, container: &str) -> u32 {
    let session = draft.facts.session;
    let known = draft.facts.runtime.instances(container).map(|c| c.restart_count).max();
    let seen = session.seen_attempts.get(container).copied();
    let newest = known.max(seen).max(published_attempt(draft, container));
    // What never ran is no restart.
    if newest.is_some() && session.in_vain.get(container).copied() == newest {
        return newest.unwrap_or_default();
    }
    newest.map_or(0, |n| n.saturating_add(1))
}

/// The restart count of the instance that the last status told of, if it told of one.
fn published_attempt(draft: &Draft<'_>, container: &str) -> Option<u32> {
    let status = draft.facts.memory.status.as_ref()?;
    let init = status.init_container_statuses.iter().flatten();
    let ephemeral = status.ephemeral_container_statuses.iter().flatten();
    let mut all = status.container_statuses.iter().flatten().chain(init).chain(ephemeral);
    let status = all.find(|s| s.name == container)?;
    status.container_id.as_ref().filter(|id| !id.is_empty())?;
    u32::try_from(status.restart_count).ok()
}
