//! What the outside may see: pods with their statuses, and why things were done.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crablet_model::names::condition;
use crablet_model::{PodRef, PodUid, api};
use crablet_planner::pod::status::is_owned_condition;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;

/// Decisions kept per pod.
const JOURNAL_LENGTH: usize = 32;

/// Shared by the workers, who write, and the server, who reads.
pub struct View {
    inner: Mutex<Inner>,
    version: watch::Sender<u64>,
}

#[derive(Default)]
struct Inner {
    pods: BTreeMap<PodUid, Entry>,
    runtime: RuntimeSummary,
    sources_ready: bool,
    inventoried: bool,
}

struct Entry {
    id: PodRef,
    /// `None` for a pod that only the runtime knows.
    pod: Option<Arc<[u8]>>,
    status: Option<Arc<[u8]>>,
    desired: bool,
    summary: PodSummary,
    journal: VecDeque<JournalEntry>,
}

/// The runtime, as `/watch` and `/healthz` tell of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuntimeSummary {
    pub ready: bool,
    pub message: String,
}

/// A pod in one line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSummary {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub phase: String,
    pub ready: bool,
    #[serde(rename = "podIP")]
    pub pod_ip: String,
    pub restarts: i64,
    pub desired: bool,
}

/// A pod and its status, as JSON.
pub struct Shown {
    pub pod: Arc<[u8]>,
    pub status: Option<Arc<[u8]>>,
}

/// Everything in one value: a line of `/watch`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    pub pods: Vec<PodSummary>,
    pub runtime: RuntimeSummary,
    pub sources_ready: bool,
    /// Everything that the runtime and the disk have is accounted for: what is not listed is not there.
    pub inventoried: bool,
}

/// Decisions of one turn. Equal turns in a row are one entry with a count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JournalEntry {
    pub first: Timestamp,
    pub last: Timestamp,
    pub count: u32,
    pub why: Vec<String>,
}

impl Default for View {
    fn default() -> Self {
        Self { inner: Mutex::default(), version: watch::channel(0).0 }
    }
}

impl View {
    /// A pod that a source wants, before and while it has a worker.
    pub fn set_pod(&self, id: &PodRef, pod: Option<Arc<[u8]>>, desired: bool) {
        self.change(|inner| {
            let entry = inner.entry(id);
            if pod.is_some() {
                entry.pod = pod;
            }
            entry.desired = desired;
            entry.summary.desired = desired;
        });
    }

    pub fn set_status(&self, id: &PodRef, status: &api::PodStatus) {
        let json = serde_json::to_vec(status).unwrap_or_default();
        self.set_status_json(id, status, json.into());
    }

    /// The same, for who has the JSON at hand.
    pub fn set_status_json(&self, id: &PodRef, status: &api::PodStatus, json: Arc<[u8]>) {
        self.change(|inner| {
            let entry = inner.entry(id);
            entry.summarise(status);
            entry.status = Some(json);
        });
    }

    pub fn remove(&self, uid: &PodUid) {
        self.change(|inner| {
            inner.pods.remove(uid);
        });
    }

    pub fn set_runtime(&self, runtime: RuntimeSummary) {
        if self.lock().runtime != runtime {
            self.change(|inner| inner.runtime = runtime);
        }
    }

    pub fn set_sources_ready(&self) {
        self.change(|inner| inner.sources_ready = true);
    }

    pub fn set_inventoried(&self) {
        if !self.lock().inventoried {
            self.change(|inner| inner.inventoried = true);
        }
    }

    pub fn note(&self, id: &PodRef, now: Timestamp, why: Vec<String>) {
        let mut inner = self.lock();
        let journal = &mut inner.entry(id).journal;
        if let Some(last) = journal.back_mut().filter(|last| last.why == why) {
            last.last = now;
            last.count = last.count.saturating_add(1);
            return;
        }
        if journal.len() == JOURNAL_LENGTH {
            journal.pop_front();
        }
        journal.push_back(JournalEntry { first: now, last: now, count: 1, why });
    }

