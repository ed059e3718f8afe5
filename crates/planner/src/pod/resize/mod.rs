//! Resizing a pod in place.
//!
//! ```text
//!  asked for ──(registry: the node has room)──> granted ──(here)──> actuated
//!      └─ `Pending`: the condition PodResizePending  └─ memory.resizing: the condition PodResizeInProgress
//! ```
//!
//! The specification that a plan is made from names what was granted. What containers and the pod's cgroup were given last
//! is a fact beside it, kept on disk; where the two differ there is something to do:
//!
//! - A container whose policy asks for it is stopped and started again. Nothing else is changed before it is down.
//! - The others, and the pod's cgroup, are changed by one operation, in the order that [`steps()`] gives.
//! - Containers that start meanwhile wait for it: their part of the cgroup comes before them.
//!
//! | module | what it is |
//! |---|---|
//! | [`mod@steps`] | the order of changes, and which limits would be too small |
//! | [`words`] | what events say |

pub mod steps;
pub mod words;

use std::sync::Arc;

use crablet_model::allocation::{Allocation, Sizes, actuated};
use crablet_model::api;
use crablet_model::events::Event;
use crablet_model::hash::fnv1a_64;
use crablet_model::names::event_reason;
use crablet_model::roster::{Role, roster};
use crablet_model::runtime::{Container, Sandbox};
use serde::{Deserialize, Serialize};

use super::containers::is_changed;
use super::draft::Draft;
use super::facts::Facts;
use super::memory::Failure;
use super::plan::{Action, OpKey};

/// What is known of the pod's resources beside its specification.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grants {
    /// What containers and the pod's cgroup were given last. What is not named is taken for what the specification says.
    pub actuated: Option<Arc<Allocation>>,
    /// The generation of the pod whose resources were granted last, if that was a resize in this life of the agent.
    pub granted: Option<i64>,
    pub pending: Pending,
}

/// Whether the pod asks for something else than it was granted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Pending {
    #[default]
    Nothing,
    /// It does, and nobody has judged that yet in this life of the agent: what was told last stays.
    Unjudged,
    Waits {
        /// `Deferred`, `Infeasible`.
        reason: &'static str,
        message: String,
        generation: Option<i64>,
    },
}

/// A resize that was granted and has not come to its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Resizing {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// The error that was told last as an event.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub announced: String,
}

/// All that one operation changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resize {
    pub sandbox_id: String,
    /// Containers whose memory changes, those that give some back first.
    pub memory: Vec<Change>,
    /// The same for CPU.
    pub cpu: Vec<Change>,
    /// Something starts, or starts again, with other resources than the pod's cgroup was made for.
    pub for_starts: bool,
    /// The resources of the pod as a whole change.
    pub whole: bool,
    /// Of what was granted: says for what the pod's cgroup is good afterwards.
    pub digest: u64,
}

/// A running container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub container: String,
    pub id: String,
    pub from: Sizes,
    pub to: Sizes,
}

/// Follows a resize from its grant to its end: to be asked before the pod's status is made.
pub(super) fn follow(draft: &mut Draft<'_>, pod: &api::Pod) {
    let granted = draft.facts.grants.granted;
    if granted > draft.memory.granted {
        draft.memory.granted = granted;
        draft.memory.resizing = Some(Resizing { generation: granted, ..Resizing::default() });
    }
    match (is_under_way(draft.facts, pod), draft.memory.resizing.take()) {
        (true, known) => {
            let new = || Resizing { generation: pod.metadata.generation, ..Resizing::default() };
            draft.memory.resizing = Some(known.unwrap_or_else(new));
        }
        // What is to start cannot have it yet.
        (false, Some(failed)) if failed.failure.is_some() && waits_for_starts(draft.facts, pod) => {
            draft.memory.resizing = Some(failed);
        }
        (false, Some(done)) => {
            draft.why("the pod has the resources that it was granted");
            let text = words::text(words::COMPLETED, pod, done.generation, "");
            draft.event(Event::normal(draft.id(), event_reason::RESIZE_COMPLETED, text));
        }
        (false, None) => {}
    }
    tell_failure(draft, pod);
}

