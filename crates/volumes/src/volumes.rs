//! The volumes of all pods: what is set up, and what is needed to set it up again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crablet_apiserver::{ApiServer, Objects};
use crablet_host::Clock;
use crablet_model::{PodRef, PodUid, api};
use crablet_planner::pod::NodeFacts;
use crablet_planner::pod::config::MountedVolume;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tracing::error;

use crate::attach::{Attachments, NodeStorage};
use crate::certificates::PodCertificates;
use crate::csi::Csi;
use crate::devices::Locks;
use crate::growth::{self, Watched};
use crate::layout::PodLayout;
use crate::pod::{self, Shown};
use crate::port::{SubPathError, VolumeEvents, VolumeHost, told};
use crate::said::Said;
use crate::selinux::Selinux;
use crate::slow::Slow;
use crate::tenants::Tenants;
use crate::updates::{self, Inbox};

pub struct VolumeSettings {
    /// Must have no symlinks in it, or the mount table cannot be read against it.
    pub root_dir: PathBuf,
}

pub struct VolumePorts {
    pub objects: Arc<dyn Objects>,
    /// For claims and their volumes, which nodes may not watch. `None` in standalone mode.
    pub api: Option<Arc<dyn ApiServer>>,
    pub host: Arc<dyn VolumeHost>,
    /// Volumes of CSI drivers. `None`: there are none.
    pub csi: Option<Arc<Csi>>,
    /// `None`: pods get no certificates.
    pub certificates: Option<Arc<dyn PodCertificates>>,
    /// `None`: the node has no SELinux.
    pub selinux: Option<Selinux>,
    pub clock: Arc<dyn Clock>,
    pub node: watch::Receiver<Arc<NodeFacts>>,
    /// What the Node object says of attached volumes.
    pub storage: watch::Receiver<Arc<NodeStorage>>,
    /// For `status.volumesInUse` of the Node.
    pub in_use: watch::Sender<Option<Arc<Vec<String>>>>,
    pub events: Arc<dyn VolumeEvents>,
    /// For the names of folders, which only have to differ.
    pub seed: u64,
}

/// What every plugin works with.
pub(crate) struct Context {
    pub root_dir: PathBuf,
    pub objects: Arc<dyn Objects>,
    pub api: Option<Arc<dyn ApiServer>>,
    pub host: Arc<dyn VolumeHost>,
    pub csi: Option<Arc<Csi>>,
    pub certificates: Option<Arc<dyn PodCertificates>>,
    pub selinux: Option<Selinux>,
    pub clock: Arc<dyn Clock>,
    pub node: watch::Receiver<Arc<NodeFacts>>,
    pub storage: watch::Receiver<Arc<NodeStorage>>,
    pub events: Arc<dyn VolumeEvents>,
    pub attachments: Attachments,
    pub tenants: Tenants,
    pub locks: Locks,
    rng: Mutex<fastrand::Rng>,
}

impl Context {
    /// `..2026_01_31_12_00_00.1234567890`
    pub fn new_folder_name(&self) -> String {
        let now = self.clock.now().to_zoned(TimeZone::UTC);
        let number = self.rng.lock().unwrap_or_else(|dead| dead.into_inner()).u32(1_000_000_000..);
        format!("..{}.{number}", now.strftime("%Y_%m_%d_%H_%M_%S"))
    }

    /// The time and up to half as much again, by lot.
    pub fn spread(&self, time: Duration) -> Duration {
        time.mul_f64(1.0 + 0.5 * self.rng.lock().unwrap_or_else(|dead| dead.into_inner()).f64())
    }
}

/// The volumes of all pods.
pub struct Volumes {
    pub(crate) ctx: Context,
    pods: Mutex<BTreeMap<PodUid, Arc<Entry>>>,
    pub(crate) inbox: Inbox,
    pub(crate) growth: Watched,
}

/// A pod whose volumes are, or are being, set up. Whoever changes something on disk holds `state`.
pub(crate) struct Entry {
    pub id: PodRef,
    /// What is needed to render the pod's volumes again.
    slim: Mutex<Slim>,
    pub state: tokio::sync::Mutex<State>,
    /// Something that a volume waits for may have happened.
    pub news: Notify,
    /// The pod ends: whoever sets something up gives up.
    pub leaving: Leaving,
}

