//! Owner of all workers: gives each pod that a source wants its worker, and each pod that nobody wants its end.
//!
//! Two static pods with the same full name never run at the same time: the later waits until nothing is left of the
//! earlier. Workers begin only after the first relist, because only then is it known what runs already.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::Path;
use std::sync::Arc;

use crablet_host::{Files, FolderEntry};
use crablet_model::{PodRef, PodUid, api};
use crablet_planner::pod::{Ending, NodeFacts, Wish};
use futures_util::FutureExt;
use jiff::Timestamp;
use std::panic::AssertUnwindSafe;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::nudge::Nudge;
use crate::order::Order;
use crate::pleg::Hint;
use crate::record;
use crate::settings::Folders;
use crate::sources::{DesiredPod, Op, PodUpdate, Source};
use crate::worker::{Assignment, Shared, Worker};

/// A worker that broke begins again after this.
const AFTER_PANIC: Duration = Duration::from_secs(10);
/// A disk that does not give a pod's record by then is not waited for any longer.
const RECORD_PATIENCE: Duration = Duration::from_secs(5);
/// Upstream: nobody gets less.
const MINIMUM_GRACE_SECONDS: i64 = 1;

pub struct Registry {
    shared: Arc<Shared>,
    order: Arc<Order>,
    updates: mpsc::Receiver<PodUpdate>,
    hints: mpsc::Receiver<Hint>,
    /// For tasks of the registry's own that have something to tell.
    tell: mpsc::WeakSender<Hint>,
    relist_now: Arc<Notify>,
    node: watch::Receiver<Arc<NodeFacts>>,
    configured: BTreeSet<Source>,
    spoken: BTreeSet<Source>,
    workers: BTreeMap<PodUid, Handle>,
    /// Pods that wait for the end of another with the same full name, for their record, or for the first relist.
    waiting: BTreeMap<String, VecDeque<Waiting>>,
    /// Pods whose record is being looked for. They are shown and started once it is read, so that nobody sees a running
    /// pod pending after a restart of the agent.
    unread: BTreeSet<PodUid>,
    /// Wanted pods whose end an earlier life of the agent had begun: it is finished first, as it would have been.
    half_ended: BTreeMap<PodUid, Ending>,
    in_runtime: Option<BTreeMap<PodUid, PodRef>>,
    swept: bool,
    /// Pods that no source has are somebody else's business.
    leaves_strangers: bool,
    tasks: JoinSet<(PodUid, Ended)>,
    helpers: JoinSet<()>,
    random: fastrand::Rng,
}

/// A pod that has no worker yet.
struct Waiting {
    pod: DesiredPod,
    is_static: bool,
}

struct Handle {
    id: PodRef,
    /// The line in which it stood: the next in it begins when nothing is left of this one.
    line: String,
    assignment: watch::Sender<Assignment>,
    nudge: Arc<Nudge>,
    /// Wanted again while the earlier life of the same UID still ends.
    again: Option<DesiredPod>,
}

impl Handle {
    fn is_ending(&self) -> bool {
        matches!(self.assignment.borrow().wish, Wish::End(_))
    }
}

enum Ended {
    Finished,
    Broke,
}

