//! A driver process, the objects of a cluster, and lives of an agent as far as CSI goes.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use crablet_apiserver::fake::FakeApiServer;
use crablet_apiserver::{NoObjects, ObjectError, ObjectKey, Objects, ServiceView, Token, TokenWanted};
use crablet_host::{Clock, SystemClock};
use crablet_model::events::{ClaimEvent, Event};
use crablet_model::{PodRef, PodUid, api};
use crablet_testbed::csi::{Driver, DriverOptions};
use crablet_testbed::wait::{Deadline, until};
use crablet_volumes::csi::{
    Csi, CsiNodeRecord, CsiPorts, CsiRequest, CsiSettings, CsiSource, CsiStats, Failure, Grown, Mapped,
    NodeInfo, Published,
};
use crablet_volumes::{LinuxVolumeHost, VolumeEvents};
use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::broadcast;
use tokio::task::{JoinHandle, JoinSet};

pub const DRIVER: &str = "hostpath.csi.crablet.example";
const PATIENCE: Duration = Duration::from_secs(60);

pub fn eventually(what: &str, done: impl FnMut() -> bool) {
    assert!(until(Deadline::after(PATIENCE), done), "in vain: {what}");
}

pub fn sha256(text: &str) -> String {
    crablet_testbed::sha256::hex(text.as_bytes())
}

/// A pod whose UID is its name.
pub fn pod(name: &str) -> api::Pod {
    let pod = json!({
        "metadata": { "name": name, "namespace": "ns", "uid": name },
        "spec": { "serviceAccountName": "robot", "containers": [] },
    });
    serde_json::from_value(pod).unwrap()
}

/// The driver's CSIDriver, with these fields over the usual ones.
pub fn driver_object(spec: Value) -> Value {
    let mut whole = json!({
        "attachRequired": false, "fsGroupPolicy": "ReadWriteOnceWithFSType", "volumeLifecycleModes": ["Persistent"],
    });
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": DRIVER }, "spec": whole })
}

/// A volume that pods want.
pub struct Volume {
    pub handle: String,
    /// As folders name it.
    spec_name: String,
    source: Source,
}

enum Source {
    Inline(api::CSIVolumeSource),
    Claimed(Box<(api::PersistentVolume, api::PersistentVolumeClaim)>),
}

pub struct World {
    folder: tempfile::TempDir,
    driver: Mutex<Option<Driver>>,
    api: Arc<FakeApiServer>,
}

impl World {
    pub fn start(capabilities: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let home = fs::canonicalize(folder.path()).unwrap().join("driver");
        let options = DriverOptions {
            capabilities: capabilities.iter().map(ToString::to_string).collect(),
            ..DriverOptions::new(DRIVER, &home)
        };
        let driver = Driver::start(options).unwrap_or_else(|error| panic!("{error:#}"));
        let api = FakeApiServer::new(Arc::new(|| SystemClock.now()));
        api.put("csidrivers", driver_object(json!({})));
        Self { folder, driver: Mutex::new(Some(driver)), api }
    }

    pub fn root(&self) -> PathBuf {
        fs::canonicalize(self.folder.path()).unwrap().join("root")
    }

    pub fn api(&self) -> &Arc<FakeApiServer> {
        &self.api
    }

