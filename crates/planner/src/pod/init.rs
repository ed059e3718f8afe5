//! Init containers: one after the other, and those that stay beside what follows.
//!
//! How far the pod has come is told by the last init container of which this sandbox has an instance: earlier ones may
//! have been removed. While a regular container is there that has not ended, init containers have done their work, and
//! only sidecars are looked after. As upstream, regular containers that have ended do not tell that: before one is
//! started again, a last sidecar that went has to be back, and an init container of which somebody removed what was left
//! runs once more.

use crablet_model::api;
use crablet_model::roster::{Role, init_role};
use crablet_model::runtime::{Container, ContainerState, Sandbox};
use jiff::{SignedDuration, Timestamp};

use super::containers::{is_changed, stop_elsewhere, stop_unknown};
use super::draft::Draft;
use super::plan::OpKey;
use super::resize;
use super::restart::{self, Restart};
use super::start::{self, Who};
use super::stop::{self, StopReason};

/// How long a sidecar without a startup probe has to show that it stays.
const MOMENT: SignedDuration = SignedDuration::from_millis(250);

/// How far the init containers have come.
pub(super) enum Progress {
    /// `in_order`: whether regular containers may be started now, or have to wait for a sidecar that is on its way.
    Initialised {
        in_order: bool,
    },
    Waits,
    /// One has failed and does not run again: the pod goes.
    Failed,
}

/// How far one of them has come.
struct Step {
    /// It has succeeded; or, of a sidecar, it has started.
    done: bool,
    /// Whether the next one may be started now.
    in_order: bool,
}

impl Step {
    const DONE: Self = Self { done: true, in_order: true };
    const WAITS: Self = Self { done: false, in_order: true };

    fn on_its_way(in_order: bool) -> Self {
        Self { done: false, in_order }
    }
}

pub(super) fn decide(draft: &mut Draft<'_>, pod: &api::Pod, sandbox: &Sandbox) -> Progress {
    let all = pod.spec.as_ref().and_then(|s| s.init_containers.as_deref()).unwrap_or_default();
    let reached = reached(draft, pod, all, sandbox);
    if let Some(last) = reached.and_then(|index| all.get(index))
        && has_failed(draft, pod, last, sandbox)
    {
        return Progress::Failed;
    }
    let mut in_order = true;
    // The first one that has not been begun is begun if the one before it is done.
    let mut next = reached.is_none();
    for (index, spec) in all.iter().enumerate() {
        let who = Who { role: init_role(spec), spec };
        let is_past = reached.is_some_and(|reached| index < reached);
        if is_past && who.role == Role::Init {
            continue;
        }
        if !is_past && reached != Some(index) && !next {
            return Progress::Waits;
        }
        let step = match who.role {
            Role::Sidecar => sidecar(draft, pod, who, sandbox, in_order),
            _ => init(draft, pod, who, sandbox, in_order),
        };
        in_order &= step.in_order;
        if !is_past {
            if !step.done {
                return Progress::Waits;
            }
            next = true;
        }
    }
    Progress::Initialised { in_order }
}

/// The init container that the pod has come to: `all.len()` if it has them behind it, `None` if none was begun.
fn reached(draft: &Draft<'_>, pod: &api::Pod, all: &[api::Container], sandbox: &Sandbox) -> Option<usize> {
    let is_begun = |spec: &api::Container| {
        let newest = newest(draft, spec, sandbox).map(|c| &c.state);
        matches!(newest, Some(ContainerState::Created | ContainerState::Running { .. }))
            || draft.busy(&OpKey::Start(spec.name.clone()))
    };
    if pod.spec.iter().flat_map(|spec| &spec.containers).any(is_begun) {
        return Some(all.len());
    }
    all.iter().rposition(|spec| newest(draft, spec, sandbox).is_some())
}

/// What an earlier sandbox had says nothing about this one.
fn newest<'a>(draft: &Draft<'a>, spec: &api::Container, sandbox: &Sandbox) -> Option<&'a Container> {
    draft.facts.runtime.containers.iter().find(|c| c.name == spec.name && c.sandbox_id == sandbox.id)
}

fn has_failed(draft: &Draft<'_>, pod: &api::Pod, spec: &api::Container, sandbox: &Sandbox) -> bool {
    let Some(instance) = newest(draft, spec, sandbox).filter(|_| init_role(spec) == Role::Init) else {
        return false;
    };
    match &instance.state {
        ContainerState::Exited(_) => {
            !restart::has_succeeded(&draft.memory, spec, instance)
                && restart::after(&draft.memory, pod, Role::Init, spec, instance) == Restart::No
        }
        // Nobody knows what it ended with, so its rules have nothing to say.
        ContainerState::Unknown => !restart::restarts_when_stopped(pod, spec),
        ContainerState::Created | ContainerState::Running { .. } => false,
    }
}