impl Registry {
    pub fn new(
        shared: Arc<Shared>,
        updates: mpsc::Receiver<PodUpdate>,
        hints: (mpsc::Sender<Hint>, mpsc::Receiver<Hint>),
        relist_now: Arc<Notify>,
        configured: impl IntoIterator<Item = Source>,
        seed: u64,
    ) -> Self {
        Self {
            node: shared.node.clone(),
            shared,
            order: Arc::default(),
            updates,
            tell: hints.0.downgrade(),
            hints: hints.1,
            relist_now,
            configured: configured.into_iter().collect(),
            spoken: BTreeSet::new(),
            workers: BTreeMap::new(),
            waiting: BTreeMap::new(),
            unread: BTreeSet::new(),
            half_ended: BTreeMap::new(),
            in_runtime: None,
            swept: false,
            leaves_strangers: false,
            tasks: JoinSet::new(),
            helpers: JoinSet::new(),
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Never ends a pod because no source has it; only where a wanted pod needs its name.
    pub fn leaving_strangers(mut self) -> Self {
        self.leaves_strangers = true;
        self
    }

    pub async fn run(mut self) {
        if self.configured.is_empty() {
            self.sources_are_ready();
        }
        loop {
            // Cancel-safe: receiving and joining take nothing unless their arm is chosen.
            // Always in this order: what a seed decides must not depend on a coin of tokio's.
            tokio::select! {
                biased;
                Some(ended) = self.tasks.join_next(), if !self.tasks.is_empty() => {
                    if let Ok((uid, ended)) = ended {
                        self.worker_ended(&uid, ended);
                    }
                }
                update = self.updates.recv() => match update {
                    Some(update) => self.update(update),
                    None => return,
                },
                hint = self.hints.recv() => match hint {
                    Some(hint) => self.hint(hint),
                    None => return,
                },
                changed = self.node.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    // One after the other in a fixed order, which a `watch` with many receivers would not give.
                    self.workers.values().for_each(|handle| handle.nudge.look());
                }
                Some(_) = self.helpers.join_next(), if !self.helpers.is_empty() => {}
            }
        }
    }

    fn update(&mut self, update: PodUpdate) {
        let is_static = update.source.is_static();
        for pod in update.pods {
            match update.op {
                Op::Add | Op::Update | Op::Delete | Op::Reconcile => self.want(pod, is_static),
                Op::Remove => self.unwant(&pod, is_static),
            }
        }
        if self.spoken.insert(update.source) && self.spoken.is_superset(&self.configured) {
            self.sources_are_ready();
        }
    }

    fn sources_ready(&self) -> bool {
        self.spoken.is_superset(&self.configured)
    }

    fn sources_are_ready(&mut self) {
        self.shared.view.set_sources_ready();
        if let Some(cluster) = &self.shared.cluster {
            cluster.mirrors.sources_ready();
        }
        if self.leaves_strangers {
            tracing::info!("every source of pods has spoken");
            self.tell_if_all_are_known();
            return;
        }
        tracing::info!("every source of pods has spoken; what nobody wants is removed from now on");
        self.relist_now.notify_one();
        self.end_orphans();
        self.sweep();
    }

    /// Where strangers do not count, all is accounted for once every wanted pod is shown.
    fn tell_if_all_are_known(&self) {
        if self.leaves_strangers && self.sources_ready() && self.unread.is_empty() {
            self.shared.view.set_inventoried();
        }
    }

    /// A source wants this pod, for the first time or in another form.
    fn want(&mut self, pod: DesiredPod, is_static: bool) {
        self.tell_neighbours(&pod, is_static);
        if !self.is_known(&pod.id.uid) {
            self.read_record(pod.id.clone());
        }
        if !self.unread.contains(&pod.id.uid) {
            self.shared.view.set_pod(&pod.id, Some(pod.json.clone()), true);
        }
        let now = self.shared.clock.now();
        let asked_to_go = if is_static { None } else { deletion(&pod.json, now) };
        match self.workers.get_mut(&pod.id.uid) {
            Some(handle) if handle.is_ending() && asked_to_go.is_none() => handle.again = Some(pod),
            Some(handle) => {
                let wish = asked_to_go.map_or(Wish::Run, Wish::End);
                handle.assignment.send_replace(assignment(&pod, is_static, wish));
            }
            None => {
                let line = self.waiting.entry(line_of(&pod.id, is_static)).or_default();
                match line.iter_mut().find(|w| w.pod.id.uid == pod.id.uid) {
                    Some(waiting) => waiting.pod = pod,
                    None => line.push_back(Waiting { pod, is_static }),
                }
                self.advance_all();
            }
        }
    }

    /// Those who watch what a pod refers to, or show it elsewhere.
    fn tell_neighbours(&self, pod: &DesiredPod, is_static: bool) {
        self.shared.hands.volumes.pod_changed(&pod.id, &pod.json);
        match &self.shared.cluster {
            Some(cluster) if is_static => cluster.mirrors.wanted(&pod.id, &pod.json),
            Some(_) => {
                // Whatever the pod refers to is on its way while its record is read.
                if let Ok(decoded) = serde_json::from_slice(&pod.json) {
                    self.shared.hands.objects.register(&decoded);
                }
            }
            None => {}
        }
    }

    fn read_record(&mut self, id: PodRef) {
        self.unread.insert(id.uid.clone());
        let (shared, tell) = (self.shared.clone(), self.tell.clone());
        self.helpers.spawn(async move {
            let path = shared.hands.folders.record(&id);
            let record = timeout(RECORD_PATIENCE, record::load_patiently(&*shared.hands.files, &path))
                .await
                .ok()
                .flatten();
            let memory = record.map(|(_, memory)| memory).unwrap_or_default();
            let (status, ending) = (memory.status.map(Box::new), memory.ending.filter(|end| end.forget));
            if let Some(tell) = tell.upgrade() {
                let _ = tell.send(Hint::Remembered { id, status, ending }).await; // fails only when the registry has gone
            }
        });
    }

    fn remembered(&mut self, id: &PodRef, status: Option<&api::PodStatus>) {
        self.unread.remove(&id.uid);
        let waiting = self.waiting.values().flatten().find(|w| w.pod.id.uid == id.uid);
        if let Some(waiting) = waiting {
            self.shared.view.set_pod(id, Some(waiting.pod.json.clone()), true);
            if let Some(status) = status {
                self.shared.view.set_status(id, status);
            }
        }
        self.tell_if_all_are_known();
        self.advance_all();
    }

    /// No source wants this pod any more.
    fn unwant(&mut self, pod: &DesiredPod, is_static: bool) {
        if let Some(cluster) = self.shared.cluster.as_ref().filter(|_| is_static) {
            cluster.mirrors.unwanted(&pod.id);
        }
        if !self.unread.contains(&pod.id.uid) {
            self.shared.view.set_pod(&pod.id, None, false);
        }
        if let Some(line) = self.waiting.get_mut(&line_of(&pod.id, is_static)) {
            let before = line.len();
            line.retain(|w| w.pod.id.uid != pod.id.uid);
            if line.len() < before && !self.workers.contains_key(&pod.id.uid) {
                self.forget(&pod.id);
                // An earlier life of the agent may have started it.
                self.end_orphans();
            }
        }
        let now = self.shared.clock.now();
        if let Some(handle) = self.workers.get_mut(&pod.id.uid) {
            handle.again = None;
            self.half_ended.remove(&pod.id.uid);
            handle.assignment.send_if_modified(|a| match &mut a.wish {
                // It was asked to go, and now it may be forgotten.
                Wish::End(end) => !std::mem::replace(&mut end.forget, true),
                Wish::Run => {
                    a.wish = Wish::End(Ending {
                        since: now,
                        grace_seconds: grace_seconds(&pod.json),
                        forget: true,
                        why: "its source no longer has the pod".to_owned(),
                    });
                    true
                }
            });
        }
    }

    /// Nothing is left of the pod.
    fn forget(&self, id: &PodRef) {
        self.shared.view.remove(&id.uid);
        self.shared.hands.objects.forget(&id.uid);
        if let Some(cluster) = &self.shared.cluster {
            cluster.statuses.forget(&id.uid);
            cluster.mirrors.ended(id);
        }
    }

    fn hint(&mut self, hint: Hint) {
        match hint {
            Hint::Changed { uid, id, kind } => match self.workers.get(&uid) {
                Some(handle) => handle.nudge.event(id, kind),
                // Who it is, only a relist can say.
                None => self.relist_now.notify_one(),
            },
            Hint::Relisted { pods, changed } => {
                for uid in changed {
                    if let Some(handle) = self.workers.get(&uid) {
                        handle.nudge.look();
                    }
                }
                self.in_runtime = Some(pods);
                self.end_orphans();
                self.advance_all();
                self.sweep();
            }
            Hint::Remembered { id, status, ending } => {
                if let Some(ending) = ending {
                    self.half_ended.insert(id.uid.clone(), ending);
                }
                self.remembered(&id, status.as_deref());
            }
            Hint::Leftovers(pods) => {
                for id in pods {
                    if !self.is_known(&id.uid) {
                        self.end_unwanted(id, "only its folders are left");
                    }
                }
                self.shared.view.set_inventoried();
            }
        }
    }

    fn is_known(&self, uid: &PodUid) -> bool {
        self.workers.contains_key(uid) || self.is_waiting(uid)
    }

    fn is_waiting(&self, uid: &PodUid) -> bool {
        self.waiting.values().flatten().any(|w| w.pod.id.uid == *uid)
    }

    /// Ends what runs and nobody wants: once every source has spoken, or at once where a wanted pod needs the name.
    fn end_orphans(&mut self) {
        let Some(pods) = self.in_runtime.clone() else {
            return;
        };
        for (uid, id) in pods {
            if self.is_known(&uid) {
                continue;
            }
            let name_is_wanted = self.waiting.get(&id.full_name()).is_some_and(|line| !line.is_empty());
            if (self.sources_ready() && !self.leaves_strangers) || name_is_wanted {
                self.end_unwanted(id, "no source has the pod");
            }
        }
    }

    fn end_unwanted(&mut self, id: PodRef, why: &str) {
        tracing::info!(pod = id.object_ref(), podUID = %id.uid, why, "ending a pod that nobody wants");
        let end = Ending {
            since: self.shared.clock.now(),
            grace_seconds: MINIMUM_GRACE_SECONDS,
            forget: true,
            why: why.to_owned(),
        };
        self.shared.view.set_pod(&id, None, false);
        let line = line_of(&id, true);
        let assignment = Assignment { pod: None, is_static: true, refused: None, wish: Wish::End(end) };
        self.spawn(id, line, assignment, Duration::ZERO);
    }

    /// Starts the first in each line whose name is free.
    fn advance_all(&mut self) {
        if self.in_runtime.is_none() {
            return; // not before it is known what runs already
        }
        let taken: BTreeSet<String> = self.workers.values().map(|h| h.line.clone()).collect();
        let free: Vec<String> = self.waiting.keys().filter(|name| !taken.contains(*name)).cloned().collect();
        for name in free {
            let Some(line) = self.waiting.get_mut(&name) else { continue };
            if line.front().is_some_and(|waiting| self.unread.contains(&waiting.pod.id.uid)) {
                continue;
            }
            let first = line.pop_front();
            if line.is_empty() {
                self.waiting.remove(&name);
            }
            if let Some(waiting) = first {
                self.begin(name, waiting);
            }
        }
    }

    fn begin(&mut self, line: String, waiting: Waiting) {
        let Waiting { pod, is_static } = waiting;
        let id = pod.id.clone();
        if !is_static {
            let asked_to_go = deletion(&pod.json, self.shared.clock.now());
            let wish = asked_to_go.map_or(Wish::Run, Wish::End);
            return self.spawn(id, line, assignment(&pod, is_static, wish), Duration::ZERO);
        }
        match self.half_ended.remove(&id.uid) {
            Some(ending) => {
                let uid = id.uid.clone();
                self.spawn(id, line, assignment(&pod, is_static, Wish::End(ending)), Duration::ZERO);
                if let Some(handle) = self.workers.get_mut(&uid) {
                    handle.again = Some(pod);
                }
            }
            None => self.spawn(id, line, assignment(&pod, is_static, Wish::Run), Duration::ZERO),
        }
    }

    fn spawn(&mut self, id: PodRef, line: String, assignment: Assignment, after: Duration) {
        let (sender, receiver) = watch::channel(assignment);
        let nudge = Arc::new(Nudge::default());
        let common = (self.shared.clone(), self.order.clone());
        let worker = Worker::new(common, id.clone(), receiver, nudge.clone(), self.random.u64(..));
        let uid = id.uid.clone();
        self.tasks.spawn(async move {
            if !after.is_zero() {
                tokio::time::sleep(after).await;
            }
            let ended = AssertUnwindSafe(worker.run()).catch_unwind().await;
            (uid, ended.map_or(Ended::Broke, |()| Ended::Finished))
        });
        self.workers.insert(id.uid.clone(), Handle { id, line, assignment: sender, nudge, again: None });
    }

    fn worker_ended(&mut self, uid: &PodUid, ended: Ended) {
        let Some(handle) = self.workers.remove(uid) else {
            return;
        };
        if let Ended::Broke = ended {
            tracing::error!(pod = handle.id.object_ref(), podUID = %handle.id.uid, "a pod's worker broke, which is a bug; it begins again");
            let assignment = handle.assignment.borrow().clone();
            self.spawn(handle.id.clone(), handle.line.clone(), assignment, AFTER_PANIC);
            if let Some(fresh) = self.workers.get_mut(uid) {
                fresh.again = handle.again;
            }
            return;
        }
        tracing::info!(pod = handle.id.object_ref(), podUID = %handle.id.uid, "nothing is left of the pod");
        if let Some(pods) = &mut self.in_runtime {
            pods.remove(uid);
        }
        let is_static = handle.assignment.borrow().is_static;
        match handle.again {
            Some(pod) => self.waiting.entry(handle.line).or_default().push_front(Waiting { pod, is_static }),
            None => self.forget(&handle.id),
        }
        self.advance_all();
    }

    /// Once, when it is known what is wanted and what runs: looks for folders of pods that are neither.
    fn sweep(&mut self) {
        if self.swept || self.leaves_strangers || !self.sources_ready() {
            return;
        }
        let Some(running) = &self.in_runtime else {
            return;
        };
        self.swept = true;
        let known: BTreeSet<PodUid> = self
            .workers
            .keys()
            .chain(running.keys())
            .chain(self.waiting.values().flatten().map(|w| &w.pod.id.uid))
            .cloned()
            .collect();
        let (shared, tell) = (self.shared.clone(), self.tell.clone());
        self.helpers.spawn(async move {
            let found = leftovers(&*shared.hands.files, &shared.hands.folders, &known).await;
            if let Some(tell) = tell.upgrade() {
                let _ = tell.send(Hint::Leftovers(found)).await; // fails only when the registry has gone
            }
        });
    }
}

/// Pods of which only folders are left: the agent was killed after the runtime had forgotten them.
async fn leftovers(files: &dyn Files, folders: &Folders, known: &BTreeSet<PodUid>) -> Vec<PodRef> {
    let mut found = BTreeMap::new();
    for entry in entries_or_say(files, &folders.pod_logs).await {
        // `<namespace>_<name>_<uid>`, none of which can hold an underscore
        let parts: Vec<&str> = entry.name.split('_').collect();
        if let [namespace, name, uid] = parts[..] {
            found.insert(PodUid::new(uid), PodRef::new(name, namespace, uid));
        }
    }
    for entry in entries_or_say(files, &folders.pods()).await {
        let path = folders.pods().join(&entry.name).join("crablet.json");
        let record = record::load(files, &path).await.ok().flatten();
        let id = match record {
            Some((id, _)) if id.uid.as_str() == entry.name => id,
            // The record goes first when the folder is removed, the logs before it: only the folder itself is left.
            _ => PodRef::new("unknown", "unknown", &entry.name),
        };
        found.entry(id.uid.clone()).or_insert(id);
    }
    found.into_values().filter(|id| !known.contains(&id.uid)).collect()
}

/// A folder that cannot be listed hides what is left in it until the agent starts again: that is said.
async fn entries_or_say(files: &dyn Files, folder: &Path) -> Vec<FolderEntry> {
    match files.list(folder).await {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            tracing::warn!(folder = %folder.display(), %error, "cannot look for what dead pods left here");
            Vec::new()
        }
    }
}

