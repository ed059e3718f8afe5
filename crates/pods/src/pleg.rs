//! The pod life-cycle event generator: notices that something happened to a pod in the runtime.
//!
//! ```text
//!            ┌─────────────┐ stream works ┌───────────┐
//!  start ──> │ connecting  │ ───────────> │ streaming │  hints from events; full relist every minute
//!            └─────────────┘              └───────────┘
//!               │   ^  ^ stream or relist fails │
//!               │   │  └────────────────────────┘
//!               │   └─────────────────────────┐
//!  no stream    v                             │
//!            ┌─────────┐  relist fails        │
//!            │ polling │ ─────────────────────┘   relist every second, faster for a while after each change
//!            └─────────┘
//! ```
//!
//! Hints carry no facts: the pod's worker looks at what they name. So a lost, late or doubled event costs time and
//! nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crablet_cri::{CriError, ErrorKind, EventStream, Runtime};
use crablet_model::runtime::{ListedState, RuntimeEventKind, RuntimeStatus, RuntimeVersion, SandboxState};
use crablet_model::{PodRef, PodUid, api};
use crablet_planner::pod::{Ending, NodeFacts};
use futures_util::StreamExt;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::view::{RuntimeSummary, View};

#[cfg(test)]
mod tests;

/// The slow relist beside a working event stream.
const SAFETY_RELIST: Duration = Duration::from_secs(60);
/// Without a stream: the pace right after a change, and at rest. Upstream's is one second always.
const FAST_RELIST: Duration = Duration::from_millis(100);
const SLOW_RELIST: Duration = Duration::from_secs(1);
/// How often the runtime's own status is asked for: at rest, and while it is not well.
const STATUS_AT_REST: Duration = Duration::from_secs(30);
const STATUS_WHEN_UNWELL: Duration = Duration::from_secs(1);
/// Pauses between tries to reach the runtime.
const RECONNECT_FIRST: Duration = Duration::from_millis(100);
const RECONNECT_MAX: Duration = Duration::from_secs(5);
/// A relist or status call that takes longer counts as failed.
const CALL_DEADLINE: Duration = Duration::from_secs(30);

/// What the registry is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Hint {
    /// Something happened to this sandbox or container of the pod.
    Changed { uid: PodUid, id: String, kind: RuntimeEventKind },
    /// A complete relist: every pod the runtime has, and those that changed since the last.
    Relisted { pods: BTreeMap<PodUid, PodRef>, changed: Vec<PodUid> },
    /// What lies on disk and belongs to no pod that a source or the runtime has.
    Leftovers(Vec<PodRef>),
    /// What an earlier life of the agent published of this pod last, whether it was ending it for good, and whether the
    /// node did not let it run.
    Remembered { id: PodRef, status: Option<Box<api::PodStatus>>, ending: Option<Ending>, verdict: bool },
}

pub struct Pleg {
    pub runtime: Arc<dyn Runtime>,
    pub endpoint: String,
    pub hints: mpsc::Sender<Hint>,
    /// Asked for by the registry when it wants to know all pods.
    pub relist_now: Arc<Notify>,
    pub node: watch::Sender<Arc<NodeFacts>>,
    pub view: Arc<View>,
    /// For who reports how the node is.
    pub health: watch::Sender<RuntimeHealth>,
    /// How often the runtime is asked how it is while it is well.
    pub status_pace: Duration,
}

/// The runtime as the node reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeHealth {
    /// `containerd://2.3.7`; empty before it was reached for the first time.
    pub version: String,
    /// As it said last; `None` before it was reached for the first time.
    pub status: Option<RuntimeStatus>,
    /// Why it cannot be reached, if it cannot.
    pub lost: Option<String>,
    /// When it listed all its pods last. Kept up to date without a word to those who listen.
    pub listed: Option<Instant>,
    /// It has not listed them since it was lost or failed to, however well it says it is.
    pub unlisted: bool,
}

/// What the last relist saw of a pod: ids with their states.
type Seen = BTreeMap<PodUid, Vec<(String, ListedState)>>;

enum Ended {
    /// The runtime cannot be reached.
    Lost(CriError),
    /// It does not list its pods.
    Unlisted(CriError),
    /// The registry has gone: the agent ends.
    Unwanted,
}

impl From<CriError> for Ended {
    fn from(error: CriError) -> Self {
        Self::Lost(error)
    }
}

impl Pleg {
    pub async fn run(self) {
        let mut seen = None;
        let mut pause = RECONNECT_FIRST;
        loop {
            let began = Instant::now();
            match self.session(&mut seen).await {
                Ended::Unwanted => return,
                Ended::Lost(error) => self.lost(&error),
                Ended::Unlisted(error) => self.unlisted(&error),
            }
            if began.elapsed() > RECONNECT_MAX {
                pause = RECONNECT_FIRST;
            }
            sleep(pause).await;
            pause = (pause * 2).min(RECONNECT_MAX);
        }
    }

