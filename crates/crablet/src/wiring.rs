//! Joins the parts. The only place that starts long-lived tasks: they all live in [`Agent`] and end with it.

mod farewell;
mod listeners;
mod logs;
mod main_port;
mod neighbours;
mod node;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use bytes::Bytes;
use crablet_apiserver::events::Recorder;
use crablet_apiserver::{ApiServer, ClusterObjects, NoObjects, ObjectSettings, Objects, Strategy};
use crablet_config::{ChangeDetection, Settings};
use crablet_cri::Runtime;
use crablet_cri::client::{CriClient, Timeouts};
use crablet_host::{Clock, Files, LinuxFiles, SystemClock};
use crablet_model::api;
use crablet_model::events::NodeEvent;
use crablet_node::{LinuxNodeHost, NodeEvents, NodeHost, NodePorts, NodeView, RuntimeState};
use crablet_planner::pod::NodeFacts;
use crablet_planner::pod::config::parse_resolv_conf;
use crablet_pods::PlanFn;
use crablet_pods::cluster::Cluster;
use crablet_pods::events::{EventSink, LogEvents};
use crablet_pods::hands::Hands;
use crablet_pods::images::Images;
use crablet_pods::pleg::{Hint, Pleg, RuntimeHealth};
use crablet_pods::ports::PodCgroups;
use crablet_pods::registry::Registry;
use crablet_pods::settings::{Folders, ImagePulls};
use crablet_pods::sources::{self, ApiSource, Fetch, HyperFetch, Refusal, SourceSettings, Submitted};
use crablet_pods::view::View;
use crablet_pods::worker::Shared;
use crablet_server::{
    ManifestRefusal, Manifests, PodView, Stored, local_router, read_only_router, serve_tcp,
};
use crablet_volumes::{LinuxVolumeHost, VolumeHost, VolumePorts, VolumeSettings, Volumes};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use crate::machine::Machine;
pub use farewell::Farewell;
use farewell::keep_open;
pub use listeners::{Healthz, Listeners};
pub use main_port::MainPort;
use neighbours::{Events, RealCgroups, TheVolumes};

/// How often the runtime is asked how it is: by a node that others rely on, and by one that stands alone.
const STATUS_PACE_JOINED: Duration = Duration::from_secs(10);
const STATUS_PACE_ALONE: Duration = Duration::from_secs(60);
/// Hints that wait for the registry, which takes them in microseconds.
const HINTS: usize = 256;

/// The world as the agent meets it. The simulation has its own.
pub struct Ports {
    pub runtime: Arc<dyn Runtime>,
    pub files: Arc<dyn Files>,
    pub fetch: Arc<dyn Fetch>,
    pub clock: Arc<dyn Clock>,
    /// Hears of events while there is no API server to tell.
    pub events: Arc<dyn EventSink>,
    pub machine: Machine,
    /// `None` in standalone mode.
    pub api: Option<Arc<dyn ApiServer>>,
    pub node_host: Arc<dyn NodeHost>,
    pub volume_host: Arc<dyn VolumeHost>,
    pub cgroups: Arc<dyn PodCgroups>,
    pub seed: u64,
    pub plan: PlanFn,
}

impl Ports {
    pub fn real(settings: &Settings, api: Option<Arc<dyn ApiServer>>) -> anyhow::Result<(Self, Farewell)> {
        let endpoint = &settings.container_runtime_endpoint;
        let timeouts = Timeouts { request: settings.runtime_request_timeout };
        let (keep_open, farewell) = keep_open();
        let runtime = CriClient::new(endpoint, timeouts, keep_open)
            .with_context(|| format!("container runtime {endpoint}"))?;
        let runtime = Arc::new(runtime);
        let machine = Machine::read(settings.resolv_conf.as_deref());
        let ports = Self {
            api,
            node_host: Arc::new(LinuxNodeHost::new(&settings.root_dir)),
            volume_host: Arc::new(LinuxVolumeHost::default()),
            cgroups: Arc::new(RealCgroups::new(settings, &machine, runtime.clone())),
            runtime,
            files: Arc::new(LinuxFiles),
            fetch: Arc::new(HyperFetch::default()),
            clock: Arc::new(SystemClock),
            events: Arc::new(LogEvents),
            machine,
            seed: fastrand::u64(..),
            plan: crablet_planner::pod::plan,
        };
        Ok((ports, farewell))
    }
}

/// The running agent. Dropping it ends all its tasks; containers are not touched.
pub struct Agent {
    tasks: JoinSet<()>,
    view: Arc<View>,
    submitted: Submitted,
    hints: mpsc::WeakSender<Hint>,
    sources: sources::Control,
    images: Arc<Images>,
    node: watch::Sender<Arc<NodeFacts>>,
    node_view: watch::Receiver<Arc<NodeView>>,
    runtime: Arc<dyn Runtime>,
    api: Option<Arc<dyn ApiServer>>,
}

