//! What must hold of a night, judged by what an outsider saw: the runtime's trace and the operator's own doings.
//!
//! One pass over the trace with a check for each promise. Each check says what excuses it, so that what is left is the
//! agent's fault.

mod back_off;
mod grace;
mod order;
mod policy;
mod untouched;

use std::time::Duration;

use crablet_cri::fake::{Cause, Subject, TraceEntry, Violation, ViolationKind, What};
use crablet_model::PodUid;

use super::Broken;
use super::pods::commands::Started;
use super::pods::parts::RULED;
use super::pods::{Expected, PRESENT, PULLED, PodPlan};
use super::story::Kind;
use super::world::{AGENT_STARTS, Change, Manifest, World};

/// A start may happen this long after it was decided: a look at the runtime can hang, and so can the call.
const UNDER_WAY: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
/// An agent that can see the cluster for this long has seen it.
const SEEN_WITHIN: Duration = Duration::from_secs(60);

pub fn check(world: &World, trace: &[TraceEntry]) -> Vec<Broken> {
    let history = History::new(world, trace);
    let kind = world.story.kind;
    let mut broken = violations(world, &history);
    broken.extend(untouched::check(&history));
    broken.extend(policy::check(&history));
    broken.extend(order::check(&history, kind != Kind::BadDisk));
    if !world.clock_was_set_back() {
        broken.extend(back_off::check(&history, kind != Kind::BadDisk));
    }
    // Grace is measured by the wall clock.
    if kind != Kind::ClockJumps {
        broken.extend(grace::check(&history));
    }
    match kind {
        Kind::OneStuck => {
            broken.extend(are_ready_in_time(world, &history, 1, "one stuck pod delays no other"))
        }
        Kind::NoCluster => {
            broken.extend(are_ready_in_time(world, &history, 0, "static pods need no API server"));
        }
        Kind::Usual | Kind::BadDisk | Kind::ClockJumps => {}
    }
    broken
}

/// What the runtime itself noticed.
fn violations(world: &World, history: &History<'_>) -> Vec<Broken> {
    let mut broken = Vec::new();
    for Violation { elapsed, kind, uid, since, message } in world.runtime.violations() {
        let promise = match kind {
            ViolationKind::TwoReadySandboxes => "one ready sandbox per pod",
            ViolationKind::TwoLiveInstances => "one live instance per container",
            // A pod that was deleted and put back begins anew, though something of the old one may be left.
            ViolationKind::RestartCountFell
                if history.unwanted_between(&uid, since.saturating_sub(UNDER_WAY), elapsed) =>
            {
                continue;
            }
            // In a new sandbox init containers begin afresh, with logs of their own.
            ViolationKind::RestartCountFell if message.contains("/i") => continue,
            // Neither the record nor the logs could be read by the next life.
            ViolationKind::RestartCountFell
                if world.story.kind == Kind::BadDisk && history.restarted_between(since, elapsed) =>
            {
                continue;
            }
            ViolationKind::RestartCountFell => "restart counts never fall",
            ViolationKind::CreatedInStoppedSandbox => "containers are made in sandboxes that are up",
        };
        broken.push(Broken::new(promise, format!("at {:.3}s: {message}", elapsed.as_secs_f64())));
    }
    broken
}

/// What is about a sandbox or container changing, whoever did it.
pub fn change_of(what: &What) -> Option<&Subject> {
    match what {
        What::SandboxReady { sandbox }
        | What::SandboxNotReady { sandbox, .. }
        | What::SandboxRemoved { sandbox } => Some(sandbox),
        What::ContainerCreated { container }
        | What::ContainerStarted { container }
        | What::ContainerNotStarted { container, .. }
        | What::ContainerExited { container, .. }
        | What::ContainerUnknown { container }
        | What::ContainerRemoved { container } => Some(container),
        _ => None,
    }
}

fn is_agent_start(what: &What) -> bool {
    matches!(what, What::Note(text) if text == AGENT_STARTS)
}

