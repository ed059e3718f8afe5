//! Volumes of drivers that speak CSI, the container storage interface.
//!
//! ```text
//!  plugins (a socket appears) ──> drivers ──> NodeGetInfo ──> CsiNodeRecord (Node, CSINode)
//!  set_up(pod, volume) ──> attachment ──> NodeStageVolume, once ──> NodePublishVolume ──> fsGroup ──> expansion
//!  tear_down(pod, volume) ──> NodeUnpublishVolume ──> (nobody uses it) ──> unstage, a task: NodeUnstageVolume
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`client`] | calls to a driver |
//! | [`drivers`] | which drivers there are |
//! | `objects` | CSIDriver, VolumeAttachment, secrets, claims |
//! | `request`, `context` | which volume is wanted, and what the driver is told of its pod |
//! | `mount`, `block`, `rules` | the way in, for file systems and for devices |
//! | `unmount`, `unstage` | the way out |
//! | `uses` | which pods use a staged volume, and who is at work on it |
//! | `expand`, `resizing` | growing volumes, and what their claims say of it |
//! | `stats`, `limits` | their usage, how many a node may have |
//! | `places`, `data` | paths and `vol_data.json`, upstream's |
//!
//! What is begun with a driver goes on to its end, whoever waits for it: a call that is cut off leaves the driver at work,
//! and the next call would meet it half-way. So one volume is worked on by one at a time, and a driver that hangs holds the
//! pods of that volume and no others. Every step may be repeated, so a death at any of them is mended by the next life:
//! what is staged and used by nobody is found on disk and unstaged once its driver has registered.

mod block;
pub mod client;
mod context;
pub(crate) mod data;
pub mod drivers;
mod expand;
mod limits;
mod mount;
mod objects;
mod places;
mod request;
mod resizing;
mod rules;
mod stats;
mod unmount;
mod unstage;
mod uses;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use crablet_apiserver::{ApiServer, Objects};
use crablet_host::Clock;
use crablet_model::PodUid;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::figures;
use crate::port::{VolumeEvents, VolumeHost};

use self::drivers::Drivers;
use self::objects::CsiObjects;
use self::places::Places;
use self::request::Wish;
use self::unstage::Unstaging;
use self::uses::Uses;

pub use self::block::Mapped;
pub use self::client::NodeInfo;
pub use self::drivers::CsiNodeRecord;
pub use self::expand::Grown;
pub use self::places::unique_name;
pub use self::request::{CsiRequest, CsiSource};
pub use self::stats::CsiStats;

pub struct CsiSettings {
    /// Must have no symlinks in it, or the mount table cannot be read against it.
    pub root_dir: PathBuf,
    pub node_name: String,
    /// The gate `CSIVolumeHealth`: drivers tell whether volumes are well.
    pub volume_health: bool,
}

pub struct CsiPorts {
    /// `None` in standalone mode.
    pub api: Option<Arc<dyn ApiServer>>,
    /// For tokens.
    pub objects: Arc<dyn Objects>,
    pub host: Arc<dyn VolumeHost>,
    pub record: Arc<dyn CsiNodeRecord>,
    pub events: Arc<dyn VolumeEvents>,
    pub clock: Arc<dyn Clock>,
    pub seed: u64,
}

/// Why a volume is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// By upstream's name: `MountVolume.MountDevice`.
    pub step: &'static str,
    pub message: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Failure> for String {
    fn from(failure: Failure) -> Self {
        failure.message
    }
}

/// A volume that its pod can mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    pub path: PathBuf,
    /// When it shall be set up again, because its driver wants it.
    pub refresh_at: Option<Timestamp>,
}

/// All volumes of CSI drivers on this node.
pub struct Csi {
    node_name: String,
    volume_health: bool,
    places: Places,
    objects: CsiObjects,
    tokens: Arc<dyn Objects>,
    host: Arc<dyn VolumeHost>,
    events: Arc<dyn VolumeEvents>,
    clock: Arc<dyn Clock>,
    drivers: Drivers,
    uses: Uses,
    unstaging: Unstaging,
}

impl Csi {
    /// Starts the tasks that follow CSIDriver objects, unstage what nobody uses, and ask drivers for their limits.
    pub fn start(settings: CsiSettings, ports: CsiPorts, tasks: &mut JoinSet<()>) -> Arc<Self> {
        let csi = Arc::new(Self {
            node_name: settings.node_name,
            volume_health: settings.volume_health,
            places: Places::new(&settings.root_dir),
            objects: CsiObjects::new(ports.api),
            tokens: ports.objects,
            host: ports.host,
            events: ports.events,
            clock: ports.clock,
            drivers: Drivers::new(ports.record),
            uses: Uses::default(),
            unstaging: Unstaging::default(),
        });
        let seed = ports.seed;
        let follower = csi.clone();
        tasks.spawn(async move { follower.objects.follow(seed).await });
        tasks.spawn(unstage::run(csi.clone()));
        tasks.spawn(limits::run(csi.clone()));
        csi
    }

    /// Who registers and deregisters drivers.
    pub fn drivers(&self) -> &Drivers {
        &self.drivers
    }