impl Agent {
    pub fn start(settings: &Settings, ports: Ports) -> Self {
        let mut tasks = JoinSet::new();
        let mut seeds = fastrand::Rng::with_seed(ports.seed);
        let view = Arc::new(View::default());
        let outside = Outside::start(settings, &ports, &mut seeds, &mut tasks);
        let events = outside.events.clone();
        // The first that the cluster hears of an agent that has started.
        NodeEvents::emit(&*events, NodeEvent::normal("Starting", "Starting kubelet."));
        let (node, node_facts) = watch::channel(Arc::new(node_facts(settings, &ports.machine)));
        let (node_known, node_is_known) = watch::channel(ports.api.is_none());
        let cluster_source =
            outside.cluster.as_ref().zip(ports.api.as_ref()).map(|(cluster, api)| ApiSource {
                api: api.clone(),
                node_name: settings.node_name.clone(),
                cluster: cluster.clone(),
                node_known: node_is_known,
                seed: seeds.u64(..),
            });
        let started = sources::start(
            source_settings(settings),
            ports.files.clone(),
            ports.clock.clone(),
            events.clone(),
            ports.fetch,
            cluster_source,
            &mut tasks,
        );
        let (hint, hints) = mpsc::channel(HINTS);
        let relist_now = Arc::new(Notify::new());
        let images = Images::new(ports.runtime.clone(), events.clone(), &image_pulls(settings));
        let images = Arc::new(images);
        let volumes = Volumes::start(
            VolumeSettings { root_dir: settings.root_dir.clone() },
            VolumePorts {
                objects: outside.objects.clone(),
                host: ports.volume_host,
                clock: ports.clock.clone(),
                node: node_facts.clone(),
                events: events.clone(),
                seed: seeds.u64(..),
            },
            &mut tasks,
        );
        let (health, is_healthy) = watch::channel(RuntimeHealth::default());
        let node_view = join_node(
            settings,
            NodeSide {
                api: ports.api.clone(),
                clock: ports.clock.clone(),
                host: ports.node_host,
                events: events.clone(),
                runtime: ports.runtime.clone(),
                health: is_healthy,
                images: images.clone(),
                facts: node.clone(),
                known: node_known,
                cluster: outside.cluster.clone(),
                seed: seeds.u64(..),
            },
            &mut tasks,
        );
        let shared = Arc::new(Shared {
            hands: Hands {
                images: images.clone(),
                runtime: ports.runtime.clone(),
                files: ports.files,
                events,
                folders: folders(settings),
                volumes: Arc::new(TheVolumes(volumes)),
                cgroups: ports.cgroups,
                objects: outside.objects,
            },
            clock: ports.clock,
            view: view.clone(),
            cluster: outside.cluster,
            node: node_facts,
            plan: ports.plan,
        });
        let told = (hint.clone(), hints);
        let (updates, configured) = (started.updates, started.configured);
        let registry = Registry::new(shared, updates, told, relist_now.clone(), configured, seeds.u64(..));
        let registry = if settings.run_once { registry.leaving_strangers() } else { registry };
        let weak = hint.downgrade();
        let pleg = Pleg {
            health,
            status_pace: if ports.api.is_some() { STATUS_PACE_JOINED } else { STATUS_PACE_ALONE },
            runtime: ports.runtime.clone(),
            endpoint: settings.container_runtime_endpoint.clone(),
            hints: hint,
            relist_now,
            node: node.clone(),
            view: view.clone(),
        };
        tasks.spawn(registry.run());
        tasks.spawn(pleg.run());
        Self {
            tasks,
            view,
            submitted: started.submitted,
            hints: weak,
            sources: started.control,
            images,
            node,
            node_view,
            runtime: ports.runtime,
            api: ports.api,
        }
    }

    /// What the outside may see.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// Manifests that are not used, one line each.
    pub fn manifest_problems(&self) -> Vec<String> {
        self.sources.problems()
    }

    /// Asked again and again, tells whether the agent is well.
    pub fn health(&self) -> impl Fn() -> Result<(), String> + use<> {
        let view = self.served_view();
        move || view.health()
    }

    fn served_view(&self) -> ServedView {
        ServedView { view: self.view.clone(), hints: self.hints.clone() }
    }

