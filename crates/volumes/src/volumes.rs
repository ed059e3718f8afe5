//! Setting up the volumes of pods.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use crablet_apiserver::Objects;
use crablet_host::Clock;
use crablet_model::events::Event;
use crablet_model::{PodRef, PodUid, api};
use crablet_planner::pod::NodeFacts;
use crablet_planner::pod::config::MountedVolume;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::error;

use crate::layout::PodLayout;
use crate::plugins::{self, Request};
use crate::pod::{self, Owners, Shown};
use crate::port::{SubPathError, VolumeEvents, VolumeHost, told};
use crate::updates::{self, Inbox};

/// The reason of the event about a volume that cannot be had.
const FAILED_MOUNT: &str = "FailedMount";

pub struct VolumeSettings {
    /// Must have no symlinks in it, or the mount table cannot be read against it.
    pub root_dir: PathBuf,
}

pub struct VolumePorts {
    pub objects: Arc<dyn Objects>,
    pub host: Arc<dyn VolumeHost>,
    pub clock: Arc<dyn Clock>,
    pub node: watch::Receiver<Arc<NodeFacts>>,
    pub events: Arc<dyn VolumeEvents>,
    /// For the names of folders, which only have to differ.
    pub seed: u64,
}

/// What every plugin works with.
pub(crate) struct Context {
    pub root_dir: PathBuf,
    pub objects: Arc<dyn Objects>,
    pub host: Arc<dyn VolumeHost>,
    pub clock: Arc<dyn Clock>,
    pub node: watch::Receiver<Arc<NodeFacts>>,
    events: Arc<dyn VolumeEvents>,
    rng: Mutex<fastrand::Rng>,
}

impl Context {
    /// `..2026_01_31_12_00_00.1234567890`
    pub fn new_folder_name(&self) -> String {
        let now = self.clock.now().to_zoned(TimeZone::UTC);
        let number = self.rng.lock().unwrap_or_else(|dead| dead.into_inner()).u32(1_000_000_000..);
        format!("..{}.{number}", now.strftime("%Y_%m_%d_%H_%M_%S"))
    }
}

/// The volumes of all pods.
pub struct Volumes {
    pub(crate) ctx: Context,
    pods: Mutex<BTreeMap<PodUid, Arc<Entry>>>,
    pub(crate) inbox: Inbox,
}

/// A pod whose volumes are, or are being, set up. Whoever changes something on disk holds `state`.
pub(crate) struct Entry {
    id: PodRef,
    /// What is needed to render the pod's volumes again.
    slim: Mutex<Slim>,
    pub state: tokio::sync::Mutex<State>,
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
    /// The failure that was told last of each volume: it is not told again before it changes.
    said: BTreeMap<String, String>,
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
    /// Starts the task that keeps volumes up to date.
    pub fn start(settings: VolumeSettings, ports: VolumePorts, tasks: &mut JoinSet<()>) -> Arc<Self> {
        let VolumePorts { objects, host, clock, node, events, seed } = ports;
        let rng = Mutex::new(fastrand::Rng::with_seed(seed));
        // Listening begins before anything is set up, so that no change falls in between.
        let changes = objects.changes();
        let ctx = Context { root_dir: settings.root_dir, objects, host, clock, node, events, rng };
        let volumes = Arc::new(Self { ctx, pods: Mutex::default(), inbox: Inbox::default() });
        tasks.spawn(updates::run(volumes.clone(), changes));
        volumes
    }

    /// Everything that the pod's containers mount is there afterwards. Costs nothing when it was set up before in this
    /// life of the agent. The error is upstream's text and was told as an event.
    pub async fn set_up(&self, pod: &api::Pod) -> Result<BTreeMap<String, MountedVolume>, String> {
        let id = PodRef::of(pod);
        let spec = pod.spec.as_ref().ok_or_else(|| format!("pod {id} has no specification"))?;
        let wanted = pod::wanted(spec);
        if wanted.is_empty() {
            return Ok(BTreeMap::new());
        }
        let entry = self.entry(&id);
        entry.take_in(pod);
        let mut state = entry.state.lock().await;
        if state.gone {
            return Err(format!("the volumes of pod {id} were taken down meanwhile"));
        }
        if wanted.iter().all(|volume| state.mounted.contains_key(&volume.name)) {
            return Ok(state.mounted.clone());
        }
        let layout = PodLayout::new(&self.ctx.root_dir, &id.uid);
        for folder in [layout.volumes(), layout.plugins()] {
            let made = self.ctx.host.make_folder(&folder, 0o750, 0o750).await;
            made.map_err(|error| {
                format!("error making pod data directories: {}", told("mkdir", &folder, &error))
            })?;
        }
        let missing = wanted.into_iter().filter(|volume| !state.mounted.contains_key(&volume.name)).collect();
        let done = self.render(&entry, &mut state, pod, spec, missing, false).await;
        if let Some(at) = done.refresh_at {
            self.inbox.refresh(&id.uid, at);
        }
        if done.failed { Err(state.said_of(&spec.volumes)) } else { Ok(state.mounted.clone()) }
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
        let state = entry.state.lock().await;
        let root = state.mounted.get(volume).ok_or_else(unknown)?;
        let target = PodLayout::new(&self.ctx.root_dir, &id.uid).sub_path(volume, container, index);
        let bound = self.ctx.host.bind_sub_path(Path::new(&root.host_path), sub_path, &target).await;
        let (what, error) = match bound {
            Ok(()) => return Ok(target.display().to_string()),
            Err(SubPathError::Create(error)) => ("create subPath directory", error),
            Err(SubPathError::Prepare(error)) => ("prepare subPath", error),
        };
        error!(pod = id.object_ref(), container, volume, sub_path, %error, "Failed to {what} for volumeMount");
        Err(format!("failed to {what} for volumeMount {volume:?} of container {container:?}"))
    }