fn assignment(pod: &DesiredPod, is_static: bool, wish: Wish) -> Assignment {
    Assignment { pod: Some(pod.json.clone()), is_static, refused: pod.refused.clone(), wish }
}

/// Static pods of the same name run one after the other. Of two pods of the API server with the same name the first was
/// deleted by force: the second does not wait for it.
fn line_of(id: &PodRef, is_static: bool) -> String {
    if is_static { id.full_name() } else { format!("{}/{}", id.full_name(), id.uid) }
}

/// The little of a pod that says how it ends.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Terms {
    metadata: TermsMeta,
    spec: TermsSpec,
}

#[derive(Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TermsMeta {
    deletion_timestamp: Option<String>,
    deletion_grace_period_seconds: Option<i64>,
}

#[derive(Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TermsSpec {
    termination_grace_period_seconds: Option<i64>,
}

impl Terms {
    fn of(json: &[u8]) -> Self {
        serde_json::from_slice(json).unwrap_or_default()
    }

    /// The grace that was asked for with the deletion, or else the one of the pod's own specification.
    fn grace_seconds(&self) -> i64 {
        let asked = self.metadata.deletion_grace_period_seconds;
        asked.or(self.spec.termination_grace_period_seconds).unwrap_or(30).max(MINIMUM_GRACE_SECONDS)
    }
}

/// The end that somebody asked the API server for.
fn deletion(json: &[u8], now: Timestamp) -> Option<Ending> {
    let terms = Terms::of(json);
    terms.metadata.deletion_timestamp.as_ref()?;
    let (grace_seconds, why) = (terms.grace_seconds(), "the pod was deleted".to_owned());
    Some(Ending { since: now, grace_seconds, forget: false, why })
}

fn grace_seconds(json: &[u8]) -> i64 {
    Terms::of(json).grace_seconds()
}
