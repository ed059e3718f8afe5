//! A container of a wanted, unchanged pod that runs is left alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crablet_cri::fake::{Call, Subject, What};

use super::{Broken, History};

/// A loss can be acted on late: the agent was down, or a call about the pod hung.
const LATE: Duration = Duration::from_secs(180);
/// A start that was under way when the pod stopped being wanted may still happen, after a look at the runtime that hung.
const UNDER_WAY: Duration = Duration::from_secs(90);

pub fn check(history: &History<'_>) -> Vec<Broken> {
    let mut running: BTreeMap<Arc<str>, (Subject, Duration)> = BTreeMap::new();
    let mut broken = Vec::new();
    for entry in history.trace {
        let now = entry.elapsed;
        match &entry.what {
            What::ContainerStarted { container } => {
                running.insert(container.id.clone(), (container.clone(), now));
                if let Some(uid) = &container.uid
                    && let Some(since) = history.unwanted_since(uid, now)
                    && now > since + UNDER_WAY
                {
                    broken.push(Broken::new("what nobody wants is not started", entry.to_string()));
                }
            }
            What::ContainerExited { container, .. } | What::ContainerUnknown { container } => {
                running.remove(&container.id);
            }
            What::Called { call, subject, .. } => {
                let hit = |(container, _): &&(Subject, Duration)| match call {
                    Call::StopContainer | Call::RemoveContainer => container.id == subject.id,
                    Call::StopSandbox | Call::RemoveSandbox => container.uid == subject.uid,
                    _ => false,
                };
                let victim = running.values().find(hit);
                if let Some((container, started)) = victim
                    && !is_excused(history, container, *started, now)
                {
                    let text = format!("{entry}, while {container} ran well since {started:?}");
                    broken.push(Broken::new("healthy containers are left alone", text));
                }
            }
            _ => {}
        }
    }
    broken
}

fn is_excused(history: &History<'_>, container: &Subject, started: Duration, now: Duration) -> bool {
    let Some(uid) = &container.uid else { return true };
    if history.wanted_since(uid, started).is_none() {
        return true;
    }
    // The end of a pod that was removed and put back goes on under the same UID, and so does the restart of one that was
    // edited: with starts that were under way.
    history.changed_between(uid, started, now)
        || history.unwanted_between(uid, started.saturating_sub(UNDER_WAY), now)
        || history.edited_between(uid, started.saturating_sub(UNDER_WAY), now)
        || history.lost_between(uid, started.saturating_sub(LATE), now)
}
