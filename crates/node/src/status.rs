//! Registers the node and keeps its status true.
//!
//! A status is computed at once when something it is made of has changed, and every `nodeStatusUpdateFrequency` for what
//! changes without a word (addresses, the size of a disk). It is sent when it says something new, or when the report is
//! due.

use std::sync::Arc;
use std::time::Duration;

use crablet_apiserver::{ApiError, ErrorKind, Verb};
use crablet_model::api;
use crablet_model::events::NodeEvent;
use crablet_planner::node::conditions::status_event;
use crablet_planner::node::{initial_node, status_patch, update_node};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::NodeEvents;
use crate::cache::{NodeCache, NodeView, Source};
use crate::calls::{Calls, jittered, pause_for};
use crate::facts::{Gathered, News, changed};
use crate::said::Said;

const TRIES: usize = 5;
/// Facts that change together make one status.
const GAP: Duration = Duration::from_millis(100);
/// So do facts that never rest, after this many statuses between two ticks.
const LONG_GAP: Duration = Duration::from_secs(1);
const BURST: u32 = 5;
/// How long a start waits for facts that are about to be known, so that a restart does not make the node not ready.
const FIRST_WORD: Duration = Duration::from_secs(2);

enum Woken {
    /// It is time to look at everything.
    Tick,
    /// Something has changed.
    News,
}

pub(crate) struct StatusLoop {
    pub(crate) calls: Calls,
    pub(crate) gathered: Gathered,
    pub(crate) news: News,
    pub(crate) cache: Arc<NodeCache>,
    pub(crate) events: Arc<dyn NodeEvents>,
    random: fastrand::Rng,
    /// When a status was last sent, and how long it is good for.
    reported: Option<(Instant, Duration)>,
    /// Why the last try went wrong.
    pub(crate) failing: Said,
    /// What of the status could not be set.
    incomplete: Said,
    reboot_told: bool,
    unschedulable: bool,
}

impl StatusLoop {
    pub(crate) fn new(
        calls: Calls,
        gathered: Gathered,
        news: News,
        cache: Arc<NodeCache>,
        events: Arc<dyn NodeEvents>,
        seed: u64,
    ) -> Self {
        Self {
            calls,
            gathered,
            news,
            cache,
            events,
            random: fastrand::Rng::with_seed(seed),
            reported: None,
            failing: Said::default(),
            incomplete: Said::default(),
            reboot_told: false,
            unschedulable: false,
        }
    }

    pub(crate) async fn run(mut self) {
        let health = &mut self.news.health;
        tokio::join!(self.gathered.refresh(), async {
            drop(timeout(FIRST_WORD, health.wait_for(|health| health.checked)).await);
        });
        self.show_initial();
        if self.gathered.settings.register {
            self.register().await;
        }
        drop(timeout(FIRST_WORD, self.news.storage.wait_for(Option::is_none)).await);
        let mut node = self.cache.view();
        let mut tick = self.next_tick();
        let mut in_a_row = 0;
        loop {
            node.mark_unchanged();
            let well = self.sync().await;
            self.tell_schedulable(&node);
            if !well {
                tick = self.next_tick();
            }
            let earliest = Instant::now() + if in_a_row < BURST { GAP } else { LONG_GAP };
            match self.wait(&mut node, tick, well).await {
                Woken::Tick => {
                    in_a_row = 0;
                    self.gathered.refresh().await;
                    tick = self.next_tick();
                }
                Woken::News => {
                    in_a_row += 1;
                    sleep_until(earliest).await;
                }
            }
        }
    }

    fn next_tick(&mut self) -> Instant {
        Instant::now() + jittered(self.gathered.settings.status_update, &mut self.random)
    }

    /// Until there is a reason to look again. After a failure that is the next tick, or news of the Node: facts that
    /// change while nobody listens are told then.
    async fn wait(&mut self, node: &mut watch::Receiver<Arc<NodeView>>, tick: Instant, well: bool) -> Woken {
        loop {
            tokio::select! {
                biased;
                () = sleep_until(tick) => return Woken::Tick,
                () = changed(node) => {
                    self.tell_schedulable(node);
                    if !well {
                        return Woken::News;
                    }
                }
                () = self.news.changed(), if well => return Woken::News,
            }
        }
    }

    /// What the agent knows of its node while the API server has not been asked.
    fn show_initial(&mut self) {
        let moment = self.gathered.moment(&mut self.news);
        let (node, _) = initial_node(&self.gathered.at(&moment));
        self.cache.set_fallback(&node);
    }

