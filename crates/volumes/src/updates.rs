//! The task that renders volumes again when what they show has changed: an object, the pod itself, its certificate, or a
//! token that grows old. Nothing is looked at without a reason, and one timer waits for the next token or the next try. It also wakes
//! those who wait for an attachment or for a driver, and looks once at what the last life of the agent has left.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crablet_apiserver::ObjectKey;
use crablet_model::PodUid;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use jiff::Timestamp;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};
use tracing::info;

use crate::volumes::{Rendered, Volumes};

/// Pods that are rendered at the same time. A stuck one holds its place and no more.
const AT_ONCE: usize = 16;
/// As upstream backs off between tries of one operation.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(122);
/// The timer looks at the wall clock this often, because that may jump.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// What others tell the task. It holds at most an entry per pod.
#[derive(Default)]
pub(crate) struct Inbox {
    news: Mutex<News>,
    notify: Notify,
}

#[derive(Default)]
struct News {
    dirty: BTreeSet<PodUid>,
    refresh: BTreeMap<PodUid, Timestamp>,
    gone: BTreeSet<PodUid>,
}

impl Inbox {
    pub fn dirty(&self, uid: &PodUid) {
        self.news().dirty.insert(uid.clone());
        self.notify.notify_one();
    }

    pub fn refresh(&self, uid: &PodUid, at: Timestamp) {
        self.news().refresh.insert(uid.clone(), at);
        self.notify.notify_one();
    }

    pub fn forget(&self, uid: &PodUid) {
        let mut news = self.news();
        news.dirty.remove(uid);
        news.refresh.remove(uid);
        news.gone.insert(uid.clone());
        self.notify.notify_one();
    }

    fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(|dead| dead.into_inner())
    }
}

type Render = Pin<Box<dyn Future<Output = (PodUid, Rendered)> + Send>>;

struct Updates {
    volumes: Arc<Volumes>,
    queue: BTreeSet<PodUid>,
    busy: BTreeSet<PodUid>,
    running: FuturesUnordered<Render>,
    refresh: BTreeMap<PodUid, Timestamp>,
    retries: BTreeMap<PodUid, Retry>,
    /// Looking at what the last life has left.
    looking_back: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

struct Retry {
    failures: u32,
    /// `None` while the try is under way.
    at: Option<Instant>,
}

pub(crate) async fn run(volumes: Arc<Volumes>, mut changes: broadcast::Receiver<ObjectKey>) {
    let mut updates = Updates {
        volumes: volumes.clone(),
        queue: BTreeSet::new(),
        busy: BTreeSet::new(),
        running: FuturesUnordered::new(),
        refresh: BTreeMap::new(),
        retries: BTreeMap::new(),
        looking_back: None,
    };
    let mut storage = volumes.ctx.storage.clone();
    let mut drivers = volumes.ctx.csi.as_ref().map(|csi| csi.changed());
    let mut held = volumes.ctx.csi.as_ref().map(|csi| csi.held());
    let mut certificates = volumes.ctx.certificates.as_ref().map(|certificates| certificates.changes());
    let mut listening = true;
    loop {
        updates.look_back();
        updates.begin();
        let next = updates.next_time();
        // Every arm may be dropped: a broadcast receiver and a notification keep what they have not given out.
        tokio::select! {
            biased;
            Some((uid, rendered)) = updates.running.next() => updates.done(uid, rendered),
            changed = changes.recv(), if listening => match changed {
                Ok(key) => updates.queue.extend(volumes.showing(|shown| shown.objects.contains(&key))),
                Err(RecvError::Lagged(_)) => {
                    updates.queue.extend(volumes.showing(|shown| !shown.objects.is_empty()));
                }
                Err(RecvError::Closed) => listening = false,
            },
            told = told(certificates.as_mut()) => match told {
                Ok(uid) => updates.queue.extend(volumes.wake(&uid).then_some(uid)),
                Err(RecvError::Lagged(_)) => updates.queue.extend(volumes.showing(|_| true)),
                Err(RecvError::Closed) => certificates = None,
            },
            () = volumes.inbox.notify.notified() => updates.take_in(),
            () = done(&mut updates.looking_back) => updates.looking_back = None,
            () = changed(Some(&mut storage)) => volumes.wake_all(),
            () = changed(drivers.as_mut()) => volumes.wake_all(),
            () = changed(held.as_mut()) => volumes.ctx.attachments.held_changed(),
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => updates.look_at_clock(),
        }
    }
}

async fn done(work: &mut Option<Pin<Box<dyn Future<Output = ()> + Send>>>) {
    match work {
        Some(work) => work.await,
        None => std::future::pending().await,
    }
}

/// Never where there is nobody to tell.
async fn told(news: Option<&mut broadcast::Receiver<PodUid>>) -> Result<PodUid, RecvError> {
    match news {
        Some(news) => news.recv().await,
        None => std::future::pending().await,
    }
}

/// Never again once nobody can tell anything.
async fn changed<T>(news: Option<&mut watch::Receiver<T>>) {
    let heard = match news {
        Some(news) => news.changed().await.is_ok(),
        None => false,
    };
    if !heard {
        std::future::pending::<()>().await;
    }
}

impl Updates {
    /// Once, as soon as there is a Node object that says what was in use before.
    fn look_back(&mut self) {
        let ctx = &self.volumes.ctx;
        if self.looking_back.is_none() && !ctx.attachments.is_started() && ctx.storage.borrow().known {
            let volumes = self.volumes.clone();
            self.looking_back = Some(Box::pin(async move { volumes.look_back().await }));
        }
    }

