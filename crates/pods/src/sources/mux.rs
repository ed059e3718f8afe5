//! The merge: each source states its full set of pods, and this says what changed.
//!
//! Pure: time is an input, updates and events are the output. What is kept is each pod's JSON and digests of the parts
//! that are compared, so that a set without changes costs no decoding.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::Arc;

use crablet_model::api::{Pod, PodSpec};
use crablet_model::events::Event;
use crablet_model::hash::Fnv128;
use crablet_model::names::{annotation, event_reason, phase};
use crablet_model::{PodRef, PodUid};
use crablet_planner::node::admission::resize::as_it_counts;
use jiff::Timestamp;
use serde::Serialize;

use super::{DesiredPod, Op, PodUpdate, Source};

/// Annotations that belong to this node: not compared, and kept when the others are replaced.
const LOCAL_ANNOTATIONS: [&str; 3] =
    [annotation::CONFIG_SOURCE, annotation::CONFIG_MIRROR, annotation::CONFIG_SEEN];

/// A pod as a source states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stated {
    pub id: PodRef,
    pub json: Arc<[u8]>,
    /// What the pod asks for and this version cannot do.
    pub refused: Option<Arc<str>>,
    /// Of spec, labels, deletion and the annotations that are not local.
    compared: u128,
    status: u128,
}

impl Stated {
    pub fn of(pod: &Pod) -> Self {
        let (compared, status) = (compared(pod), digest(&pod.status));
        Self { id: PodRef::of(pod), json: encode(pod), refused: None, compared, status }
    }

    /// A pod of the API server. Its status is what this agent wrote: only an end that somebody else declared is news, and
    /// what others say at the pod's readiness gates, and what a pod that shrinks has given back: others are told that it is
    /// free, and may come with the next event. Most of what a watch tells is the echo of a patch: nothing that counts
    /// differs from what is `known`.
    pub fn of_api(pod: &Pod, known: Option<&Self>, refused: impl FnOnce(&Pod) -> Option<Arc<str>>) -> Self {
        let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref()).filter(|p| phase::is_terminal(p));
        let (compared, status) = (compared(pod), digest(&(phase, gates(pod), still_has(pod))));
        match known.filter(|known| known.compared == compared && known.status == status) {
            Some(known) => known.clone(),
            None => Self { id: PodRef::of(pod), json: encode(pod), refused: refused(pod), compared, status },
        }
    }

    fn desired(&self) -> DesiredPod {
        DesiredPod { id: self.id.clone(), json: self.json.clone(), refused: self.refused.clone() }
    }

    fn decode(&self) -> Pod {
        serde_json::from_slice(&self.json).expect("a pod that was encoded here decodes")
    }

    fn with(self, json: Arc<[u8]>) -> Self {
        Self { json, ..self }
    }
}

/// What one set changed, in the order in which it is to be told.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Merge {
    pub updates: Vec<PodUpdate>,
    pub events: Vec<Event>,
}

#[derive(Default)]
pub struct Mux {
    /// A source is here from its first set on, even when that set was empty.
    sources: BTreeMap<Source, BTreeMap<PodUid, Stated>>,
}

impl Mux {
    /// Replaces the pods of a source. Each pod that is taken over is handed back as it is stored, so that a source that
    /// keeps its list shares the memory.
    pub fn set(&mut self, source: Source, pods: &mut [Stated], now: Timestamp) -> Merge {
        let is_first = !self.sources.contains_key(&source);
        let stored = self.sources.entry(source).or_default();
        let mut old = std::mem::take(stored);
        let mut ops = Ops::default();
        let mut events = Vec::new();
        let mut names = HashSet::new();
        for pod in pods {
            if !names.insert(pod.id.full_name()) {
                events.push(duplicate(&pod.id, source, format_args!("name {:?}", pod.id.name)));
                continue;
            }
            if stored.contains_key(&pod.id.uid) {
                events.push(duplicate(&pod.id, source, format_args!("UID {:?}", pod.id.uid.as_str())));
                continue;
            }
            let before = old.remove(&pod.id.uid);
            *pod = match before {
                Some(before) if before.id == pod.id => ops.compare(before, pod),
                // The manifest pins a UID and was renamed. Upstream v1.36 keeps the old name for ever; here it is
                // another pod.
                Some(renamed) => {
                    ops.remove.push(renamed.desired());
                    ops.add(pod, source, now)
                }
                None => ops.add(pod, source, now),
            };
            stored.insert(pod.id.uid.clone(), pod.clone());
        }
        ops.remove.extend(old.values().map(Stated::desired));
        Merge { updates: ops.into_updates(source, is_first), events }
    }

    /// Adds or replaces one pod of a source that tells its changes one by one. Another pod of the same name is gone, even
    /// if nobody has said so.
    pub fn put(&mut self, source: Source, pod: &Stated, now: Timestamp) -> Merge {
        let stored = self.sources.entry(source).or_default();
        let mut ops = Ops::default();
        let of_same_name: Vec<_> =
            stored.values().filter(|s| same_name(s, pod)).map(|s| s.id.uid.clone()).collect();
        for uid in of_same_name {
            ops.remove.extend(stored.remove(&uid).map(|gone| gone.desired()));
        }
        let fresh = match stored.remove(&pod.id.uid) {
            Some(before) => ops.compare(before, pod),
            None => ops.add(pod, source, now),
        };
        stored.insert(pod.id.uid.clone(), fresh);
        Merge { updates: ops.into_updates(source, false), events: Vec::new() }
    }

    /// A pod as a source stated it last.
    pub fn known(&self, source: Source, uid: &PodUid) -> Option<Stated> {
        self.sources.get(&source)?.get(uid).cloned()
    }