/// Did a container of this pod ask for all to begin afresh?
pub fn asks_for_all(what: &What, uid: &PodUid, plan: &PodPlan) -> bool {
    match what {
        What::ContainerExited { container, code: RULED, cause: Cause::Itself } => {
            let may_ask = || plan.asks_for_all().any(|c| *container.container == *c.name);
            container.uid.as_ref() == Some(uid) && may_ask()
        }
        _ => false,
    }
}

/// The operator's changes and the runtime's trace, with the questions that the checks ask of them.
struct History<'a> {
    pods: &'a [PodPlan],
    changes: &'a [Change],
    trace: &'a [TraceEntry],
    /// When the agent began to see the cluster, or no longer did.
    sight: &'a [(Duration, bool)],
    started_up: &'a Started,
    clock_jumps: bool,
    resizes: &'a [(Duration, PodUid, usize, usize)],
}

impl<'a> History<'a> {
    fn new(world: &'a World, trace: &'a [TraceEntry]) -> Self {
        let sight = world.cluster.as_ref().map_or(&[][..], |cluster| &cluster.sight);
        Self {
            pods: &world.story.pods,
            changes: &world.changes,
            trace,
            sight,
            started_up: &world.started_up,
            clock_jumps: world.story.kind == Kind::ClockJumps,
            resizes: &world.resizes,
        }
    }

    /// Did a life of the agent begin in this time?
    fn restarted_between(&self, from: Duration, to: Duration) -> bool {
        let window = self.trace.iter().filter(|entry| entry.elapsed >= from && entry.elapsed <= to);
        window.into_iter().any(|entry| is_agent_start(&entry.what))
    }

    /// When a container of the pod last asked for all of them to begin afresh.
    fn reset_before(&self, uid: &PodUid, to: Duration) -> Option<Duration> {
        let plan = self.plan_of(uid).filter(|plan| plan.asks_for_all().next().is_some())?;
        let before = self.trace.iter().take_while(|entry| entry.elapsed <= to);
        before.filter(|entry| asks_for_all(&entry.what, uid, plan)).map(|entry| entry.elapsed).last()
    }

    /// May the container have been restarted because its pod got another part of the node, and it asks for that? A grant
    /// may come long after it was asked for.
    fn is_resized(&self, uid: &PodUid, container: &str, now: Duration) -> bool {
        let asked = self.resizes.iter().filter(|(at, of, ..)| of == uid && *at <= now);
        asked.into_iter().any(|(_, _, pod, number)| {
            let planned = self.pods[*pod].containers.get(*number);
            planned.is_some_and(|c| c.name == container && c.restarts_for.is_some())
        })
    }

    /// Somebody has asked for another part of the node for this container: its back-off may have begun afresh with it, as
    /// upstream's does.
    fn was_resized(&self, uid: &PodUid, container: &str, now: Duration) -> bool {
        self.resizes.iter().any(|(at, of, pod, number)| {
            let planned = self.pods[*pod].containers.get(*number);
            of == uid && *at <= now && planned.is_some_and(|c| c.name == container)
        })
    }

    /// May the pod have had to make room for a critical one that came, or asked for more, in this time?
    fn makes_room(&self, uid: &PodUid, from: Duration, to: Duration) -> bool {
        if self.plan_of(uid).is_none_or(|plan| plan.claim.is_none() || plan.is_critical()) {
            return false;
        }
        let is_recent = |at: Duration| at >= from && at <= to;
        let came = self.changes.iter().filter(|change| change.uid.is_some()).map(|c| (c.at, c.pod));
        let asked = self.resizes.iter().map(|(at, _, pod, _)| (*at, *pod));
        came.chain(asked).any(|(at, pod)| is_recent(at) && self.pods[pod].is_critical())
    }