    fn take_in(&mut self) {
        let volumes = self.volumes.clone();
        let news = std::mem::take(&mut *volumes.inbox.news());
        for uid in news.gone {
            self.queue.remove(&uid);
            self.refresh.remove(&uid);
            self.retries.remove(&uid);
        }
        self.queue.extend(news.dirty);
        self.refresh.extend(news.refresh);
    }

    /// Renders what waits, one at a time per pod.
    fn begin(&mut self) {
        while self.busy.len() < AT_ONCE {
            let Some(uid) = self.queue.iter().find(|uid| !self.busy.contains(*uid)).cloned() else { return };
            self.queue.remove(&uid);
            self.busy.insert(uid.clone());
            if let Some(retry) = self.retries.get_mut(&uid) {
                retry.at = None;
            }
            let volumes = self.volumes.clone();
            self.running.push(Box::pin(async move {
                let rendered = volumes.render_again(&uid).await;
                (uid, rendered)
            }));
        }
    }

    fn done(&mut self, uid: PodUid, rendered: Rendered) {
        self.busy.remove(&uid);
        match rendered.refresh_at {
            Some(at) => self.refresh.insert(uid.clone(), at),
            None => self.refresh.remove(&uid),
        };
        // An old token that was served again because no new one could be had counts as a failure, though of no volume.
        let stale = rendered.refresh_at.is_some_and(|at| at <= self.volumes.ctx.clock.now());
        if !rendered.failed && !stale {
            if self.retries.remove(&uid).is_some() {
                info!(podUID = uid.as_str(), "Volumes of the pod show what is true again");
            }
            return;
        }
        self.refresh.remove(&uid);
        let retry = self.retries.entry(uid).or_insert(Retry { failures: 0, at: None });
        let wait = FIRST_RETRY.saturating_mul(1 << retry.failures.min(16)).min(LAST_RETRY);
        retry.failures += 1;
        retry.at = Some(Instant::now() + wait);
    }

    fn next_time(&self) -> Option<Instant> {
        let now = self.volumes.ctx.clock.now();
        let refresh = self.refresh.values().min().map(|at| {
            let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
            Instant::now() + wait.min(LONGEST_SLEEP)
        });
        let retry = self.retries.values().filter_map(|retry| retry.at).min();
        [refresh, retry].into_iter().flatten().min()
    }

    fn look_at_clock(&mut self) {
        let now = self.volumes.ctx.clock.now();
        let old = self.refresh.extract_if(.., |_, at| *at <= now).map(|(uid, _)| uid);
        self.queue.extend(old);
        for (uid, retry) in &mut self.retries {
            if retry.at.take_if(|at| *at <= Instant::now()).is_some() {
                self.queue.insert(uid.clone());
            }
        }
    }
}
