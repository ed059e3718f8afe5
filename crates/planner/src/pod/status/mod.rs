//! Phase, conditions and container states, as upstream v1.36 writes them.
//!
//! | module | what it decides |
//! |---|---|
//! | `containers` | the state of each container: what the runtime shows, why it waits, what came before |
//! | `phase` | the pod's phase, from the container states and from what was published before |
//! | `conditions` | the pod's conditions |
//! | `patch` | what to send so that the API server has the same |
//!
//! Absent so far: init and ephemeral containers, probes, readiness gates, resizes. Init containers add a list in
//! `containers`, two counts in `phase` and a rule in `conditions`; probes only change `ready` and `started`.
//!
//! What was published last is an input: transition times, restart counts, addresses and terminal phases live on in it,
//! so the same facts give the same status again, also to an agent that was restarted in between.

mod conditions;
mod containers;
mod patch;
mod phase;
mod resources;

use std::net::IpAddr;

use crablet_model::api;
use crablet_model::names::{annotation, phase as phases, source};
use crablet_model::qos::qos_class;
use crablet_model::runtime::SandboxState;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::facts::{Facts, Wish};
use super::memory::Memory;
use super::plan::OpKey;
pub use patch::status_patch;

/// The pod's status now. `memory` is the plan's own draft of what will be remembered; its `status` is the one that was
/// published last.
pub fn status(facts: &Facts<'_>, pod: &api::Pod, memory: &Memory) -> api::PodStatus {
    let old = memory.status.as_ref();
    let end = End::of(facts);
    let containers = containers::statuses(facts, pod, memory, end);
    let phase = phase::phase(pod, &containers, old, end);
    let (reason, message) = kept_reason(pod, old, phase);
    let host_ips = host_ips(facts, old);
    let pod_ips = pod_ips(facts, pod, old);
    let resources = pod.spec.as_ref().map(resources::of_pod);
    api::PodStatus {
        allocated_resources: resources.as_ref().and_then(|whole| whole.requests.clone()),
        conditions: Some(conditions::conditions(facts, pod, old, &containers, phase)),
        container_statuses: (!containers.is_empty()).then_some(containers),
        host_ip: host_ips.first().cloned(),
        host_ips: non_empty(host_ips.into_iter().map(|ip| api::HostIP { ip }).collect()),
        message,
        observed_generation: pod.metadata.generation.max(old.and_then(|s| s.observed_generation)),
        phase: Some(phase.to_owned()),
        pod_ip: pod_ips.first().cloned(),
        pod_ips: non_empty(pod_ips.into_iter().map(|ip| api::PodIP { ip }).collect()),
        qos_class: Some(qos(pod)),
        reason,
        resources,
        start_time: Some(
            old.and_then(|s| s.start_time.clone()).map_or_else(|| time(facts.now), |start| time(start.0)),
        ),
        ..Default::default()
    }
}

/// The pod's phase, when it is one that never changes again.
pub fn is_terminal(facts: &Facts<'_>, pod: &api::Pod, memory: &Memory) -> Option<&'static str> {
    let end = End::of(facts);
    let containers = containers::statuses(facts, pod, memory, end);
    let phase = phase::phase(pod, &containers, memory.status.as_ref(), end);
    phases::is_terminal(phase).then_some(phase)
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
    fn of(facts: &Facts<'_>) -> Self {
        let runtime = facts.runtime;
        let wanted = *facts.wish == Wish::Run;
        let running = runtime.containers.iter().any(|c| c.state.is_running());
        let starting = facts.session.ops.keys().any(|k| matches!(k, OpKey::CreateSandbox | OpKey::Start(_)));
        if wanted || running || starting {
            Self::NotYet
        } else if runtime.sandboxes.iter().any(|s| s.state == SandboxState::Ready) {
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

/// Reason and message of the pod live as long as its phase.
fn kept_reason(
    pod: &api::Pod,
    old: Option<&api::PodStatus>,
    phase: &str,
) -> (Option<String>, Option<String>) {
    let same = |status: &&api::PodStatus| status.phase.as_deref() == Some(phase);
    match old.filter(same).or_else(|| pod.status.as_ref().filter(same)) {
        Some(status) => (status.reason.clone(), status.message.clone()),
        None => (None, None),
    }
}

/// The node's addresses. An agent that has just started and does not know them yet leaves those that were told.
fn host_ips(facts: &Facts<'_>, old: Option<&api::PodStatus>) -> Vec<String> {
    match facts.node.host_ips.is_empty() {
        true => old.and_then(|s| s.host_ips.as_ref()).into_iter().flatten().map(|h| h.ip.clone()).collect(),
        false => texts(&facts.node.host_ips),
    }
}

/// The newest ready sandbox knows the addresses. A pod without one keeps those it had, so that a finished pod can still
/// be told apart by them.
fn pod_ips(facts: &Facts<'_>, pod: &api::Pod, old: Option<&api::PodStatus>) -> Vec<String> {
    let host_network = pod.spec.as_ref().and_then(|s| s.host_network).unwrap_or(false);
    let found = if host_network {
        Some(facts.node.host_ips.as_slice()).filter(|ips| !ips.is_empty())
    } else {
        facts.runtime.sandboxes.iter().find(|s| s.state == SandboxState::Ready).map(|s| s.ips.as_slice())
    };
    match found {
        Some(ips) => texts(&one_of_each_family(ips, facts.node.host_ips.first())),
        None => old_ips(old),
    }
}

fn old_ips(old: Option<&api::PodStatus>) -> Vec<String> {
    let Some(old) = old else { return Vec::new() };
    match old.pod_ips.as_deref() {
        Some(ips) if !ips.is_empty() => ips.iter().map(|ip| ip.ip.clone()).collect(),
        _ => old.pod_ip.iter().cloned().collect(),
    }
}

/// First an address of the node's own family (IPv4 where it has none), then one of the other: never more than two.
pub(super) fn one_of_each_family(ips: &[IpAddr], node: Option<&IpAddr>) -> Vec<IpAddr> {
    let primary_is_v6 = node.is_some_and(IpAddr::is_ipv6);
    let of_family = |v6: bool| ips.iter().find(move |ip| ip.is_ipv6() == v6);
    of_family(primary_is_v6).into_iter().chain(of_family(!primary_is_v6)).copied().collect()
}

fn qos(pod: &api::Pod) -> String {
    let known = pod.status.as_ref().and_then(|s| s.qos_class.clone()).filter(|class| !class.is_empty());
    known.unwrap_or_else(|| match &pod.spec {
        Some(spec) => qos_class(spec).to_string(),
        None => qos_class(&api::PodSpec::default()).to_string(),
    })
}

fn texts(ips: &[IpAddr]) -> Vec<String> {
    ips.iter().map(IpAddr::to_string).collect()
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
