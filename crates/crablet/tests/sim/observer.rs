//! Reads every status that the agent publishes, over all its lives, as a careful client would.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crablet::wiring::Agent;
use crablet_model::PodUid;
use crablet_model::api::PodStatus;
use crablet_model::names::phase;
use crablet_pods::view::View;
use tokio::sync::watch;

use super::Broken;

pub const MOVED: &str = "transition times tell of transitions";

#[derive(Default)]
pub struct Observer {
    view: Option<(Arc<View>, watch::Receiver<u64>)>,
    last: BTreeMap<PodUid, Seen>,
    /// How often each pod may begin anew under the same UID: as often as it was put back after it was not wanted.
    fresh_starts: BTreeMap<PodUid, u32>,
    pub broken: Vec<Broken>,
    /// When each pod was first seen ready.
    pub first_ready: BTreeMap<PodUid, Duration>,
}

struct Seen {
    json: Arc<[u8]>,
    status: PodStatus,
}

impl Observer {
    pub fn attach(&mut self, agent: &Agent) {
        self.view = Some((agent.view().clone(), agent.view().changes()));
    }

    /// The agent is gone. What it published last is what its next life is measured by.
    pub fn detach(&mut self, now: Duration) {
        self.look(now);
        self.view = None;
    }

    /// Resolves when there is something new to see; never, while there is no agent. Cancel-safe, as `changed` is.
    pub async fn changed(&mut self) {
        if let Some((_, changes)) = &mut self.view
            && changes.changed().await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }

    /// A pod of this UID is wanted again. Its old life may still be told of for a while, then its new one.
    pub fn may_begin_anew(&mut self, uid: &PodUid) {
        *self.fresh_starts.entry(uid.clone()).or_default() += 1;
    }

    /// Forgets pods of which nothing is on disk any more: if one of the same UID comes, it comes anew.
    pub fn forget_unless(&mut self, is_remembered: impl Fn(&PodUid) -> bool) {
        self.last.retain(|uid, _| is_remembered(uid));
    }

    pub fn look(&mut self, now: Duration) {
        let Some((view, _)) = self.view.clone() else { return };
        let pods = view.summary().pods;
        self.last.retain(|uid, _| pods.iter().any(|pod| pod.uid == uid.as_str()));
        for pod in pods {
            let uid = PodUid::new(&pod.uid);
            if pod.ready && pod.desired {
                self.first_ready.entry(uid.clone()).or_insert(now);
            }
            let Some(json) = view.status(&uid) else { continue };
            if self.last.get(&uid).is_some_and(|seen| Arc::ptr_eq(&seen.json, &json)) {
                continue;
            }
            let status: PodStatus = match serde_json::from_slice(&json) {
                Ok(status) => status,
                Err(e) => {
                    self.broken.push(Broken::new("statuses decode", format!("{}: {e}", pod.name)));
                    continue;
                }
            };
            if let Some(before) = self.last.get(&uid) {
                let mut found = compare(&before.status, &status);
                let fresh_starts = self.fresh_starts.entry(uid.clone()).or_default();
                if !found.is_empty() && *fresh_starts > 0 {
                    *fresh_starts -= 1;
                    found.clear();
                }
                let seen = found.into_iter().map(|(what, text)| {
                    Broken::new(what, format!("at {:.3}s, pod {} {text}", now.as_secs_f64(), pod.name))
                });
                self.broken.extend(seen);
            }
            self.last.insert(uid, Seen { json, status });
        }
    }
}

/// What may not differ between one published status of a pod and the next.
pub fn compare(before: &PodStatus, after: &PodStatus) -> Vec<(&'static str, String)> {
    let mut broken = Vec::new();
    let all = |status: &PodStatus| {
        let init = status.init_container_statuses.iter().flatten();
        init.chain(status.container_statuses.iter().flatten()).cloned().collect::<Vec<_>>()
    };
    let after_all = all(after);
    for earlier in &all(before) {
        let later = after_all.iter().find(|c| c.name == earlier.name);
        if let Some(later) = later
            && later.restart_count < earlier.restart_count
        {
            let (from, to) = (earlier.restart_count, later.restart_count);
            broken.push(("restart counts never fall", format!("{}: {from} became {to}", earlier.name)));
        }
    }
    if before.start_time.is_some() && before.start_time != after.start_time {
        let text = format!("{:?} became {:?}", before.start_time, after.start_time);
        broken.push(("a start time stays", text));
    }
    let (from, to) = (before.phase.as_deref().unwrap_or(""), after.phase.as_deref().unwrap_or(""));
    if phase::is_terminal(from) && from != to {
        broken.push(("a final phase is final", format!("{from} became {to}")));
    }
    for earlier in before.conditions.iter().flatten() {
        let later = after.conditions.iter().flatten().find(|c| c.type_ == earlier.type_);
        if let Some(later) = later
            && later.status == earlier.status
            && later.last_transition_time != earlier.last_transition_time
            // Upstream counts another reason for which a resize waits, or fails, as a transition.
            && (!later.type_.starts_with("PodResize") || later.reason == earlier.reason)
        {
            let (from, to) = (&earlier.last_transition_time, &later.last_transition_time);
            let text = format!("{} stayed {} and moved from {from:?} to {to:?}", later.type_, later.status);
            broken.push((MOVED, text));
        }
    }
    broken
}
