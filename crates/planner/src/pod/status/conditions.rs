//! The conditions of a pod.

use crablet_model::names::{condition, phase};
use crablet_model::runtime::{PodRuntime, SandboxState};
use crablet_model::{Role, api, roster};

use super::super::facts::{Facts, Verdict};
use super::super::memory::Memory;
use super::containers::{Statuses, is_initialised};
use super::states::is_waiting;
use super::{restart_all, time};

const RESTARTS_ALL: &str = "container exited with restart policy rule";

/// All conditions that the agent owns, in upstream's order. `phase` is what is known of the pod, also before it is shown.
pub(super) fn conditions(
    facts: &Facts<'_>,
    pod: &api::Pod,
    memory: &Memory,
    statuses: &Statuses,
    phase: &str,
) -> Vec<api::PodCondition> {
    let old = memory.status.as_ref();
    let containers_ready = containers_ready(pod, statuses, phase);
    let mut all = vec![
        (condition::POD_READY_TO_START_CONTAINERS, ready_to_start(pod, facts.runtime)),
        (condition::INITIALIZED, initialized(pod, old, statuses, phase)),
        (condition::READY, ready(pod, &containers_ready)),
        (condition::CONTAINERS_READY, containers_ready),
        (condition::POD_SCHEDULED, Finding::yes()),
    ];
    if restart_all::could_happen(pod) {
        all.push((condition::ALL_CONTAINERS_RESTARTING, restarts_all(facts, pod, memory, phase)));
    }
    all.into_iter().map(|(kind, finding)| finding.into_condition(kind, facts, pod, old)).collect()
}

/// Why the pod was ended, for those who made it. Told once it has ended: upstream keeps it back as long as the phase.
pub(super) fn disruption(
    facts: &Facts<'_>,
    pod: &api::Pod,
    old: Option<&api::PodStatus>,
    verdict: &Verdict,
) -> Option<api::PodCondition> {
    let (reason, message) = verdict.disruption.as_ref()?;
    let finding = Finding { holds: true, reason, message: message.clone() };
    Some(finding.into_condition(condition::DISRUPTION_TARGET, facts, pod, old))
}

#[derive(Clone, Default)]
struct Finding<'a> {
    holds: bool,
    reason: &'a str,
    message: String,
}

impl<'a> Finding<'a> {
    fn yes() -> Self {
        Self { holds: true, ..Self::default() }
    }

    fn no(reason: &'a str) -> Self {
        Self { reason, ..Self::default() }
    }

    fn into_condition(
        self,
        kind: &str,
        facts: &Facts<'_>,
        pod: &api::Pod,
        old: Option<&api::PodStatus>,
    ) -> api::PodCondition {
        let status = if self.holds { "True" } else { "False" };
        // Of a pod that was never published here, the API server knows what others found: the scheduler's hour stays.
        let before = find(old.or(pod.status.as_ref()), kind);
        let since = before.filter(|c| c.status == status).and_then(|c| c.last_transition_time.as_ref());
        // Upstream names no generation with this one.
        let generation = pod.metadata.generation.filter(|_| kind != condition::ALL_CONTAINERS_RESTARTING);
        api::PodCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: super::some_text(self.reason),
            message: super::some_text(&self.message),
            observed_generation: generation,
            last_transition_time: Some(time(since.map_or(facts.now, |t| t.0))),
            last_probe_time: None,
        }
    }
}

pub(super) fn find<'a>(status: Option<&'a api::PodStatus>, kind: &str) -> Option<&'a api::PodCondition> {
    status?.conditions.as_ref()?.iter().find(|c| c.type_ == kind)
}

/// Upstream: true while no new sandbox is needed.
fn ready_to_start(pod: &api::Pod, runtime: &PodRuntime) -> Finding<'static> {
    let host_network = pod.spec.as_ref().and_then(|s| s.host_network).unwrap_or(false);
    let mut ready = runtime.sandboxes.iter().filter(|s| s.state == SandboxState::Ready);
    let fit = match (runtime.sandboxes.first(), ready.next(), ready.next()) {
        (Some(newest), Some(only), None) => {
            newest.id == only.id
                && only.host_network == host_network
                && (host_network || !only.ips.is_empty())
        }
        _ => false,
    };
    Finding { holds: fit, ..Finding::default() }
}

/// Names of containers, in the order of the specification, of which nothing is known and which are not there yet.
#[derive(Default)]
struct Missing<'a> {
    unknown: Vec<&'a str>,
    known: Vec<&'a str>,
}