    /// Moves when a driver comes or goes: what failed for want of one may succeed.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.drivers.changes()
    }

    /// Whether the driver's volumes have to be attached before they are set up.
    pub async fn attach_required(&self, driver: &str) -> Result<bool, String> {
        let spec = self.objects.driver(driver).await?;
        Ok(spec.is_none_or(|spec| spec.attach_required.unwrap_or(true)))
    }

    /// Whether the driver mounts with the SELinux label that it is given.
    pub async fn takes_selinux_label(&self, driver: &str) -> Result<bool, String> {
        let spec = self.objects.driver(driver).await?;
        Ok(spec.is_some_and(|spec| spec.se_linux_mount == Some(true)))
    }

    /// Whether volumes of the driver shall be set up again whenever their pod is looked at.
    pub fn must_republish(&self, driver: &str) -> bool {
        self.objects.known_driver(driver).is_some_and(|spec| spec.requires_republish == Some(true))
    }

    /// Mounts the volume for the pod. Costs little when all is there.
    pub async fn set_up(self: &Arc<Self>, request: &CsiRequest<'_>) -> Result<Published, Failure> {
        let (csi, wish) = (self.clone(), request.owned());
        to_its_end(
            async move { csi.timed(&wish, "volume_mount", Box::pin(mount::set_up(&csi, &wish))).await },
        )
        .await
        .unwrap_or_else(|broken| Err(Failure { step: mount::SET_UP, message: broken }))
    }

    /// Brings the device of a block volume to the node.
    pub async fn map(self: &Arc<Self>, request: &CsiRequest<'_>) -> Result<Mapped, Failure> {
        let (csi, wish) = (self.clone(), request.owned());
        to_its_end(async move { csi.timed(&wish, "map_volume", Box::pin(block::map(&csi, &wish))).await })
            .await
            .unwrap_or_else(|broken| Err(Failure { step: block::SET_UP_DEVICE, message: broken }))
    }

    /// Asks the driver to expand a volume that the pod has, if the cluster has made it larger. The error is for an event.
    pub async fn grow(self: &Arc<Self>, request: &CsiRequest<'_>, is_block: bool) -> Result<Grown, String> {
        let (csi, wish) = (self.clone(), request.owned());
        let grown = async move { Box::pin(expand::online(&csi, &wish, is_block)).await };
        to_its_end(grown).await.unwrap_or_else(Err)
    }

    /// Whether the volume is not attached because the node can have no more of its driver's. Then the cluster is told
    /// anew how many those are.
    pub async fn is_exhausted(&self, driver: &str, handle: &str) -> bool {
        limits::is_exhausted(self, driver, handle).await
    }

    /// The unique names of volumes that drivers have, or may have, staged here: they must not be detached.
    pub fn held(&self) -> watch::Receiver<Arc<BTreeSet<String>>> {
        self.uses.held()
    }

    /// Finds out what an earlier life of the agent has left.
    pub async fn look_back(&self) -> Result<(), String> {
        self.uses.load(&*self.host, &self.places).await
    }

    /// Takes a volume away from its pod: the folder `volumes/kubernetes.io~csi/<name>`.
    pub async fn tear_down(self: &Arc<Self>, uid: &PodUid, spec_name: &str) -> Result<(), String> {
        let (csi, uid, name) = (self.clone(), uid.clone(), spec_name.to_owned());
        to_its_end(async move {
            csi.uses.set_driver(&uid, &name, None);
            unmount::tear_down(&csi, &uid, &name).await
        })
        .await
        .unwrap_or_else(Err)
    }

    /// Takes a device away from its pod, after the link and the bind mount are gone.
    pub async fn unmap(self: &Arc<Self>, uid: &PodUid, spec_name: &str) -> Result<(), String> {
        let (csi, uid, name) = (self.clone(), uid.clone(), spec_name.to_owned());
        to_its_end(async move {
            csi.uses.set_driver(&uid, &name, None);
            block::unmap(&csi, &uid, &name).await
        })
        .await
        .unwrap_or_else(Err)
    }

    /// The block volumes that are published for the pod, whatever has become of their links.
    pub async fn mapped(&self, uid: &PodUid) -> Result<Vec<String>, String> {
        block::mapped(self, uid).await
    }

    /// As figures name what made a volume that the pod has, by the volume's name on disk.
    pub fn plugin_of(&self, uid: &PodUid, spec_name: &str) -> Option<String> {
        self.uses.driver(uid, spec_name).map(|driver| plugin_of(&driver))
    }

    /// An operation for a pod, with its figures.
    async fn timed<T, E>(
        &self,
        wish: &Wish,
        operation: &'static str,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let begun = Instant::now();
        let done = work.await;
        let volume = &wish.volume;
        let plugin = plugin_of(&volume.driver);
        figures::operation(&plugin, operation, done.is_ok(), begun.elapsed());
        if done.is_ok() {
            self.uses.set_driver(&wish.id.uid, &volume.spec_name, Some(&volume.driver));
            figures::in_place(&plugin, begun.elapsed());
        }
        done
    }

    /// How full a mounted volume of a pod is, if the driver can tell.
    pub async fn stats(&self, uid: &PodUid, spec_name: &str) -> Result<Option<CsiStats>, String> {
        stats::of(self, uid, spec_name).await
    }
}

/// As figures name the driver's volumes.
fn plugin_of(driver: &str) -> String {
    format!("kubernetes.io/csi:{driver}")
}

/// Runs in a task of its own, which nobody cuts short. Every call in it has a deadline.
async fn to_its_end<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Result<T, String> {
    tokio::spawn(work).await.map_err(|error| format!("the work on the volume broke: {error}"))
}
