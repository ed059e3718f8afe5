//! Plugins that register on the node to those who use them: CSI drivers to volumes, and to the Node.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use crablet_node::{CsiDrivers, DriverInfo};
use crablet_plugins::{CSI_PLUGIN, Handler, Handlers, Plugin};
use crablet_pods::pleg::RuntimeHealth;
use crablet_volumes::csi::{Csi, CsiNodeRecord, NodeInfo};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Tells the Node of drivers. The Node starts after the volumes, so it comes later.
#[derive(Default)]
pub struct OnNode(OnceLock<CsiDrivers>);

impl OnNode {
    pub fn set(&self, drivers: CsiDrivers) {
        // It is set once, before any driver can register.
        let _ = self.0.set(drivers);
    }

    fn drivers(&self) -> Result<&CsiDrivers, String> {
        self.0.get().ok_or_else(|| "the node has not started yet".to_owned())
    }
}

#[async_trait]
impl CsiNodeRecord for OnNode {
    async fn install(&self, driver: &str, info: &NodeInfo) -> Result<(), String> {
        self.drivers()?.install(driver, &told(info)).await
    }

    async fn update(&self, driver: &str, info: &NodeInfo) -> Result<(), String> {
        self.drivers()?.update(driver, &told(info)).await
    }

    async fn uninstall(&self, driver: &str) -> Result<(), String> {
        self.drivers()?.uninstall(driver).await
    }
}

fn told(info: &NodeInfo) -> DriverInfo {
    let NodeInfo { node_id, max_volumes, topology } = info.clone();
    DriverInfo { node_id, max_volumes, topology }
}

/// Takes CSI drivers that register.
struct CsiHandler(Arc<Csi>);

#[async_trait]
impl Handler for CsiHandler {
    fn validate(&self, plugin: &Plugin) -> Result<(), String> {
        let endpoint = plugin.endpoint.display().to_string();
        self.0.drivers().validate(&plugin.name, &endpoint, &plugin.versions)
    }

    async fn register(&self, plugin: &Plugin) -> Result<(), String> {
        self.0.drivers().register(&plugin.name, plugin.endpoint.clone(), &plugin.versions).await
    }

    async fn deregister(&self, plugin: &Plugin) {
        self.0.drivers().deregister(&plugin.name, &plugin.endpoint).await;
    }
}

/// Looks for plugins as soon as the runtime has answered.
pub fn look_for_plugins(
    folder: PathBuf,
    csi: Arc<Csi>,
    mut health: watch::Receiver<RuntimeHealth>,
    tasks: &mut JoinSet<()>,
) {
    let handlers: Handlers = [(CSI_PLUGIN, Arc::new(CsiHandler(csi)) as Arc<dyn Handler>)].into();
    let ready = async move {
        if health.wait_for(|health| health.status.is_some()).await.is_err() {
            std::future::pending().await
        }
    };
    crablet_plugins::start(folder, handlers, ready, tasks);
}
