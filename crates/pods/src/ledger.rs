//! What pods were granted and what they were given, in upstream's files: either agent can take over the other's pods.
//!
//! | file | what it says | who writes it |
//! |---|---|---|
//! | `allocated_pods_state` | what the node has granted | the registry |
//! | `actuated_pods_state` | what runtime and cgroups were told last | operations |
//!
//! A change is in memory at once; an operation that acts on it saves it first. One save takes all changes of the moment
//! along, so a hundred pods that come together cost a few writes. As upstream, a pod that is gone leaves the file with the
//! next change.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crablet_host::Files;
use crablet_model::PodUid;
use crablet_model::allocation::Allocation;
use crablet_model::hash::fnv1a_32;
use serde::{Deserialize, Serialize};

pub const ALLOCATED: &str = "allocated_pods_state";
pub const ACTUATED: &str = "actuated_pods_state";

/// Some hundred bytes for each pod.
const MOST_BYTES: usize = 64 << 20;
const FILE_MODE: u32 = 0o600;
/// Between tries to read a file: doubling from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LAST_PAUSE: Duration = Duration::from_secs(16);

/// Both files of a node.
pub struct Ledgers {
    pub allocated: Ledger,
    pub actuated: Ledger,
}

impl Ledgers {
    pub fn new(root: &Path, files: Arc<dyn Files>) -> Self {
        Self {
            allocated: Ledger::new(root.join(ALLOCATED), files.clone()),
            actuated: Ledger::new(root.join(ACTUATED), files),
        }
    }

    /// What an earlier life of the agent left. To be called before anything else.
    pub async fn load(&self) {
        self.allocated.load().await;
        self.actuated.load().await;
    }

    /// What is on the way to disk gets there.
    pub async fn save(&self) {
        tokio::join!(self.allocated.save(), self.actuated.save());
    }

    pub fn forget(&self, uid: &PodUid) {
        self.allocated.forget(uid);
        self.actuated.forget(uid);
    }

    /// All others left this node in an earlier life of the agent.
    pub fn keep(&self, known: &BTreeSet<PodUid>) {
        for ledger in [&self.allocated, &self.actuated] {
            ledger.book().entries.retain(|uid, _| known.contains(uid));
        }
    }
}

pub struct Ledger {
    path: PathBuf,
    files: Arc<dyn Files>,
    book: Mutex<Book>,
    /// Held while the file is written: the checksum of what is in it.
    on_disk: tokio::sync::Mutex<Option<u32>>,
}

#[derive(Default)]
struct Book {
    entries: BTreeMap<PodUid, Arc<Allocation>>,
    /// How many changes there were, and how many of them are on disk.
    changes: u64,
    saved: u64,
}

impl Book {
    fn set(&mut self, uid: &PodUid, allocation: Allocation) {
        if self.entries.get(uid).is_some_and(|known| **known == allocation) {
            return;
        }
        self.entries.insert(uid.clone(), Arc::new(allocation));
        self.changes += 1;
    }
}

impl Ledger {
    fn new(path: PathBuf, files: Arc<dyn Files>) -> Self {
        Self { path, files, book: Mutex::default(), on_disk: tokio::sync::Mutex::default() }
    }

    pub fn get(&self, uid: &PodUid) -> Option<Arc<Allocation>> {
        self.book().entries.get(uid).cloned()
    }

    pub fn set(&self, uid: &PodUid, allocation: Allocation) {
        self.book().set(uid, allocation);
    }

    /// Changes what is known of a pod; of one that is not known, nothing was.
    pub fn amend(&self, uid: &PodUid, change: impl FnOnce(&mut Allocation)) {
        let mut book = self.book();
        let mut allocation = book.entries.get(uid).map(|known| (**known).clone()).unwrap_or_default();
        change(&mut allocation);
        book.set(uid, allocation);
    }

    pub fn forget(&self, uid: &PodUid) {
        self.book().entries.remove(uid);
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what has changed. A disk that is full does not keep a pod from running: it is said, and the next one tries
    /// again.
    pub async fn save(&self) {
        if self.is_saved() {
            return;
        }
        let mut on_disk = self.on_disk.lock().await;
        let (changes, data) = {
            let book = self.book();
            if book.saved == book.changes {
                return; // another has taken it along
            }
            (book.changes, data(&book.entries))
        };
        let sum = checksum(&data);
        if *on_disk != Some(sum) {
            let content = encode(data, sum);
            if let Err(error) = self.files.write_atomic(&self.path, &content, FILE_MODE).await {
                tracing::error!(path = %self.path.display(), %error, "Failed to save pod resource information checkpoint");
                return;
            }
            *on_disk = Some(sum);
        }
        let mut book = self.book();
        book.saved = book.saved.max(changes);
    }

    fn is_saved(&self) -> bool {
        let book = self.book();
        book.saved == book.changes
    }

    async fn load(&self) {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.files.read(&self.path, MOST_BYTES).await {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return,
                Err(error) if pause > LAST_PAUSE => {
                    tracing::error!(path = %self.path.display(), %error, "a checkpoint cannot be read, going on without it");
                    return;
                }
                Err(error) => {
                    tracing::warn!(path = %self.path.display(), %error, "a checkpoint cannot be read yet");
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                Ok(content) => return self.take(&content).await,
            }
        }
    }

    async fn take(&self, content: &[u8]) {
        match decode(content) {
            Ok((entries, sum)) => {
                *self.on_disk.lock().await = Some(sum);
                self.book().entries = entries;
            }
            // Looked at before the agent began: somebody has changed it since.
            Err(error) => {
                tracing::error!(path = %self.path.display(), error, "a checkpoint cannot be used, going on without it");
            }
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Checkpoint {
    data: String,
    checksum: u64,
}

#[derive(Default, Serialize, Deserialize)]
struct Data {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    entries: BTreeMap<String, Arc<Allocation>>,
}

fn data(entries: &BTreeMap<PodUid, Arc<Allocation>>) -> String {
    let entries = entries.iter().map(|(uid, entry)| (uid.to_string(), entry.clone())).collect();
    serde_json::to_string(&Data { entries }).unwrap_or_default()
}

/// Upstream's dump of a string names its type first.
fn checksum(data: &str) -> u32 {
    fnv1a_32(format!("(string){data}").as_bytes())
}

fn encode(data: String, sum: u32) -> Vec<u8> {
    serde_json::to_vec(&Checkpoint { data, checksum: sum.into() }).unwrap_or_default()
}

type Decoded = (BTreeMap<PodUid, Arc<Allocation>>, u32);

fn decode(content: &[u8]) -> Result<Decoded, String> {
    let checkpoint: Checkpoint = serde_json::from_slice(content).map_err(|error| error.to_string())?;
    let sum = checksum(&checkpoint.data);
    if u64::from(sum) != checkpoint.checksum {
        return Err("checkpoint is corrupted".to_owned());
    }
    let data: Data = serde_json::from_str(&checkpoint.data)
        .map_err(|error| format!("failed to get pod resource information: {error}"))?;
    let entries = data.entries.into_iter().map(|(uid, entry)| (PodUid::new(uid), entry)).collect();
    Ok((entries, sum))
}

/// Whether this is a file that the agent can go on from. One that makes no sense is not thrown away: what pods were granted
/// would be forgotten.
pub fn check(path: &Path, content: &[u8]) -> Result<(), String> {
    decode(content).map(drop).map_err(|error| {
        format!(
            "could not restore state from checkpoint: {error}, please drain this node and delete pod resource \
             information checkpoint file {:?} before restarting Kubelet",
            path.display().to_string()
        )
    })
}

#[cfg(test)]
mod tests;
