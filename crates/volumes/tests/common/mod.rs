//! A cluster of a few objects, and an agent's volumes on top of it.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use crablet_apiserver::fake::FakeApiServer;
use crablet_apiserver::{ObjectError, ObjectKey, ObjectKind, Objects, ServiceView, Token, TokenWanted};
use crablet_host::Clock;
use crablet_host::fake::SimClock;
use crablet_model::events::{ClaimEvent, Event};
use crablet_model::{PodUid, api};
use crablet_planner::pod::NodeFacts;
use crablet_volumes::selinux::Selinux;
use crablet_volumes::{
    NodeStorage, PodCertificates, VolumeEvents, VolumeHost, VolumePorts, VolumeSettings, Volumes,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinSet;

pub const UID: &str = "11111111-2222-3333-4444-555555555555";

#[derive(Default)]
pub struct Cluster {
    objects: Mutex<BTreeMap<(ObjectKind, String), Value>>,
    pub tokens: Mutex<Tokens>,
}

#[derive(Default)]
pub struct Tokens {
    pub wanted: Vec<TokenWanted>,
    pub refused: bool,
}

pub struct TestObjects {
    pub cluster: Cluster,
    changes: broadcast::Sender<ObjectKey>,
    clock: SimClock,
}

impl TestObjects {
    pub fn put(&self, kind: ObjectKind, name: &str, object: Option<Value>) {
        let key = (kind, name.to_owned());
        match object {
            Some(object) => self.cluster.objects.lock().unwrap().insert(key, object),
            None => self.cluster.objects.lock().unwrap().remove(&key),
        };
        let _ = self.changes.send(ObjectKey { kind, namespace: Arc::from("ns"), name: Arc::from(name) });
    }

    pub fn config_map(&self, name: &str, data: Value) {
        self.put(ObjectKind::ConfigMap, name, Some(json!({ "data": data })));
    }

    pub fn tell_nobody(&self, key: ObjectKey) {
        let _ = self.changes.send(key);
    }

    fn get<T: serde::de::DeserializeOwned>(
        &self,
        kind: ObjectKind,
        name: &str,
    ) -> Result<Arc<T>, ObjectError> {
        let objects = self.cluster.objects.lock().unwrap();
        let found = objects.get(&(kind, name.to_owned()));
        let found =
            found.ok_or_else(|| ObjectError::NotFound(format!("{} {name:?} not found", kind.name())))?;
        Ok(Arc::new(serde_json::from_value(found.clone()).unwrap()))
    }
}

#[async_trait]
impl Objects for TestObjects {
    fn register(&self, _: &api::Pod) {}

    fn forget(&self, _: &PodUid) {}

    async fn config_map(&self, _: &str, name: &str) -> Result<Arc<api::ConfigMap>, ObjectError> {
        self.get(ObjectKind::ConfigMap, name)
    }

    async fn secret(&self, _: &str, name: &str) -> Result<Arc<api::Secret>, ObjectError> {
        self.get(ObjectKind::Secret, name)
    }

    async fn token(&self, wanted: &TokenWanted) -> Result<Token, ObjectError> {
        let mut tokens = self.cluster.tokens.lock().unwrap();
        if tokens.refused {
            return Err(ObjectError::Unavailable("failed to fetch token: forbidden".to_owned()));
        }
        tokens.wanted.push(wanted.clone());
        let refresh_at = self.clock.now() + SignedDuration::from_secs(wanted.expiration_seconds * 8 / 10);
        Ok(Token { text: format!("token-{}", tokens.wanted.len()), refresh_at, expires: refresh_at })
    }

    async fn services(&self, _: &str) -> Result<Vec<ServiceView>, ObjectError> {
        Ok(Vec::new())
    }

    async fn runtime_handler(&self, _: &str) -> Result<String, ObjectError> {
        Ok(String::new())
    }

    fn changes(&self) -> broadcast::Receiver<ObjectKey> {
        self.changes.subscribe()
    }
}

#[derive(Default)]
pub struct TestEvents(Mutex<Vec<Event>>);

impl TestEvents {
    pub fn texts(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(|event| format!("{} {}", event.reason, event.message)).collect()
    }
}

impl VolumeEvents for TestEvents {
    fn emit(&self, event: Event) {
        self.0.lock().unwrap().push(event);
    }

    /// Only drivers' volumes grow, and those have tests of their own.
    fn emit_claim(&self, event: ClaimEvent) {
        panic!("no claim has anything to tell: {event:?}");
    }
}

/// A life of the agent, as far as volumes go.
pub struct Agent {
    pub volumes: Arc<Volumes>,
    pub objects: Arc<TestObjects>,
    pub events: Arc<TestEvents>,
    /// Where claims and volumes are.
    pub api: Arc<FakeApiServer>,
    pub storage: watch::Sender<Arc<NodeStorage>>,
    pub in_use: watch::Receiver<Option<Arc<Vec<String>>>>,
    _node: watch::Sender<Arc<NodeFacts>>,
    _tasks: JoinSet<()>,
}

impl Agent {
    pub fn start(root: &Path, host: Arc<dyn VolumeHost>) -> Self {
        Self::start_with(root, host, None, None)
    }

    /// On a node with SELinux.
    pub fn start_labelling(root: &Path, host: Arc<dyn VolumeHost>, selinux: Selinux) -> Self {
        Self::start_with(root, host, Some(selinux), None)
    }

    /// On a node whose pods get certificates.
    pub fn start_certified(root: &Path, host: Arc<dyn VolumeHost>, from: Arc<dyn PodCertificates>) -> Self {
        Self::start_with(root, host, None, Some(from))
    }

    fn start_with(
        root: &Path,
        host: Arc<dyn VolumeHost>,
        selinux: Option<Selinux>,
        certificates: Option<Arc<dyn PodCertificates>>,
    ) -> Self {
        let clock = SimClock::starting_at("2026-01-31T12:00:00Z".parse::<Timestamp>().unwrap());
        let objects = Arc::new(TestObjects {
            cluster: Cluster::default(),
            changes: broadcast::channel(4).0,
            clock: clock.clone(),
        });
        let events = Arc::new(TestEvents::default());
        let facts = NodeFacts { allocatable_memory: 1 << 30, ..Default::default() };
        let (node_sender, node) = watch::channel(Arc::new(facts));
        let labels = [("zone".to_owned(), "here".to_owned())].into();
        let known = NodeStorage { name: "n".to_owned(), labels, known: true, ..Default::default() };
        let (storage, seen) = watch::channel(Arc::new(known));
        let (in_use_sender, in_use) = watch::channel(None);
        let now = clock.clone();
        let api = FakeApiServer::new(Arc::new(move || now.now()));
        let mut tasks = JoinSet::new();
        let ports = VolumePorts {
            objects: objects.clone(),
            host,
            api: Some(api.clone()),
            csi: None,
            certificates,
            selinux,
            clock: Arc::new(clock),
            node,
            storage: seen,
            in_use: in_use_sender,
            events: events.clone(),
            seed: 7,
        };
        let settings = VolumeSettings { root_dir: root.to_owned() };
        let volumes = Volumes::start(settings, ports, &mut tasks);
        Self { volumes, objects, events, api, storage, in_use, _node: node_sender, _tasks: tasks }
    }
}

/// A pod with one container that mounts all of these volumes at `/<name>`.
pub fn pod(volumes: Value) -> api::Pod {
    pod_with(volumes, json!({}))
}

/// `spec` is merged over the rest.
pub fn pod_with(volumes: Value, spec: Value) -> api::Pod {
    let mounts: Vec<_> = volumes
        .as_array()
        .unwrap()
        .iter()
        .map(|volume| {
            let name = volume["name"].as_str().unwrap();
            json!({ "name": name, "mountPath": format!("/{name}") })
        })
        .collect();
    let mut whole = json!({
        "serviceAccountName": "robot",
        "containers": [{ "name": "c", "volumeMounts": mounts }],
        "volumes": volumes,
    });
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    let metadata = json!({ "name": "p", "namespace": "ns", "uid": UID, "labels": { "app": "web" } });
    serde_json::from_value(json!({ "metadata": metadata, "spec": whole })).unwrap()
}

impl Agent {
    /// A bound claim `<name>` and its volume `pv-<name>` of this source.
    pub fn put_claim(&self, name: &str, source: Value) {
        let mut spec = json!({
            "claimRef": { "uid": format!("uid-{name}") },
            "accessModes": ["ReadWriteOnce"],
        });
        for (key, value) in source.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let volume = format!("pv-{name}");
        self.api.put("persistentvolumes", json!({ "metadata": { "name": volume }, "spec": spec }));
        self.api.put(
            "persistentvolumeclaims",
            json!({
                "metadata": { "name": name, "namespace": "ns", "uid": format!("uid-{name}") },
                "spec": { "volumeName": volume },
                "status": { "phase": "Bound" },
            }),
        );
    }

    /// What the Node object says of attached volumes from now on.
    pub fn attach(&self, volumes: &[&str]) {
        self.storage.send_modify(|storage| {
            let mut fresh = NodeStorage::clone(storage);
            fresh.in_use = volumes.iter().map(|volume| (*volume).to_owned()).collect();
            fresh.attached = volumes.iter().map(|volume| ((*volume).to_owned(), String::new())).collect();
            *storage = Arc::new(fresh);
        });
    }
}

pub fn claim_volume(name: &str) -> Value {
    json!({ "name": name, "persistentVolumeClaim": { "claimName": name } })
}
