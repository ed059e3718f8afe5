//! Owner of all workers: gives each pod that a source wants its worker, and each pod that nobody wants its end.
//!
//! Two static pods with the same full name never run at the same time: the later waits until nothing is left of the
//! earlier. Workers begin only after the first relist, because only then is it known what runs already.
//!
//! | module | what it does |
//! |---|---|
//! | `lines` | who begins next, and what happens when a worker has ended |
//! | `judging` | whether the node lets a new pod run, and who makes room for it |
//! | `resizing` | whether a pod that runs gets the resources that it asks for now |
//! | `terms` | the little of a pod that says when it came and how it ends |
//! | `leftovers` | what dead pods left on disk |

mod judging;
mod leftovers;
mod lines;
mod resizing;
mod terms;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crablet_apiserver::ObjectKey;
use crablet_model::{PodRef, PodUid, api};
use crablet_planner::pod::{Ending, Memory, NodeFacts, Wish};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::judging::{REJECTED, Standing, Told};
use self::leftovers::leftovers;
use self::lines::{Handle, Waiting, assignment, line_of};
use self::resizing::Resizes;
use self::terms::Terms;
use crate::admission::Admission;
use crate::order::Order;
use crate::pleg::Hint;
use crate::record;
use crate::sources::{DesiredPod, Op, PodUpdate, Source};
use crate::worker::{Left, Shared};

/// A disk that does not give a pod's record by then is not waited for any longer.
const RECORD_PATIENCE: Duration = Duration::from_secs(5);

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
    admission: Admission,
    resizes: Resizes,
    /// Objects of the API server that came or changed; `None` once nobody can tell.
    objects: Option<broadcast::Receiver<ObjectKey>>,
    /// What was found out for pods that wait to be let in.
    inquiries: JoinSet<Told>,
    /// Everything that an earlier life of the agent began is known, and counts.
    settled: bool,
    in_runtime: Option<BTreeMap<PodUid, PodRef>>,
    swept: bool,
    /// Pods that no source has are somebody else's business.
    leaves_strangers: bool,
    tasks: JoinSet<(PodUid, Ended)>,
    helpers: JoinSet<()>,
    random: fastrand::Rng,
}

enum Ended {
    Finished(Left),
    Broke,
}