impl<'a> Missing<'a> {
    fn of(
        pod: &'a api::Pod,
        statuses: &Statuses,
        counts: impl Fn(Role) -> bool,
        is_there: impl Fn(Role, &api::ContainerStatus) -> bool,
    ) -> Self {
        let mut missing = Self::default();
        let init = pod.spec.iter().flat_map(|s| s.init_containers.iter().flatten());
        let init = init.map(|c| (roster::init_role(c), c));
        let regular = pod.spec.iter().flat_map(|s| &s.containers).map(|c| (Role::Regular, c));
        for (role, container) in init.chain(regular).filter(|(role, _)| counts(*role)) {
            match statuses.find(&container.name) {
                None => missing.unknown.push(&container.name),
                Some(status) if !is_there(role, status) => missing.known.push(&container.name),
                Some(_) => {}
            }
        }
        missing
    }

    /// Nothing where nothing is missing.
    fn message(&self, what: &str) -> Option<String> {
        let said = [("unknown", &self.unknown), (what, &self.known)]
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(what, names)| format!("containers with {what} status: [{}]", names.join(" ")));
        let said: Vec<_> = said.collect();
        (!said.is_empty()).then(|| said.join(", "))
    }
}

/// Once true it stays so: what was set up is not undone when sidecars restart or all containers begin afresh.
fn initialized(
    pod: &api::Pod,
    old: Option<&api::PodStatus>,
    statuses: &Statuses,
    phase: &str,
) -> Finding<'static> {
    let missing = Missing::of(pod, statuses, Role::is_init, is_initialised);
    if phase == phase::SUCCEEDED && missing.unknown.is_empty() {
        return Finding { reason: condition::REASON_POD_COMPLETED, ..Finding::yes() };
    }
    let has_begun = statuses.regular.iter().any(|s| !is_waiting(s));
    let was = super::holds(old, condition::INITIALIZED);
    match missing.message("incomplete").filter(|_| !has_begun && !was) {
        Some(message) => Finding { message, ..Finding::no(condition::REASON_CONTAINERS_NOT_INITIALIZED) },
        None => Finding::yes(),
    }
}

fn containers_ready(pod: &api::Pod, statuses: &Statuses, phase: &str) -> Finding<'static> {
    if statuses.init.is_empty() && statuses.regular.is_empty() {
        return Finding::no(condition::REASON_UNKNOWN_CONTAINER_STATUSES);
    }
    let stays = |role: Role| matches!(role, Role::Sidecar | Role::Regular);
    let missing = Missing::of(pod, statuses, stays, |_, status| status.ready);
    if phase == phase::SUCCEEDED && missing.unknown.is_empty() {
        return Finding::no(condition::REASON_POD_COMPLETED);
    }
    if phase == phase::FAILED {
        return Finding::no(condition::REASON_POD_FAILED);
    }
    match missing.message("unready") {
        Some(message) => Finding { message, ..Finding::no(condition::REASON_CONTAINERS_NOT_READY) },
        None => Finding::yes(),
    }
}

/// Beside the containers, what others have to say: each gate is a condition that somebody else sets.
fn ready(pod: &api::Pod, containers: &Finding<'static>) -> Finding<'static> {
    if !containers.holds {
        return containers.clone();
    }
    let gates = pod.spec.iter().flat_map(|s| s.readiness_gates.iter().flatten());
    let closed: Vec<_> = gates
        .filter_map(|gate| {
            let kind = &gate.condition_type;
            match find(pod.status.as_ref(), kind) {
                None => {
                    Some(format!("corresponding condition of pod readiness gate {kind:?} does not exist."))
                }
                Some(found) if found.status != "True" => Some(format!(
                    "the status of pod readiness gate {kind:?} is not \"True\", but {}",
                    found.status
                )),
                Some(_) => None,
            }
        })
        .collect();
    if closed.is_empty() {
        return Finding::yes();
    }
    Finding { message: closed.join(", "), ..Finding::no(condition::REASON_READINESS_GATES_NOT_READY) }
}

fn restarts_all(facts: &Facts<'_>, pod: &api::Pod, memory: &Memory, phase: &str) -> Finding<'static> {
    match phase {
        phase::SUCCEEDED => Finding::no(condition::REASON_POD_COMPLETED),
        phase::FAILED => Finding::no(condition::REASON_POD_FAILED),
        _ if !restart_all::is_under_way(facts, pod, memory)
            || restart_all::is_cleaned_up(pod, facts.runtime) =>
        {
            Finding::no("")
        }
        _ => Finding {
            holds: true,
            reason: condition::REASON_RESTART_ALL_CONTAINERS_STARTED,
            message: RESTARTS_ALL.to_owned(),
        },
    }
}