    /// Makes the volumes of a set-up pod show what is true now.
    pub(crate) async fn render_again(&self, uid: &PodUid) -> Rendered {
        let Some(entry) = self.known(uid) else { return Rendered::default() };
        let state = &mut *entry.state.lock().await;
        if state.gone {
            return Rendered::default();
        }
        let json = entry.slim().json.clone();
        let pod: api::Pod = match serde_json::from_slice(&json) {
            Ok(pod) => pod,
            Err(error) => {
                error!(pod = entry.id.object_ref(), %error, "Failed to read the pod: its volumes stay as they are");
                return Rendered { failed: true, refresh_at: None };
            }
        };
        let Some(spec) = &pod.spec else { return Rendered::default() };
        // What is mounted was wanted once; the pod at hand may be older than that.
        let showing =
            |volume: &&api::Volume| plugins::shows(volume) && state.mounted.contains_key(&volume.name);
        let volumes = spec.volumes.iter().flatten().filter(showing).collect();
        self.render(&entry, state, &pod, spec, volumes, true).await
    }

    async fn render(
        &self,
        entry: &Entry,
        state: &mut State,
        pod: &api::Pod,
        spec: &api::PodSpec,
        volumes: Vec<&api::Volume>,
        again: bool,
    ) -> Rendered {
        let mut rendered = Rendered::default();
        let owners = Owners::of(spec);
        for volume in volumes {
            let layout = PodLayout::new(&self.ctx.root_dir, &entry.id.uid);
            let request = Request { ctx: &self.ctx, id: &entry.id, layout, pod, spec, owners, volume, again };
            match Box::pin(plugins::set_up(&request)).await {
                Ok(ready) => {
                    state.said.remove(&volume.name);
                    state.mounted.insert(volume.name.clone(), ready.mounted);
                    rendered.refresh_at = [rendered.refresh_at, ready.refresh_at].into_iter().flatten().min();
                }
                Err(error) => {
                    rendered.failed = true;
                    self.say(&entry.id, state, &volume.name, &error);
                }
            }
        }
        rendered
    }

    fn say(&self, id: &PodRef, state: &mut State, volume: &str, error: &str) {
        let text = format!("MountVolume.SetUp failed for volume {volume:?} : {error}");
        if state.said.get(volume) == Some(&text) {
            return;
        }
        error!(pod = id.object_ref(), podUID = id.uid.as_str(), volume, error, "MountVolume.SetUp failed");
        self.ctx.events.emit(Event::warning(id, FAILED_MOUNT, text.clone()));
        state.said.insert(volume.to_owned(), text);
    }

    /// The pods whose volumes show one of the objects that `changed` picks.
    pub(crate) fn showing(&self, changed: impl Fn(&Shown) -> bool) -> Vec<PodUid> {
        let pods = self.pods();
        pods.iter().filter(|(_, entry)| changed(&entry.slim().shown)).map(|(uid, _)| uid.clone()).collect()
    }

    pub(crate) fn entry(&self, id: &PodRef) -> Arc<Entry> {
        let make = || {
            Arc::new(Entry { id: id.clone(), slim: Mutex::default(), state: tokio::sync::Mutex::default() })
        };
        self.pods().entry(id.uid.clone()).or_insert_with(make).clone()
    }

    pub(crate) fn forget(&self, uid: &PodUid) {
        self.pods().remove(uid);
        self.inbox.forget(uid);
    }

    fn known(&self, uid: &PodUid) -> Option<Arc<Entry>> {
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

    /// Before anything is fetched: a change meanwhile must find the pod.
    fn take_in(&self, pod: &api::Pod) {
        let mut slim = self.slim();
        slim.shown = Shown::by(pod);
        if slim.json.is_empty()
            && let Ok(json) = serde_json::to_vec(&pod::slim(pod))
        {
            slim.json = json.into();
        }
    }
}

impl State {
    /// The failures of the volumes that are not there, in the order of the specification.
    fn said_of(&self, volumes: &Option<Vec<api::Volume>>) -> String {
        let missing = volumes.iter().flatten().filter(|volume| !self.mounted.contains_key(&volume.name));
        missing.filter_map(|v| self.said.get(&v.name)).map(String::as_str).collect::<Vec<_>>().join("; ")
    }
}
