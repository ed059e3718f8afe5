//! Mirrors: how the cluster sees static pods.
//!
//! For each static pod one pod in the API with the same name and specification, owned by the Node. Deleting a mirror
//! changes nothing on the node: it is made again. A mirror whose static pod is gone is deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crablet_apiserver::{ApiError, ApiServer, Call, ErrorKind, Lane, Verb};
use crablet_model::names::annotation;
use crablet_model::{PodRef, PodUid};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Pauses after a failure: doubling from the first to the last.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// A mirror as the API server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    pub uid: PodUid,
    /// The hash of the static pod that it was made for.
    pub hash: String,
    pub is_ending: bool,
}

struct Static {
    uid: PodUid,
    json: Arc<[u8]>,
    hash: String,
}

type Name = (Arc<str>, Arc<str>);

#[derive(Default)]
struct Inner {
    statics: BTreeMap<Name, Static>,
    /// Static pods that no source has any more and of which something still runs: until nothing does, the mirror stays as
    /// it is, also where another form of the pod waits for its turn.
    ending: BTreeMap<Name, BTreeSet<PodUid>>,
    mirrors: BTreeMap<Name, Mirror>,
    node_uid: Option<String>,
    /// The API server has told all that it has, and so has every source.
    listed: bool,
    sources_ready: bool,
    due: BTreeSet<Name>,
    in_flight: BTreeSet<Name>,
    /// Failed tries, and when the next is due.
    waiting: BTreeMap<Name, (u32, Instant)>,
}

pub struct Mirrors {
    node_name: String,
    inner: Mutex<Inner>,
    wake: Notify,
}

enum Job {
    Create(Value),
    Delete(PodUid),
}

/// What was asked of the API server.
struct Said {
    name: Name,
    /// The mirror that was to be deleted; `None` where one was to be made.
    deleted: Option<PodUid>,
}

impl Mirrors {
    pub fn new(node_name: &str) -> Self {
        Self { node_name: node_name.to_owned(), inner: Mutex::default(), wake: Notify::new() }
    }

    /// A source has this static pod, for the first time or in another form.
    pub fn wanted(&self, id: &PodRef, json: &Arc<[u8]>) {
        let hash = hash_of(json).unwrap_or_else(|| id.uid.to_string());
        let fresh = Static { uid: id.uid.clone(), json: json.clone(), hash };
        self.change(id, |inner, name| {
            inner.no_longer_ends(&name, &id.uid);
            inner.statics.insert(name, fresh);
        });
    }

    /// No source has it any more.
    pub fn unwanted(&self, id: &PodRef) {
        self.change(id, |inner, name| {
            if inner.statics.get(&name).is_some_and(|known| known.uid == id.uid) {
                inner.statics.remove(&name);
                inner.ending.entry(name).or_default().insert(id.uid.clone());
            }
        });
    }

    /// Nothing is left of it.
    pub fn ended(&self, id: &PodRef) {
        self.change(id, |inner, name| inner.no_longer_ends(&name, &id.uid));
    }

    pub fn seen(&self, id: &PodRef, mirror: Mirror) {
        self.change(id, |inner, name| drop(inner.mirrors.insert(name, mirror)));
    }

    pub fn gone(&self, id: &PodRef) {
        self.change(id, |inner, name| {
            if inner.mirrors.get(&name).is_some_and(|mirror| mirror.uid == id.uid) {
                inner.mirrors.remove(&name);
            }
        });
    }

    /// The API server has these pods and no others.
    pub fn retain(&self, ids: &BTreeSet<PodRef>) {
        let known: BTreeSet<&PodUid> = ids.iter().map(|id| &id.uid).collect();
        let mut inner = self.lock();
        inner.mirrors.retain(|_, mirror| known.contains(&mirror.uid));
        inner.all_due();
    }

    /// The API server has told everything that it has.
    pub fn listed(&self) {
        let mut inner = self.lock();
        inner.listed = true;
        inner.all_due();
        drop(inner);
        self.wake.notify_one();
    }

    pub fn is_listed(&self) -> bool {
        self.lock().listed
    }

    /// Whether there is a mirror that was made for this form of the pod.
    pub fn is_for(&self, id: &PodRef, hash: &str) -> bool {
        let name = (id.namespace.clone(), id.name.clone());
        self.lock().mirrors.get(&name).is_some_and(|mirror| mirror.hash == hash)
    }

    /// Every source has spoken: what no static pod is known for has none.
    pub fn sources_ready(&self) {
        let mut inner = self.lock();
        inner.sources_ready = true;
        inner.all_due();
        drop(inner);
        self.wake.notify_one();
    }

    /// The Node that owns the mirrors; `None` while there is none, or while it is being deleted.
    pub fn set_node(&self, uid: Option<String>) {
        let mut inner = self.lock();
        if inner.node_uid != uid {
            inner.node_uid = uid;
            inner.all_due();
            drop(inner);
            self.wake.notify_one();
        }
    }

