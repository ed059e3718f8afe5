//! Owner of all workers: gives each pod that a source wants its worker, and each pod that nobody wants its end.
//!
//! Two static pods with the same full name never run at the same time: the later waits until nothing is left of the
//! earlier. Workers begin only after the first relist, because only then is it known what runs already.
//!
//! | module | what it does |
//! |---|---|
//! | `lines` | who begins next, and what happens when a worker has ended |
//! | `records` | what an earlier life of the agent knew of a pod, before it begins |
//! | `judging` | whether the node lets a new pod run, and who makes room for it |
//! | `resizing` | whether a pod that runs gets the resources that it asks for now |
//! | `terms` | the little of a pod that says when it came and how it ends |
//! | `wants` | what becomes of a pod that a source has, or has no longer |
//! | `leftovers` | what dead pods left on disk |

mod judging;
mod leftovers;
mod lines;
mod records;
mod resizing;
mod terms;
mod wants;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crablet_apiserver::ObjectKey;
use crablet_model::{PodRef, PodUid};
use crablet_planner::pod::{Ending, NodeFacts};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::judging::Told;
use self::leftovers::leftovers;
use self::lines::{Handle, Waiting};
use self::resizing::Resizes;
use crate::admission::Admission;
use crate::order::Order;
use crate::pleg::Hint;
use crate::sources::{Op, PodUpdate, Source};
use crate::worker::{Left, Shared};

/// What dead pods left is not looked for more often than this; a relist at rest comes every minute.
const SWEEP: Duration = Duration::from_secs(45);

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
    /// When what dead pods left was looked for last.
    swept: Option<Instant>,
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
            swept: None,
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

    /// Looks for folders of pods that are neither wanted nor run: once that is known, and now and then after that, because
    /// a runtime that comes back late to a pod that has gone makes its folders anew.
    fn sweep(&mut self) {
        let is_early = self.swept.is_some_and(|last| last.elapsed() < SWEEP);
        if is_early || self.leaves_strangers || !self.sources_ready() {
            return;
        }
        let Some(running) = &self.in_runtime else {
            return;
        };
        self.swept = Some(Instant::now());
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