impl Registry {
    pub fn new(
        shared: Arc<Shared>,
        updates: mpsc::Receiver<PodUpdate>,
        hints: (mpsc::Sender<Hint>, mpsc::Receiver<Hint>),
        relist_now: Arc<Notify>,
        configured: impl IntoIterator<Item = Source>,
        admission: Admission,
        seed: u64,
    ) -> Self {
        Self {
            node: shared.node.clone(),
            objects: Some(shared.hands.objects.changes()),
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
            admission,
            resizes: Resizes::default(),
            inquiries: JoinSet::new(),
            settled: false,
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
        self.shared.hands.ledgers.load().await;
        if self.configured.is_empty() {
            self.sources_are_ready();
        }
        loop {
            if self.resizes.is_due() {
                self.retry_resizes();
            }
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
                // What was waited for is there, or the node has other labels, taints or amounts now.
                Ok(()) = self.admission.node.changed() => {
                    self.resizes.room();
                    self.advance_all();
                }
                () = self.resizes.time() => self.resizes.room(),
                Some(told) = self.inquiries.join_next(), if !self.inquiries.is_empty() => {
                    if let Ok(told) = told {
                        self.told(told);
                    }
                }
                told = next_object(&mut self.objects) => self.object_changed(told),
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
        self.settle();
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
            self.read_record(pod.id.clone(), is_static);
        }
        if !self.unread.contains(&pod.id.uid) {
            self.shared.view.set_pod(&pod.id, Some(pod.json.clone()), true);
        }
        let now = self.shared.clock.now();
        let terms = Terms::of(&pod.json);
        let asked_to_go = if is_static { None } else { terms.deletion(now) };
        if terms.is_over() {
            self.resizes.room();
        }
        self.look_at_shrinking(&pod);
        let known = self.workers.get(&pod.id.uid).map(|handle| handle.assignment.borrow().pending.clone());
        let granted = known.map(|known| self.granted(&pod, Some(&known)));
        match self.workers.get_mut(&pod.id.uid) {
            Some(handle) if handle.is_ending() && asked_to_go.is_none() => {
                handle.again = Some(pod);
                handle.assignment.send_if_modified(|known| {
                    let was_wanted = std::mem::replace(&mut known.again, is_static);
                    was_wanted != is_static
                });
            }
            Some(handle) => {
                let wish = asked_to_go.map_or(Wish::Run, Wish::End);
                handle.assignment.send_modify(|known| {
                    let (verdict, earlier) = (known.verdict.take(), known.granted);
                    *known = assignment(&pod, is_static, wish, verdict, granted);
                    known.granted = earlier;
                });
            }
            None => {
                let line = self.waiting.entry(line_of(&pod.id, is_static)).or_default();
                match line.iter_mut().find(|w| w.pod.id.uid == pod.id.uid) {
                    Some(waiting) => waiting.pod = pod,
                    None => line.push_back(Waiting::new(pod, is_static, terms.created())),
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

    fn read_record(&mut self, id: PodRef, is_static: bool) {
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
            let rejected =
                memory.verdict.as_ref().is_some_and(|verdict| verdict.message.starts_with(REJECTED));
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
    fn settle(&mut self) {
        if self.settled || !self.sources_ready() || !self.unread.is_empty() {
            return;
        }
        self.settled = true;
        let waiting = self.waiting.values().flatten().map(|waiting| &waiting.pod.id.uid);
        let known = self.workers.keys().chain(waiting).cloned().collect();
        self.shared.hands.ledgers.keep(&known);
    }

    fn remembered(&mut self, id: &PodRef, status: Option<&api::PodStatus>, condemned: bool) {
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

    /// No source wants this pod any more.
    fn unwant(&mut self, pod: &DesiredPod, is_static: bool) {
        if let Some(cluster) = self.shared.cluster.as_ref().filter(|_| is_static) {
            cluster.mirrors.unwanted(&pod.id);
        }
        // As upstream: what no source has takes no part of the node, though something of it may still run.
        if self.admission.discount(&pod.id.uid).is_some() {
            self.resizes.room();
        }
        if !self.unread.contains(&pod.id.uid) {
            self.shared.view.set_pod(&pod.id, None, false);
        }
        if self.leave_line(&pod.id, is_static) && !self.workers.contains_key(&pod.id.uid) {
            self.forget(&pod.id);
            // An earlier life of the agent may have started it.
            self.end_orphans();
        }
        let now = self.shared.clock.now();
        if let Some(handle) = self.workers.get_mut(&pod.id.uid) {
            handle.again = None;
            self.half_ended.remove(&pod.id.uid);
            handle.assignment.send_if_modified(|a| match &mut a.wish {
                // It was asked to go, and now it may be forgotten.
                Wish::End(end) => {
                    let was_wanted = std::mem::take(&mut a.again);
                    !std::mem::replace(&mut end.forget, true) || was_wanted
                }
                Wish::Run => {
                    a.wish = Wish::End(Ending {
                        since: now,
                        grace_seconds: Terms::of(&pod.json).grace_seconds(),
                        forget: true,
                        why: "its source no longer has the pod".to_owned(),
                    });
                    true
                }
            });
        }
    }

    /// Nothing is left of the pod.
    fn forget(&mut self, id: &PodRef) {
        self.shared.hands.ledgers.forget(&id.uid);
        self.resizes.forget(&id.uid);
        self.admission.discount(&id.uid);
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
            Hint::Remembered { id, status, ending, verdict } => {
                if let Some(ending) = ending {
                    self.half_ended.insert(id.uid.clone(), ending);
                }
                self.remembered(&id, status.as_deref(), verdict);
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

    /// Those who refer to an object are told that it came or changed.
    fn object_changed(&mut self, told: Result<ObjectKey, RecvError>) {
        match told {
            Ok(key) => {
                for uid in self.shared.hands.objects.referring(&key) {
                    if let Some(handle) = self.workers.get(&uid) {
                        handle.nudge.object(Some(key.clone()));
                    }
                }
            }
            Err(RecvError::Lagged(_)) => self.workers.values().for_each(|handle| handle.nudge.object(None)),
            Err(RecvError::Closed) => self.objects = None,
        }
    }

    fn is_known(&self, uid: &PodUid) -> bool {
        self.workers.contains_key(uid) || self.is_waiting(uid)
    }

    fn is_waiting(&self, uid: &PodUid) -> bool {
        self.waiting.values().flatten().any(|w| w.pod.id.uid == *uid)
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

async fn next_object(objects: &mut Option<broadcast::Receiver<ObjectKey>>) -> Result<ObjectKey, RecvError> {
    match objects {
        Some(objects) => objects.recv().await,
        None => std::future::pending().await,
    }
}