    /// May the pod's own deadline have passed?
    fn is_past_deadline(&self, uid: &PodUid, now: Duration) -> bool {
        let Some(pod) = self.pod_of(uid) else { return false };
        let first = self.changes_of(pod).find(|change| change.uid.as_ref() == Some(uid));
        let deadline = self.pods[pod].deadline.map(|seconds| Duration::from_secs(seconds.into()));
        // A start time is a whole second.
        let passed = first.zip(deadline).map(|(first, deadline)| now + SECOND >= first.at + deadline);
        passed.is_some_and(|passed| passed || self.clock_jumps)
    }

    fn pod_of(&self, uid: &PodUid) -> Option<usize> {
        self.changes.iter().find(|change| change.uid.as_ref() == Some(uid)).map(|change| change.pod)
    }

    fn plan_of(&self, uid: &PodUid) -> Option<&'a PodPlan> {
        self.pod_of(uid).map(|pod| &self.pods[pod])
    }

    fn changes_of(&self, pod: usize) -> impl Iterator<Item = &'a Change> {
        self.changes.iter().filter(move |change| change.pod == pod)
    }

    /// Since when the pod has been wanted, in exactly the form it has at this time.
    fn wanted_since(&self, uid: &PodUid, at: Duration) -> Option<Duration> {
        let pod = self.pod_of(uid)?;
        let change = self.changes_of(pod).take_while(|change| change.at <= at).last()?;
        (change.uid.as_ref() == Some(uid)).then_some(change.at)
    }

    /// When the pod stopped being wanted, if it was not wanted at this time.
    fn unwanted_since(&self, uid: &PodUid, at: Duration) -> Option<Duration> {
        let pod = self.pod_of(uid)?;
        let before = self.changes_of(pod).take_while(|change| change.at <= at);
        let mut since = None;
        for change in before {
            match (&change.uid, since) {
                (Some(wanted), _) if wanted == uid => since = None,
                (_, None) => since = Some(change.at),
                _ => {}
            }
        }
        since
    }

    /// Was the pod taken away so lately that an end which was begun then would still be under way?
    fn may_be_ending(&self, uid: &PodUid, at: Duration) -> bool {
        let (Some(pod), Some(plan)) = (self.pod_of(uid), self.plan_of(uid)) else { return false };
        self.changes_of(pod).any(|change| {
            let grace = u64::from(change.grace_seconds.unwrap_or(plan.grace_seconds));
            let over = change.at + Duration::from_secs(grace) + UNDER_WAY;
            change.uid.as_ref() != Some(uid) && change.at <= at && at <= over
        })
    }

    /// When a pod that is not wanted may be killed: after the shortest grace that was given it.
    fn killable_at(&self, uid: &PodUid, at: Duration) -> Option<Duration> {
        let since = self.unwanted_since(uid, at)?;
        let plan = self.plan_of(uid)?;
        let ends = self.changes_of(self.pod_of(uid)?).filter(|change| change.at >= since && change.at <= at);
        let ends = ends.filter(|change| change.uid.as_ref() != Some(uid));
        let grace = |change: &Change| u64::from(change.grace_seconds.unwrap_or(plan.grace_seconds));
        ends.map(|change| change.at + Duration::from_secs(grace(change))).min()
    }

    /// Whether the agent must have heard by now of what happened then: a pod of a file is heard of anyway, one of the API
    /// server when the agent could see it for a while.
    fn must_know(&self, uid: &PodUid, since: Duration, now: Duration) -> bool {
        if self.plan_of(uid).is_none_or(|plan| !plan.is_of_api()) {
            return now > since + UNDER_WAY;
        }
        let ends = self.sight.iter().skip(1).map(|(at, _)| *at).chain([now]);
        self.sight.iter().zip(ends).any(|((from, sees), to)| {
            *sees && to.min(now.saturating_sub(UNDER_WAY)) >= since.max(*from) + SEEN_WITHIN
        })
    }

    /// May the agent have heard after `since` of a change to a pod of the API server that is older, or came since?
    fn news_after(&self, uid: &PodUid, since: Duration, now: Duration) -> bool {
        let Some(pod) = self.pod_of(uid).filter(|pod| self.pods[*pod].is_of_api()) else { return false };
        // That the pod was created is known to who runs it.
        let edits = self.changes_of(pod).skip_while(|change| change.uid.as_ref() != Some(uid)).skip(1);
        edits.into_iter().any(|change| change.at <= now && !self.must_know(uid, change.at, since))
    }

    /// Did the operator change anything about the pod in this time?
    fn changed_between(&self, uid: &PodUid, from: Duration, to: Duration) -> bool {
        let Some(pod) = self.pod_of(uid) else { return true };
        self.changes_of(pod).any(|change| change.at > from && change.at <= to)
    }

    /// Did the pod stop being wanted in this time?
    fn unwanted_between(&self, uid: &PodUid, from: Duration, to: Duration) -> bool {
        let Some(pod) = self.pod_of(uid) else { return true };
        let mut window = self.changes_of(pod).filter(|change| change.at >= from && change.at <= to);
        window.any(|change| change.uid.as_ref() != Some(uid))
    }

    /// Did the pod get another form under the same UID in this time?
    fn edited_between(&self, uid: &PodUid, from: Duration, to: Duration) -> bool {
        let Some(pod) = self.pod_of(uid) else { return true };
        let changes: Vec<&Change> = self.changes_of(pod).collect();
        let is_edit = |pair: &[&Change]| pair.iter().all(|change| change.uid.as_ref() == Some(uid));
        changes.windows(2).any(|pair| is_edit(pair) && pair[1].at >= from && pair[1].at <= to)
    }

    /// Did the pod's sandbox or one of its containers get lost in this time, by nobody's will?
    fn lost_between(&self, uid: &PodUid, from: Duration, to: Duration) -> bool {
        let window = self.trace.iter().filter(|entry| entry.elapsed >= from && entry.elapsed <= to);
        window.into_iter().any(|entry| match &entry.what {
            What::SandboxNotReady { sandbox, cause: Cause::Outside | Cause::Itself } => {
                sandbox.uid.as_ref() == Some(uid)
            }
            What::ContainerUnknown { container } => container.uid.as_ref() == Some(uid),
            _ => false,
        })
    }
}