    pub fn driver(&self) -> Running<'_> {
        Running(self.driver.lock().unwrap())
    }

    /// A persistent volume `pv-<name>` of the driver and the claim `<name>` that has it.
    pub fn volume(&self, name: &str, source: Value) -> Volume {
        let handle = self.driver().create_volume(name, 1 << 20).unwrap();
        let mut csi = json!({ "driver": DRIVER, "volumeHandle": handle });
        for (key, value) in source.as_object().unwrap() {
            csi[key] = value.clone();
        }
        let pv = json!({ "metadata": { "name": format!("pv-{name}") }, "spec": {
            "capacity": { "storage": "1Mi" }, "accessModes": ["ReadWriteOnce"], "csi": csi,
        } });
        let claim = json!({ "metadata": { "name": name, "namespace": "ns" }, "spec": {}, "status": {
            "phase": "Bound", "capacity": { "storage": "1Mi" },
        } });
        self.api.put("persistentvolumeclaims", claim.clone());
        let both = (serde_json::from_value(pv).unwrap(), serde_json::from_value(claim).unwrap());
        Volume { handle, spec_name: format!("pv-{name}"), source: Source::Claimed(Box::new(both)) }
    }

    /// A volume of the pod itself.
    pub fn inline(&self, name: &str, source: Value) -> Volume {
        let mut csi = source;
        csi["driver"] = json!(DRIVER);
        let source = Source::Inline(serde_json::from_value(csi).unwrap());
        Volume { handle: String::new(), spec_name: name.to_owned(), source }
    }

    /// The persistent volume has this size now, and its claim this status.
    pub fn grow(&self, volume: &mut Volume, size: &str, status: Value) {
        let Source::Claimed(both) = &mut volume.source else { panic!("nobody claimed it") };
        let spec = both.0.spec.as_mut().unwrap();
        let quantity = serde_json::from_value(json!(size)).unwrap();
        spec.capacity = Some([("storage".to_owned(), quantity)].into());
        let name = both.1.metadata.name.clone().unwrap();
        let modes = spec.access_modes.clone();
        let claim = json!({
            "metadata": { "name": name, "namespace": "ns" },
            "spec": { "accessModes": modes, "resources": { "requests": { "storage": size } } },
            "status": status,
        });
        both.1 = serde_json::from_value(claim.clone()).unwrap();
        self.api.put("persistentvolumeclaims", claim);
    }

    /// Pods of many nodes write to it.
    pub fn share(&self, volume: &mut Volume) {
        let Source::Claimed(both) = &mut volume.source else { panic!("nobody claimed it") };
        both.0.spec.as_mut().unwrap().access_modes = Some(vec!["ReadWriteMany".to_owned()]);
    }

    pub fn status_of_claim(&self, name: &str) -> Value {
        self.api.get("persistentvolumeclaims", "ns", name).unwrap()["status"].clone()
    }

    /// How often the driver was asked for it by this method.
    pub fn count(&self, method: &str) -> usize {
        self.driver().seen().iter().filter(|seen| seen.method == method && seen.begun).count()
    }

    /// What the driver was asked last by this method.
    pub fn asked(&self, method: &str) -> Value {
        let seen = self.driver().seen();
        let last = seen.into_iter().rev().find(|seen| seen.method == method && seen.begun);
        last.unwrap_or_else(|| panic!("{method} was never called")).request
    }

    /// Nothing of any volume is left on the node, sooner or later.
    pub fn is_clean(&self) {
        eventually("no mount is left", || self.mounts().is_empty());
        let left = || {
            let staged = self.root().join("plugins/kubernetes.io/csi").join(DRIVER);
            let pods = fs::read_dir(self.root().join("pods")).into_iter().flatten().flatten();
            let folders = pods.map(|pod| pod.path().join("volumes/kubernetes.io~csi")).chain([staged]);
            folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten()).count()
        };
        eventually("no folder is left", || left() == 0);
    }

    fn mounts(&self) -> Vec<PathBuf> {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let paths = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
        paths.filter(|path| path.starts_with(self.root())).collect()
    }

    /// A life of the agent, in which the driver has registered.
    pub fn live(&self) -> Life {
        let runtime = Runtime::new().unwrap();
        let events = Arc::new(Told::default());
        let endpoint = self.driver().options().endpoint();
        let (api, root, told) = (self.api.clone(), self.root(), events.clone());
        let (csi, tasks) = runtime.block_on(async move {
            let mut tasks = JoinSet::new();
            let ports = CsiPorts {
                api: Some(api),
                objects: Arc::new(Tokens(NoObjects::default())),
                host: Arc::new(LinuxVolumeHost::default()),
                record: Arc::new(NoNode),
                events: told,
                clock: Arc::new(SystemClock),
                seed: 7,
            };
            let settings = CsiSettings { root_dir: root, node_name: "n".to_owned(), volume_health: true };
            let csi = Csi::start(settings, ports, &mut tasks);
            csi.drivers().register(DRIVER, endpoint, &["1.0.0".to_owned()]).await.unwrap();
            (csi, tasks)
        });
        Life { root: self.root(), csi, events, tasks: Some(tasks), runtime: Some(runtime) }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.driver.lock().map(|mut driver| driver.take());
        for path in self.mounts().iter().rev() {
            let _ = rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

/// The driver, for as long as a statement needs it.
pub struct Running<'a>(MutexGuard<'a, Option<Driver>>);

impl std::ops::Deref for Running<'_> {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        self.0.as_ref().unwrap()
    }
}