fn tell_failure(draft: &mut Draft<'_>, pod: &api::Pod) {
    let id = draft.id();
    let Some(resizing) = &mut draft.memory.resizing else { return };
    let Some(failure) = resizing.failure.as_ref().filter(|f| f.message != resizing.announced) else { return };
    let text = words::text(words::ERROR, pod, resizing.generation, &failure.message);
    resizing.announced.clone_from(&failure.message);
    draft.event(Event::warning(id, event_reason::RESIZE_ERROR, text));
}

/// Whether something that runs has other resources than it was granted.
fn is_under_way(facts: &Facts<'_>, pod: &api::Pod) -> bool {
    let mut running = resizable(pod).filter(|(_, spec)| runs(facts, &spec.name).is_some()).peekable();
    let any_runs = running.peek().is_some();
    running.any(|(_, spec)| change(facts, pod, spec).is_some()) || any_runs && whole_differs(facts, pod)
}

/// The pod's cgroup has to change before something starts with other resources than it had.
fn waits_for_starts(facts: &Facts<'_>, pod: &api::Pod) -> bool {
    let mut all = resizable(pod);
    facts.session.cgroup_for != Some(digest(pod)) && all.any(|(_, spec)| change(facts, pod, spec).is_some())
}

/// The pod as a whole has other resources than it was granted.
fn whole_differs(facts: &Facts<'_>, pod: &api::Pod) -> bool {
    let Some(actuated) = &facts.grants.actuated else { return false };
    let granted = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    Sizes::of(granted) != Sizes::of(actuated.pod.as_ref())
}

/// Init containers and regular ones.
fn resizable(pod: &api::Pod) -> impl Iterator<Item = (Role, &api::Container)> {
    let all = pod.spec.iter().flat_map(roster).filter(|(role, _)| *role != Role::Ephemeral);
    all.filter_map(|(role, spec)| match spec {
        std::borrow::Cow::Borrowed(spec) => Some((role, spec)),
        std::borrow::Cow::Owned(_) => None,
    })
}

fn runs<'a>(facts: &Facts<'a>, name: &str) -> Option<&'a Container> {
    facts.runtime.containers.iter().find(|c| c.name == name).filter(|c| c.state.is_running())
}

/// What the container has, and what it was granted, where these differ.
fn change(facts: &Facts<'_>, pod: &api::Pod, container: &api::Container) -> Option<(Sizes, Sizes)> {
    let given = facts.grants.actuated.as_ref()?.containers.get(&container.name)?;
    let spec = pod.spec.as_ref()?;
    let (from, to) = (Sizes::of(Some(given)), Sizes::of(Some(&actuated(spec, container))));
    (from != to).then_some((from, to))
}

/// Whether this container has to be started again for the resources that it was granted.
pub(super) fn must_restart(facts: &Facts<'_>, pod: &api::Pod, container: &api::Container) -> bool {
    let Some((from, to)) = change(facts, pod, container) else { return false };
    let asks = |resource: &str| {
        let mut policies = container.resize_policy.iter().flatten();
        policies.any(|p| p.resource_name == resource && p.restart_policy == "RestartContainer")
    };
    has_other_cpu(from, to) && asks("cpu") || has_other_memory(from, to) && asks("memory")
}

fn has_other_cpu(from: Sizes, to: Sizes) -> bool {
    (from.cpu_request, from.cpu_limit) != (to.cpu_request, to.cpu_limit)
}

fn has_other_memory(from: Sizes, to: Sizes) -> bool {
    (from.memory_request, from.memory_limit) != (to.memory_request, to.memory_limit)
}

