//! The [`Objects`] of a cluster.
//!
//! | module | what it is |
//! |---|---|
//! | [`references`] | which config maps and secrets a pod refers to |
//! | [`watched`], [`fetched`] | the strategies: a watch per object, or requests |
//! | [`kept`] | the form in which they stay in memory |
//! | [`tokens`] | service account tokens |
//! | [`services`], [`classes`] | services and runtime classes, each a [`mirror`] of its collection |
//!
//! One task runs all watches of single objects, one follows the services, one the runtime classes once somebody asked.

mod classes;
mod fetched;
mod kept;
mod mirror;
mod references;
mod services;
mod tokens;
mod watched;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use crablet_model::{PodUid, api};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, broadcast};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use self::fetched::Fetched;
use self::mirror::Mirror;
use self::tokens::Tokens;
use self::watched::Watched;
use crate::Now;
use crate::objects::{ObjectError, ObjectKey, ObjectKind, Objects, ServiceView, Token, TokenWanted};
use crate::port::ApiServer;
use crate::reflector::reflect;

/// Changes that wait for a listener. One that is slower has to look at all.
const CHANGES: usize = 1024;

/// `configMapAndSecretChangeDetectionStrategy`
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strategy {
    Watch,
    Cache,
    Get,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectSettings {
    pub strategy: Strategy,
    /// `syncFrequency`: without watches, everything is looked at again this often.
    pub sync_frequency: Duration,
}

pub struct ClusterObjects {
    source: Source,
    registered: Mutex<BTreeMap<PodUid, BTreeSet<ObjectKey>>>,
    changes: broadcast::Sender<ObjectKey>,
    tokens: Tokens,
    services: Mirror<services::Service>,
    classes: Mirror<String>,
    classes_wanted: Notify,
}

enum Source {
    Watched(Watched),
    Fetched(Fetched),
}

impl ClusterObjects {
    pub fn start(
        api: Arc<dyn ApiServer>,
        now: Now,
        settings: ObjectSettings,
        seed: u64,
        tasks: &mut JoinSet<()>,
    ) -> Arc<Self> {
        let mut random = fastrand::Rng::with_seed(seed);
        let changes = broadcast::Sender::new(CHANGES);
        let source = match settings.strategy {
            Strategy::Watch => Source::Watched(Watched::new(changes.clone())),
            Strategy::Cache => Source::Fetched(Fetched::new(api.clone(), true)),
            Strategy::Get => Source::Fetched(Fetched::new(api.clone(), false)),
        };
        let objects = Arc::new(Self {
            source,
            registered: Mutex::default(),
            changes,
            tokens: Tokens::new(api.clone(), now, random.u64(..)),
            services: Mirror::new(),
            classes: Mirror::new(),
            classes_wanted: Notify::new(),
        });
        let (watcher, watch_seed) = (objects.clone(), random.u64(..));
        let watch_api = api.clone();
        tasks.spawn(async move {
            match &watcher.source {
                Source::Watched(watched) => watched.run(watch_api, watch_seed).await,
                Source::Fetched(fetched) => watcher.look_again(fetched, settings.sync_frequency).await,
            }
        });
        let (follower, stream) =
            (objects.clone(), reflect(api.clone(), services::reflection(), random.u64(..)));
        tasks.spawn(async move { follower.services.follow("services", stream, services::read).await });
        let (follower, class_seed) = (objects.clone(), random.u64(..));
        tasks.spawn(async move {
            follower.classes_wanted.notified().await;
            let stream = reflect(api, classes::reflection(), class_seed);
            follower.classes.follow("runtimeclasses", stream, classes::read).await;
        });
        objects
    }

    /// Without watches nobody knows what has changed, so all may have.
    async fn look_again(&self, fetched: &Fetched, every: Duration) {
        let mut ticks = tokio::time::interval(every.max(Duration::from_secs(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick is now.
        ticks.tick().await;
        loop {
            ticks.tick().await;
            for key in fetched.keys() {
                let _ = self.changes.send(key);
            }
        }
    }

    fn refer(&self, uid: &PodUid, new: BTreeSet<ObjectKey>) {
        let mut registered = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
        let old = if new.is_empty() {
            registered.remove(uid).unwrap_or_default()
        } else {
            registered.insert(uid.clone(), new.clone()).unwrap_or_default()
        };
        // New ones first, so that an object that another version of the pod refers to keeps its watch.
        for key in new.difference(&old) {
            match &self.source {
                Source::Watched(watched) => watched.add(key.clone()),
                Source::Fetched(fetched) => fetched.add(key.clone()),
            }
        }
        for key in old.difference(&new) {
            match &self.source {
                Source::Watched(watched) => watched.remove(key),
                Source::Fetched(fetched) => fetched.remove(key),
            }
        }
    }

    async fn read<T: DeserializeOwned>(
        &self,
        kind: ObjectKind,
        namespace: &str,
        name: &str,
    ) -> Result<Arc<T>, ObjectError> {
        let key = ObjectKey { kind, namespace: Arc::from(namespace), name: Arc::from(name) };
        let json: Bytes = match &self.source {
            Source::Watched(watched) => watched.get(&key).await,
            Source::Fetched(fetched) => fetched.get(&key).await,
        }?;
        // What exactly cannot be read is not said: it could be the secret.
        let unreadable = |_| {
            ObjectError::Unavailable(format!(
                "{} {namespace}/{name} cannot be read: its data is malformed",
                kind.name()
            ))
        };
        serde_json::from_slice(&json).map(Arc::new).map_err(unreadable)
    }
}

fn collection(key: &ObjectKey) -> String {
    let plural = match key.kind {
        ObjectKind::ConfigMap => "configmaps",
        ObjectKind::Secret => "secrets",
    };
    format!("/api/v1/namespaces/{}/{plural}", key.namespace)
}

fn not_registered(key: &ObjectKey) -> ObjectError {
    ObjectError::Unavailable(format!("object {:?}/{:?} not registered", key.namespace, key.name))
}

#[async_trait]
impl Objects for ClusterObjects {
    fn register(&self, pod: &api::Pod) {
        let uid = PodUid::new(pod.metadata.uid.as_deref().unwrap_or_default());
        self.refer(&uid, references::of(pod));
    }

    fn forget(&self, uid: &PodUid) {
        self.refer(uid, BTreeSet::new());
        self.tokens.forget(uid);
    }

    async fn config_map(&self, namespace: &str, name: &str) -> Result<Arc<api::ConfigMap>, ObjectError> {
        self.read(ObjectKind::ConfigMap, namespace, name).await
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<Arc<api::Secret>, ObjectError> {
        self.read(ObjectKind::Secret, namespace, name).await
    }

    async fn token(&self, wanted: &TokenWanted) -> Result<Token, ObjectError> {
        self.tokens.get(wanted).await
    }

    async fn services(&self, namespace: &str) -> Result<Vec<ServiceView>, ObjectError> {
        services::of(&self.services, namespace).await
    }

    async fn runtime_handler(&self, class: &str) -> Result<String, ObjectError> {
        self.classes_wanted.notify_one();
        classes::handler(&self.classes, class).await
    }

    fn referring(&self, key: &ObjectKey) -> Vec<PodUid> {
        let registered = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
        let referring = registered.iter().filter(|(_, keys)| keys.contains(key));
        referring.map(|(uid, _)| uid.clone()).collect()
    }

    fn changes(&self) -> broadcast::Receiver<ObjectKey> {
        self.changes.subscribe()
    }
}

#[cfg(test)]
mod tests;