impl std::ops::DerefMut for Running<'_> {
    fn deref_mut(&mut self) -> &mut Driver {
        self.0.as_mut().unwrap()
    }
}

/// Dropping it is kill -9: whatever is under way ends in the middle.
pub struct Life {
    root: PathBuf,
    csi: Arc<Csi>,
    events: Arc<Told>,
    tasks: Option<JoinSet<()>>,
    runtime: Option<Runtime>,
}

pub type Waiting = JoinHandle<Result<(), String>>;

struct Asked {
    again: bool,
    group: Option<u32>,
}

impl Life {
    fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.as_ref().unwrap().block_on(work)
    }

    async fn ask(csi: Arc<Csi>, volume: &Volume, pod: &api::Pod, asked: Asked) -> Result<Published, Failure> {
        let id = PodRef::of(pod);
        csi.set_up(&request(&id, volume, pod, asked)).await
    }

    pub fn published(&self, volume: &Volume, pod: &api::Pod) -> Result<Published, Failure> {
        self.wait(Self::ask(self.csi.clone(), volume, pod, Asked { again: false, group: None }))
    }

    pub fn set_up(&self, volume: &Volume, pod: &api::Pod) -> Result<PathBuf, Failure> {
        self.published(volume, pod).map(|published| published.path)
    }

    pub fn again(&self, volume: &Volume, pod: &api::Pod) -> Result<Published, Failure> {
        self.wait(Self::ask(self.csi.clone(), volume, pod, Asked { again: true, group: None }))
    }

    pub fn with_group(&self, volume: &Volume, pod: &api::Pod, group: u32) -> Result<PathBuf, Failure> {
        let asked = Asked { again: false, group: Some(group) };
        self.wait(Self::ask(self.csi.clone(), volume, pod, asked)).map(|published| published.path)
    }

    pub fn tear_down(&self, volume: &Volume, pod: &api::Pod) -> Result<(), String> {
        self.wait(self.csi.tear_down(&PodRef::of(pod).uid, &volume.spec_name))
    }

    /// Whatever the disk has of the pod, as for one that nobody knows any more.
    pub fn tear_down_all(&self, pod: &api::Pod) -> Result<(), String> {
        let uid = PodRef::of(pod).uid;
        let folder = self.root.join("pods").join(uid.as_str()).join("volumes/kubernetes.io~csi");
        let names = fs::read_dir(folder).into_iter().flatten().flatten();
        for name in names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>() {
            self.wait(self.csi.tear_down(&uid, &name))?;
        }
        Ok(())
    }

    pub fn stats(&self, volume: &Volume, pod: &api::Pod) -> Result<Option<CsiStats>, String> {
        self.wait(self.csi.stats(&PodRef::of(pod).uid, &volume.spec_name))
    }

    pub fn map(&self, volume: &Volume, pod: &api::Pod) -> Result<Mapped, Failure> {
        let id = PodRef::of(pod);
        self.wait(self.csi.map(&request(&id, volume, pod, Asked { again: false, group: None })))
    }

    /// Looks whether the volume has grown in the cluster.
    pub fn grow(&self, volume: &Volume, pod: &api::Pod) -> Result<Grown, String> {
        let id = PodRef::of(pod);
        self.wait(self.csi.grow(&request(&id, volume, pod, Asked { again: true, group: None }), false))
    }

    /// Whether the cluster must not detach it.
    pub fn holds(&self, volume: &Volume) -> bool {
        self.csi.held().borrow().iter().any(|name| name.ends_with(&format!("^{}", volume.handle)))
    }

    pub fn look_back(&self) {
        self.wait(self.csi.look_back()).unwrap();
    }

    pub fn is_exhausted(&self, volume: &Volume) -> bool {
        self.wait(self.csi.is_exhausted(DRIVER, &volume.handle))
    }

    pub fn unmap(&self, volume: &Volume, pod: &api::Pod) -> Result<(), String> {
        self.wait(self.csi.unmap(&PodRef::of(pod).uid, &volume.spec_name))
    }

    pub fn mapped(&self, pod: &api::Pod) -> Vec<String> {
        self.wait(self.csi.mapped(&PodRef::of(pod).uid)).unwrap()
    }

    /// Sets it up in the background.
    pub fn begin_set_up(&self, volume: &Volume, pod: &api::Pod) -> Waiting {
        let (csi, volume, pod) = (self.csi.clone(), volume.copy(), pod.clone());
        self.runtime.as_ref().unwrap().spawn(async move {
            let set_up = Self::ask(csi, &volume, &pod, Asked { again: false, group: None }).await;
            set_up.map(drop).map_err(|failure| failure.message)
        })
    }

    /// Sets it up and takes it down in the background.
    pub fn begin_whole_life(&self, volume: &Volume, pod: &api::Pod) -> Waiting {
        let (csi, volume, pod) = (self.csi.clone(), volume.copy(), pod.clone());
        self.runtime.as_ref().unwrap().spawn(async move {
            let set_up = Self::ask(csi.clone(), &volume, &pod, Asked { again: false, group: None }).await;
            set_up.map_err(|failure| failure.message)?;
            csi.tear_down(&PodRef::of(&pod).uid, &volume.spec_name).await
        })
    }

    pub fn end(&self, waiting: Waiting) -> Result<(), String> {
        self.wait(waiting).unwrap()
    }

    pub fn events(&self) -> Vec<String> {
        self.events.0.lock().unwrap().clone()
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let _ = self.tasks.take();
        if let Some(runtime) = self.runtime.take() {
            // Tasks that nobody waits for end with it.
            runtime.shutdown_timeout(Duration::from_secs(10));
        }
    }
}

