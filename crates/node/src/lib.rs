//! The node as the cluster sees it: registration, status, lease.
//!
//! | module | what it is |
//! |---|---|
//! | `status`, `register` | the task that registers the Node and keeps its status true |
//! | `lease` | the task that renews the lease, whatever happens to the rest |
//! | `csi_node`, `csi_drivers` | the CSINode object, without which a node is not ready; the drivers on it |
//! | `cache` | the newest Node that was seen, and [`NodeView`] for others |
//! | `facts`, [`host`] | what a status is made of, and the port to the machine |
//! | [`linux`] | Linux's answers |
//! | `fake` | (feature `fake`) a machine of values |
//!
//! What a status says is decided in `crablet_planner::node`. Standalone, nothing runs but a look at the machine.
//!
//! A Node that is deleted while the agent runs is not registered again until the agent starts anew, as upstream has it.
//! Pressure conditions are always `False`: nothing measures pressure yet.

mod cache;
mod calls;
mod csi_drivers;
mod csi_node;
mod facts;
#[cfg(feature = "fake")]
pub mod fake;
pub mod host;
mod lease;
pub mod linux;
mod register;
mod said;
mod status;

use std::sync::Arc;
use std::time::Duration;

use crablet_apiserver::reflector::{Reflected, Reflection, reflect};
use crablet_apiserver::{ApiServer, Lane};
use crablet_host::Clock;
use crablet_model::api;
use crablet_model::events::NodeEvent;
use crablet_planner::node::conditions::CSI_NODE_NOT_INITIALIZED;
use crablet_planner::node::initial_node;
use futures_util::StreamExt;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::cache::{NodeCache, Source};
use self::calls::Calls;
use self::facts::{Gathered, News};
use self::lease::Lease;
use self::status::StatusLoop;

pub use cache::NodeView;
pub use crablet_planner::node::{NodeSettings, RuntimeState};
pub use csi_drivers::{CsiDrivers, DriverInfo};
pub use host::NodeHost;
pub use linux::LinuxNodeHost;

/// Where events about the node go. Must not block.
pub trait NodeEvents: Send + Sync + 'static {
    fn emit(&self, event: NodeEvent);
}

pub struct NodePorts {
    /// `None` in standalone mode.
    pub api: Option<Arc<dyn ApiServer>>,
    pub clock: Arc<dyn Clock>,
    pub host: Arc<dyn NodeHost>,
    pub events: Arc<dyn NodeEvents>,
    pub health: watch::Receiver<RuntimeState>,
    /// Every image of the runtime: digests before tags in its names; images of one size in the order to show.
    pub images: watch::Receiver<Arc<Vec<api::ContainerImage>>>,
    /// `None` until it is known which volumes are in use: till then the Node says what it said.
    pub volumes_in_use: watch::Receiver<Option<Arc<Vec<String>>>>,
    pub seed: u64,
}

pub struct NodeHandle {
    cache: Arc<NodeCache>,
    csi_drivers: CsiDrivers,
}

impl NodeHandle {
    /// The Node as it is known now, and its changes.
    pub fn node(&self) -> watch::Receiver<Arc<NodeView>> {
        self.cache.view()
    }

    /// Tells the cluster which CSI drivers are here.
    pub fn csi_drivers(&self) -> CsiDrivers {
        self.csi_drivers.clone()
    }
}

/// Starts what keeps the node in the cluster. None of the tasks ends by itself.
pub fn start(settings: NodeSettings, ports: NodePorts, tasks: &mut JoinSet<()>) -> NodeHandle {
    let settings = Arc::new(settings);
    let cache = Arc::new(NodeCache::new());
    let lease_duration = Duration::from_secs(u64::try_from(settings.lease_seconds).unwrap_or_default());
    let calls = ports.api.clone().map(|api| Calls {
        api,
        node: settings.node_name.as_str().into(),
        heartbeat_deadline: settings.status_update.min(lease_duration).max(Duration::from_secs(1)),
    });
    let csi_drivers = CsiDrivers::new(calls.clone(), cache.view());
    let handle = NodeHandle { cache: cache.clone(), csi_drivers };
    let gathered = Gathered::new(settings.clone(), ports.host, ports.clock.clone());
    let (storage_sender, storage) =
        watch::channel(ports.api.is_some().then(|| CSI_NODE_NOT_INITIALIZED.to_owned()));
    let news =
        News { health: ports.health, images: ports.images, volumes_in_use: ports.volumes_in_use, storage };
    let Some((api, calls)) = ports.api.zip(calls) else {
        tasks.spawn(look_at_machine(gathered, news, cache));
        return handle;
    };

    let mut seeds = fastrand::Rng::with_seed(ports.seed);
    let lease = Lease::new(calls.clone(), ports.clock, settings.lease_seconds, cache.view(), seeds.u64(..));
    tasks.spawn(lease.run());
    let csi_node = csi_node::initialize(calls.clone(), cache.view(), storage_sender);
    let mirror = mirror(api, settings.node_name.clone(), cache.clone(), seeds.u64(..));
    tasks.spawn(async {
        tokio::join!(mirror, csi_node);
    });
    let status = StatusLoop::new(calls, gathered, news, cache, ports.events, seeds.u64(..));
    tasks.spawn(status.run());
    handle
}

/// Standalone: the machine is all there is to know. One that has no address yet, as at boot, is looked at again:
/// containers may ask for it.
async fn look_at_machine(mut gathered: Gathered, mut news: News, cache: Arc<NodeCache>) {
    let pace = gathered.settings.status_update;
    let mut said = said::Said::default();
    loop {
        gathered.refresh().await;
        let moment = gathered.moment(&mut news);
        let (node, outcome) = initial_node(&gathered.at(&moment));
        cache.set_fallback(&node);
        cache.set_synced();
        if outcome.errors.is_empty() {
            return std::future::pending().await;
        }
        let errors = outcome.errors.join(", ");
        if said.is_news(&errors) {
            tracing::error!(err = errors, "Failed to set some node status fields");
        }
        tokio::time::sleep(pace).await;
    }
}

/// Keeps the cache as the API server has it.
async fn mirror(api: Arc<dyn ApiServer>, node: String, cache: Arc<NodeCache>, seed: u64) {
    let what = Reflection {
        path: "/api/v1/nodes".to_owned(),
        selector: Some(format!("metadata.name={node}")),
        lane: Lane::Main,
        timeout: (300, 600),
    };
    let mut said = said::Said::default();
    let mut reflected = reflect(api, what, seed);
    while let Some(news) = reflected.next().await {
        let learned = match news {
            Reflected::Replaced(nodes) => {
                if nodes.is_empty() {
                    cache.forget(Source::Watch);
                }
                let learned = nodes.iter().try_for_each(|node| cache.learn(node, Source::Watch));
                cache.set_synced();
                learned
            }
            Reflected::Applied(node) => cache.learn(&node, Source::Watch),
            Reflected::Deleted(_) => {
                cache.forget(Source::Watch);
                Ok(())
            }
            Reflected::Failed(error) => {
                if said.is_news(&error.message) {
                    tracing::warn!(err = %error, "Failed to watch the Node, will retry");
                }
                continue;
            }
        };
        match learned {
            Ok(()) => drop(said.is_over()),
            Err(error) if said.is_news(&error.to_string()) => {
                tracing::warn!(err = %error, "What the watch shows is not a Node");
            }
            Err(_) => {}
        }
    }
}
