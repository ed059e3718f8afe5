//! A container of a wanted, unchanged pod that runs is left alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crablet_cri::fake::{Call, Subject, What};
use crablet_model::{PodUid, Role};

use super::{Broken, History, UNDER_WAY};

/// A loss can be acted on late: the agent was down, or a call about the pod hung.
const LATE: Duration = Duration::from_secs(180);

struct Running {
    container: Subject,
    sandbox: Arc<str>,
    since: Duration,
}

pub fn check(history: &History<'_>) -> Vec<Broken> {
    let mut running: BTreeMap<Arc<str>, Running> = BTreeMap::new();
    // Each pod's newest sandbox, which is the one that containers are started in.
    let mut sandboxes: BTreeMap<Option<PodUid>, Arc<str>> = BTreeMap::new();
    let mut broken = Vec::new();
    for entry in history.trace {
        let now = entry.elapsed;
        match &entry.what {
            What::SandboxReady { sandbox } => {
                sandboxes.insert(sandbox.uid.clone(), sandbox.id.clone());
            }
            What::ContainerStarted { container } => {
                let sandbox = sandboxes.get(&container.uid).cloned().unwrap_or_default();
                running.insert(
                    container.id.clone(),
                    Running { container: container.clone(), sandbox, since: now },
                );
                if let Some(uid) = &container.uid
                    && let Some(since) = history.unwanted_since(uid, now)
                    && history.must_know(uid, since, now)
                {
                    broken.push(Broken::new("what nobody wants is not started", entry.to_string()));
                }
            }
            What::ContainerExited { container, .. } | What::ContainerUnknown { container } => {
                running.remove(&container.id);
            }
            What::Called { call, subject, .. } => {
                let hit = |running: &&Running| match call {
                    Call::StopContainer | Call::RemoveContainer => running.container.id == subject.id,
                    Call::StopSandbox | Call::RemoveSandbox => running.sandbox == subject.id,
                    _ => false,
                };
                if let Some(Running { container, since, .. }) = running.values().find(hit)
                    && !is_excused(history, container, *since, now)
                    && !has_no_place(history, container, running.values().map(|other| &other.container))
                {
                    let text = format!("{entry}, while {container} ran well since {since:?}");
                    broken.push(Broken::new("healthy containers are left alone", text));
                }
            }
            _ => {}
        }
    }
    broken
}

/// Not well, or beside containers that have all ended.
fn has_no_place<'a>(
    history: &History<'_>,
    container: &Subject,
    mut running: impl Iterator<Item = &'a Subject>,
) -> bool {
    let plan = container.uid.as_ref().and_then(|uid| history.plan_of(uid));
    let is_regular = |name: &str| name.starts_with('c');
    let works = running.any(|other| other.uid == container.uid && is_regular(&other.container));
    match plan.and_then(|p| p.everyone().find(|c| c.name == *container.container)) {
        Some(planned) => {
            planned.fails_first() && container.attempt == 0 || planned.role == Role::Sidecar && !works
        }
        // An ephemeral one.
        None => !works,
    }
}

fn is_excused(history: &History<'_>, container: &Subject, started: Duration, now: Duration) -> bool {
    let Some(uid) = &container.uid else { return true };
    if history.wanted_since(uid, started).is_none() {
        return true;
    }
    // The end of a pod that was removed and put back goes on under the same UID, and so does the restart of one that was
    // edited: with starts that were under way.
    history.reset_before(uid, now).is_some_and(|reset| reset + UNDER_WAY >= started)
        || history.is_past_deadline(uid, now)
        || history.is_resized(uid, &container.container, now)
        // A critical pod may be heard of, and be let in, long after it came.
        || history.makes_room(uid, Duration::ZERO, now)
        || history.changed_between(uid, started, now)
        || history.news_after(uid, started, now)
        || history.unwanted_between(uid, started.saturating_sub(UNDER_WAY), now)
        || history.edited_between(uid, started.saturating_sub(UNDER_WAY), now)
        || history.lost_between(uid, started.saturating_sub(LATE), now)
}
