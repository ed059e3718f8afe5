//! What a worker keeps between turns, and over deaths of the agent: the pod's record.

use crablet_model::hash::fnv1a_128;
use crablet_planner::pod::Memory;

use super::Worker;
use crate::inspect::log_attempts;
use crate::record;

impl Worker {
    /// What an earlier life of the agent left on disk.
    pub(super) async fn remember(&mut self) -> Memory {
        let files = &*self.shared.hands.files;
        let folders = &self.shared.hands.folders;
        self.session.seen_attempts = log_attempts(files, &folders.logs(&self.id)).await;
        let found = record::load_patiently(files, &folders.record(&self.id)).await;
        let memory = found.map(|(_, memory)| memory).unwrap_or_default();
        self.record = record::encode(&self.id, &memory);
        self.on_disk = fnv1a_128(&self.record);
        memory
    }

    pub(super) fn recall(&self) -> Memory {
        record::decode(&self.record).map(|(_, memory)| memory).unwrap_or_default()
    }

    /// To disk, before anything of it is acted on. A disk that is full does not keep a pod from ending: it is said, and
    /// the next turn tries again.
    pub(super) async fn save(&mut self, memory: &Memory, cleaning: bool) {
        self.record = record::encode(&self.id, memory);
        let digest = fnv1a_128(&self.record);
        if self.saved && digest == self.on_disk {
            return;
        }
        if cleaning {
            return; // the folder is going away
        }
        let hands = &self.shared.hands;
        let path = hands.folders.record(&self.id);
        match record::save(&*hands.files, &path, &self.record).await {
            Ok(()) => (self.saved, self.on_disk) = (true, digest),
            Err(error) => {
                self.saved = false;
                tracing::error!(path = %path.display(), %error, pod = self.id.object_ref(), podUID = %self.id.uid, "could not write a pod's record");
            }
        }
    }
}
