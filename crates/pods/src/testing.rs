//! A registry with its workers over a fake runtime and a fake disk, under paused time: what happens to whole pods.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use crablet_apiserver::{ObjectError, ObjectKey, ObjectKind, Objects, ServiceView, Token, TokenWanted};
use crablet_cri::fake::{FakeImage, FakeRuntime, RuntimeSettings};
use crablet_host::Clock;
use crablet_host::fake::{FakeFiles, SimClock};
use crablet_model::cgroup::limits::{CgroupLimits, CgroupNow};
use crablet_model::events::{Event, NodeEvent};
use crablet_model::{PodRef, PodUid, api};
use crablet_planner::node::admission::AdmissionNode;
use crablet_planner::pod::config::{MountedVolume, SubPath};
use crablet_planner::pod::{NodeFacts, plan};
use serde_json::{Value, json};
use tokio::sync::{Notify, broadcast, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::admission::Admission;
use crate::events::EventSink;
use crate::hands::Hands;
use crate::images::{DockerFolders, ImagePorts, ImageSettings, Images, Verification};
use crate::ledger::Ledgers;
use crate::pleg::Pleg;
use crate::ports::{PodCgroups, PodVolumes, Refusal};
use crate::registry::Registry;
use crate::settings::{Folders, ImagePulls};
use crate::sources::{DesiredPod, Op, PodUpdate, Source};
use crate::users::{Ranges, Users};
use crate::view::View;
use crate::worker::Shared;

/// Longer than anything takes, and virtual.
const PATIENCE: Duration = Duration::from_secs(600);
const ROOT: &str = "/var/lib/kubelet";

pub struct House {
    pub runtime: FakeRuntime,
    pub disk: FakeFiles,
    pub objects: Arc<Shelf>,
    pub volumes: Arc<Doors>,
    events: Arc<Told>,
    view: Arc<View>,
    updates: mpsc::Sender<PodUpdate>,
    /// The agent.
    _tasks: JoinSet<()>,
}

impl House {
    /// Its runtime has the image `app:1`, and all sources have spoken.
    pub async fn new() -> Self {
        let clock = Arc::new(SimClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap()));
        let stamps = clock.clone();
        let random = fastrand::Rng::with_seed(7);
        let runtime = FakeRuntime::new(RuntimeSettings::default(), random, Arc::new(move || stamps.now()));
        runtime.put_image("app:1", FakeImage::present());
        let disk = FakeFiles::new(fastrand::Rng::with_seed(7));
        let (objects, volumes, events) =
            (Arc::<Shelf>::default(), Arc::<Doors>::default(), Arc::<Told>::default());
        let files: Arc<FakeFiles> = Arc::new(disk.clone());
        let view = Arc::new(View::default());
        let facts = NodeFacts {
            name: "node".to_owned(),
            root_dir: ROOT.to_owned(),
            pod_logs_dir: "/var/log/pods".to_owned(),
            max_crash_loop_seconds: 300,
            ..NodeFacts::default()
        };
        let (node, node_facts) = watch::channel(Arc::new(facts));
        let ports = ImagePorts {
            runtime: Arc::new(runtime.clone()),
            events: events.clone(),
            files: files.clone(),
            clock: clock.clone(),
            objects: objects.clone(),
            accounts: None,
        };
        let pulls = ImagePulls { parallel: 2, qps: 0.0, burst: 1 };
        let images = ImageSettings {
            pulls,
            verification: Verification::Off,
            root: ROOT.into(),
            docker: DockerFolders::default(),
            providers: Vec::new(),
        };
        let folders = Folders {
            root: ROOT.into(),
            pod_logs: "/var/log/pods".into(),
            container_logs: "/var/log/containers".into(),
        };
        let shared = Arc::new(Shared {
            hands: Hands {
                runtime: Arc::new(runtime.clone()),
                images: Arc::new(Images::new(ports, images)),
                users: Arc::new(Users::new(files.clone(), folders.pods(), Ranges::default())),
                ledgers: Arc::new(Ledgers::new(&folders.root, files.clone())),
                files,
                events: events.clone(),
                folders,
                resolv_conf: None,
                volumes: volumes.clone(),
                cgroups: Arc::new(NoCgroups),
                objects: objects.clone(),
            },
            clock,
            view: view.clone(),
            cluster: None,
            node: node_facts,
            plan,
        });
        let allocatable = [("pods", "110"), ("cpu", "8"), ("memory", "8Gi")];
        let allocatable = allocatable.map(|(name, amount)| (name.to_owned(), amount.parse().unwrap())).into();
        let admission_node = Arc::new(AdmissionNode { allocatable, ..AdmissionNode::default() });
        // Nobody changes the node, so that nobody has to hold the other end.
        let admission = Admission::new(watch::channel(admission_node).1, None);
        let (updates, of_sources) = mpsc::channel(8);
        let (hint, hints) = mpsc::channel(64);
        let relist_now = Arc::new(Notify::new());
        let told = (hint.clone(), hints);
        let registry =
            Registry::new(shared, of_sources, told, relist_now.clone(), [Source::Api], admission, 7);
        let pleg = Pleg {
            runtime: Arc::new(runtime.clone()),
            endpoint: "fake".to_owned(),
            hints: hint,
            relist_now,
            node,
            view: view.clone(),
            health: watch::Sender::default(),
            status_pace: Duration::from_secs(60),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(registry.run());
        tasks.spawn(pleg.run());
        let house = Self { runtime, disk, objects, volumes, events, view, updates, _tasks: tasks };
        house.tell(Op::Add, &[]).await;
        house
    }

    async fn tell(&self, op: Op, pods: &[&Value]) {
        self.tell_from(Source::Api, op, pods).await;
    }

    /// A manifest of this pod is put down, or removed.
    pub async fn manifest(&self, op: Op, pod: &Value) {
        self.tell_from(Source::File, op, &[pod]).await;
    }

    async fn tell_from(&self, source: Source, op: Op, pods: &[&Value]) {
        let desired = |pod: &&Value| {
            let decoded: api::Pod = serde_json::from_value((*pod).clone()).unwrap();
            DesiredPod { id: PodRef::of(&decoded), json: pod.to_string().into_bytes().into(), refused: None }
        };
        let pods = pods.iter().map(desired).collect();
        self.updates.send(PodUpdate { source, op, pods }).await.unwrap();
    }

    pub async fn create(&self, pod: &Value) {
        self.tell(Op::Add, &[pod]).await;
    }

    /// Somebody asks the API server for the pod's deletion.
    pub async fn delete(&self, pod: &Value, grace_seconds: i64) {
        let mut pod = pod.clone();
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace_seconds);
        self.tell(Op::Delete, &[&pod]).await;
    }

    /// The API server has it no more.
    pub async fn remove(&self, pod: &Value) {
        self.tell(Op::Remove, &[pod]).await;
    }

    /// Until it is so. Says how long that took, on the clock of the test.
    pub async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) -> Duration {
        let begin = Instant::now();
        while !condition(self) {
            let told = self.told();
            let journal = self.view.journal("default", "web");
            assert!(begin.elapsed() < PATIENCE, "waited in vain: {what}\n{told:#?}\n{journal:#?}");
            sleep(Duration::from_millis(10)).await;
        }
        begin.elapsed()
    }

    /// Nothing of the pod is left: not in the view, not in the runtime, not on disk.
    pub fn is_gone(&self, uid: &str) -> bool {
        let in_runtime = self.runtime.sandboxes().iter().any(|s| s.uid.as_str() == uid);
        let folder = PathBuf::from(ROOT).join("pods").join(uid);
        let on_disk = self.disk.paths().iter().any(|path| PathBuf::from(path).starts_with(&folder));
        self.view.status(&PodUid::new(uid)).is_none() && !in_runtime && !on_disk
    }

    pub fn status(&self, uid: &str) -> Value {
        let json = self.view.status(&PodUid::new(uid));
        json.map(|json| serde_json::from_slice(&json).unwrap()).unwrap_or_default()
    }

    /// Why a container waits.
    pub fn waits(&self, uid: &str, container: usize) -> String {
        let state = self.status(uid)["containerStatuses"][container]["state"]["waiting"].clone();
        state["reason"].as_str().unwrap_or_default().to_owned()
    }

    pub fn running(&self) -> Vec<String> {
        let containers = self.runtime.containers();
        let mut names: Vec<_> =
            containers.into_iter().filter(|c| c.state.is_running()).map(|c| c.name).collect();
        names.sort();
        names
    }

    /// Reason, container and message of each event; those of the node begin with its kind.
    pub fn told(&self) -> Vec<String> {
        self.events.0.lock().unwrap().clone()
    }
}