    /// Bumps after each change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    pub fn summary(&self) -> Summary {
        let inner = self.lock();
        Summary {
            pods: inner.pods.values().map(|e| e.summary.clone()).collect(),
            runtime: inner.runtime.clone(),
            sources_ready: inner.sources_ready,
            inventoried: inner.inventoried,
        }
    }

    /// The desired pods as API objects: what the source wants, with the status of the worker.
    pub fn pods(&self) -> Vec<Vec<u8>> {
        let parts: Vec<_> = {
            let inner = self.lock();
            let desired = inner.pods.values().filter(|e| e.desired);
            desired.filter_map(|e| Some((e.pod.clone()?, e.status.clone()))).collect()
        };
        parts.iter().map(|(pod, status)| with_status(pod, status.as_deref())).collect()
    }

    /// The pod of this name that should run here, with its status: both as JSON.
    pub fn find(&self, namespace: &str, name: &str) -> Option<Shown> {
        let inner = self.lock();
        let mut of_name =
            inner.pods.values().filter(|e| &*e.id.namespace == namespace && &*e.id.name == name && e.desired);
        of_name.find_map(|e| Some(Shown { pod: e.pod.clone()?, status: e.status.clone() }))
    }

    pub fn status(&self, uid: &PodUid) -> Option<Arc<[u8]>> {
        self.lock().pods.get(uid)?.status.clone()
    }

    /// Why what was done to a pod was done, oldest first. Pods of the same name one after another.
    pub fn journal(&self, namespace: &str, name: &str) -> Option<Vec<JournalEntry>> {
        let inner = self.lock();
        let mut of_name =
            inner.pods.values().filter(|e| &*e.id.namespace == namespace && &*e.id.name == name);
        let first = of_name.next()?;
        let mut entries: Vec<_> = first.journal.iter().cloned().collect();
        entries.extend(of_name.flat_map(|e| e.journal.iter().cloned()));
        entries.sort_by_key(|e| e.first);
        Some(entries)
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.lock());
        self.version.send_modify(|v| *v = v.wrapping_add(1));
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A writer that panicked left whole values behind: each change is one assignment.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn entry(&mut self, id: &PodRef) -> &mut Entry {
        self.pods.entry(id.uid.clone()).or_insert_with(|| Entry {
            id: id.clone(),
            pod: None,
            status: None,
            desired: false,
            summary: PodSummary {
                name: id.name.to_string(),
                namespace: id.namespace.to_string(),
                uid: id.uid.to_string(),
                phase: "Pending".to_owned(),
                ..PodSummary::default()
            },
            journal: VecDeque::new(),
        })
    }
}

impl Entry {
    fn summarise(&mut self, status: &api::PodStatus) {
        let conditions = status.conditions.as_deref().unwrap_or_default();
        let containers = [&status.init_container_statuses, &status.container_statuses].into_iter().flatten();
        self.summary.phase = status.phase.clone().unwrap_or_default();
        self.summary.ready = conditions.iter().any(|c| c.type_ == condition::READY && c.status == "True");
        self.summary.pod_ip = status.pod_ip.clone().unwrap_or_default();
        self.summary.restarts = containers.flatten().map(|c| i64::from(c.restart_count)).sum();
    }
}

/// The pod with the worker's status. Conditions that are not the agent's own stay as the API server has them.
fn with_status(pod: &[u8], status: Option<&[u8]>) -> Vec<u8> {
    let Some(status) = status else {
        return pod.to_vec();
    };
    let merged = serde_json::from_slice::<Value>(pod).and_then(|mut object| {
        let mut ours: Value = serde_json::from_slice(status)?;
        let theirs = object["status"]["conditions"].take();
        join_conditions(&mut ours, theirs);
        object["status"] = ours;
        serde_json::to_vec(&object)
    });
    merged.unwrap_or_else(|_| pod.to_vec())
}

fn join_conditions(status: &mut Value, theirs: Value) {
    let Value::Array(mut all) = theirs else { return };
    let ours = match status["conditions"].take() {
        Value::Array(ours) => ours,
        _ => Vec::new(),
    };
    let is_ours = |kind: &Value| {
        kind.as_str().is_some_and(is_owned_condition)
            || ours.iter().any(|condition| condition["type"] == *kind)
    };
    all.retain(|condition| !is_ours(&condition["type"]));
    all.extend(ours);
    if !all.is_empty() {
        status["conditions"] = Value::Array(all);
    } else if let Some(fields) = status.as_object_mut() {
        fields.remove("conditions");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conditions_of_others_are_shown_beside_our_own() {
        let gate = json!({"type": "example.com/gate", "status": "True"});
        let ready = |status: &str| json!({"type": "Ready", "status": status});
        let scheduled = json!({"type": "PodScheduled", "status": "True"});
        for (theirs, ours, expected) in [
            (json!([gate, ready("False")]), json!([ready("True")]), json!([gate, ready("True")])),
            (json!([gate, scheduled]), json!(null), json!([gate])),
            (json!([scheduled]), json!(null), json!(null)),
            (json!(null), json!([ready("True")]), json!([ready("True")])),
        ] {
            let pod =
                json!({"metadata": {"name": "web"}, "status": {"phase": "Pending", "conditions": theirs}});
            let mut status = json!({"phase": "Running"});
            if !ours.is_null() {
                status["conditions"] = ours;
            }
            let merged = with_status(pod.to_string().as_bytes(), Some(status.to_string().as_bytes()));
            let merged: Value = serde_json::from_slice(&merged).expect("a pod");
            assert_eq!(merged["status"]["conditions"], expected);
            assert_eq!(
                (&merged["status"]["phase"], &merged["metadata"]["name"]),
                (&json!("Running"), &json!("web"))
            );
        }
    }
}