/// Changes what runs, and makes the pod's cgroup ready for what starts.
pub(super) fn decide(draft: &mut Draft<'_>, pod: &api::Pod, sandbox: &Sandbox) {
    let Some(resize) = wanted(draft, pod, sandbox) else { return };
    if draft.busy(&OpKey::Resize) {
        return;
    }
    let failure = draft.memory.resizing.as_ref().and_then(|resizing| resizing.failure.as_ref());
    if let Some(failure) = failure.filter(|failure| draft.facts.now < failure.retry_at) {
        let (retry_at, text) = (failure.retry_at, failure.message.clone());
        draft.wake(retry_at);
        draft.why(format!("the resize is tried again at {retry_at}: {text}"));
        return;
    }
    draft.act(Action::Resize(resize), "the pod was granted other resources: giving them to it");
}

fn wanted(draft: &Draft<'_>, pod: &api::Pod, sandbox: &Sandbox) -> Option<Resize> {
    let facts = draft.facts;
    let digest = digest(pod);
    let is_ready = facts.session.cgroup_for == Some(digest);
    let regular = |name: &str| pod.spec.iter().flat_map(|s| &s.containers).any(|c| c.name == name);
    let mut inside = facts.runtime.containers.iter().filter(|c| c.sandbox_id == sandbox.id);
    let has_begun = inside.any(|c| regular(&c.name));
    let mut resize = Resize { sandbox_id: sandbox.id.clone(), digest, ..Resize::default() };
    resize.whole = whole_differs(facts, pod);
    for (role, spec) in resizable(pod) {
        let Some((from, to)) = change(facts, pod, spec) else { continue };
        let Some(running) = runs(facts, &spec.name) else {
            // An init container that has done its work takes no part any more.
            let is_behind = role == Role::Init && has_begun;
            resize.for_starts |= !is_ready && !is_behind;
            continue;
        };
        if role != Role::Init && must_restart(facts, pod, spec) {
            return None; // nothing is changed before it is down
        }
        if is_about_to_go(draft, role, spec, running) {
            continue;
        }
        let change = Change { container: spec.name.clone(), id: running.id.clone(), from, to };
        if has_other_memory(from, to) {
            let limits = (from.memory_limit, to.memory_limit);
            let by = if limits.0 == limits.1 { (from.memory_request, to.memory_request) } else { limits };
            insert(&mut resize.memory, change.clone(), by);
        }
        if has_other_cpu(from, to) {
            let limits = (from.cpu_limit, to.cpu_limit);
            let by = if limits.0 == limits.1 { (from.cpu_request, to.cpu_request) } else { limits };
            insert(&mut resize.cpu, change, by);
        }
    }
    let does_something =
        !resize.memory.is_empty() || !resize.cpu.is_empty() || resize.for_starts || resize.whole;
    does_something.then_some(resize)
}

/// Those that give something back come first.
fn insert(changes: &mut Vec<Change>, change: Change, (from, to): (i64, i64)) {
    if to < from {
        changes.insert(0, change);
    } else {
        changes.push(change);
    }
}

/// It is stopped for another reason, or has not come so far as to be changed.
fn is_about_to_go(draft: &Draft<'_>, role: Role, spec: &api::Container, running: &Container) -> bool {
    let probed = draft.facts.probes.of(&running.id);
    let waits = role == Role::Sidecar && spec.startup_probe.is_some() && probed.startup != Some(true);
    waits
        || probed.liveness == Some(false)
        || probed.startup == Some(false)
        || is_changed(spec, running)
        || draft.busy(&OpKey::Container(running.id.clone()))
        || draft.facts.session.pre_stops.contains_key(&running.id)
}

/// Tells one grant from another.
fn digest(pod: &api::Pod) -> u64 {
    let granted = pod.spec.as_ref().map(Allocation::of).unwrap_or_default();
    fnv1a_64(&serde_json::to_vec(&granted).unwrap_or_default())
}

#[cfg(test)]
mod tests;
