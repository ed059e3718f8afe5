//! The task that looks whether volumes in use have grown in the cluster.
//!
//! A node may get claims and not watch them, so they are asked for again and again: about once a minute for each pod that
//! has any which can grow, as often as upstream asks. While the cluster is about to allow it, more often.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crablet_model::events::Event;
use crablet_model::{PodUid, api};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, error};

use crate::csi::Grown;
use crate::layout::PodLayout;
use crate::plugins::{self, Request};
use crate::pod::Owners;
use crate::volumes::{Entry, State, Volumes};
use crate::{claims, teardown};

/// Between two looks, and up to half as much again by lot, so that pods do not ask at the same moment.
const PACE: Duration = Duration::from_secs(60);
/// While the cluster may allow it any moment; doubles.
const SOON: Duration = Duration::from_secs(1);
/// As upstream backs off between tries of one operation.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(122);
/// Pods that are looked at at the same time. One whose driver hangs holds its place and no more.
const AT_ONCE: usize = 8;
const RESIZE_FAILED: &str = "VolumeResizeFailed";

/// What others tell the task.
#[derive(Default)]
pub(crate) struct Watched {
    news: Mutex<News>,
    notify: Notify,
}

#[derive(Default)]
struct News {
    came: BTreeSet<PodUid>,
    gone: BTreeSet<PodUid>,
}

impl Watched {
    pub fn add(&self, uid: &PodUid) {
        let mut news = self.news();
        news.gone.remove(uid);
        if news.came.insert(uid.clone()) {
            self.notify.notify_one();
        }
    }

    pub fn forget(&self, uid: &PodUid) {
        let mut news = self.news();
        news.came.remove(uid);
        news.gone.insert(uid.clone());
        self.notify.notify_one();
    }

    fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What came of a look at all volumes of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Looked {
    Settled,
    NotYet,
    Failed,
}

struct Next {
    /// `None` while it is looked at.
    at: Option<Instant>,
    /// Looks in a row that settled nothing.
    tries: u32,
}

type Look = Pin<Box<dyn Future<Output = (PodUid, Looked)> + Send>>;

pub(crate) async fn run(volumes: Arc<Volumes>) {
    let mut pods: BTreeMap<PodUid, Next> = BTreeMap::new();
    let mut running: FuturesUnordered<Look> = FuturesUnordered::new();
    loop {
        let now = Instant::now();
        let due = pods.iter_mut().filter(|(_, next)| next.at.is_some_and(|at| at <= now));
        for (uid, next) in due.take(AT_ONCE.saturating_sub(running.len())) {
            next.at = None;
            let (volumes, uid) = (volumes.clone(), uid.clone());
            running.push(Box::pin(async move {
                let looked = Box::pin(volumes.look_for_growth(&uid)).await;
                (uid, looked)
            }));
        }
        let is_full = running.len() >= AT_ONCE;
        let next = pods.values().filter_map(|next| next.at).min().filter(|_| !is_full);
        // Every arm may be dropped: looks stay in the set, and a notification keeps what it has not given out.
        tokio::select! {
            biased;
            Some((uid, looked)) = running.next() => {
                if let Some(next) = pods.get_mut(&uid) {
                    next.after(looked, &volumes);
                }
            }
            () = volumes.growth.notify.notified() => {
                let news = std::mem::take(&mut *volumes.growth.news());
                pods.retain(|uid, _| !news.gone.contains(uid));
                for uid in news.came {
                    let first = Instant::now() + volumes.ctx.spread(PACE);
                    pods.entry(uid).or_insert(Next { at: Some(first), tries: 0 });
                }
            }
            () = sleep_until(next.unwrap_or(now)), if next.is_some() => {}
        }
    }
}

impl Next {
    fn after(&mut self, looked: Looked, volumes: &Volumes) {
        let doubled =
            |first: Duration, last: Duration, tries: u32| first.saturating_mul(1 << tries.min(16)).min(last);
        let wait = match looked {
            Looked::Settled => volumes.ctx.spread(PACE),
            Looked::NotYet => doubled(SOON, PACE, self.tries),
            Looked::Failed => doubled(FIRST_RETRY, LAST_RETRY, self.tries),
        };
        self.tries = if looked == Looked::Settled { 0 } else { self.tries.saturating_add(1) };
        self.at = Some(Instant::now() + wait);
    }
}

impl Volumes {
    /// All volumes of the pod are there: from now on those that can grow are looked at.
    pub(crate) fn watch_growth(&self, id: &crablet_model::PodRef, wanted: &[&api::Volume], state: &State) {
        if wanted.iter().any(|volume| can_grow(&id.name, volume, state)) {
            self.growth.add(&id.uid);
        }
    }

    async fn look_for_growth(&self, uid: &PodUid) -> Looked {
        let Some(entry) = self.known(uid) else { return Looked::Settled };
        entry.leaving.or(Box::pin(self.look_at_all(&entry))).await.unwrap_or(Looked::Settled)
    }

    async fn look_at_all(&self, entry: &Entry) -> Looked {
        let Ok(pod) = serde_json::from_slice::<api::Pod>(&entry.json()) else { return Looked::Settled };
        let Some(spec) = &pod.spec else { return Looked::Settled };
        let growing: Vec<(&api::Volume, bool)> = {
            // Whoever sets up holds it for as long as that takes; the next look is soon enough.
            let Ok(state) = entry.state.try_lock() else { return Looked::Settled };
            let all = spec.volumes.iter().flatten();
            let all = all.filter(|volume| can_grow(&entry.id.name, volume, &state));
            all.map(|volume| (volume, state.mounted.get(&volume.name).is_some_and(|at| at.block))).collect()
        };
        let mut worst = Looked::Settled;
        for (volume, is_block) in growing {
            let layout = PodLayout::new(&self.ctx.root_dir, &entry.id.uid);
            let (ctx, id, owners) = (&self.ctx, &entry.id, Owners::of(spec));
            let slow = &crate::slow::Slow::since(ctx.clock.now());
            let request = Request { ctx, id, layout, pod: &pod, spec, owners, volume, again: true, slow };
            worst = worst.max(self.look_at(&request, is_block).await);
        }
        worst
    }

    async fn look_at(&self, request: &Request<'_>, is_block: bool) -> Looked {
        let Some((claim, read_only)) = claims::wanted(&request.id.name, request.volume) else {
            return Looked::Settled;
        };
        let claimed = match claims::resolve(request, &claim, read_only).await {
            Ok(claimed) => claimed,
            Err(failure) => {
                debug!(pod = request.id.object_ref(), claim, why = failure.text, "Failed to look at a claim");
                return Looked::Settled;
            }
        };
        match plugins::persistent::grow(request, &claimed, is_block).await {
            Ok(Grown::Settled) => Looked::Settled,
            Ok(Grown::NotYet) => Looked::NotYet,
            Err(why) => {
                let volume = claimed.name();
                let text = format!("NodeExpandVolume.NodeExpandVolume failed for volume {volume:?} : {why}");
                error!(pod = request.id.object_ref(), volume, "{text}");
                self.ctx.events.emit(Event::warning(request.id, RESIZE_FAILED, text));
                Looked::Failed
            }
        }
    }
}

/// A volume of a driver that the pod may write to.
fn can_grow(pod: &str, volume: &api::Volume, state: &State) -> bool {
    let of_driver = |path: &str| std::path::Path::new(path).iter().any(|part| part == teardown::CSI);
    claims::wanted(pod, volume).is_some_and(|(_, read_only)| !read_only)
        && state.mounted.get(&volume.name).is_some_and(|at| of_driver(&at.host_path))
}
