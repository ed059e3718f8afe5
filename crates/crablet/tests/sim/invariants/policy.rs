//! Restart policies are kept.

use std::collections::BTreeMap;
use std::time::Duration;

use crablet_cri::fake::{Cause, What};
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
    let mut broken = Vec::new();
    for entry in history.trace {
        // The first sandbox of a pod that was deleted and put back. In any new one init containers begin afresh.
        if let What::SandboxReady { sandbox } = &entry.what {
            let uid = sandbox.uid.as_ref().map(ToString::to_string).unwrap_or_default();
            all.retain(|(of, name), _| *of != uid || sandbox.attempt > 0 && !name.starts_with('i'));
        }
        let (What::ContainerStarted { container } | What::ContainerExited { container, .. }) = &entry.what
        else {
            continue;
        };
        let Some(uid) = &container.uid else { continue };
        let instances = all.entry((uid.to_string(), container.container.to_string())).or_default();
        if let What::ContainerExited { code, cause, .. } = &entry.what {
            // What the agent stopped in order to start it again is started again, whatever it ended with.
            instances.last_code = matches!(cause, Cause::Itself | Cause::Outside).then_some(*code);
            continue;
        }
        let wanted_since = history.wanted_since(uid, entry.elapsed);
        let hears = history.news_after(uid, instances.last_start, entry.elapsed);
        if instances.wanted_since != wanted_since || hears {
            *instances = Instances { wanted_since, ..Instances::default() };
        }
        let plan = history.plan_of(uid);
        let planned = plan.and_then(|plan| plan.everyone().find(|c| c.name == *container.container));
        let violated = match (plan.map(|plan| plan.policy), planned.map(|c| c.role)) {
            (_, Some(Role::Sidecar)) | (None, _) => false,
            (Some(Policy::Never), _) => instances.started > 0,
            (Some(Policy::Always), Some(Role::Regular) | None) => false,
            (Some(Policy::OnFailure | Policy::Always), _) => instances.last_code == Some(0),
        };
        if violated {
            broken.push(Broken::new("restart policies are kept", entry.to_string()));
        }
        instances.started += 1;
        instances.last_start = entry.elapsed;
        instances.last_code = None;
    }
    broken
}