#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl EventSink for Told {
    fn emit(&self, event: Event) {
        let field = event.field_path().unwrap_or_default();
        self.0.lock().unwrap().push(format!("{} {field} {}", event.reason, event.message));
    }

    fn emit_node(&self, event: NodeEvent) {
        self.0.lock().unwrap().push(format!("Node {} {}", event.reason, event.message));
    }
}

/// Volumes that are there once somebody opens the door.
pub struct Doors {
    open: watch::Sender<bool>,
    asked: watch::Sender<usize>,
}

impl Default for Doors {
    fn default() -> Self {
        Self { open: watch::Sender::new(true), asked: watch::Sender::new(0) }
    }
}

impl Doors {
    pub fn close(&self) {
        self.open.send_replace(false);
    }

    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// How often somebody came to the door.
    pub fn asked(&self) -> usize {
        *self.asked.borrow()
    }
}

#[async_trait]
impl PodVolumes for Doors {
    async fn set_up(&self, _: &api::Pod) -> Result<BTreeMap<String, MountedVolume>, String> {
        self.asked.send_modify(|asked| *asked += 1);
        let opened = self.open.subscribe().wait_for(|open| *open).await.map(drop);
        opened.map_err(|error| error.to_string())?;
        Ok(BTreeMap::new())
    }

