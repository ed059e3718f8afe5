//! A container of a deleted pod is not killed before its grace is over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crablet_cri::fake::{Call, Cause, What};

use super::{Broken, History};

/// Grace is counted in whole seconds.
const SLACK: Duration = Duration::from_secs(1);
const LATE: Duration = Duration::from_secs(180);

pub fn check(history: &History<'_>) -> Vec<Broken> {
    let mut started: BTreeMap<Arc<str>, Duration> = BTreeMap::new();
    // When the agent first asked each container to stop.
    let mut asked: BTreeMap<Arc<str>, Duration> = BTreeMap::new();
    let mut broken = Vec::new();
    for entry in history.trace {
        let now = entry.elapsed;
        match &entry.what {
            What::ContainerStarted { container } => {
                started.insert(container.id.clone(), now);
            }
            What::Called { call: Call::StopContainer, subject, .. } => {
                asked.entry(subject.id.clone()).or_insert(now);
            }
            What::ContainerExited {
                container,
                cause: Cause::Kill | Cause::SandboxStopped | Cause::Removed,
                ..
            } => {
                let Some(uid) = &container.uid else { continue };
                let (Some(deleted), Some(plan)) = (history.unwanted_since(uid, now), history.plan_of(uid))
                else {
                    continue;
                };
                let grace = Duration::from_secs(plan.grace_seconds.into());
                // Deleted, put back and deleted again before it was gone: its grace began with the first.
                let ending = deleted.saturating_sub(grace + LATE);
                let is_second =
                    history.unwanted_between(uid, ending, deleted.saturating_sub(Duration::from_nanos(1)));
                let since = started.get(&container.id).copied().unwrap_or_default();
                let was_stopped_before = asked.get(&container.id).is_some_and(|asked| *asked < deleted);
                let planned = plan.everyone().find(|c| c.name == *container.container);
                // Its end, or that of its pod, had begun before, perhaps with its hook.
                let was_ending = planned.is_some_and(|c| c.fails_first() && container.attempt == 0)
                    || history.makes_room(uid, Duration::ZERO, deleted)
                    || history.is_past_deadline(uid, deleted);
                let is_excused = is_second
                    || was_ending
                    || was_stopped_before
                    || history.lost_between(uid, since.saturating_sub(LATE), now);
                let killable = history.killable_at(uid, now).unwrap_or(deleted + grace);
                if !is_excused && now + SLACK < killable {
                    let text = format!("{entry}: deleted at {deleted:?} with {grace:?} of grace");
                    broken.push(Broken::new("grace periods are kept", text));
                }
            }
            _ => {}
        }
    }
    broken
}