    /// From reaching the runtime until it is lost.
    async fn session(&self, seen: &mut Option<Seen>) -> Ended {
        match self.connect(seen).await {
            Ok(Some(stream)) => self.streaming(seen, stream).await,
            Ok(None) => self.polling(seen).await,
            Err(ended) => ended,
        }
    }

    /// Subscribes before the first relist, so that nothing can happen in between unseen.
    async fn connect(&self, seen: &mut Option<Seen>) -> Result<Option<EventStream>, Ended> {
        let version = deadline(self.runtime.version()).await?;
        let stream = match deadline(self.runtime.events()).await {
            Ok(stream) => Some(stream),
            Err(error) if error.kind == ErrorKind::Unimplemented => None,
            Err(error) => return Err(error.into()),
        };
        self.look_at_runtime(Some(&version)).await?;
        self.relist(seen, true).await?;
        tracing::info!(
            runtime = version.runtime_name,
            version = version.runtime_version,
            events = stream.is_some(),
            endpoint = self.endpoint,
            "container runtime is reached"
        );
        Ok(stream)
    }

    async fn streaming(&self, seen: &mut Option<Seen>, mut stream: EventStream) -> Ended {
        let mut relist_at = Instant::now() + SAFETY_RELIST;
        loop {
            let look_again = if self.is_well() { self.status_pace } else { STATUS_WHEN_UNWELL };
            // Cancel-safe: a stream item, a permit and two sleeps. In this order, so that a flood of events does not keep
            // the relist away.
            tokio::select! {
                biased;
                () = self.relist_now.notified() => {}
                () = tokio::time::sleep_until(relist_at) => {}
                () = sleep(look_again), if look_again < SAFETY_RELIST => {
                    if let Err(ended) = self.look_at_runtime(None).await {
                        return ended;
                    }
                    continue;
                }
                event = stream.next() => match event {
                    Some(Ok(event)) => {
                        if let Err(ended) = self.forward(event).await {
                            return ended;
                        }
                        continue;
                    }
                    Some(Err(error)) => return error.into(),
                    None => return CriError::new(ErrorKind::Unavailable, "the event stream ended").into(),
                },
            }
            relist_at = Instant::now() + SAFETY_RELIST;
            if let Err(ended) = self.relist_and_look(seen).await {
                return ended;
            }
        }
    }

    async fn relist_and_look(&self, seen: &mut Option<Seen>) -> Result<(), Ended> {
        self.look_at_runtime(None).await?;
        self.relist(seen, true).await.map(drop)
    }

    async fn polling(&self, seen: &mut Option<Seen>) -> Ended {
        let mut pace = FAST_RELIST;
        let (mut asked, mut told) = (Instant::now(), Instant::now());
        loop {
            let forced = tokio::select! {
                biased;
                () = sleep(pace) => told.elapsed() >= SAFETY_RELIST,
                () = self.relist_now.notified() => true,
            };
            if forced {
                told = Instant::now();
            }
            let every =
                if self.is_well() { self.status_pace.min(STATUS_AT_REST) } else { STATUS_WHEN_UNWELL };
            if asked.elapsed() >= every {
                asked = Instant::now();
                if let Err(ended) = self.look_at_runtime(None).await {
                    return ended;
                }
            }
            match self.relist(seen, forced).await {
                Ok(true) => pace = FAST_RELIST,
                Ok(false) => pace = (pace * 2).min(SLOW_RELIST),
                Err(ended) => return ended,
            }
        }
    }

    async fn forward(&self, event: crablet_model::runtime::RuntimeEvent) -> Result<(), Ended> {
        match event.uid {
            Some(uid) => self.send(Hint::Changed { uid, id: event.container_id, kind: event.kind }).await,
            None => {
                self.relist_now.notify_one();
                Ok(())
            }
        }
    }

    /// Lists everything and tells what changed. Returns whether anything did.
    async fn relist(&self, seen: &mut Option<Seen>, tell_always: bool) -> Result<bool, Ended> {
        let sandboxes = deadline(self.runtime.list_sandboxes(None)).await.map_err(Ended::Unlisted)?;
        let containers = deadline(self.runtime.list_containers(None)).await.map_err(Ended::Unlisted)?;
        self.listed();
        let mut pods = BTreeMap::new();
        let mut now: Seen = BTreeMap::new();
        for sandbox in sandboxes {
            let state = match sandbox.state {
                SandboxState::Ready => ListedState::Running,
                SandboxState::NotReady => ListedState::Exited,
            };
            pods.entry(sandbox.uid.clone())
                .or_insert_with(|| PodRef::new(&sandbox.name, &sandbox.namespace, sandbox.uid.as_str()));
            now.entry(sandbox.uid).or_default().push((sandbox.id, state));
        }
        for container in containers {
            pods.entry(container.uid.clone()).or_insert_with(|| {
                PodRef::new(&container.pod_name, &container.pod_namespace, container.uid.as_str())
            });
            now.entry(container.uid).or_default().push((container.id, container.state));
        }
        now.values_mut().for_each(|ids| ids.sort());
        let before = seen.take().unwrap_or_default();
        let changed: Vec<PodUid> = before
            .keys()
            .chain(now.keys().filter(|uid| !before.contains_key(*uid)))
            .filter(|uid| before.get(*uid) != now.get(*uid))
            .cloned()
            .collect();
        *seen = Some(now);
        let any = !changed.is_empty();
        if any || tell_always {
            self.send(Hint::Relisted { pods, changed }).await?;
        }
        Ok(any)
    }

