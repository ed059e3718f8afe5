//! The way of statuses to the API server.
//!
//! The newest status of each pod waits here until the API server has it: one patch in flight per pod, ends first, and
//! nothing is sent that is there already. What the API server has is known from its watch and from its answers, so no
//! patch needs a read before it. A pod that was asked to go and has nothing of the node left is deleted once its last
//! status is there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use crablet_apiserver::{ApiError, ApiServer, Call, ErrorKind, Lane, Verb};
use crablet_model::names::phase;
use crablet_model::{PodRef, PodUid, api};
use crablet_planner::pod::status::status_patch;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Patches under way at a time. More would not be faster, and the API server has other nodes.
const IN_FLIGHT: usize = 8;
/// Pauses after a failure: doubling from the first to the last.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// What the API server has of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiCopy {
    uid: PodUid,
    /// Of the pod's version: an older one never replaces a newer.
    version: u64,
    status: Arc<[u8]>,
    is_deleting: bool,
    is_mirror: bool,
}

impl ApiCopy {
    pub fn of(pod: &api::Pod, is_mirror: bool) -> Self {
        let version = pod.metadata.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0);
        Self {
            uid: PodRef::of(pod).uid,
            version,
            status: pod.status.as_ref().and_then(|s| serde_json::to_vec(s).ok()).unwrap_or_default().into(),
            is_deleting: pod.metadata.deletion_timestamp.is_some(),
            is_mirror,
        }
    }
}

/// A status that the API server took, and what it made of it: an older server leaves out what it does not know, and is not
/// told again and again.
type Taken = (Arc<[u8]>, Arc<[u8]>);

/// What this agent wants the API server to have.
struct Wanted {
    id: PodRef,
    is_static: bool,
    status: Arc<[u8]>,
    is_terminal: bool,
    /// Nothing of the node is held by the pod any more.
    released: bool,
    /// The API server will never take this status.
    refused: Option<Arc<[u8]>>,
    taken: Option<Taken>,
    deleted: bool,
    failures: u32,
    not_before: Option<Instant>,
}

impl Wanted {
    /// What somebody waits for goes first.
    fn rank(&self) -> u8 {
        match (self.released, self.is_terminal) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 2,
        }
    }
}

type Name = (Arc<str>, Arc<str>);

#[derive(Default)]
struct Inner {
    wanted: BTreeMap<PodUid, Wanted>,
    copies: BTreeMap<Name, ApiCopy>,
    /// Pods to look at, in the order in which it matters.
    due: BTreeSet<(u8, PodUid)>,
    /// Pods of which something is being told, also those that were forgotten meanwhile.
    in_flight: BTreeSet<PodUid>,
}

#[derive(Default)]
pub struct Statuses {
    inner: Mutex<Inner>,
    wake: Notify,
}

enum Job {
    Patch { body: Bytes, status: Arc<[u8]> },
    Delete,
}

/// What was said to the API server.
struct Said {
    uid: PodUid,
    name: Name,
    /// The status that was sent; `None` for a deletion.
    status: Option<Arc<[u8]>>,
    /// UID and version of the API server's copy at that time.
    of: (PodUid, u64),
}

impl Statuses {
    /// A worker has a status to tell. `released`: the pod has ended and holds nothing of the node any more.
    pub fn publish(
        &self,
        id: &PodRef,
        is_static: bool,
        status: &api::PodStatus,
        json: &Arc<[u8]>,
        released: bool,
    ) {
        let mut inner = self.lock();
        let entry = inner.wanted.entry(id.uid.clone()).or_insert_with(|| Wanted {
            id: id.clone(),
            is_static,
            status: Arc::from([]),
            is_terminal: false,
            released: false,
            refused: None,
            taken: None,
            deleted: false,
            failures: 0,
            not_before: None,
        });
        if entry.status == *json && entry.released == released {
            return;
        }
        entry.status = json.clone();
        entry.is_terminal = phase::is_terminal(status.phase.as_deref().unwrap_or_default());
        entry.released = released;
        inner.touch(&id.uid);
        drop(inner);
        self.wake.notify_one();
    }

    /// Nothing is left of the pod on this node.
    pub fn forget(&self, uid: &PodUid) {
        let mut inner = self.lock();
        inner.wanted.remove(uid);
        inner.due.retain(|(_, due)| due != uid);
    }

    /// The API server has this.
    pub fn seen(&self, id: &PodRef, copy: ApiCopy) {
        let mut inner = self.lock();
        inner.take_copy(id, copy);
        inner.touch_named(id);
        drop(inner);
        self.wake.notify_one();
    }

