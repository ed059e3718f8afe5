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
use std::panic::AssertUnwindSafe;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::pleg::Hint;
use crate::record;
use crate::settings::Folders;
use crate::sources::{DesiredPod, Op, PodUpdate, Source};
use crate::worker::{Assignment, Nudge, Shared, Worker};

/// A worker that broke begins again after this.
const AFTER_PANIC: Duration = Duration::from_secs(10);
/// A disk that does not give a pod's record by then is not waited for any longer.
const RECORD_PATIENCE: Duration = Duration::from_secs(5);
/// Upstream: nobody gets less.
const MINIMUM_GRACE_SECONDS: i64 = 1;

pub struct Registry {
    shared: Arc<Shared>,
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
    waiting: BTreeMap<String, VecDeque<DesiredPod>>,
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

struct Handle {
    id: PodRef,
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
                    self.workers.values().for_each(|handle| handle.nudge.give(true));
                }
                Some(_) = self.helpers.join_next(), if !self.helpers.is_empty() => {}
            }
        }
    }

    fn update(&mut self, update: PodUpdate) {
        for pod in update.pods {
            match update.op {
                Op::Add | Op::Update | Op::Delete => self.want(pod),
                Op::Remove => self.unwant(&pod),
                Op::Reconcile => {} // only the API server's copy of a status can differ, and there is none
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
    fn want(&mut self, pod: DesiredPod) {
        if !self.is_known(&pod.id.uid) {
            self.read_record(pod.id.clone());
        }
        if !self.unread.contains(&pod.id.uid) {
            self.shared.view.set_pod(&pod.id, Some(pod.json.clone()), true);
        }
        match self.workers.get_mut(&pod.id.uid) {
            Some(handle) if handle.is_ending() => handle.again = Some(pod),
            Some(handle) => {
                handle.assignment.send_replace(Assignment { pod: Some(pod.json), wish: Wish::Run });
            }
            None => {
                let line = self.waiting.entry(pod.id.full_name()).or_default();
                match line.iter_mut().find(|w| w.id.uid == pod.id.uid) {
                    Some(waiting) => *waiting = pod,
                    None => line.push_back(pod),
                }
                self.advance_all();
            }
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
        let waiting = self.waiting.get(&id.full_name()).and_then(|l| l.iter().find(|w| w.id.uid == id.uid));
        if let Some(pod) = waiting {
            self.shared.view.set_pod(id, Some(pod.json.clone()), true);
            if let Some(status) = status {
                self.shared.view.set_status(id, status);
            }
        }
        self.tell_if_all_are_known();
        self.advance_all();
    }

    /// No source wants this pod any more.
    fn unwant(&mut self, pod: &DesiredPod) {
        if !self.unread.contains(&pod.id.uid) {
            self.shared.view.set_pod(&pod.id, None, false);
        }
        if let Some(line) = self.waiting.get_mut(&pod.id.full_name()) {
            let before = line.len();
            line.retain(|w| w.id.uid != pod.id.uid);
            if line.len() < before && !self.workers.contains_key(&pod.id.uid) {
                self.shared.view.remove(&pod.id.uid);
                // An earlier life of the agent may have started it.
                self.end_orphans();
            }
        }
        let now = self.shared.clock.now();
        if let Some(handle) = self.workers.get_mut(&pod.id.uid) {
            handle.again = None;
            self.half_ended.remove(&pod.id.uid);
            if !handle.is_ending() {
                let end = Ending {
                    since: now,
                    grace_seconds: grace_seconds(&pod.json),
                    forget: true,
                    why: "its source no longer has the pod".to_owned(),
                };
                handle.assignment.send_modify(|a| a.wish = Wish::End(end));
            }
        }
    }

    fn hint(&mut self, hint: Hint) {
        match hint {
            Hint::Changed { uid, urgent } => match self.workers.get(&uid) {
                Some(handle) => handle.nudge.give(urgent),
                // Who it is, only a relist can say.
                None => self.relist_now.notify_one(),
            },
            Hint::Relisted { pods, changed } => {
                for uid in changed {
                    if let Some(handle) = self.workers.get(&uid) {
                        handle.nudge.give(true);
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
        self.waiting.values().flatten().any(|w| w.id.uid == *uid)
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
        self.spawn(id, Assignment { pod: None, wish: Wish::End(end) }, Duration::ZERO);
    }

    /// Starts the first in each line whose name is free.
    fn advance_all(&mut self) {
        if self.in_runtime.is_none() {
            return; // not before it is known what runs already
        }
        let taken: BTreeSet<String> = self.workers.values().map(|h| h.id.full_name()).collect();
        let free: Vec<String> = self.waiting.keys().filter(|name| !taken.contains(*name)).cloned().collect();
        for name in free {
            let Some(line) = self.waiting.get_mut(&name) else { continue };
            if line.front().is_some_and(|pod| self.unread.contains(&pod.id.uid)) {
                continue;
            }
            let first = line.pop_front();
            if line.is_empty() {
                self.waiting.remove(&name);
            }
            if let Some(pod) = first {
                self.begin(pod);
            }
        }
    }

    fn begin(&mut self, pod: DesiredPod) {
        let (id, json) = (pod.id.clone(), Some(pod.json.clone()));
        match self.half_ended.remove(&id.uid) {
            Some(ending) => {
                let uid = id.uid.clone();
                self.spawn(id, Assignment { pod: json, wish: Wish::End(ending) }, Duration::ZERO);
                if let Some(handle) = self.workers.get_mut(&uid) {
                    handle.again = Some(pod);
                }
            }
            None => self.spawn(id, Assignment { pod: json, wish: Wish::Run }, Duration::ZERO),
        }
    }

    fn spawn(&mut self, id: PodRef, assignment: Assignment, after: Duration) {
        let (sender, receiver) = watch::channel(assignment);
        let nudge = Arc::new(Nudge::default());
        let worker =
            Worker::new(self.shared.clone(), id.clone(), receiver, nudge.clone(), self.random.u64(..));
        let uid = id.uid.clone();
        self.tasks.spawn(async move {
            if !after.is_zero() {
                tokio::time::sleep(after).await;
            }
            let ended = AssertUnwindSafe(worker.run()).catch_unwind().await;
            (uid, ended.map_or(Ended::Broke, |()| Ended::Finished))
        });
        self.workers.insert(id.uid.clone(), Handle { id, assignment: sender, nudge, again: None });
    }

    fn worker_ended(&mut self, uid: &PodUid, ended: Ended) {
        let Some(handle) = self.workers.remove(uid) else {
            return;
        };
        if let Ended::Broke = ended {
            tracing::error!(pod = handle.id.object_ref(), podUID = %handle.id.uid, "a pod's worker broke, which is a bug; it begins again");
            let assignment = handle.assignment.borrow().clone();
            self.spawn(handle.id.clone(), assignment, AFTER_PANIC);
            if let Some(fresh) = self.workers.get_mut(uid) {
                fresh.again = handle.again;
            }
            return;
        }
        tracing::info!(pod = handle.id.object_ref(), podUID = %handle.id.uid, "nothing is left of the pod");
        if let Some(pods) = &mut self.in_runtime {
            pods.remove(uid);
        }
        match handle.again {
            Some(pod) => self.waiting.entry(pod.id.full_name()).or_default().push_front(pod),
            None => self.shared.view.remove(uid),
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
            .chain(self.waiting.values().flatten().map(|w| &w.id.uid))
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

/// The grace that the pod's own specification gives it.
fn grace_seconds(json: &[u8]) -> i64 {
    #[derive(serde::Deserialize)]
    struct Pod {
        spec: Option<Spec>,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        termination_grace_period_seconds: Option<i64>,
    }
    let spec = serde_json::from_slice::<Pod>(json).ok().and_then(|pod| pod.spec);
    let default = api::PodSpec::default().termination_grace_period_seconds.unwrap_or(30);
    spec.and_then(|s| s.termination_grace_period_seconds).unwrap_or(default).max(MINIMUM_GRACE_SECONDS)
}
