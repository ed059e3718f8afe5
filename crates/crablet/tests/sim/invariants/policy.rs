//! Restart policies are kept.

use std::collections::BTreeMap;
use std::time::Duration;

use crablet_cri::fake::What;

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
        // The first sandbox of a pod that was deleted and put back.
        if let What::SandboxReady { sandbox } = &entry.what
            && sandbox.attempt == 0
        {
            let uid = sandbox.uid.as_ref().map(ToString::to_string).unwrap_or_default();
            all.retain(|(of, _), _| *of != uid);
        }
        let (What::ContainerStarted { container } | What::ContainerExited { container, .. }) = &entry.what
        else {
            continue;
        };
        let Some(uid) = &container.uid else { continue };
        let instances = all.entry((uid.to_string(), container.container.to_string())).or_default();
        if let What::ContainerExited { code, .. } = &entry.what {
            instances.last_code = Some(*code);
            continue;
        }
        let wanted_since = history.wanted_since(uid, entry.elapsed);
        let hears = history.news_after(uid, instances.last_start, entry.elapsed);
        if instances.wanted_since != wanted_since || hears {
            *instances = Instances { wanted_since, ..Instances::default() };
        }
        let violated = match history.plan_of(uid).map(|plan| plan.policy) {
            Some(Policy::Never) => instances.started > 0,
            Some(Policy::OnFailure) => instances.last_code == Some(0),
            Some(Policy::Always) | None => false,
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