impl Volume {
    fn copy(&self) -> Self {
        let source = match &self.source {
            Source::Inline(source) => Source::Inline(source.clone()),
            Source::Claimed(both) => Source::Claimed(both.clone()),
        };
        Self { handle: self.handle.clone(), spec_name: self.spec_name.clone(), source }
    }
}

fn request<'a>(id: &'a PodRef, volume: &'a Volume, pod: &'a api::Pod, asked: Asked) -> CsiRequest<'a> {
    let source = match &volume.source {
        Source::Inline(source) => CsiSource::Inline { name: &volume.spec_name, source },
        Source::Claimed(both) => CsiSource::Claimed { pv: &both.0, claim: &both.1, read_only: false },
    };
    CsiRequest {
        id,
        pod,
        source,
        fs_group: asked.group,
        context: None,
        on_root_mismatch: false,
        again: asked.again,
    }
}

#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl VolumeEvents for Told {
    fn emit(&self, event: Event) {
        self.0.lock().unwrap().push(format!("{} {}", event.reason, event.message));
    }

    fn emit_claim(&self, event: ClaimEvent) {
        let ClaimEvent { namespace, name, reason, message, .. } = event;
        self.0.lock().unwrap().push(format!("claim {namespace}/{name}: {reason} {message}"));
    }
}

struct NoNode;

#[async_trait]
impl CsiNodeRecord for NoNode {
    async fn install(&self, _: &str, _: &NodeInfo) -> Result<(), String> {
        Ok(())
    }

    async fn update(&self, _: &str, _: &NodeInfo) -> Result<(), String> {
        Ok(())
    }

    async fn uninstall(&self, _: &str) -> Result<(), String> {
        Ok(())
    }
}

/// Tokens for everybody, and nothing else.
struct Tokens(NoObjects);

#[async_trait]
impl Objects for Tokens {
    fn register(&self, _: &api::Pod) {}

    fn forget(&self, _: &PodUid) {}

    async fn config_map(&self, namespace: &str, name: &str) -> Result<Arc<api::ConfigMap>, ObjectError> {
        self.0.config_map(namespace, name).await
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<Arc<api::Secret>, ObjectError> {
        self.0.secret(namespace, name).await
    }

    async fn token(&self, wanted: &TokenWanted) -> Result<Token, ObjectError> {
        let expires = SystemClock.now() + SignedDuration::from_secs(wanted.expiration_seconds);
        Ok(Token { text: "a token".to_owned(), refresh_at: expires, expires })
    }

    async fn services(&self, namespace: &str) -> Result<Vec<ServiceView>, ObjectError> {
        self.0.services(namespace).await
    }

    async fn runtime_handler(&self, class: &str) -> Result<String, ObjectError> {
        self.0.runtime_handler(class).await
    }

    fn changes(&self) -> broadcast::Receiver<ObjectKey> {
        self.0.changes()
    }
}
