//! Why a container that should be started is not.

use std::time::Duration;

use crablet_model::Role;
use crablet_model::names::container_reason;
use crablet_model::runtime::Container;

use super::super::images;
use super::super::restart::{self, Restart};
use super::End;
use super::containers::One;
use super::states::terminated;

/// Reason and message.
pub(super) type Wait = (String, String);

/// Nothing, where the container is not to be started, or where there is nothing to tell.
pub(super) fn why(one: &One<'_>, newest: Option<&Container>) -> Option<Wait> {
    if one.ends() || one.end == End::Down || !is_to_start(one, newest) {
        return None;
    }
    // Upstream takes every init container that ended well for one that has done its work, those that stay included.
    if one.role == Role::Sidecar && newest.and_then(|c| c.state.exit()).is_some_and(|exit| exit.code == 0) {
        return None;
    }
    if let Some(refused) = one.facts.refused {
        let reason = container_reason::CREATE_CONTAINER_CONFIG_ERROR;
        return Some((reason.to_owned(), format!("not supported yet: {refused}")));
    }
    crash_loop(one)
        .or_else(|| one.is_its_turn.then(|| failure(one).or_else(|| pull(one)))?)
        .or_else(|| still_waits(one, newest?))
        .or_else(|| replaced(one, newest?))
}

fn is_to_start(one: &One<'_>, newest: Option<&Container>) -> bool {
    match newest {
        None if one.role == Role::Regular => !restart::is_over(one.facts, one.memory, one.pod, one.spec),
        None => !one.is_behind(),
        Some(running) if running.state.is_running() => false,
        Some(exited) if exited.state.exit().is_some() => {
            restart::after(one.memory, one.pod, one.role, one.spec, exited) != Restart::No
        }
        Some(_) => true,
    }
}

fn crash_loop(one: &One<'_>) -> Option<Wait> {
    let exited = one.instances().find(|c| c.state.exit().is_some())?;
    let wait = restart::waiting(one.facts, one.memory, one.spec, exited)?;
    let delay = crablet_model::duration::Go(Duration::from_secs(wait.delay_seconds.unsigned_abs()));
    let message =
        format!("back-off {delay} restarting failed container={} pod={}", one.spec.name, one.facts.id);
    Some((container_reason::CRASH_LOOP_BACK_OFF.to_owned(), message))
}

fn failure(one: &One<'_>) -> Option<Wait> {
    one.memory.failures.get(&one.spec.name).map(|f| (f.reason.clone(), f.message.clone()))
}

fn pull(one: &One<'_>) -> Option<Wait> {
    let needed = images::needed(Some(one.pod), one.spec);
    let (image, failed) =
        needed.iter().find_map(|image| Some((image.name, one.memory.pulls.get(&image.tagged)?)))?;
    if one.facts.now < failed.shown_at() {
        return Some((failed.reason.clone(), failed.message.clone()));
    }
    let message = format!("Back-off pulling image {image:?}: {}: {}", failed.reason, failed.message);
    Some((container_reason::IMAGE_PULL_BACK_OFF.to_owned(), message))
}

/// A wait that is over is shown until the next instance is there, as upstream's reason cache does: otherwise a
/// crash-looping container would look ended for the moment of its start.
fn still_waits(one: &One<'_>, newest: &Container) -> Option<Wait> {
    let old = one.old?;
    let ended = terminated(old.last_state.as_ref())?.container_id.as_deref()?;
    let shown = old.state.as_ref()?.waiting.as_ref()?;
    let reason = shown.reason.clone().filter(|r| r != one.first_wait())?;
    let same = newest.state.exit().is_some() && ended == one.full_id(newest);
    same.then(|| (reason, shown.message.clone().unwrap_or_default()))
}

/// Stopped in order to be started again, after an end that by itself leads to no start. Such an end is not told as the
/// container's state: the API server lets nothing leave it.
fn replaced(one: &One<'_>, newest: &Container) -> Option<Wait> {
    let exit = newest.state.exit()?;
    let ends_here = restart::after_end(one.pod, one.role, one.spec, exit.code) == Restart::No;
    ends_here.then(|| (one.first_wait().to_owned(), String::new()))
}
