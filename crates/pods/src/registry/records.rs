//! What an earlier life of the agent knew of a pod: read before the pod is shown and begun.

use std::time::Duration;

use crablet_model::{PodRef, api};
use crablet_planner::pod::{Memory, Verdict};
use tokio::time::timeout;

use super::Registry;
use super::judging::Standing;
use crate::pleg::Hint;
use crate::record;

/// A disk that does not give a pod's record by then is not waited for any longer.
const RECORD_PATIENCE: Duration = Duration::from_secs(5);

impl Registry {
    pub(super) fn read_record(&mut self, id: PodRef, is_static: bool) {
        self.unread.insert(id.uid.clone());
        let (shared, tell) = (self.shared.clone(), self.tell.clone());
        self.helpers.spawn(async move {
            let path = shared.hands.folders.record(&id);
            let record = timeout(RECORD_PATIENCE, record::load_patiently(&*shared.hands.files, &path))
                .await
                .ok()
                .flatten();
            let mut memory = record.map(|(_, memory)| memory).unwrap_or_default();
            // As upstream: a static pod that was not let in is judged again by the next life of the agent.
            let rejected = memory.verdict.as_ref().is_some_and(Verdict::is_rejection);
            if is_static && rejected && shared.hands.files.remove_file(&path).await.is_ok() {
                memory = Memory::default();
            }
            let (status, ending) = (memory.status.map(Box::new), memory.ending.filter(|end| end.forget));
            let verdict = memory.verdict.is_some();
            if let Some(tell) = tell.upgrade() {
                // Fails only when the registry has gone.
                let _ = tell.send(Hint::Remembered { id, status, ending, verdict }).await;
            }
        });
    }

    /// Whether everything that an earlier life of the agent began is known.
    pub(super) fn settle(&mut self) {
        if self.settled || !self.sources_ready() || !self.unread.is_empty() {
            return;
        }
        self.settled = true;
        let waiting = self.waiting.values().flatten().map(|waiting| &waiting.pod.id.uid);
        let known = self.workers.keys().chain(waiting).cloned().collect();
        self.shared.hands.ledgers.keep(&known);
    }

    pub(super) fn remembered(&mut self, id: &PodRef, status: Option<&api::PodStatus>, condemned: bool) {
        self.unread.remove(&id.uid);
        self.settle();
        let waiting = self.waiting.values_mut().flatten().find(|w| w.pod.id.uid == id.uid);
        if let Some(waiting) = waiting {
            self.shared.view.set_pod(id, Some(waiting.pod.json.clone()), true);
            if let Some(status) = status {
                self.shared.view.set_status(id, status);
                // It was let in, or condemned, by an earlier life of the agent: the record says which.
                waiting.standing = Standing::LetIn;
                let json = waiting.pod.json.clone();
                if let Some(pod) = serde_json::from_slice(&json).ok().filter(|_| !condemned) {
                    let pod = self.as_granted(&id.uid, pod);
                    self.count(&id.uid, &pod);
                }
            }
        }
        self.tell_if_all_are_known();
        self.advance_all();
    }
}
