//! Events about pods, their claims and the node, correlated as upstream does it and sent to the API server.
//!
//! | module | what it is |
//! |---|---|
//! | [`wire`] | an event as it is sent |
//! | [`correlate`] | aggregation, de-duplication, the spam filter |
//! | [`lru`] | the bounded caches of those |
//!
//! Telling an event never waits. One task sends them, in order; while the API server cannot be reached they queue up.

mod correlate;
mod lru;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crablet_model::events::{ClaimEvent, Event, NodeEvent};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use self::correlate::Correlator;
use self::wire::{Occurrence, Outgoing};
use crate::Now;
use crate::port::{ApiError, ApiServer, Call, ErrorKind, Lane, Verb};

/// Events that wait to be sent; more are dropped.
const QUEUE: usize = 1000;
/// How often an event is tried while the server cannot be reached.
const TRIES: u32 = 12;
const BETWEEN_TRIES: Duration = Duration::from_secs(10);

/// Takes events. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    now: Now,
    node: Arc<str>,
    queue: mpsc::Sender<Occurrence>,
    dropped: Arc<AtomicU64>,
}

impl Recorder {
    pub fn start(
        api: Arc<dyn ApiServer>,
        now: Now,
        node_name: &str,
        seed: u64,
        tasks: &mut JoinSet<()>,
    ) -> Self {
        let (queue, occurrences) = mpsc::channel(QUEUE);
        let recorder = Self { now, node: Arc::from(node_name), queue, dropped: Arc::default() };
        let sender = Sender {
            api,
            now: recorder.now.clone(),
            node: recorder.node.clone(),
            random: fastrand::Rng::with_seed(seed),
            correlator: Correlator::new(seed ^ 1),
            dropped: recorder.dropped.clone(),
        };
        tasks.spawn(sender.run(occurrences));
        recorder
    }

    pub fn pod(&self, event: Event) {
        self.take(Occurrence::of_pod(event, (self.now)()));
    }

    pub fn claim(&self, event: ClaimEvent) {
        self.take(Occurrence::of_claim(event, (self.now)()));
    }

    pub fn node(&self, event: NodeEvent) {
        self.take(Occurrence::of_node(event, &self.node, (self.now)()));
    }

    fn take(&self, occurrence: Occurrence) {
        let involved = &occurrence.involved;
        tracing::debug!(
            object = object_ref(&occurrence),
            fieldPath = involved.field_path.as_deref().unwrap_or_default(),
            // `event.` keeps the names apart from tracing's own.
            event.kind = involved.kind,
            apiVersion = "v1",
            r#type = %occurrence.kind,
            reason = &*occurrence.reason,
            event.message = occurrence.message,
            "Event occurred"
        );
        if self.queue.try_send(occurrence).is_err() && self.dropped.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::error!(
                queued = QUEUE,
                "Unable to record event: too many queued events, dropping events"
            );
        }
    }
}

fn object_ref(occurrence: &Occurrence) -> String {
    let involved = &occurrence.involved;
    if involved.namespace.is_empty() {
        involved.name.clone()
    } else {
        format!("{}/{}", involved.namespace, involved.name)
    }
}

struct Sender {
    api: Arc<dyn ApiServer>,
    now: Now,
    node: Arc<str>,
    random: fastrand::Rng,
    correlator: Correlator,
    dropped: Arc<AtomicU64>,
}

impl Sender {
    /// Ends when the last recorder is gone.
    async fn run(mut self, mut occurrences: mpsc::Receiver<Occurrence>) {
        while let Some(occurrence) = occurrences.recv().await {
            if let Some(outgoing) = self.correlator.correlate(occurrence, (self.now)()) {
                self.send(&outgoing).await;
            }
            if occurrences.is_empty() {
                let dropped = self.dropped.swap(0, Ordering::Relaxed);
                if dropped > 0 {
                    tracing::warn!(dropped, "Events are recorded again; some were dropped");
                }
            }
        }
    }

    async fn send(&mut self, event: &Outgoing) {
        let (object, reason) = (object_ref(&event.occurrence), &*event.occurrence.reason);
        for tries in 1..=TRIES {
            let Err(error) = self.try_to_send(event).await else { return };
            if !may_pass(&error) {
                if is_expected(&error) {
                    tracing::debug!(object, reason, err = %error, "Server rejected event (will not retry!)");
                } else {
                    tracing::error!(object, reason, err = %error, "Server rejected event (will not retry!)");
                }
                return;
            }
            if tries == TRIES {
                break;
            }
            tracing::warn!(object, reason, err = %error, "Unable to write event (may retry after sleeping)");
            // The nodes of a cluster do not all come back at the same moment.
            let share = if tries == 1 { self.random.f64() } else { 1.0 };
            sleep(BETWEEN_TRIES.mul_f64(share).max(error.retry_after.unwrap_or_default())).await;
        }
        tracing::error!(object, reason, "Unable to write event (retry limit exceeded!)");
    }

    async fn try_to_send(&self, event: &Outgoing) -> Result<(), ApiError> {
        let collection = event.collection();
        if event.count > 1 {
            let path = format!("{collection}/{}", event.name);
            match self.call(Verb::StrategicPatch, path, &event.patch()).await {
                // The server has forgotten the event: it keeps them for an hour.
                Err(error) if error.is_not_found() => {}
                answer => return answer,
            }
        }
        self.call(Verb::Post, collection, &event.object(&self.node)).await
    }

    async fn call(&self, verb: Verb, path: String, body: &Value) -> Result<(), ApiError> {
        self.api.call(Call::new(verb, Lane::Events, path).with_body(body.to_string())).await.map(drop)
    }
}

/// Whether the way to the server is the trouble, and not the event.
fn may_pass(error: &ApiError) -> bool {
    match error.kind {
        ErrorKind::Unreachable | ErrorKind::TimedOut | ErrorKind::TooManyRequests | ErrorKind::Other => true,
        ErrorKind::Server => error.retry_after.is_some(),
        _ => false,
    }
}

/// A lost answer makes an event exist already, and namespaces that end take no more events.
fn is_expected(error: &ApiError) -> bool {
    match error.kind {
        ErrorKind::AlreadyExists | ErrorKind::NotFound => true,
        ErrorKind::Forbidden => error.message.contains("because it is being terminated"),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
