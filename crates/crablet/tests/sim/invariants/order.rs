//! Containers begin in the order of their pod, and those that others need end after them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crablet_cri::fake::{Call, Cause, Subject, What};
use crablet_model::{PodUid, Role};

use super::{Broken, History, SEEN_WITHIN, UNDER_WAY, is_agent_start};
use crate::sim::pods::parts::Startup;
use crate::sim::pods::{ContainerPlan, PodPlan};

/// What has happened in a pod's newest sandbox.
#[derive(Default)]
struct Pod {
    up_since: Duration,
    /// Since when its containers begin in their order: since it is up, or since all of them began afresh.
    since: Duration,
    /// Init containers that have succeeded, sidecars that have started.
    done: BTreeSet<String>,
    /// By name.
    running: BTreeMap<String, Arc<str>>,
    /// When the first container was asked to stop after the pod was no longer wanted, and whether the agent that did so
    /// knew the pod.
    asked: Option<(Duration, bool)>,
    /// Those that were asked to stop while the pod was wanted, as when it had come to its end: their order is an old one.
    ending: BTreeSet<Arc<str>>,
}

/// `remembers`: what one life of the agent wrote down is known to the next.
pub fn check(history: &History<'_>, remembers: bool) -> Vec<Broken> {
    let mut pods: BTreeMap<PodUid, Pod> = BTreeMap::new();
    let mut broken = Vec::new();
    // An agent that finds a pod which was gone from its source before it came knows no order in it, as upstream.
    let mut agent_started = Duration::ZERO;
    for entry in history.trace {
        if is_agent_start(&entry.what) {
            agent_started = entry.elapsed;
        }
        let Some((uid, subject)) = subject(&entry.what) else { continue };
        let Some(plan) = history.plan_of(uid) else { continue };
        let pod = pods.entry(uid.clone()).or_default();
        let planned = plan.everyone().find(|c| c.name == *subject.container);
        match (&entry.what, planned) {
            (What::SandboxReady { .. }, _) => {
                *pod = Pod { since: entry.elapsed, up_since: entry.elapsed, ..Pod::default() };
            }
            (What::ContainerStarted { .. }, Some(planned)) => {
                let reset = history.reset_before(uid, entry.elapsed);
                if reset.is_some_and(|reset| pod.since <= reset) {
                    (pod.done, pod.since) = (BTreeSet::new(), entry.elapsed);
                }
                // It was on its way when everything was to begin afresh, and goes again.
                let is_late = reset.is_some_and(|reset| entry.elapsed <= reset + UNDER_WAY);
                let is_done = |c: &&ContainerPlan| {
                    // Who has a startup probe has started once it passed.
                    let passed = !matches!(c.extras.startup, Some(Startup::Late(_)))
                        || history.started_up.between(&plan.name, &c.name, pod.up_since, entry.elapsed);
                    pod.done.contains(&c.name) && passed
                };
                let missing = before(plan, planned).find(|c| !is_done(c));
                if let Some(missing) = missing.filter(|_| !is_late) {
                    let text = format!("{entry}, and {} is not done", missing.name);
                    broken.push(Broken::new("containers begin in order", text));
                }
                if planned.role == Role::Sidecar {
                    pod.done.insert(planned.name.clone());
                }
                pod.running.insert(planned.name.clone(), subject.id.clone());
            }
            (What::ContainerExited { code, cause, .. }, Some(planned)) => {
                pod.running.retain(|_, id| *id != subject.id);
                if planned.role == Role::Init && *code == 0 && *cause == Cause::Itself {
                    pod.done.insert(planned.name.clone());
                }
            }
            (What::ContainerUnknown { .. } | What::ContainerRemoved { .. }, _) => {
                pod.running.retain(|_, id| *id != subject.id);
            }
            (What::Called { call: Call::StopContainer, .. }, Some(stopped)) => {
                let Some(unwanted) = history.unwanted_since(uid, entry.elapsed) else {
                    pod.ending.insert(subject.id.clone());
                    // Put back while it was given its grace: this is that end, or may be.
                    if history.may_be_ending(uid, entry.elapsed) {
                        pod.asked.get_or_insert((entry.elapsed, false));
                    }
                    continue;
                };
                let saw_it = unwanted > agent_started + SEEN_WITHIN;
                let (asked, knew) = *pod.asked.get_or_insert((entry.elapsed, saw_it));
                // An end that was begun before goes on in a pod that was put back in between.
                let knows = asked >= unwanted && (saw_it || remembers && knew);
                let is_first = !pod.ending.contains(&subject.id);
                let has_time = history.killable_at(uid, entry.elapsed).is_some_and(|at| entry.elapsed < at);
                let other = plan.everyone().find(|c| needs(c, stopped) && pod.running.contains_key(&c.name));
                if let Some(other) = other.filter(|_| knows && is_first && has_time && !stopped.fails_first())
                {
                    let text = format!("{entry}, and {} still runs", other.name);
                    broken.push(Broken::new("sidecars end after those that need them", text));
                }
            }
            _ => {}
        }
    }
    broken
}

/// Who must have done its part before this one begins.
fn before<'a>(plan: &'a PodPlan, of: &'a ContainerPlan) -> impl Iterator<Item = &'a ContainerPlan> {
    plan.init.iter().take_while(|c| c.name != of.name)
}

fn needs(container: &ContainerPlan, other: &ContainerPlan) -> bool {
    let is_later = container.role == Role::Sidecar && container.name > other.name;
    other.role == Role::Sidecar && (container.role == Role::Regular || is_later)
}

fn subject(what: &What) -> Option<(&PodUid, &Subject)> {
    let subject = match what {
        What::Called { subject, .. } => subject,
        other => super::change_of(other)?,
    };
    Some((subject.uid.as_ref()?, subject))
}