    /// Removes one pod of a source.
    pub fn take(&mut self, source: Source, uid: &PodUid) -> Merge {
        let mut ops = Ops::default();
        let gone = self.sources.entry(source).or_default().remove(uid);
        ops.remove.extend(gone.map(|gone| gone.desired()));
        Merge { updates: ops.into_updates(source, false), events: Vec::new() }
    }
}

fn compared(pod: &Pod) -> u128 {
    let meta = &pod.metadata;
    let annotations: BTreeMap<_, _> =
        meta.annotations.iter().flatten().filter(|(key, _)| !is_local(key)).collect();
    let deletion = (&meta.deletion_timestamp, &meta.deletion_grace_period_seconds);
    digest(&(&pod.spec, &meta.labels, deletion, annotations))
}

/// The conditions that the pod's readiness waits for, as far as they are there, with their statuses.
fn gates(pod: &Pod) -> Vec<(&str, &str)> {
    let named = pod.spec.iter().flat_map(|s| s.readiness_gates.iter().flatten()).map(|g| &g.condition_type);
    let there = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let mut found: Vec<_> = there.map(|c| (c.type_.as_str(), c.status.as_str())).collect();
    found.retain(|(kind, _)| named.clone().any(|name| name == kind));
    found
}

/// As much as a pod still takes of the node, where that is more than it asks for.
fn still_has(pod: &Pod) -> Option<PodSpec> {
    let was_changed = pod.metadata.generation.is_some_and(|generation| generation > 1);
    was_changed.then(|| as_it_counts(pod)).flatten()
}

/// Two pods that share everything but the UID.
fn same_name(known: &Stated, pod: &Stated) -> bool {
    known.id.uid != pod.id.uid && known.id.name == pod.id.name && known.id.namespace == pod.id.namespace
}

#[derive(Default)]
struct Ops {
    remove: Vec<DesiredPod>,
    add: Vec<DesiredPod>,
    update: Vec<DesiredPod>,
    delete: Vec<DesiredPod>,
    reconcile: Vec<DesiredPod>,
}

impl Ops {
    fn add(&mut self, stated: &Stated, source: Source, now: Timestamp) -> Stated {
        let mut pod = stated.decode();
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::CONFIG_SOURCE.to_owned(), source.annotation().to_owned());
        annotations.insert(annotation::CONFIG_SEEN.to_owned(), format!("{now:.9}"));
        let stored = stated.clone().with(encode(&pod));
        self.add.push(stored.desired());
        stored
    }

    fn compare(&mut self, before: Stated, stated: &Stated) -> Stated {
        if before.compared == stated.compared {
            if before.status == stated.status {
                return before;
            }
            let mut pod = before.decode();
            pod.status = stated.decode().status;
            let stored = Stated { status: stated.status, ..before.with(encode(&pod)) };
            self.reconcile.push(stored.desired());
            return stored;
        }
        let pod = renew(before.decode(), stated.decode());
        let is_deleted = pod.metadata.deletion_timestamp.is_some();
        let stored = stated.clone().with(encode(&pod));
        if is_deleted { &mut self.delete } else { &mut self.update }.push(stored.desired());
        stored
    }

    fn into_updates(self, source: Source, is_first: bool) -> Vec<PodUpdate> {
        // Says that the source has spoken when nothing else does.
        let marks_first = is_first && self.add.is_empty() && self.update.is_empty() && self.delete.is_empty();
        [
            (Op::Remove, self.remove, false),
            (Op::Add, self.add, false),
            (Op::Update, self.update, false),
            (Op::Delete, self.delete, false),
            (Op::Add, Vec::new(), marks_first),
            (Op::Reconcile, self.reconcile, false),
        ]
        .into_iter()
        .filter(|(_, pods, even_empty)| *even_empty || !pods.is_empty())
        .map(|(op, pods, _)| PodUpdate { source, op, pods })
        .collect()
    }
}

/// The stored pod with what a semantic change brings. The rest of the metadata stays as it was first seen, as upstream
/// v1.36 leaves it.
fn renew(mut stored: Pod, stated: Pod) -> Pod {
    let mut annotations = stated.metadata.annotations.unwrap_or_default();
    annotations.retain(|key, _| !is_local(key));
    let kept = stored.metadata.annotations.take().into_iter().flatten().filter(|(key, _)| is_local(key));
    annotations.extend(kept);
    let meta = &mut stored.metadata;
    meta.annotations = Some(annotations);
    meta.labels = stated.metadata.labels;
    meta.deletion_timestamp = stated.metadata.deletion_timestamp;
    meta.deletion_grace_period_seconds = stated.metadata.deletion_grace_period_seconds;
    meta.generation = stated.metadata.generation;
    stored.spec = stated.spec;
    stored.status = stated.status;
    stored
}

fn is_local(key: &str) -> bool {
    LOCAL_ANNOTATIONS.contains(&key)
}

fn duplicate(pod: &PodRef, source: Source, what: std::fmt::Arguments<'_>) -> Event {
    let source = source.annotation();
    let message = format!("Error validating pod {pod} from {source} due to duplicate pod {what}, ignoring");
    Event::warning(pod, event_reason::FAILED_VALIDATION, message)
}

fn encode(pod: &Pod) -> Arc<[u8]> {
    serde_json::to_vec(pod).expect("all keys of a pod are texts").into()
}

fn digest(value: &impl Serialize) -> u128 {
    let mut digest = Digest(Fnv128::default());
    serde_json::to_writer(&mut digest, value).expect("all keys of a pod are texts");
    digest.0.finish()
}

struct Digest(Fnv128);

impl io::Write for Digest {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.with(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
