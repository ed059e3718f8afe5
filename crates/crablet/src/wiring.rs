//! Joins the parts. The only place that starts long-lived tasks: they all live in [`Agent`] and end with it.
//!
//! | module | what it joins |
//! |---|---|
//! | [`outside`] | the agent to its cluster, or to what stands for one in standalone mode |
//! | [`node`] | the Node to the runtime's health, images, pods and mirrors |
//! | [`neighbours`] | rooms that do not know each other: pods to volumes and cgroups, all to events |
//! | [`admission`] | the Node to the registry's judgement of new pods |
//! | [`storage`] | the Node to volumes that a controller attaches |
//! | [`certificates`] | the volumes that show pods' certificates to who gets them |
//! | [`drivers`] | plugins that register to volumes and the Node |
//! | [`figured`] | figures of the rooms to those who read them |
//! | [`resolver`] | the node's resolver settings to the Node, which says what is wrong with them |
//! | [`users`] | the machine's users to pods with users of their own |
//! | [`settings`] | the configuration to what each part is told of it |
//! | [`images`] | the settings of images, and programs that know credentials |
//! | [`listeners`], [`served`] | the local servers to pods and manifests |
//! | [`main_port`], [`logs`], [`containers`] | port 10250 to the same, to containers' logs, and to containers |
//! | [`farewell`] | the end of the process to calls of the runtime that are still under way |

mod admission;
mod certificates;
mod containers;
mod drivers;
mod farewell;
mod figured;
mod images;
mod listeners;
mod logs;
mod main_port;
mod neighbours;
mod node;
mod outside;
mod resolver;
mod served;
mod settings;
mod storage;
mod users;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use crablet_apiserver::ApiServer;
use crablet_config::Settings;
use crablet_cri::Runtime;
use crablet_cri::client::{CriClient, Timeouts};
use crablet_host::{Clock, Files, LinuxFiles, SystemClock};
use crablet_model::events::NodeEvent;
use crablet_model::names::event_reason;
use crablet_node::{LinuxNodeHost, NodeEvents, NodeHost, NodeView};
use crablet_planner::pod::NodeFacts;
use crablet_pods::PlanFn;
use crablet_pods::admission::{Admission, FreshNode};
use crablet_pods::events::{EventSink, LogEvents};
use crablet_pods::hands::Hands;
use crablet_pods::images::providers::config::Provider;
use crablet_pods::images::{ImagePorts, Images};
use crablet_pods::ledger::Ledgers;
use crablet_pods::pleg::{Hint, Pleg, RuntimeHealth};
use crablet_pods::ports::PodCgroups;
use crablet_pods::registry::Registry;
use crablet_pods::sources::{self, ApiSource, Fetch, HyperFetch, Submitted};
use crablet_pods::users::{Ranges, Users};
use crablet_pods::view::View;
use crablet_pods::worker::Shared;
use crablet_server::{PodView, local_router, read_only_router, serve_tcp};
use crablet_volumes::csi::{Csi, CsiPorts, CsiSettings};
use crablet_volumes::{LinuxVolumeHost, NodeStorage, VolumeHost, VolumePorts, VolumeSettings, Volumes};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use crate::machine::Machine;
use admission::{AskedNode, admission_node};
use drivers::{OnNode, look_for_plugins};
pub use farewell::Farewell;
use farewell::keep_open;
use figured::Figured;
use images::{credential_providers, image_pulls, image_settings, service_accounts};
pub use listeners::{Healthz, Listeners};
pub use main_port::MainPort;
use neighbours::{Events, RealCgroups, TheVolumes};
use node::NodeSide;
use outside::Outside;
use served::{ServedManifests, ServedPulls, ServedView};
use settings::{folders, node_facts, selinux, set_changeable, source_settings};

/// How often the runtime is asked how it is: by a node that others rely on, and by one that stands alone.
const STATUS_PACE_JOINED: Duration = Duration::from_secs(10);
const STATUS_PACE_ALONE: Duration = Duration::from_secs(60);
/// Said of a node with swap whose kernel cannot keep volumes in memory out of it.
const VOLUMES_MAY_SWAP: &str = "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, \
    emptyDirs, etc.) might be swapped to disk and should no longer be considered secure.";
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
    /// Where plugins of the node register; `None`: there are none.
    pub plugins_registry: Option<PathBuf>,
    pub cgroups: Arc<dyn PodCgroups>,
    /// Programs that know credentials for registries.
    pub credential_providers: Vec<Provider>,
    /// The node's ids for pods with users of their own.
    pub user_ranges: Ranges,
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
        let machine = Machine::read();
        let ports = Self {
            api,
            node_host: Arc::new(LinuxNodeHost::new(&settings.root_dir)),
            volume_host: Arc::new(LinuxVolumeHost::default()),
            plugins_registry: Some(settings.root_dir.join("plugins_registry")),
            cgroups: Arc::new(RealCgroups::new(settings, &machine, runtime.clone())),
            runtime,
            files: Arc::new(LinuxFiles),
            fetch: Arc::new(HyperFetch::default()),
            clock: Arc::new(SystemClock),
            events: Arc::new(LogEvents),
            machine,
            credential_providers: credential_providers(settings)?,
            user_ranges: users::user_ranges(settings)?,
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
    figured: Arc<Figured>,
}