/// On a night on which only one thing is wrong, pods from this one on come up as if it were not.
fn are_ready_in_time(
    world: &World,
    history: &History<'_>,
    first: usize,
    promise: &'static str,
) -> Vec<Broken> {
    const START: Duration = Duration::from_secs(30);
    const PULL: Duration = Duration::from_secs(60);
    let mut broken = Vec::new();
    for (pod, plan) in world.story.pods.iter().enumerate().skip(first) {
        let is_simple = |c: &super::pods::ContainerPlan| {
            c.behaviour.lives.len() == 1
                && !c.fails_first()
                && !c.extras.delays()
                && (c.image == PRESENT || c.image == PULLED)
        };
        let is_plain = plan.init.is_empty() && plan.containers.iter().all(is_simple);
        if plan.expected() != Expected::Ready || !is_plain || plan.deadline.is_some() {
            continue;
        }
        let Some(put) = history.changes_of(pod).find(|change| change.manifest == Manifest::Version(0)) else {
            continue;
        };
        let pulls = plan.containers.iter().any(|c| c.image == PULLED);
        let latest = put.at + START + if pulls { PULL } else { Duration::ZERO };
        let Some(uid) = &put.uid else { continue };
        let removed = history.changes_of(pod).any(|change| change.at > put.at && change.at <= latest);
        let ready = world.observer.first_ready.get(uid);
        if !removed && ready.is_none_or(|ready| *ready > latest) {
            let text = format!("{} was wanted at {:?} and ready at {ready:?}", plan.name, put.at);
            broken.push(Broken::new(promise, text));
        }
    }
    broken
}