    async fn refusal(&self, _: &PodRef) -> Option<Refusal> {
        None
    }

    fn pod_changed(&self, _: &PodRef, _: &Arc<[u8]>) {}

    async fn sub_path(&self, _: &PodRef, _: &str, wanted: &SubPath) -> Result<String, String> {
        Err(format!("{} has no parts", wanted.volume))
    }

    async fn tear_down(&self, _: &PodRef) -> Result<(), String> {
        Ok(())
    }
}

struct NoCgroups;

#[async_trait]
impl PodCgroups for NoCgroups {
    async fn parent(&self, _: &api::Pod) -> Result<String, String> {
        Ok(String::new())
    }

    async fn ensure(&self, _: &api::Pod) -> Result<(), String> {
        Ok(())
    }

    async fn compare(&self, _: &api::Pod) -> Result<Option<(CgroupLimits, CgroupNow)>, String> {
        Ok(None)
    }

    async fn set(&self, _: &api::Pod, _: &CgroupLimits) -> Result<(), String> {
        Ok(())
    }

    async fn recount(&self, _: &api::Pod) {}

    async fn remove(&self, _: &PodUid) -> Result<(), String> {
        Ok(())
    }
}

/// Config maps and secrets of `default`, to which every pod refers.
pub struct Shelf {
    held: Mutex<Held>,
    changes: broadcast::Sender<ObjectKey>,
}

#[derive(Default)]
struct Held {
    config_maps: BTreeMap<String, Arc<api::ConfigMap>>,
    secrets: BTreeMap<String, Arc<api::Secret>>,
}

impl Default for Shelf {
    fn default() -> Self {
        Self { held: Mutex::default(), changes: broadcast::Sender::new(16) }
    }
}

impl Shelf {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap()
    }

    pub fn put_config_map(&self, name: &str, data: Value) {
        let map = serde_json::from_value(json!({"metadata": {"name": name}, "data": data})).unwrap();
        self.held().config_maps.insert(name.to_owned(), Arc::new(map));
        self.came(ObjectKind::ConfigMap, name);
    }

    pub fn put_secret(&self, name: &str, secret: Value) {
        let secret = serde_json::from_value(secret).unwrap();
        self.held().secrets.insert(name.to_owned(), Arc::new(secret));
        self.came(ObjectKind::Secret, name);
    }

    /// Tells of an object.
    fn came(&self, kind: ObjectKind, name: &str) {
        let _ = self.changes.send(ObjectKey { kind, namespace: "default".into(), name: name.into() });
    }
}

#[async_trait]
impl Objects for Shelf {
    fn register(&self, _: &api::Pod) {}

    fn forget(&self, _: &PodUid) {}

    async fn config_map(&self, _: &str, name: &str) -> Result<Arc<api::ConfigMap>, ObjectError> {
        let found = self.held().config_maps.get(name).cloned();
        found.ok_or_else(|| ObjectError::NotFound(format!("configmap {name:?} not found")))
    }

    async fn secret(&self, _: &str, name: &str) -> Result<Arc<api::Secret>, ObjectError> {
        let found = self.held().secrets.get(name).cloned();
        found.ok_or_else(|| ObjectError::NotFound(format!("secret {name:?} not found")))
    }

    async fn token(&self, _: &TokenWanted) -> Result<Token, ObjectError> {
        Err(ObjectError::Unavailable("none".to_owned()))
    }

    async fn services(&self, _: &str) -> Result<Vec<ServiceView>, ObjectError> {
        Ok(Vec::new())
    }

    async fn runtime_handler(&self, _: &str) -> Result<String, ObjectError> {
        Ok(String::new())
    }

    fn referring(&self, _: &ObjectKey) -> Vec<PodUid> {
        vec![PodUid::new("uid-1")]
    }

    fn changes(&self) -> broadcast::Receiver<ObjectKey> {
        self.changes.subscribe()
    }
}
