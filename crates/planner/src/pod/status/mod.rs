//! Phase, conditions and container states, as upstream v1.36 writes them.
//!
//! | module | what it decides |
//! |---|---|
//! | `containers` | the status of each container, whatever its role, by name and order |
//! | `seen`, `states` | the state of one that the runtime knows; the states that there are |
//! | `waits` | why one that should be started is not |
//! | `health` | whether it has started, and is ready |
//! | `mounts` | what it says of its volumes |
//! | `phase` | the pod's phase, from the container states and from what was published before |
//! | `conditions` | the pod's conditions |
//! | `restart_all` | whether all containers are begun afresh |
//! | `sizes` | what a container may use, as far as the runtime says so |
//! | `resize` | the conditions of a resize |
//! | `addresses`, `resources` | of the pod as a whole |
//! | `patch` | what to send so that the API server has the same |
//!
//! Absent so far: the health of devices.
//!
//! What was published last is an input: transition times, restart counts, addresses, readiness and terminal phases live
//! on in it, so the same facts give the same status again, also to an agent that was restarted in between.

mod addresses;
mod conditions;
mod containers;
mod health;
mod mounts;
mod patch;
mod phase;
mod resize;
mod resources;
mod restart_all;
mod seen;
mod sizes;
mod states;
mod waits;

use crablet_model::api;
use crablet_model::names::{annotation, condition, phase as phases, source};
use crablet_model::qos::qos_class;
use crablet_model::runtime::SandboxState;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::facts::{Facts, Wish};
use super::memory::Memory;
pub(super) use addresses::one_of_each_family;
use containers::Statuses;
pub use patch::{is_owned_condition, status_patch};
use phase::Phase;
pub(super) use resources::due as resources_due;

/// The pod's status now. `memory` is the plan's own draft of what will be remembered; its `status` is the one that was
/// published last. A verdict counts once it is in there: what was said because of it can be said again.
pub fn status(facts: &Facts<'_>, pod: &api::Pod, memory: &Memory) -> api::PodStatus {
    let old = memory.status.as_ref();
    if is_rejected(facts, pod, memory) {
        return rejected(facts, pod, memory);
    }
    let end = End::of(facts, memory);
    let statuses = Statuses::of(facts, pod, memory, end);
    let phase = Phase::of(facts, pod, memory, &statuses, end);
    let (reason, message) = reason(pod, memory, phase.shown);
    let mut conditions = Vec::new();
    if end == End::NotYet && !phases::is_terminal(phase.shown) {
        conditions.extend(resize::conditions(facts, memory));
    }
    if phases::is_terminal(phase.shown) {
        let verdict = memory.verdict.as_ref();
        conditions.extend(verdict.and_then(|verdict| conditions::disruption(facts, pod, old, verdict)));
    }
    conditions.extend(conditions::conditions(facts, pod, memory, &statuses, phase.known));
    let host_ips = addresses::of_host(facts, old);
    let pod_ips = addresses::of_pod(facts, pod, old);
    let granted = pod.spec.as_ref().map(resources::added_up);
    let mut status = api::PodStatus {
        allocated_resources: granted.and_then(|whole| whole.requests),
        conditions: Some(conditions),
        container_statuses: non_empty(statuses.regular),
        ephemeral_container_statuses: non_empty(statuses.ephemeral),
        init_container_statuses: non_empty(statuses.init),
        host_ip: host_ips.first().cloned(),
        host_ips: non_empty(host_ips.into_iter().map(|ip| api::HostIP { ip }).collect()),
        message,
        phase: Some(phase.shown.to_owned()),
        pod_ip: pod_ips.first().cloned(),
        pod_ips: non_empty(pod_ips.into_iter().map(|ip| api::PodIP { ip }).collect()),
        reason,
        ..always(facts, pod, old)
    };
    status.resources = resources::of(facts, pod, memory, &status);
    status
}

/// What every status says, also of a pod that never got so far as to have containers.
fn always(facts: &Facts<'_>, pod: &api::Pod, old: Option<&api::PodStatus>) -> api::PodStatus {
    api::PodStatus {
        observed_generation: pod.metadata.generation.max(old.and_then(|s| s.observed_generation)),
        qos_class: Some(qos(pod)),
        start_time: Some(
            old.and_then(|s| s.start_time.clone()).map_or_else(|| time(facts.now), |start| time(start.0)),
        ),
        ..Default::default()
    }
}