/// An init container that runs to its end.
fn init(draft: &mut Draft<'_>, pod: &api::Pod, who: Who<'_>, sandbox: &Sandbox, in_order: bool) -> Step {
    if stop_elsewhere(draft, pod, who, sandbox) {
        return Step::WAITS;
    }
    if draft.busy(&OpKey::Start(who.spec.name.clone())) {
        return Step::on_its_way(false);
    }
    let Some(instance) = newest(draft, who.spec, sandbox) else {
        return Step::on_its_way(start::start(draft, who, sandbox, None, in_order));
    };
    match &instance.state {
        ContainerState::Running { .. } => {
            draft.memory.failures.remove(&who.spec.name);
            Step::WAITS
        }
        ContainerState::Exited(_) if restart::has_succeeded(&draft.memory, who.spec, instance) => Step::DONE,
        ContainerState::Exited(_) => {
            let again = restart::after(&draft.memory, pod, who.role, who.spec, instance) != Restart::No;
            let in_order = !again || start::start(draft, who, sandbox, Some(instance), in_order);
            Step::on_its_way(in_order)
        }
        ContainerState::Created => {
            Step::on_its_way(start::start_created(draft, who, sandbox, instance, in_order))
        }
        ContainerState::Unknown => {
            stop_unknown(draft, pod, who, instance);
            Step::WAITS
        }
    }
}

/// An init container that stays: it is kept running as long as the pod.
fn sidecar(draft: &mut Draft<'_>, pod: &api::Pod, who: Who<'_>, sandbox: &Sandbox, in_order: bool) -> Step {
    if stop_elsewhere(draft, pod, who, sandbox) {
        return Step::WAITS;
    }
    if draft.busy(&OpKey::Start(who.spec.name.clone())) {
        return Step::on_its_way(false); // also while its postStart hook runs
    }
    let Some(instance) = newest(draft, who.spec, sandbox) else {
        return Step::on_its_way(start::start(draft, who, sandbox, None, in_order));
    };
    match &instance.state {
        ContainerState::Running { .. } => running_sidecar(draft, pod, who, instance),
        ContainerState::Exited(_) => {
            Step::on_its_way(start::start(draft, who, sandbox, Some(instance), in_order))
        }
        ContainerState::Created => {
            Step::on_its_way(start::start_created(draft, who, sandbox, instance, in_order))
        }
        ContainerState::Unknown => {
            stop_unknown(draft, pod, who, instance);
            Step::WAITS
        }
    }
}

/// Its startup probe is a gate for those that follow; its liveness probe is not.
fn running_sidecar(draft: &mut Draft<'_>, pod: &api::Pod, who: Who<'_>, running: &Container) -> Step {
    draft.memory.failures.remove(&who.spec.name);
    let probed = draft.facts.probes.of(&running.id);
    let has_started = who.spec.startup_probe.is_none() || probed.startup == Some(true);
    let restart = true;
    if !has_started && probed.startup == Some(false) {
        stop::stop(draft, running, StopReason::StartupFailed { restart });
    } else if has_started && is_changed(who.spec, running) {
        stop::stop(draft, running, StopReason::DefinitionChanged { restart });
    } else if has_started && probed.liveness == Some(false) {
        stop::stop(draft, running, StopReason::LivenessFailed { restart });
    } else if has_started && resize::must_restart(draft.facts, pod, who.spec) {
        stop::stop(draft, running, StopReason::Resized);
    } else if draft.facts.session.pre_stops.contains_key(&running.id) {
        stop::stop(draft, running, StopReason::HookRan);
    }
    if has_started && stays(draft, who, running) { Step::DONE } else { Step::WAITS }
}

/// A sidecar that ends as soon as it begins has not started, and holds back those after it. Upstream learns of a start when
/// it next asks the runtime; who looks at once would see such a one run. Should it end, its end is heard of.
fn stays(draft: &mut Draft<'_>, who: Who<'_>, running: &Container) -> bool {
    let ContainerState::Running { started_at } = running.state else { return false };
    let shown_at = started_at.saturating_add(MOMENT).unwrap_or(Timestamp::MAX);
    // A clock that was set back does not prolong it.
    if who.spec.startup_probe.is_some() || !(started_at..shown_at).contains(&draft.facts.now) {
        return true;
    }
    draft.wake(shown_at);
    false
}
