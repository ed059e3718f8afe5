//! Sees what everybody can see: a watch on the API server, and the moment at which each thing was told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::api::Api;

/// When the first event said so. Later ones that say the same change nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    pub running: Option<Instant>,
    pub ready: Option<Instant>,
    pub succeeded: Option<Instant>,
    pub gone: Option<Instant>,
}

pub type State = BTreeMap<String, Seen>;

/// Watches one collection until it is dropped.
pub struct Observer {
    state: Arc<Mutex<State>>,
    changes: watch::Receiver<()>,
    task: JoinHandle<()>,
}

impl Observer {
    /// `collection` is a path such as `/api/v1/nodes`. Everything that changes from now on is seen.
    pub async fn start(api: &Api, collection: &str) -> Result<Observer> {
        let list = api.get(&format!("{collection}?limit=1")).await?;
        let from = version_of(&list).context("a list without a version")?;
        let state = Arc::new(Mutex::new(State::new()));
        let (tell, changes) = watch::channel(());
        let watcher =
            Watcher { api: api.clone(), collection: collection.into(), state: Arc::clone(&state), tell };
        let task = tokio::spawn(watcher.run(from));
        Ok(Observer { state, changes, task })
    }

    pub fn seen(&self, name: &str) -> Seen {
        self.state.lock().unwrap().get(name).copied().unwrap_or_default()
    }

    /// Waits until `done` holds; `false` when the time was over first.
    pub async fn wait(&self, limit: Duration, done: impl Fn(&State) -> bool) -> Result<bool> {
        let mut changes = self.changes.clone();
        let holds = async {
            loop {
                if done(&self.state.lock().unwrap()) {
                    return Ok(true);
                }
                if changes.changed().await.is_err() {
                    bail!("the API server ended its watch");
                }
            }
        };
        tokio::time::timeout(limit, holds).await.unwrap_or(Ok(false))
    }

    /// The same for one object, with the moment that is waited for.
    pub async fn moment(
        &self,
        name: &str,
        limit: Duration,
        which: impl Fn(&Seen) -> Option<Instant>,
    ) -> Result<Option<Instant>> {
        self.wait(limit, |state| state.get(name).is_some_and(|seen| which(seen).is_some())).await?;
        Ok(which(&self.seen(name)))
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Watcher {
    api: Api,
    collection: String,
    state: Arc<Mutex<State>>,
    tell: watch::Sender<()>,
}

impl Watcher {
    /// Ends when the API server refuses to go on; who waits learns of it.
    async fn run(self, from: String) {
        let mut version = from;
        while let Ok(next) = self.follow(&version).await {
            version = next;
        }
    }

    /// One watch, from this version to its end.
    async fn follow(&self, from: &str) -> Result<String> {
        let path = format!("{}?watch=1&allowWatchBookmarks=true&resourceVersion={from}", self.collection);
        let mut body = self.api.stream(&path).await?;
        let mut version = from.to_owned();
        let mut rest = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            let now = Instant::now();
            rest.extend_from_slice(&data);
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line)?;
                if event["type"] == "ERROR" {
                    bail!("the watch failed: {}", event["object"]);
                }
                version = version_of(&event["object"]).unwrap_or(version);
                self.note(&event, now);
            }
        }
        Ok(version)
    }

    fn note(&self, event: &Value, now: Instant) {
        let object = &event["object"];
        let Some(name) = object["metadata"]["name"].as_str() else { return };
        let mut state = self.state.lock().unwrap();
        let seen = state.entry(name.to_owned()).or_default();
        if event["type"] == "DELETED" {
            seen.gone.get_or_insert(now);
        } else {
            let phase = object["status"]["phase"].as_str().unwrap_or_default();
            let conditions = object["status"]["conditions"].as_array();
            let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
            if phase == "Running" {
                seen.running.get_or_insert(now);
            }
            if phase == "Succeeded" {
                seen.succeeded.get_or_insert(now);
            }
            if conditions.is_some_and(|all| all.iter().any(is_ready)) {
                seen.ready.get_or_insert(now);
            }
        }
        drop(state);
        let _ = self.tell.send(());
    }
}

fn version_of(object: &Value) -> Option<String> {
    object["metadata"]["resourceVersion"].as_str().map(str::to_owned)
}
