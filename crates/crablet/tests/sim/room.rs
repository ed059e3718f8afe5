//! Who has which part of a node on which there is not room for all.
//!
//! Judged while the night goes on: never is more granted than there is, and who is refused was in need of more than was
//! left. Judged in the morning: who waits for another part waits for a reason, and what was granted was given.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crablet_model::allocation::Sizes;
use crablet_model::api::{Pod, PodSpec, PodStatus, ResourceRequirements};
use crablet_model::names::{annotation, phase};
use crablet_model::resources::cpu_shares;
use crablet_model::runtime::Container;
use crablet_model::{PodRef, PodUid};
use serde_json::Value;

use super::Broken;
use super::pods::NODE;
use super::story::Family;
use super::world::World;

const GRANTED: &str = "no more is granted than there is";
const REFUSED: &str = "pods are refused for want of room only";
const RESIZED: &str = "resizes come to what they should";

/// Thousandths of a CPU.
const CPU: i64 = 4000;
/// What a pod that makes room still has, after its grace, is no fault: a runtime may refuse to stop it.
const LEAVES_WITHIN: Duration = Duration::from_secs(180);
/// Who was there a moment ago may have been counted.
const RECENT: Duration = Duration::from_secs(60);

/// CPU and memory.
type Part = (i64, i64);

fn sum(parts: impl IntoIterator<Item = Part>) -> Part {
    parts.into_iter().fold((0, 0), |all, part| (all.0 + part.0, all.1 + part.1))
}

fn fits(part: Part, in_all: Part) -> bool {
    part.0 <= in_all.0 && part.1 <= in_all.1
}

fn of(resources: Option<&ResourceRequirements>) -> Part {
    let sizes = Sizes::of(resources);
    (sizes.cpu_request, sizes.memory_request)
}

fn asked(spec: &PodSpec) -> Part {
    sum(spec.containers.iter().map(|c| of(c.resources.as_ref())))
}

fn granted(status: &PodStatus) -> Part {
    let requests = status.allocated_resources.clone();
    of(Some(&ResourceRequirements { requests, ..ResourceRequirements::default() }))
}

fn is_over(status: &PodStatus) -> bool {
    status.phase.as_deref().is_some_and(phase::is_terminal)
}

/// The node did not let it begin, or run on.
pub fn is_refused(phase: &str, reason: &str) -> bool {
    phase == phase::FAILED && (has_no_room(reason) || reason == "Preempting")
}

/// The second is what a critical pod hears for which nobody can make room.
fn has_no_room(reason: &str) -> bool {
    reason.starts_with("OutOf") || reason == "UnexpectedAdmissionError"
}

/// What was seen while the night goes on.
#[derive(Default)]
pub struct Room {
    /// The part that each pod takes or may take, and when it was seen last.
    recent: BTreeMap<PodUid, (Duration, Part)>,
    refused: BTreeSet<PodUid>,
    /// Since when more is granted than there is.
    over: Option<Duration>,
    pub broken: Vec<Broken>,
}

impl World {
    /// The agent has published something.
    pub fn look_at_room(&mut self) {
        if self.story.family != Family::Crowded {
            return;
        }
        let (now, room) = (self.elapsed(), self.allocatable());
        let mut taken = Vec::new();
        let shown = self.shown();
        for (uid, _, status) in shown.iter().filter(|(_, _, status)| !is_over(status)) {
            let part = self.most_of(uid, status);
            self.room.recent.insert(uid.clone(), (now, part));
        }
        for (uid, desired, status) in shown {
            let part = self.most_of(&uid, &status);
            let reason = status.reason.as_deref().unwrap_or_default();
            if has_no_room(reason) && self.room.refused.insert(uid.clone()) {
                let since = now.saturating_sub(RECENT);
                let others = self.room.recent.iter().filter(|(of, (at, _))| **of != uid && *at >= since);
                let all = sum(others.map(|(_, (_, part))| *part).chain([part]));
                if fits(all, room) {
                    let text = format!("at {now:?}, {uid}: {reason}, and with all others it is {all:?}");
                    self.room.broken.push(Broken::new(REFUSED, text));
                }
            }
            if desired && !is_over(&status) && !self.is_condemned(&uid) && !self.may_overdraw(&uid) {
                taken.push(granted(&status));
            }
        }
        let taken = sum(taken);
        if fits(taken, (CPU, room.1)) {
            self.room.over = None;
        } else {
            let since = *self.room.over.get_or_insert(now);
            if now.saturating_sub(since) > LEAVES_WITHIN && self.room.broken.is_empty() {
                let text = format!("since {since:?}, {taken:?} of {room:?}");
                self.room.broken.push(Broken::new(GRANTED, text));
            }
        }
    }

    /// A life of the agent lets a static pod in before it has heard of those from the API server. An earlier life let them
    /// in; they run, and are not ended because there is not room for all any more.
    fn may_overdraw(&self, uid: &PodUid) -> bool {
        let plan = self.changes.iter().find(|change| change.uid.as_ref() == Some(uid));
        self.lives > 1 && plan.is_some_and(|change| !self.story.pods[change.pod].is_of_api())
    }