/// Said once, heard by all who listen then or later.
#[derive(Default)]
pub(crate) struct Leaving {
    said: AtomicBool,
    notify: Notify,
}

impl Leaving {
    pub fn say(&self, leaving: bool) {
        self.said.store(leaving, Ordering::Release);
        self.notify.notify_waiters();
    }

    /// The work, or nothing if the pod ends before it is done.
    pub async fn or<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let heard = self.notify.notified();
        tokio::pin!(heard);
        // From here on it is not missed.
        heard.as_mut().enable();
        if self.said.load(Ordering::Acquire) {
            return None;
        }
        // Dropping the work is what is wanted: taking down finds on disk how far it came.
        tokio::select! {
            biased;
            () = heard => None,
            done = work => Some(done),
        }
    }
}

#[derive(Default)]
struct Slim {
    /// Empty before the first set-up.
    json: Arc<[u8]>,
    shown: Shown,
}

#[derive(Default)]
pub(crate) struct State {
    pub mounted: BTreeMap<String, MountedVolume>,
    /// The names on disk of those whose name there is not the pod's.
    pub disk_names: BTreeMap<String, String>,
    /// Those that have to be set up again by a certain time: they hold a token, or their driver wants it.
    pub refreshed: BTreeSet<String>,
    /// The failure that was told last of each volume.
    pub said: BTreeMap<String, Said>,
    /// Since when each volume that is not there yet is tried.
    pub slow: BTreeMap<String, Slow>,
    /// The same of taking away, by the names on disk.
    pub slow_to_go: BTreeMap<String, Slow>,
    /// What was told last of all volumes together.
    pub said_of_all: Said,
    /// The node can have no more volumes of a driver, so the pod must not run here. Why, in upstream's words.
    pub refused: Option<String>,
    /// Taken down: whoever still holds the entry has to ask for another.
    pub gone: bool,
}

/// What came of rendering the volumes of a pod again.
#[derive(Default)]
pub(crate) struct Rendered {
    pub failed: bool,
    pub refresh_at: Option<Timestamp>,
}

impl Volumes {
    /// Starts the tasks that keep volumes up to date and look whether they have grown.
    pub fn start(settings: VolumeSettings, ports: VolumePorts, tasks: &mut JoinSet<()>) -> Arc<Self> {
        let VolumePorts {
            objects,
            api,
            host,
            csi,
            certificates,
            selinux,
            clock,
            node,
            storage,
            in_use,
            events,
            seed,
        } = ports;
        // Listening begins before anything is set up, so that no change falls in between.
        let changes = objects.changes();
        let held = csi.as_ref().map_or_else(|| watch::channel(Arc::default()).1, |csi| csi.held());
        let ctx = Context {
            root_dir: settings.root_dir,
            objects,
            api,
            host,
            csi,
            certificates,
            selinux,
            clock,
            node,
            storage,
            events,
            attachments: Attachments::new(in_use, held),
            tenants: Tenants::default(),
            locks: Locks::default(),
            rng: Mutex::new(fastrand::Rng::with_seed(seed)),
        };
        let (inbox, growth) = (Inbox::default(), Watched::default());
        let volumes = Arc::new(Self { ctx, pods: Mutex::default(), inbox, growth });
        tasks.spawn(updates::run(volumes.clone(), changes));
        tasks.spawn(growth::run(volumes.clone()));
        volumes
    }

    /// The pod has changed: volumes that show it will show the new one soon. Unknown pods are passed over.
    pub fn pod_changed(&self, pod_json: Arc<[u8]>, id: &PodRef) {
        let Some(entry) = self.known(&id.uid) else { return };
        let mut slim = entry.slim();
        slim.json = pod_json;
        if slim.shown.pod {
            self.inbox.dirty(&id.uid);
        }
    }