    /// What can change without a restart does. Nothing that runs is touched: new containers and pulls get the new values.
    pub fn apply(&self, settings: &Settings) {
        self.sources.set_checks(settings.file_check_frequency, settings.http_check_frequency);
        self.images.set_limits(&image_pulls(settings));
        self.node.send_if_modified(|known| {
            let mut node = (**known).clone();
            set_changeable(&mut node, settings);
            let is_new = node != **known;
            if is_new {
                *known = Arc::new(node);
            }
            is_new
        });
    }

    /// Manifests handed in by a program on this node.
    pub fn submitted(&self) -> &Submitted {
        &self.submitted
    }

    /// Answers on what was opened.
    pub fn serve(&mut self, listeners: Listeners) {
        let view: Arc<dyn PodView> = Arc::new(self.served_view());
        if let Some(healthz) = listeners.healthz {
            self.tasks.spawn(healthz.serve(view.clone()));
        }
        if let Some(listener) = listeners.read_only {
            self.tasks.spawn(serve_tcp(listener, read_only_router(view.clone()), std::future::pending()));
        }
        let router = local_router(view, Arc::new(ServedManifests(self.submitted.clone())));
        self.tasks.spawn(listeners.local.serve(router, std::future::pending()));
    }

    /// Returns when a task that should live as long as the agent has ended: that is a bug, and a restart mends it
    /// without harm to any pod.
    pub async fn ended(&mut self) -> anyhow::Error {
        match self.tasks.join_next().await {
            Some(Err(error)) => anyhow::anyhow!("a part of the agent broke: {error}"),
            Some(Ok(())) | None => anyhow::anyhow!("a part of the agent ended by itself"),
        }
    }
}

/// What the agent has of the cluster; in standalone mode, what stands for it.
struct Outside {
    objects: Arc<dyn Objects>,
    events: Arc<Events>,
    cluster: Option<Arc<Cluster>>,
}

impl Outside {
    fn start(settings: &Settings, ports: &Ports, seeds: &mut fastrand::Rng, tasks: &mut JoinSet<()>) -> Self {
        let local = ports.events.clone();
        let Some(api) = &ports.api else {
            let events = Arc::new(Events { recorder: None, local });
            return Self { objects: Arc::new(NoObjects::default()), events, cluster: None };
        };
        let clock = ports.clock.clone();
        let now: crablet_apiserver::Now = Arc::new(move || clock.now());
        let strategy = match settings.change_detection_strategy {
            ChangeDetection::Watch => Strategy::Watch,
            ChangeDetection::Cache => Strategy::Cache,
            ChangeDetection::Get => Strategy::Get,
        };
        let wanted = ObjectSettings { strategy, sync_frequency: settings.sync_frequency };
        let objects = ClusterObjects::start(api.clone(), now.clone(), wanted, seeds.u64(..), tasks);
        let recorder = Recorder::start(api.clone(), now, &settings.node_name, seeds.u64(..), tasks);
        let cluster = Cluster::start(api.clone(), &settings.node_name, tasks);
        Self { objects, events: Arc::new(Events { recorder: Some(recorder), local }), cluster: Some(cluster) }
    }
}

/// What the node needs of the rest, and the rest of it.
struct NodeSide {
    api: Option<Arc<dyn ApiServer>>,
    clock: Arc<dyn Clock>,
    host: Arc<dyn NodeHost>,
    events: Arc<Events>,
    runtime: Arc<dyn Runtime>,
    health: watch::Receiver<RuntimeHealth>,
    images: Arc<Images>,
    facts: watch::Sender<Arc<NodeFacts>>,
    known: watch::Sender<bool>,
    cluster: Option<Arc<Cluster>>,
    seed: u64,
}

fn join_node(settings: &Settings, side: NodeSide, tasks: &mut JoinSet<()>) -> watch::Receiver<Arc<NodeView>> {
    let (state, is_healthy) = watch::channel(RuntimeState::default());
    let (listed, images) = watch::channel(Arc::new(Vec::<api::ContainerImage>::new()));
    // No kind of volume that a controller attaches is there yet.
    let (_, volumes_in_use) = watch::channel(Some(Arc::new(Vec::new())));
    let joined = side.api.is_some();
    let ports = NodePorts {
        api: side.api,
        clock: side.clock,
        host: side.host,
        events: side.events,
        health: is_healthy,
        images,
        volumes_in_use,
        seed: side.seed,
    };
    let view = crablet_node::start(node::settings(settings), ports, tasks).node();
    tasks.spawn(node::follow_health(side.health, state));
    if joined {
        tasks.spawn(node::follow_images(side.runtime.clone(), side.images.pulled(), listed));
    }
    tasks.spawn(node::follow_node(view.clone(), side.facts, side.known, side.cluster, side.runtime));
    view
}