    /// Pods that the agent shows: whether anybody wants them, and their statuses.
    fn shown(&self) -> Vec<(PodUid, bool, PodStatus)> {
        let Some(view) = self.agent().map(|agent| agent.view()) else { return Vec::new() };
        let pods = view.summary().pods.into_iter();
        let with_status = pods.map(|pod| {
            let uid = PodUid::new(&pod.uid);
            let status = view.status(&uid).and_then(|json| serde_json::from_slice(&json).ok());
            (uid, pod.desired, status.unwrap_or_default())
        });
        with_status.collect()
    }

    /// What the pod takes, or asks for.
    fn most_of(&self, uid: &PodUid, status: &PodStatus) -> Part {
        let plan = self.changes.iter().find(|change| change.uid.as_ref() == Some(uid));
        let plan = plan.map(|change| &self.story.pods[change.pod]);
        let first = plan.map(|plan| plan.size()).unwrap_or_default();
        let first = (i64::try_from(first.0).unwrap_or(0), i64::try_from(first.1 << 20).unwrap_or(0));
        let there = plan.and_then(|plan| self.in_api(&plan.full_name()));
        let there = there.filter(|pod| PodRef::of(pod).uid == *uid).and_then(|pod| pod.spec);
        let parts = [first, granted(status), there.as_ref().map(asked).unwrap_or_default()];
        parts.into_iter().fold((0, 0), |most, part| (most.0.max(part.0), most.1.max(part.1)))
    }

    fn in_api(&self, name: &str) -> Option<Pod> {
        let pod = self.cluster.as_ref()?.api.server.get("pods", "default", name)?;
        serde_json::from_value(pod).ok()
    }

    /// The agent has written down that the pod does not run on.
    fn is_condemned(&self, uid: &PodUid) -> bool {
        let record = self.files.content(super::world::record_path(uid)).unwrap_or_default();
        let record: Value = serde_json::from_slice(&record).unwrap_or_default();
        record.to_string().contains("\"verdict\":{")
    }

    fn allocatable(&self) -> Part {
        let node = self.cluster.as_ref().and_then(|cluster| cluster.api.server.get("nodes", "", NODE));
        let list = node.map(|node| node["status"]["allocatable"].clone());
        let requests = list.and_then(|list| serde_json::from_value(list).ok());
        match of(Some(&ResourceRequirements { requests, ..ResourceRequirements::default() })) {
            (_, 0) => (CPU, 8 << 30),
            (_, memory) => (CPU, memory),
        }
    }
}

/// What is not yet as it should be.
pub fn unsettled(world: &World) -> Vec<Broken> {
    if world.story.family != Family::Crowded {
        return Vec::new();
    }
    let pods: Vec<Pod> = world.story.pods.iter().filter_map(|plan| world.in_api(&plan.full_name())).collect();
    let running: Vec<(&Pod, PodStatus)> = pods
        .iter()
        .map(|pod| (pod, pod.status.clone().unwrap_or_default()))
        .filter(|(_, status)| !is_over(status))
        .collect();
    let mut broken = Vec::new();
    let (taken, room) = (sum(running.iter().map(|(_, status)| granted(status))), world.allocatable());
    let counted = running.iter().filter(|(pod, _)| world.lives == 1 || !is_mirror(pod));
    if !fits(sum(counted.map(|(_, status)| granted(status))), room) {
        broken.push(Broken::new(GRANTED, format!("{taken:?} of {room:?}")));
    }
    let containers = world.runtime.containers();
    for (pod, status) in &running {
        let others = (taken.0 - granted(status).0, taken.1 - granted(status).1);
        if let Err(text) = is_right(pod, status, others, room, &containers) {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            broken.push(Broken::new(RESIZED, format!("{name} {text}")));
        }
    }
    broken
}

/// See [`World::may_overdraw`].
fn is_mirror(pod: &Pod) -> bool {
    pod.metadata.annotations.iter().flatten().any(|(name, _)| name == annotation::CONFIG_MIRROR)
}

fn is_right(
    pod: &Pod,
    status: &PodStatus,
    others: Part,
    room: Part,
    containers: &[Container],
) -> Result<(), String> {
    let spec = pod.spec.as_ref().ok_or("has no specification")?;
    let told = |kind: &str| status.conditions.iter().flatten().find(|c| c.type_ == kind);
    let (wants, has, waits) = (asked(spec), granted(status), told("PodResizePending"));
    match (wants == has, waits) {
        (true, Some(waits)) => return Err(format!("has what it asks for and waits: {waits:?}")),
        (false, None) => return Err(format!("asks for {wants:?}, has {has:?}, and nobody says why")),
        (false, Some(_)) if fits(sum([others, wants]), room) => {
            return Err(format!("asks for {wants:?} beside {others:?} and waits, though there is room"));
        }
        (false, Some(_)) => return Ok(()),
        (true, None) => {}
    }
    if let Some(condition) = told("PodResizeInProgress") {
        return Err(format!("is being resized for ever: {condition:?}"));
    }
    let uid = PodRef::of(pod).uid;
    for container in containers.iter().filter(|c| c.uid == uid && c.state.is_running()) {
        let Some(planned) = spec.containers.iter().find(|c| c.name == container.name) else { continue };
        let sizes = Sizes::of(planned.resources.as_ref());
        let given = container.resources.unwrap_or_default();
        let right = (cpu_shares(sizes.cpu_request), sizes.memory_limit);
        if (given.cpu_shares, given.memory_limit) != right {
            return Err(format!("was granted {sizes:?}, and {} was given {given:?}", container.name));
        }
    }
    Ok(())
}
