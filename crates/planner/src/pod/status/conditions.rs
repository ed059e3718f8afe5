//! The conditions of a pod.

use crablet_model::api;
use crablet_model::names::{condition, phase};
use crablet_model::runtime::{PodRuntime, SandboxState};

use super::super::facts::Facts;
use super::time;

/// All conditions that the agent owns, in upstream's order.
pub(super) fn conditions(
    facts: &Facts<'_>,
    pod: &api::Pod,
    old: Option<&api::PodStatus>,
    containers: &[api::ContainerStatus],
    phase: &str,
) -> Vec<api::PodCondition> {
    let ready = containers_ready(pod, containers, phase);
    let all = [
        (condition::POD_READY_TO_START_CONTAINERS, ready_to_start(pod, facts.runtime)),
        (condition::INITIALIZED, initialized(phase)),
        // Readiness gates will add to this one only.
        (condition::READY, ready.clone()),
        (condition::CONTAINERS_READY, ready),
        (condition::POD_SCHEDULED, Verdict::yes()),
    ];
    all.into_iter().map(|(kind, verdict)| verdict.into_condition(kind, facts, pod, old)).collect()
}

#[derive(Clone, Default)]
struct Verdict {
    holds: bool,
    reason: &'static str,
    message: String,
}

impl Verdict {
    fn yes() -> Self {
        Self { holds: true, ..Self::default() }
    }

    fn no(reason: &'static str) -> Self {
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
        let known = old.or(pod.status.as_ref());
        let before =
            known.and_then(|s| s.conditions.as_ref()).and_then(|c| c.iter().find(|c| c.type_ == kind));
        let since = before.filter(|c| c.status == status).and_then(|c| c.last_transition_time.as_ref());
        api::PodCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: super::some_text(self.reason),
            message: super::some_text(&self.message),
            observed_generation: pod.metadata.generation,
            last_transition_time: Some(time(since.map_or(facts.now, |t| t.0))),
            last_probe_time: None,
        }
    }
}

/// Upstream: true while no new sandbox is needed.
fn ready_to_start(pod: &api::Pod, runtime: &PodRuntime) -> Verdict {
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
    Verdict { holds: fit, ..Verdict::default() }
}

/// Without init containers a pod is initialized from the start.
fn initialized(phase: &str) -> Verdict {
    let completed = phase == phase::SUCCEEDED;
    Verdict { reason: if completed { condition::REASON_POD_COMPLETED } else { "" }, ..Verdict::yes() }
}

fn containers_ready(pod: &api::Pod, statuses: &[api::ContainerStatus], phase: &str) -> Verdict {
    if statuses.is_empty() {
        return Verdict::no(condition::REASON_UNKNOWN_CONTAINER_STATUSES);
    }
    let (mut unknown, mut unready) = (Vec::new(), Vec::new());
    for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
        match statuses.iter().find(|s| s.name == container.name) {
            None => unknown.push(container.name.as_str()),
            Some(status) if !status.ready => unready.push(container.name.as_str()),
            Some(_) => {}
        }
    }
    if phase == phase::SUCCEEDED && unknown.is_empty() {
        return Verdict::no(condition::REASON_POD_COMPLETED);
    }
    if phase == phase::FAILED {
        return Verdict::no(condition::REASON_POD_FAILED);
    }
    let messages: Vec<String> = [("unknown", unknown), ("unready", unready)]
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(what, names)| format!("containers with {what} status: [{}]", names.join(" ")))
        .collect();
    if messages.is_empty() {
        return Verdict::yes();
    }
    Verdict { message: messages.join(", "), ..Verdict::no(condition::REASON_CONTAINERS_NOT_READY) }
}