impl Agent {
    pub fn start(settings: &Settings, ports: Ports) -> Self {
        let mut tasks = JoinSet::new();
        let mut seeds = fastrand::Rng::with_seed(ports.seed);
        let view = Arc::new(View::default());
        let outside = Outside::start(settings, &ports, &mut seeds, &mut tasks);
        let events = outside.events.clone();
        first_words(&ports.machine, &events);
        ports.cgroups.tell(events.clone());
        if let Some(path) = settings.resolv_conf.clone() {
            let (domain, files) = (settings.cluster_domain.clone(), ports.files.clone());
            tasks.spawn(resolver::check(path, domain, files, events.clone()));
        }
        let (node, node_facts) = watch::channel(Arc::new(node_facts(settings, &ports.machine)));
        let (admission, admission_node) = watch::channel(Arc::new(admission_node(settings, &ports.machine)));
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
        let images = Arc::new(Images::new(
            ImagePorts {
                runtime: ports.runtime.clone(),
                events: events.clone(),
                files: ports.files.clone(),
                clock: ports.clock.clone(),
                objects: outside.objects.clone(),
                accounts: ports.api.clone().map(service_accounts),
            },
            image_settings(settings, ports.credential_providers),
        ));
        let (in_use, volumes_in_use) = watch::channel(None);
        let storage = NodeStorage { name: settings.node_name.clone(), ..Default::default() };
        let (storage, seen_storage) = watch::channel(Arc::new(storage));
        let on_node = Arc::new(OnNode::default());
        let csi = Csi::start(
            CsiSettings {
                root_dir: settings.root_dir.clone(),
                node_name: settings.node_name.clone(),
                volume_health: settings.feature_gates.enabled("CSIVolumeHealth"),
            },
            CsiPorts {
                api: ports.api.clone(),
                objects: outside.objects.clone(),
                host: ports.volume_host.clone(),
                record: on_node.clone(),
                events: events.clone(),
                clock: ports.clock.clone(),
                // Not drawn: it matters to nobody but itself.
                seed: ports.seed.rotate_left(17),
            },
            &mut tasks,
        );
        let certificates = certificates::pod_certificates(
            settings,
            ports.api.clone(),
            ports.clock.clone(),
            events.clone(),
            // Not drawn either, so that those who draw later draw what they always did.
            ports.seed.rotate_left(29),
            &mut tasks,
        );
        let volumes = Volumes::start(
            VolumeSettings { root_dir: settings.root_dir.clone() },
            VolumePorts {
                objects: outside.objects.clone(),
                api: ports.api.clone(),
                csi: Some(csi.clone()),
                certificates,
                selinux: selinux(settings, &ports.machine),
                storage: seen_storage,
                in_use,
                host: ports.volume_host,
                clock: ports.clock.clone(),
                node: node_facts.clone(),
                events: events.clone(),
                seed: seeds.u64(..),
            },
            &mut tasks,
        );
        let figured = Arc::new(Figured {
            volumes: volumes.clone(),
            node_name: settings.node_name.clone(),
            started: ports.clock.now(),
            claims: Default::default(),
        });
        let (health, is_healthy) = watch::channel(RuntimeHealth::default());
        if let Some(folder) = ports.plugins_registry {
            look_for_plugins(folder, csi, is_healthy.clone(), &mut tasks);
        }
        let (node_view, csi_drivers) = node::join(
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
                storage,
                volumes_in_use,
                admission,
                known: node_known,
                cluster: outside.cluster.clone(),
                seed: seeds.u64(..),
            },
            &mut tasks,
        );
        on_node.set(csi_drivers);
        let shared = Arc::new(Shared {
            hands: Hands {
                images: images.clone(),
                runtime: ports.runtime.clone(),
                ledgers: Arc::new(Ledgers::new(&settings.root_dir, ports.files.clone())),
                users: Arc::new(Users::new(ports.files.clone(), folders(settings).pods(), ports.user_ranges)),
                files: ports.files,
                events,
                folders: folders(settings),
                resolv_conf: settings.resolv_conf.clone(),
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
        let fresh = ports
            .api
            .clone()
            .map(|api| -> Arc<dyn FreshNode> { Arc::new(AskedNode { api, known: admission_node.clone() }) });
        let admission = Admission::new(admission_node, fresh);
        let (relist, seed) = (relist_now.clone(), seeds.u64(..));
        let registry = Registry::new(shared, updates, told, relist, configured, admission, seed);
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
            figured,
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
        let figured = self.figured.clone();
        ServedView { view: self.view.clone(), hints: self.hints.clone(), figured }
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
        let pulls = Arc::new(ServedPulls(self.images.clone()));
        let router = local_router(view, Arc::new(ServedManifests(self.submitted.clone())), pulls);
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

/// The first that the cluster hears of an agent that has started.
fn first_words(machine: &Machine, events: &Events) {
    NodeEvents::emit(events, NodeEvent::normal(event_reason::STARTING, "Starting kubelet."));
    if machine.volumes_may_swap {
        let reason = event_reason::POSSIBLE_MEMORY_BACKED_VOLUMES_ON_DISK;
        NodeEvents::emit(events, NodeEvent::warning(reason, VOLUMES_MAY_SWAP));
    }
}
