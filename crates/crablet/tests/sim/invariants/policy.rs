//! Restart policies are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crablet_cri::fake::{Call, Cause, What};
use crablet_model::Role;

use super::{Broken, History};
use crate::sim::pods::Policy;

#[derive(Default)]
struct Instances {
    started: u32,
    last_code: Option<i32>,
    last_start: Duration,
    /// The form of the pod that all this is about.
    wanted_since: Option<Duration>,
}

pub fn check(history: &History<'_>) -> Vec<Broken> {
    let mut all: BTreeMap<(String, String), Instances> = BTreeMap::new();
    // Those whom the agent has asked to stop, whatever they end with and when.
    let mut asked: BTreeSet<Arc<str>> = BTreeSet::new();
    // When the runtime was last asked to make an instance. Slow calls may make one of a form that nobody wants any longer.
    let mut made: BTreeMap<(String, String), Duration> = BTreeMap::new();
    let mut broken = Vec::new();
    for entry in history.trace {
        // The first sandbox of a pod that was deleted and put back. In any new one init containers begin afresh.
        if let What::SandboxReady { sandbox } = &entry.what {
            let uid = sandbox.uid.as_ref().map(ToString::to_string).unwrap_or_default();
            all.retain(|(of, name), _| *of != uid || sandbox.attempt > 0 && !name.starts_with('i'));
        }
        if let What::Called { call: Call::StopContainer, subject, .. } = &entry.what {
            asked.insert(subject.id.clone());
        }
        if let What::Called { call: Call::CreateContainer, subject, .. } = &entry.what
            && let Some(uid) = &subject.uid
        {
            made.insert((uid.to_string(), subject.container.to_string()), entry.elapsed);
        }
        let (What::ContainerStarted { container } | What::ContainerExited { container, .. }) = &entry.what
        else {
            continue;
        };
        let Some(uid) = &container.uid else { continue };
        let key = (uid.to_string(), container.container.to_string());
        let made_at = made.get(&key).copied();
        let instances = all.entry(key).or_default();
        if let What::ContainerExited { code, cause, .. } = &entry.what {
            // What the agent stopped in order to start it again is started again, whatever it ended with.
            let by_itself = matches!(cause, Cause::Itself | Cause::Outside) && !asked.contains(&container.id);
            instances.last_code = by_itself.then_some(*code);
            continue;
        }
        let wanted_since = history.wanted_since(uid, entry.elapsed);
        let hears = history.news_after(uid, instances.last_start, entry.elapsed);
        if instances.wanted_since != wanted_since || hears {
            *instances = Instances { wanted_since, ..Instances::default() };
        }
        let plan = history.plan_of(uid);
        let planned = plan.and_then(|plan| plan.everyone().find(|c| c.name == *container.container));
        if history.reset_before(uid, entry.elapsed).is_some_and(|reset| instances.last_start <= reset) {
            *instances = Instances { wanted_since: instances.wanted_since, ..Instances::default() };
        }
        let never = |code: Option<i32>| instances.started > 0 && code.is_some();
        let violated = match (plan, planned) {
            (None, _) => false,
            // An ephemeral container: it has one life.
            (Some(_), None) => instances.started > 0,
            (Some(plan), Some(planned)) => match (planned.role, plan.policy) {
                // Who lost its sandbox or its runtime's memory may not run again, whatever it ended with.
                (Role::Init | Role::Regular, Policy::Never) if planned.extras.rule.is_none() => {
                    instances.started > 0
                }
                _ => {
                    let code = instances.last_code;
                    never(code) && code.is_some_and(|code| !planned.restarts(plan.policy, code))
                }
            },
        };
        if violated {
            broken.push(Broken::new("restart policies are kept", entry.to_string()));
        }
        let is_of_old_form = made_at.is_some_and(|made| wanted_since.is_some_and(|since| made < since));
        instances.started += u32::from(!is_of_old_form);
        instances.last_start = entry.elapsed;
        instances.last_code = None;
    }
    broken
}
