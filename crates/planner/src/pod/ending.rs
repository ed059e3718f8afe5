//! A pod that should end: it is stopped, given back, removed and forgotten.

use crablet_model::runtime::Container;
use jiff::Timestamp;

use super::draft::Draft;
use super::facts::Ending;
use super::memory::{CLEANUP, RELEASE, later};
use super::plan::{Action, OpKey};
use super::stop::{StopReason, TRIES, refusals, sidecars, waits_after_refusal, wind_down};
use super::verdict;

/// A sandbox or container that the runtime is making is waited for this long after the pod's end began; then the call is
/// given up.
const PATIENCE_SECONDS: i64 = 10;

pub(super) fn decide(draft: &mut Draft<'_>, end: &Ending) {
    give_up_starts(draft, Some(end.since));
    if let Some(pod) = draft.facts.pod {
        verdict::consider(draft, pod);
    }
    if draft.memory.ending.as_ref() != Some(end) {
        draft.memory.ending = Some(end.clone());
    }
    draft.memory.stopping_since = None;
    if let Some(spec) = draft.facts.pod.and_then(|p| p.spec.as_ref()) {
        draft.memory.sidecars = sidecars(spec);
    }
    if !wind_down(draft, StopReason::PodEnds(end)) {
        return;
    }
    if !end.forget {
        if release(draft) {
            draft.released();
            draft.why("the pod has ended; its containers stay for their logs");
        }
        return;
    }
    if remove_everything(draft) {
        clean_up(draft);
    }
}

/// Stops a pod that nobody asked to end but that is not to run on. What is left of it stays for its logs.
pub(super) fn retire(draft: &mut Draft<'_>, reason: StopReason<'_>) {
    let verdict = draft.memory.verdict.as_ref().map(|verdict| verdict.since);
    give_up_starts(draft, verdict.or(draft.memory.stopping_since));
    if wind_down(draft, reason) {
        release(draft);
    }
}

/// Operations that make something are in the way of an end. What waits for volumes, objects, an image or a hook is given up
/// at once. A call that the runtime has begun is better finished than cut off, but not for long.
fn give_up_starts(draft: &mut Draft<'_>, since: Option<Timestamp>) {
    let facts = draft.facts;
    for (key, operation) in &facts.session.ops {
        match key {
            OpKey::CreateSandbox | OpKey::Start(_) if operation.with_runtime => {
                let since = since.map_or(operation.since, |since| since.max(operation.since));
                let until = later(since, PATIENCE_SECONDS);
                if facts.now < until {
                    draft.wake(until);
                } else {
                    draft.cancel(key, format!("the pod ends: {key:?} took too long"));
                }
            }
            OpKey::CreateSandbox | OpKey::Start(_) | OpKey::Image(_) | OpKey::Resize | OpKey::TakeOver => {
                draft.cancel(key, format!("the pod ends: {key:?} is given up"));
            }
            OpKey::Sandbox(_) | OpKey::Container(_) | OpKey::PreStop(_) | OpKey::Release | OpKey::Cleanup => {
            }
        }
    }
}

pub(super) fn remove(draft: &mut Draft<'_>, container: &Container, why: &str) {
    remove_container(draft, container, false, why);
}

/// Its logs go with the pod.
pub(super) fn remove_but_logs(draft: &mut Draft<'_>, container: &Container, why: &str) {
    remove_container(draft, container, true, why);
}

fn remove_container(draft: &mut Draft<'_>, container: &Container, keep_logs: bool, why: &str) {
    let key = OpKey::Container(container.id.clone());
    if draft.busy(&key) || waits_after_refusal(draft, &container.id) {
        return;
    }
    let action =
        Action::RemoveContainer { container: container.name.clone(), id: container.id.clone(), keep_logs };
    draft.act(action, format!("removing container {} ({}): {why}", container.name, container.id));
}

pub(super) fn remove_sandbox(draft: &mut Draft<'_>, id: &str, why: &str) {
    if draft.busy(&OpKey::Sandbox(id.to_owned())) || waits_after_refusal(draft, id) {
        return;
    }
    draft.act(Action::RemoveSandbox { id: id.to_owned() }, format!("removing sandbox {id}: {why}"));
}

/// Containers, then sandboxes. Returns whether the runtime has nothing of the pod any more.
fn remove_everything(draft: &mut Draft<'_>) -> bool {
    let runtime = draft.facts.runtime;
    for container in &runtime.containers {
        remove(draft, container, "nobody wants the pod any more");
    }
    for sandbox in &runtime.sandboxes {
        let mut inside = runtime.containers.iter().filter(|c| c.sandbox_id == sandbox.id);
        // A sandbox takes with it what the runtime refuses to remove by itself.
        if inside.all(|c| refusals(draft, &c.id) >= TRIES) {
            remove_sandbox(draft, &sandbox.id, "nobody wants the pod any more");
        }
    }
    runtime.is_empty()
}

/// Gives back what a pod that is down still holds of the node. Returns whether it holds nothing any more.
fn release(draft: &mut Draft<'_>) -> bool {
    if draft.facts.session.released {
        return true;
    }
    if !draft.busy(&OpKey::Release) && !waits_after_refusal(draft, RELEASE) {
        draft.act(Action::Release, "nothing of the pod runs any more: releasing its volumes and its cgroup");
    }
    false
}

fn clean_up(draft: &mut Draft<'_>) {
    if draft.facts.session.cleaned {
        draft.finished("nothing is left of the pod");
    } else if !draft.busy(&OpKey::Cleanup) && !waits_after_refusal(draft, CLEANUP) {
        draft.act(
            Action::Cleanup,
            "the runtime has nothing of the pod any more: removing its folders and logs",
        );
    }
}
