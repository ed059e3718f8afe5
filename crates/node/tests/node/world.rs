//! A machine, a runtime's health, and an API server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crablet_apiserver::fake::{Asked, FakeApiServer, Recorded};
use crablet_apiserver::{ApiServer, Call, Lane, Verb};
use crablet_host::Clock;
use crablet_host::fake::SimClock;
use crablet_model::api;
use crablet_model::events::NodeEvent;
use crablet_node::fake::FakeNodeHost;
use crablet_node::{
    CsiDrivers, NodeEvents, NodeHandle, NodePorts, NodeSettings, NodeView, RuntimeState, start,
};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

pub const NODE: &str = "n1";

#[derive(Default)]
struct Told(Mutex<Vec<NodeEvent>>);

impl NodeEvents for Told {
    fn emit(&self, event: NodeEvent) {
        self.0.lock().unwrap().push(event);
    }
}

pub struct World {
    pub api: Arc<FakeApiServer>,
    pub clock: SimClock,
    pub host: Arc<FakeNodeHost>,
    pub health: watch::Sender<RuntimeState>,
    pub images: watch::Sender<Arc<Vec<api::ContainerImage>>>,
    pub settings: NodeSettings,
    told: Arc<Told>,
    running: Option<(JoinSet<()>, NodeHandle)>,
}

impl World {
    /// Nothing runs yet; the runtime is well.
    pub fn new() -> Self {
        let clock = SimClock::starting_at("2026-11-15T10:00:00Z".parse().unwrap());
        let of_api = clock.clone();
        Self {
            api: FakeApiServer::new(Arc::new(move || of_api.now())),
            clock,
            host: Arc::default(),
            health: watch::Sender::new(healthy()),
            images: watch::Sender::default(),
            settings: settings(),
            told: Arc::default(),
            running: None,
        }
    }

    pub fn start(&mut self) {
        self.start_with(Some(self.api.clone()));
    }

    pub fn start_with(&mut self, api: Option<Arc<dyn ApiServer>>) {
        let ports = NodePorts {
            api,
            clock: Arc::new(self.clock.clone()),
            host: self.host.clone(),
            events: self.told.clone(),
            health: self.health.subscribe(),
            images: self.images.subscribe(),
            volumes_in_use: watch::channel(Some(Arc::default())).1,
            seed: 7,
        };
        let mut tasks = JoinSet::new();
        let handle = start(self.settings.clone(), ports, &mut tasks);
        self.running = Some((tasks, handle));
    }

    /// Starts, and waits until the node is ready in the API server's eyes.
    pub async fn start_ready(&mut self) {
        self.start();
        self.until("the node is ready", |w| w.ready() == "True").await;
        self.until("the lease is there", |w| w.lease().is_some()).await;
        self.pass(Duration::from_secs(1)).await;
        self.api.take_calls();
        self.events();
    }

    /// As kill -9.
    pub fn stop(&mut self) {
        self.running = None;
    }

    pub fn view(&self) -> Arc<NodeView> {
        self.running.as_ref().expect("the agent runs").1.node().borrow().clone()
    }

    pub fn csi_drivers(&self) -> CsiDrivers {
        self.running.as_ref().expect("the agent runs").1.csi_drivers()
    }

    pub fn node(&self) -> Option<Value> {
        self.api.get("nodes", "", NODE)
    }

    pub fn lease(&self) -> Option<Value> {
        self.api.get("leases", "kube-node-lease", NODE)
    }

    /// Somebody else changes the Node: `part` is `/status`, or nothing for the rest.
    pub async fn others_change(&self, part: &str, change: Value) {
        let path = format!("/api/v1/nodes/{NODE}{part}");
        let call = Call::new(Verb::MergePatch, Lane::Main, path).with_body(change.to_string());
        self.api.call(call).await.expect("the API server is there");
    }

    /// `status` of the condition `Ready`.
    pub fn ready(&self) -> String {
        self.condition("Ready")["status"].as_str().unwrap_or_default().to_owned()
    }

    pub fn condition(&self, type_: &str) -> Value {
        let conditions = self.node().map(|node| node["status"]["conditions"].clone()).unwrap_or_default();
        conditions.as_array().into_iter().flatten().find(|c| c["type"] == type_).cloned().unwrap_or_default()
    }

    /// Reasons of the events since they were last asked for.
    pub fn events(&self) -> Vec<&'static str> {
        self.told.0.lock().unwrap().drain(..).map(|event| event.reason).collect()
    }

    /// Requests of a kind since they were taken last.
    pub fn calls(&self, verb: Verb, part: &str) -> Vec<Recorded> {
        let of_kind = |call: &Recorded| call.asked == Asked::Call(verb) && call.path.contains(part);
        self.api.calls().into_iter().filter(of_kind).collect()
    }

    pub fn patches(&self) -> usize {
        self.calls(Verb::StrategicPatch, "/nodes/n1/status").len()
    }

    /// Waits for something, for two minutes at most.
    pub async fn until(&self, what: &str, done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while !done(self) {
            assert!(Instant::now() < deadline, "in vain: {what}; node: {:#?}", self.node());
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Time passes for all.
    pub async fn pass(&self, time: Duration) {
        sleep(time).await;
    }
}

pub fn healthy() -> RuntimeState {
    RuntimeState { checked: true, version: Some("containerd://2.1.4".to_owned()), ..RuntimeState::default() }
}

fn settings() -> NodeSettings {
    NodeSettings {
        node_name: NODE.to_owned(),
        labels: [("team".to_owned(), "crabs".to_owned())].into(),
        taints: Vec::new(),
        register: true,
        node_ips: Vec::new(),
        cloud_external: false,
        provider_id: None,
        port: 10250,
        status_update: Duration::from_secs(10),
        status_report: Duration::from_secs(300),
        lease_seconds: 40,
        max_pods: 110,
        pods_per_core: 0,
        system_reserved: BTreeMap::new(),
        kube_reserved: BTreeMap::new(),
        eviction_hard: BTreeMap::new(),
        max_images: 50,
        controller_attach_detach: true,
        local_storage_isolation: true,
        kubelet_version: "v1.36.4".to_owned(),
        declared_features: Vec::new(),
    }
}