    /// Binds a path inside a volume to a place of its own, and says where.
    pub async fn sub_path(
        &self,
        id: &PodRef,
        container: &str,
        index: usize,
        volume: &str,
        sub_path: &str,
    ) -> Result<String, String> {
        if sub_path.starts_with('/') {
            return Err(format!("error SubPath `{sub_path}` must not be an absolute path"));
        }
        if sub_path.split('/').any(|part| part == "..") {
            return Err(format!("unable to provision SubPath `{sub_path}`: must not contain '..'"));
        }
        let unknown = || format!("cannot find volume {volume:?} to mount into container {container:?}");
        let entry = self.known(&id.uid).ok_or_else(unknown)?;
        let binding = async {
            let state = entry.state.lock().await;
            let root = state.mounted.get(volume).ok_or_else(unknown)?;
            let disk_name = state.disk_names.get(volume).map_or(volume, String::as_str);
            let target = PodLayout::new(&self.ctx.root_dir, &id.uid).sub_path(disk_name, container, index);
            let bound = self.ctx.host.bind_sub_path(Path::new(&root.host_path), sub_path, &target).await;
            Ok::<_, String>((root.host_path.clone(), target, bound))
        };
        // A volume that hangs does not keep its pod from going.
        let Some(bound) = entry.leaving.or(binding).await else { return Err(unknown()) };
        let (root, target, bound) = bound?;
        let (what, error) = match bound {
            Ok(()) => return Ok(target.display().to_string()),
            Err(SubPathError::Root(error)) => return Err(told("stat", Path::new(&root), &error)),
            Err(SubPathError::Create(error)) => ("create subPath directory", error),
            Err(SubPathError::Prepare(error)) => ("prepare subPath", error),
        };
        error!(pod = id.object_ref(), container, volume, sub_path, %error, "Failed to {what} for volumeMount");
        Err(format!("failed to {what} for volumeMount {volume:?} of container {container:?}"))
    }

    /// The pods whose volumes show one of the objects that `changed` picks.
    pub(crate) fn showing(&self, changed: impl Fn(&Shown) -> bool) -> Vec<PodUid> {
        let pods = self.pods();
        let concerned = pods.iter().filter(|(_, entry)| changed(&entry.slim().shown));
        concerned
            .map(|(uid, entry)| {
                entry.news.notify_waiters();
                uid.clone()
            })
            .collect()
    }

    /// Something about this pod alone has changed. Says whether it is known at all.
    pub(crate) fn wake(&self, uid: &PodUid) -> bool {
        let entry = self.known(uid);
        entry.iter().for_each(|entry| entry.news.notify_waiters());
        entry.is_some()
    }

    /// Whoever waits for something looks again.
    pub(crate) fn wake_all(&self) {
        self.pods().values().for_each(|entry| entry.news.notify_waiters());
    }

    pub(crate) fn entry(&self, id: &PodRef) -> Arc<Entry> {
        let make = || {
            Arc::new(Entry {
                id: id.clone(),
                slim: Mutex::default(),
                state: tokio::sync::Mutex::default(),
                news: Notify::new(),
                leaving: Leaving::default(),
            })
        };
        self.pods().entry(id.uid.clone()).or_insert_with(make).clone()
    }

    pub(crate) fn forget(&self, uid: &PodUid) {
        self.pods().remove(uid);
        self.inbox.forget(uid);
        self.growth.forget(uid);
        if let Some(certificates) = &self.ctx.certificates {
            certificates.forget(uid);
        }
        self.ctx.tenants.leave(uid);
        self.ctx.attachments.release(uid);
    }

    pub(crate) fn entries(&self) -> Vec<Arc<Entry>> {
        self.pods().values().cloned().collect()
    }

    pub(crate) fn known(&self, uid: &PodUid) -> Option<Arc<Entry>> {
        self.pods().get(uid).cloned()
    }

    fn pods(&self) -> MutexGuard<'_, BTreeMap<PodUid, Arc<Entry>>> {
        self.pods.lock().unwrap_or_else(|dead| dead.into_inner())
    }
}

impl Entry {
    fn slim(&self) -> MutexGuard<'_, Slim> {
        self.slim.lock().unwrap_or_else(|dead| dead.into_inner())
    }

    pub fn json(&self) -> Arc<[u8]> {
        self.slim().json.clone()
    }

    /// Before anything is fetched: a change meanwhile must find the pod.
    pub fn take_in(&self, pod: &api::Pod) {
        let mut slim = self.slim();
        slim.shown = Shown::by(pod);
        if slim.json.is_empty()
            && let Ok(json) = serde_json::to_vec(&pod::slim(pod))
        {
            slim.json = json.into();
        }
    }
}