    /// Whether the API server knows the status.
    async fn sync(&mut self) -> bool {
        let mut events = Vec::new();
        for attempt in 0..TRIES {
            match self.try_sync(attempt > 0, &mut events).await {
                Ok(()) => {
                    self.tell(events);
                    if self.failing.is_over() {
                        tracing::info!(node = &*self.calls.node, "Node status is updated again");
                    }
                    return true;
                }
                Err(error) => {
                    if self.failing.is_news(&error.message) {
                        tracing::error!(err = %error, node = &*self.calls.node, "Error updating node status, will retry");
                    }
                    if error.is_not_found() {
                        self.cache.forget(Source::Answer);
                    }
                    if matches!(
                        error.kind,
                        ErrorKind::NotFound | ErrorKind::Forbidden | ErrorKind::Unauthorized
                    ) {
                        return false;
                    }
                    pause_for(&error).await;
                }
            }
        }
        false
    }

    /// `events` are to be told after a success: also those of a try whose answer was lost, which the next one finds done.
    async fn try_sync(&mut self, ask: bool, events: &mut Vec<NodeEvent>) -> Result<(), ApiError> {
        let known = if ask { None } else { self.cache.json() };
        let json = match known {
            Some(json) => json,
            None => self.calls.heartbeat(Verb::Get, self.calls.node_path(), "").await?,
        };
        let old = self.decoded(&json)?;
        let moment = self.gathered.moment(&mut self.news);
        let (new, outcome) = update_node(&old, &self.gathered.at(&moment));
        self.say_incomplete(&outcome.errors);
        let due = self.reported.is_none_or(|(at, good_for)| at.elapsed() >= good_for);
        if !outcome.changed && !due {
            return Ok(());
        }
        let report = self.gathered.settings.status_report;
        // A change moves the next report by up to half its period, so that nodes that changed together part ways.
        let good_for = if outcome.changed || self.reported.is_none() {
            report.mul_f64(0.5 + self.random.f64())
        } else {
            report
        };
        if outcome.changed {
            *events = outcome.events;
        }
        self.patch(&old, &new, Lane::Heartbeat).await?;
        self.reported = Some((Instant::now(), good_for));
        Ok(())
    }

    pub(crate) fn decoded(&self, json: &[u8]) -> Result<api::Node, ApiError> {
        serde_json::from_slice(json)
            .map_err(|error| ApiError::new(ErrorKind::Other, format!("the Node is not understood: {error}")))
    }

    pub(crate) async fn patch(&self, old: &api::Node, new: &api::Node, lane: Lane) -> Result<(), ApiError> {
        let patch = status_patch(old, new).map_err(|error| {
            ApiError::new(ErrorKind::Invalid, format!("the Node cannot be written: {error}"))
        })?;
        let path = format!("{}/status", self.calls.node_path());
        let body = patch.to_string();
        let answer = match lane {
            Lane::Heartbeat => self.calls.heartbeat(Verb::StrategicPatch, path, body).await?,
            Lane::Main => self.calls.main(Verb::StrategicPatch, path, body).await?,
        };
        self.learn(&answer);
        Ok(())
    }

    /// An answer that is not a Node is left to the watch, which shows the same.
    pub(crate) fn learn(&self, answer: &bytes::Bytes) {
        if let Err(error) = self.cache.learn(answer, Source::Answer) {
            tracing::warn!(err = %error, "The API server's answer is not a Node");
        }
    }

    pub(crate) fn tell(&mut self, events: Vec<NodeEvent>) {
        for event in events {
            if event.reason == "Rebooted" && std::mem::replace(&mut self.reboot_told, true) {
                continue;
            }
            self.events.emit(event);
        }
    }

    fn tell_schedulable(&mut self, node: &watch::Receiver<Arc<NodeView>>) {
        let unschedulable = node.borrow().unschedulable;
        if unschedulable != self.unschedulable {
            self.unschedulable = unschedulable;
            let reason = if unschedulable { "NodeNotSchedulable" } else { "NodeSchedulable" };
            self.events.emit(status_event(&self.calls.node, reason));
        }
    }

    pub(crate) fn say_incomplete(&mut self, errors: &[String]) {
        if errors.is_empty() {
            self.incomplete.is_over();
        } else if self.incomplete.is_news(&errors.join("; ")) {
            for error in errors {
                tracing::error!(err = error.as_str(), "Failed to set some node status fields");
            }
        }
    }
}

/// Registration is ordinary traffic; the status is what keeps the node alive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    Heartbeat,
    Main,
}