    async fn send(&self, hint: Hint) -> Result<(), Ended> {
        self.hints.send(hint).await.map_err(|_| Ended::Unwanted)
    }

    fn is_well(&self) -> bool {
        self.node.borrow().network_ready
    }

    /// Asks the runtime how it is, and tells the workers when that changed.
    async fn look_at_runtime(&self, version: Option<&RuntimeVersion>) -> Result<(), Ended> {
        let status = deadline(self.runtime.status()).await?;
        let (network_ready, message, handlers) =
            (status.is_ready(), status.message(), status.handlers.clone());
        let network_problem = status.network_problem.clone();
        self.tell_health(version, status);
        let known = self.node.borrow().clone();
        let fresh_name = version.map(|v| &v.runtime_name).filter(|n| **n != known.runtime_name);
        let reconnected = version.is_some();
        let changed = network_ready != known.network_ready
            || message != known.network_message
            || network_problem != known.network_problem
            || handlers != known.runtime_handlers
            || fresh_name.is_some();
        if changed {
            if known.network_ready && !network_ready {
                tracing::warn!(reason = message, "container runtime is not ready");
            }
            // In place: a reload of the configuration may change other facts of the node at the same time.
            self.node.send_modify(|node| {
                let node = Arc::make_mut(node);
                node.network_ready = network_ready;
                node.network_message.clone_from(&message);
                node.network_problem = network_problem;
                node.runtime_handlers = handlers;
                if let Some(name) = fresh_name {
                    node.runtime_name.clone_from(name);
                }
            });
        } else if reconnected {
            // Workers that gave up on an unreachable runtime wait for this.
            self.node.send_modify(|_| {});
        }
        self.show_runtime();
        Ok(())
    }

    /// How the runtime says that it is. Not before it has listed its pods: one that hangs there answers this all
    /// the same.
    fn show_runtime(&self) {
        if self.health.borrow().unlisted {
            return;
        }
        let node = self.node.borrow().clone();
        let (ready, message) = (node.network_ready, node.network_message.clone());
        self.view.set_runtime(RuntimeSummary { ready, message });
    }

    fn tell_health(&self, version: Option<&RuntimeVersion>, status: RuntimeStatus) {
        self.health.send_if_modified(|health| {
            let version = match version {
                Some(v) => format!("{}://{}", v.runtime_name, v.runtime_version),
                None => health.version.clone(),
            };
            let fresh = RuntimeHealth { version, status: Some(status), lost: None, ..health.clone() };
            let is_new = fresh != *health;
            *health = fresh;
            is_new
        });
    }

    fn listed(&self) {
        let mut is_news = false;
        self.health.send_if_modified(|health| {
            health.listed = Some(Instant::now());
            is_news = std::mem::take(&mut health.unlisted);
            is_news
        });
        if is_news {
            self.show_runtime();
        }
    }

    fn unlisted(&self, error: &CriError) {
        self.health.send_if_modified(|health| !std::mem::replace(&mut health.unlisted, true));
        self.show_lost(error);
    }

    fn lost(&self, error: &CriError) {
        self.health.send_if_modified(|health| {
            health.unlisted = true;
            health.lost.replace(down(error)).is_none()
        });
        self.show_lost(error);
    }

    fn show_lost(&self, error: &CriError) {
        tracing::error!(
            endpoint = self.endpoint, %error,
            "container runtime cannot be reached; is it running, and is --container-runtime-endpoint its socket? \
             running containers are not touched, and work goes on when it is back"
        );
        self.view.set_runtime(RuntimeSummary { ready: false, message: down(error) });
    }
}

fn down(error: &CriError) -> String {
    format!("container runtime is down: {error}")
}

async fn deadline<T>(call: impl Future<Output = crablet_cri::Result<T>>) -> crablet_cri::Result<T> {
    timeout(CALL_DEADLINE, call)
        .await
        .unwrap_or_else(|_| Err(CriError::new(ErrorKind::DeadlineExceeded, "the runtime does not answer")))
}