    pub async fn run(self: Arc<Self>, api: Arc<dyn ApiServer>) {
        let mut in_flight = FuturesUnordered::new();
        loop {
            while let Some((said, call)) = self.next_call() {
                let api = api.clone();
                in_flight.push(async move { (said, api.call(call).await) });
            }
            let next_try = self.lock().next_try();
            let pause = async {
                match next_try {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            // Cancel-safe: an answer is taken when its arm is chosen, the others hold nothing.
            tokio::select! {
                biased;
                Some((said, result)) = in_flight.next(), if !in_flight.is_empty() => {
                    self.lock().answered(said, result);
                }
                () = self.wake.notified() => {}
                () = pause => {}
            }
        }
    }

    fn next_call(&self) -> Option<(Said, Call)> {
        let mut inner = self.lock();
        let now = Instant::now();
        let due: Vec<Name> = inner.due.iter().cloned().collect();
        for name in due {
            if inner.in_flight.contains(&name) || inner.waiting.get(&name).is_some_and(|(_, at)| now < *at) {
                continue;
            }
            inner.due.remove(&name);
            let Some(job) = inner.job(&name, &self.node_name) else { continue };
            inner.in_flight.insert(name.clone());
            let path = format!("/api/v1/namespaces/{}/pods", name.0);
            let (call, deleted) = match job {
                Job::Create(pod) => {
                    (Call::new(Verb::Post, Lane::Main, path).with_body(pod.to_string()), None)
                }
                Job::Delete(uid) => {
                    let body = json!({
                        "kind": "DeleteOptions", "apiVersion": "v1",
                        "gracePeriodSeconds": 0, "preconditions": {"uid": uid},
                    });
                    let call = Call::new(Verb::Delete, Lane::Main, format!("{path}/{}", name.1));
                    (call.with_body(body.to_string()), Some(uid))
                }
            };
            return Some((Said { name, deleted }, call));
        }
        None
    }

    fn change(&self, id: &PodRef, change: impl FnOnce(&mut Inner, Name)) {
        let name = (id.namespace.clone(), id.name.clone());
        let mut inner = self.lock();
        change(&mut inner, name.clone());
        inner.due.insert(name);
        drop(inner);
        self.wake.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A writer that panicked left whole values behind: each change is one assignment.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn all_due(&mut self) {
        let names: Vec<_> = self.statics.keys().chain(self.mirrors.keys()).cloned().collect();
        self.due.extend(names);
    }

    fn job(&self, name: &Name, node_name: &str) -> Option<Job> {
        if !self.listed {
            return None; // what is there already is not known
        }
        match (self.statics.get(name), self.mirrors.get(name)) {
            // Somebody deletes it: the last word is ours, as with any pod of this node.
            (_, Some(mirror)) if mirror.is_ending => Some(Job::Delete(mirror.uid.clone())),
            _ if self.ending.contains_key(name) => None,
            (Some(wanted), Some(mirror)) if mirror.hash != wanted.hash => {
                Some(Job::Delete(mirror.uid.clone()))
            }
            (Some(wanted), None) => mirror_of(wanted, node_name, self.node_uid.as_deref()?).map(Job::Create),
            (None, Some(mirror)) if self.sources_ready => Some(Job::Delete(mirror.uid.clone())),
            _ => None,
        }
    }

    fn no_longer_ends(&mut self, name: &Name, uid: &PodUid) {
        if let Some(ending) = self.ending.get_mut(name) {
            ending.remove(uid);
            if ending.is_empty() {
                self.ending.remove(name);
            }
        }
    }

    fn answered(&mut self, Said { name, deleted }: Said, result: Result<bytes::Bytes, ApiError>) {
        self.in_flight.remove(&name);
        self.due.insert(name.clone());
        match (result, deleted) {
            (Ok(body), None) => {
                self.waiting.remove(&name);
                if let Some(mirror) = created(&body) {
                    self.mirrors.insert(name, mirror);
                }
            }
            (Ok(_), Some(uid)) => self.deleted(&name, &uid),
            // Gone, or replaced by another: the watch tells which, or has told it already.
            (Err(error), Some(uid)) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Conflict) => {
                self.deleted(&name, &uid);
            }
            (Err(error), _) => {
                let failures = self.waiting.get(&name).map_or(0, |(failures, _)| *failures);
                if failures == 0 {
                    let pod = format!("{}/{}", name.0, name.1);
                    tracing::warn!(%error, pod, "cannot show a static pod to the cluster; trying again");
                }
                let pause = (RETRY_FIRST * (1 << failures.min(5))).min(RETRY_MAX);
                let pause = error.retry_after.unwrap_or(pause).min(RETRY_MAX * 6);
                self.waiting.insert(name, (failures.saturating_add(1), Instant::now() + pause));
            }
        }
    }

    fn deleted(&mut self, name: &Name, uid: &PodUid) {
        self.waiting.remove(name);
        if self.mirrors.get(name).is_some_and(|mirror| mirror.uid == *uid) {
            self.mirrors.remove(name);
        }
    }

    fn next_try(&self) -> Option<Instant> {
        let due = self.due.iter().filter(|name| !self.in_flight.contains(*name));
        due.filter_map(|name| self.waiting.get(name)).map(|(_, at)| *at).min()
    }
}

fn created(body: &[u8]) -> Option<Mirror> {
    let pod: Value = serde_json::from_slice(body).ok()?;
    let meta = &pod["metadata"];
    Some(Mirror {
        uid: PodUid::new(meta["uid"].as_str()?),
        hash: meta["annotations"][annotation::CONFIG_MIRROR].as_str()?.to_owned(),
        is_ending: !meta["deletionTimestamp"].is_null(),
    })
}

fn hash_of(json: &[u8]) -> Option<String> {
    let pod: Value = serde_json::from_slice(json).ok()?;
    pod["metadata"]["annotations"][annotation::CONFIG_HASH].as_str().map(str::to_owned)
}

fn mirror_of(wanted: &Static, node_name: &str, node_uid: &str) -> Option<Value> {
    let mut pod: Value = serde_json::from_slice(&wanted.json).ok()?;
    pod["metadata"]["annotations"][annotation::CONFIG_MIRROR] = json!(wanted.hash);
    pod["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": node_uid, "controller": true},
    ]);
    let fields = pod.as_object_mut()?;
    fields.remove("status");
    fields.get_mut("metadata")?.as_object_mut()?.remove("uid");
    Some(pod)
}

#[cfg(test)]
mod tests;