fn folders(settings: &Settings) -> Folders {
    Folders {
        root: settings.root_dir.clone(),
        pod_logs: settings.pod_logs_dir.clone(),
        container_logs: settings.container_logs_dir.clone(),
    }
}

fn image_pulls(settings: &Settings) -> ImagePulls {
    let pulls = settings.image_pulls;
    ImagePulls { parallel: pulls.parallel, qps: pulls.qps, burst: pulls.burst }
}

fn source_settings(settings: &Settings) -> SourceSettings {
    SourceSettings {
        node_name: settings.node_name.clone(),
        folder: settings.static_pod_path.clone(),
        folder_check: settings.file_check_frequency,
        url: settings.static_pod_url.clone(),
        url_headers: settings.static_pod_url_headers.to_vec(),
        url_check: settings.http_check_frequency,
        submitted_folder: settings.root_dir.join("manifests"),
    }
}

fn node_facts(settings: &Settings, machine: &Machine) -> NodeFacts {
    let mut node = NodeFacts {
        name: settings.node_name.clone(),
        host_ips: Vec::new(),
        memory_capacity: machine.memory_bytes,
        allocatable_memory: machine.memory_bytes,
        allocatable_milli_cpu: machine.milli_cpus,
        allocatable_storage: 0,
        runtime_name: "containerd".to_owned(),
        network_ready: false,
        network_message: "container runtime status check may not have completed yet".to_owned(),
        root_dir: settings.root_dir.to_string_lossy().into_owned(),
        pod_logs_dir: settings.pod_logs_dir.to_string_lossy().into_owned(),
        cluster_dns: Vec::new(),
        cluster_domain: String::new(),
        resolv_conf: parse_resolv_conf(&machine.resolv_conf),
        cpu_cfs_quota: false,
        seccomp_default: false,
        extra_masked_paths: machine.masked_paths.clone(),
        selinux_enabled: machine.selinux_enabled,
        hugepage_sizes: machine.hugepage_sizes.clone(),
        swap_control: machine.swap_control,
        max_crash_loop_seconds: 0,
    };
    set_changeable(&mut node, settings);
    node
}

/// Facts that a reload of the configuration may change.
fn set_changeable(node: &mut NodeFacts, settings: &Settings) {
    let seconds = settings.max_container_restart_period.as_secs();
    node.cluster_dns = settings.cluster_dns.iter().map(ToString::to_string).collect();
    node.cluster_domain.clone_from(&settings.cluster_domain);
    node.cpu_cfs_quota = settings.cpu_cfs_quota;
    node.seccomp_default = settings.seccomp_default;
    node.max_crash_loop_seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
}

struct ServedView {
    view: Arc<View>,
    hints: mpsc::WeakSender<Hint>,
}

impl PodView for ServedView {
    fn pods_json(&self) -> Vec<Bytes> {
        self.view.pods().into_iter().map(Bytes::from).collect()
    }

    fn summary_json(&self) -> Bytes {
        serde_json::to_vec(&self.view.summary()).unwrap_or_default().into()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.view.changes()
    }

    fn explain_json(&self, namespace: &str, name: &str) -> Option<Bytes> {
        let journal = self.view.journal(namespace, name)?;
        Some(serde_json::to_vec(&journal).unwrap_or_default().into())
    }

    /// The registry takes hints in microseconds; when they pile up, it is stuck.
    fn health(&self) -> Result<(), String> {
        match self.hints.upgrade() {
            Some(hints) if hints.capacity() > 0 => Ok(()),
            Some(_) => Err("the pod registry does not keep up".to_owned()),
            None => Err("the pod registry has ended".to_owned()),
        }
    }
}

struct ServedManifests(Submitted);

#[async_trait]
impl Manifests for ServedManifests {
    async fn put(&self, name: &str, body: &[u8]) -> Result<Stored, ManifestRefusal> {
        match self.0.put(name, body.to_vec()).await {
            Ok(stored) => Ok(Stored { created: stored.created, warnings: stored.warnings }),
            Err(Refusal::Invalid(text)) => Err(ManifestRefusal::Invalid(text)),
            Err(Refusal::Storage(text)) => Err(ManifestRefusal::Storage(text)),
        }
    }

    async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        self.0.get(name).await.map_err(|refusal| refusal.to_string())
    }

    async fn list(&self) -> Result<Vec<String>, String> {
        let listed = self.0.list().await.map_err(|refusal| refusal.to_string())?;
        Ok(listed.into_iter().map(|listed| listed.name).collect())
    }

    async fn delete(&self, name: &str) -> Result<bool, String> {
        self.0.delete(name).await.map_err(|refusal| refusal.to_string())
    }
}