    /// The status of a static pod's mirror, as JSON.
    pub fn of_mirror(&self, id: &PodRef) -> Option<Arc<[u8]>> {
        let inner = self.lock();
        inner.copies.get(&name_of(id)).filter(|copy| copy.is_mirror).map(|copy| copy.status.clone())
    }

    /// The API server no longer has this.
    pub fn gone(&self, id: &PodRef) {
        let mut inner = self.lock();
        let name = name_of(id);
        if inner.copies.get(&name).is_some_and(|copy| copy.uid == id.uid) {
            inner.copies.remove(&name);
        }
    }

    /// The API server has these and no others.
    pub fn retain(&self, ids: &BTreeSet<PodRef>) {
        let known: BTreeSet<(Name, &PodUid)> = ids.iter().map(|id| (name_of(id), &id.uid)).collect();
        self.lock().copies.retain(|name, copy| known.contains(&(name.clone(), &copy.uid)));
    }

    pub async fn run(self: Arc<Self>, api: Arc<dyn ApiServer>) {
        let mut in_flight = FuturesUnordered::new();
        loop {
            while in_flight.len() < IN_FLIGHT
                && let Some((said, call)) = self.next_call()
            {
                let api = api.clone();
                in_flight.push(async move { (said, api.call(call).await) });
            }
            // With no room for another call only an answer helps, also where a next try is due.
            let next_try = if in_flight.len() < IN_FLIGHT { self.lock().next_try() } else { None };
            let pause = async {
                match next_try {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            // Cancel-safe: an answer is taken when its arm is chosen, the others hold nothing.
            tokio::select! {
                biased;
                Some((said, result)) = in_flight.next(), if !in_flight.is_empty() => self.lock().answered(said, result),
                () = self.wake.notified() => {}
                () = pause => {}
            }
        }
    }

    fn next_call(&self) -> Option<(Said, Call)> {
        let mut inner = self.lock();
        let now = Instant::now();
        let due: Vec<_> = inner.due.iter().cloned().collect();
        for key in due {
            let uid = key.1.clone();
            let Some(wanted) = inner.wanted.get(&uid) else {
                inner.due.remove(&key);
                continue;
            };
            if inner.in_flight.contains(&uid) || wanted.not_before.is_some_and(|at| now < at) {
                continue;
            }
            let name = name_of(&wanted.id);
            inner.due.remove(&key);
            let Some((job, of)) = inner.job(&uid, &name) else { continue };
            inner.in_flight.insert(uid.clone());
            let path = format!("/api/v1/namespaces/{}/pods/{}", name.0, name.1);
            let (call, status) = match job {
                Job::Patch { body, status } => {
                    let call = Call::new(Verb::StrategicPatch, Lane::Main, format!("{path}/status"));
                    (call.with_body(body), Some(status))
                }
                Job::Delete => {
                    let body = json!({
                        "kind": "DeleteOptions", "apiVersion": "v1",
                        "gracePeriodSeconds": 0, "preconditions": {"uid": of.0},
                    });
                    (Call::new(Verb::Delete, Lane::Main, path).with_body(body.to_string()), None)
                }
            };
            return Some((Said { uid, name, status, of }, call));
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A writer that panicked left whole values behind: each change is one assignment.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn touch(&mut self, uid: &PodUid) {
        if let Some(wanted) = self.wanted.get(uid) {
            let key = (wanted.rank(), uid.clone());
            self.due.retain(|(_, due)| due != uid);
            self.due.insert(key);
        }
    }

    fn touch_named(&mut self, id: &PodRef) {
        let of_name = |wanted: &&Wanted| wanted.id.name == id.name && wanted.id.namespace == id.namespace;
        let uids: Vec<_> = match self.wanted.contains_key(&id.uid) {
            true => vec![id.uid.clone()],
            // The mirror of a static pod has a UID of its own.
            false => self
                .wanted
                .values()
                .filter(of_name)
                .filter(|w| w.is_static)
                .map(|w| w.id.uid.clone())
                .collect(),
        };
        uids.iter().for_each(|uid| self.touch(uid));
    }

    fn take_copy(&mut self, id: &PodRef, copy: ApiCopy) {
        let known = self.copies.get(&name_of(id));
        if known.is_none_or(|known| known.uid != copy.uid || known.version <= copy.version) {
            self.copies.insert(name_of(id), copy);
        }
    }

    /// What to say now, and of which copy.
    fn job(&self, uid: &PodUid, name: &Name) -> Option<(Job, (PodUid, u64))> {
        let (wanted, copy) = (self.wanted.get(uid)?, self.copies.get(name)?);
        if copy.is_mirror != wanted.is_static || (!wanted.is_static && copy.uid != *uid) {
            return None; // another pod of the same name
        }
        let value = |json: &[u8]| serde_json::from_slice::<Value>(json).unwrap_or_default();
        let refused = wanted.refused.as_ref() == Some(&wanted.status);
        let taken = wanted
            .taken
            .as_ref()
            .is_some_and(|(ours, theirs)| *ours == wanted.status && *theirs == copy.status);
        // Most looks follow the watch's echo of what was just told: those need no comparison.
        let patch = if refused || taken || copy.status == wanted.status {
            None
        } else {
            status_patch(&value(&copy.status), &value(&wanted.status), copy.uid.as_str())
        };
        let job = match patch {
            Some(patch) => Job::Patch { body: patch.to_string().into(), status: wanted.status.clone() },
            None if wanted.released && copy.is_deleting && !copy.is_mirror && !wanted.deleted => Job::Delete,
            None => return None,
        };
        Some((job, (copy.uid.clone(), copy.version)))
    }

    fn answered(&mut self, said: Said, result: Result<Bytes, ApiError>) {
        self.in_flight.remove(&said.uid);
        let made_of_it = match (&result, &said.status) {
            (Ok(body), Some(status)) => self.patched(&said, body, status),
            _ => None,
        };
        let Some(wanted) = self.wanted.get_mut(&said.uid) else { return };
        let (id, what) = (&wanted.id, if said.status.is_some() { "its status" } else { "that it is gone" });
        match result {
            Ok(_) => {
                wanted.failures = 0;
                wanted.not_before = None;
                match said.status {
                    Some(status) => wanted.taken = Some(status).zip(made_of_it),
                    None => wanted.deleted = true,
                }
            }
            // The pod is gone, or another one has its name. The watch tells the rest, or has told it already: what it
            // told since is not touched.
            Err(error) if error.is_not_found() || error.is_about_another() => {
                if self
                    .copies
                    .get(&said.name)
                    .is_some_and(|copy| (&copy.uid, copy.version) == (&said.of.0, said.of.1))
                {
                    self.copies.remove(&said.name);
                }
            }
            Err(error) if error.kind == ErrorKind::Invalid && said.status.is_some() => {
                tracing::error!(%error, pod = id.object_ref(), podUID = %id.uid, "the API server refuses the pod's status");
                wanted.refused = said.status;
            }
            Err(error) => {
                if wanted.failures == 0 {
                    tracing::warn!(%error, what, pod = id.object_ref(), podUID = %id.uid, "cannot tell the API server of a pod; trying again");
                }
                let pause = (RETRY_FIRST * (1 << wanted.failures.min(4))).min(RETRY_MAX);
                wanted.failures = wanted.failures.saturating_add(1);
                wanted.not_before =
                    Some(Instant::now() + error.retry_after.unwrap_or(pause).min(RETRY_MAX * 6));
            }
        }
        self.touch(&said.uid);
    }

    /// The answer is the pod as it is now, unless another has taken its place since. One that cannot be read is taken for
    /// what was sent. Gives the status in the answer.
    fn patched(&mut self, said: &Said, body: &[u8], sent: &Arc<[u8]>) -> Option<Arc<[u8]>> {
        let copy = self.copies.get_mut(&said.name).filter(|copy| copy.uid == said.of.0)?;
        match serde_json::from_slice::<api::Pod>(body) {
            Ok(pod) => {
                let answer = ApiCopy::of(&pod, copy.is_mirror);
                let status = answer.status.clone();
                if answer.uid == copy.uid && copy.version <= answer.version {
                    *copy = answer;
                }
                Some(status)
            }
            Err(error) => {
                let pod = format!("{}/{}", said.name.0, said.name.1);
                tracing::debug!(%error, pod, "the answer to a status patch cannot be read");
                copy.status = sent.clone();
                None
            }
        }
    }

    fn next_try(&self) -> Option<Instant> {
        let due = self.due.iter().filter_map(|(_, uid)| self.wanted.get(uid));
        due.filter(|wanted| !self.in_flight.contains(&wanted.id.uid))
            .filter_map(|wanted| wanted.not_before)
            .min()
    }
}

fn name_of(id: &PodRef) -> Name {
    (id.namespace.clone(), id.name.clone())
}

#[cfg(test)]
mod tests;
