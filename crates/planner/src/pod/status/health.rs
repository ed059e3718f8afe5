//! Whether a container has started and whether it is ready, from its role, its state and its probes.

use crablet_model::runtime::Container;
use crablet_model::{Role, api};

use super::super::facts::Probed;
use super::containers::One;
use super::states::{ended_well, is_running};

/// Sets `started` and `ready`. What was published of the same instance holds until a probe says otherwise: an agent that
/// has just begun has no results yet.
pub(super) fn judge(one: &One<'_>, status: &mut api::ContainerStatus, newest: Option<&Container>) {
    let running = newest.filter(|_| is_running(status));
    let started = running.is_some_and(|instance| has_started(one, instance));
    match one.role {
        // Upstream never judges them.
        Role::Ephemeral => (status.started, status.ready) = (None, false),
        Role::Init => (status.started, status.ready) = (Some(started), ended_well(status)),
        Role::Sidecar | Role::Regular => {
            let ready = running.is_some_and(|instance| started && is_ready(one, instance));
            (status.started, status.ready) = (Some(started), ready);
        }
    }
}

fn has_started(one: &One<'_>, instance: &Container) -> bool {
    match probed(one, instance).startup {
        Some(result) => result,
        None => {
            let was = published(one, instance).and_then(|old| old.started).unwrap_or(false);
            was || one.spec.startup_probe.is_none() || one.role == Role::Init
        }
    }
}

fn is_ready(one: &One<'_>, instance: &Container) -> bool {
    match probed(one, instance).readiness {
        Some(result) => result,
        None => one.spec.readiness_probe.is_none() || published(one, instance).is_some_and(|old| old.ready),
    }
}

fn probed(one: &One<'_>, instance: &Container) -> Probed {
    one.facts.probes.of(&instance.id)
}

/// What was published last, if it was of this very instance.
fn published<'a>(one: &One<'a>, instance: &Container) -> Option<&'a api::ContainerStatus> {
    one.old.filter(|old| old.container_id.as_deref() == Some(&one.full_id(instance)))
}