/// The node did not let the pod begin: nothing of it was ever there.
fn is_rejected(facts: &Facts<'_>, pod: &api::Pod, memory: &Memory) -> bool {
    let told = |status: &api::PodStatus| {
        status.container_statuses.is_some()
            || status.init_container_statuses.is_some()
            || status.phase.as_deref() == Some(phases::SUCCEEDED)
    };
    (memory.verdict.is_some() || was_rejected(memory))
        && facts.runtime.is_empty()
        && !phase::could_run(facts)
        && !memory.status.as_ref().or(pod.status.as_ref()).is_some_and(told)
}

/// Another agent had the node then, and all that is known of it is what that one told.
fn was_rejected(memory: &Memory) -> bool {
    let told = memory.status.as_ref();
    let has_failed = told.and_then(|status| status.phase.as_deref()) == Some(phases::FAILED);
    has_failed && conditions::find(told, condition::CONTAINERS_READY).is_none()
}

/// As upstream: no conditions and no containers.
fn rejected(facts: &Facts<'_>, pod: &api::Pod, memory: &Memory) -> api::PodStatus {
    let (reason, message) = reason(pod, memory, phases::FAILED);
    let phase = Some(phases::FAILED.to_owned());
    api::PodStatus { phase, reason, message, ..always(facts, pod, memory.status.as_ref()) }
}

/// What the pod has come to for good, also while something that only accompanied it still runs, or while it is being
/// stopped because the node has given a verdict.
pub fn is_terminal(facts: &Facts<'_>, pod: &api::Pod, memory: &Memory) -> Option<&'static str> {
    let end = End::of(facts, memory);
    let statuses = Statuses::of(facts, pod, memory, end);
    let decided = Phase::of(facts, pod, memory, &statuses, end).decided;
    phases::is_terminal(decided).then_some(decided)
}

/// How far the pod's end has come, as upstream's status generator distinguishes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// The pod runs, or something of it still does.
    NotYet,
    /// Nothing runs any more and nothing is being started: upstream's terminal mode.
    Stopped,
    /// The sandbox is down too. From here upstream calls every container terminated, whatever is known of it.
    Down,
}

impl End {
    fn of(facts: &Facts<'_>, memory: &Memory) -> Self {
        let wanted = *facts.wish == Wish::Run && memory.verdict.is_none();
        if wanted || phase::could_run(facts) {
            Self::NotYet
        } else if facts.runtime.sandboxes.iter().any(|s| s.state == SandboxState::Ready) {
            Self::Stopped
        } else {
            Self::Down
        }
    }
}

/// A pod of a manifest. Such pods keep their phase when they are ended: their end is a change of the manifest, not of
/// their work.
pub fn is_static(pod: &api::Pod) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    annotations.and_then(|a| a.get(annotation::CONFIG_SOURCE)).is_some_and(|s| s != source::API)
}

/// Reason and message of the pod live as long as its phase. Those of a verdict come with the phase that it leads to.
fn reason(pod: &api::Pod, memory: &Memory, phase: &str) -> (Option<String>, Option<String>) {
    if phase::kept(pod, memory).is_none()
        && phase == phases::FAILED
        && let Some(verdict) = &memory.verdict
    {
        return (some_text(&verdict.reason), some_text(&verdict.message));
    }
    let same = |status: &&api::PodStatus| status.phase.as_deref() == Some(phase);
    match memory.status.as_ref().filter(same).or_else(|| pod.status.as_ref().filter(same)) {
        Some(status) => (status.reason.clone(), status.message.clone()),
        None => (None, None),
    }
}

/// Is this condition true, as it was told last?
fn holds(old: Option<&api::PodStatus>, kind: &str) -> bool {
    conditions::find(old, kind).is_some_and(|c| c.status == "True")
}

fn qos(pod: &api::Pod) -> String {
    let known = pod.status.as_ref().and_then(|s| s.qos_class.clone()).filter(|class| !class.is_empty());
    known.unwrap_or_else(|| match &pod.spec {
        Some(spec) => qos_class(spec).to_string(),
        None => qos_class(&api::PodSpec::default()).to_string(),
    })
}

fn non_empty<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

fn some_text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// Times in a status are whole seconds: what is finer would be lost on the way through JSON and look like a change.
fn time(timestamp: Timestamp) -> Time {
    Time(Timestamp::from_second(timestamp.as_second()).unwrap_or(timestamp))
}

#[cfg(test)]
mod tests;
