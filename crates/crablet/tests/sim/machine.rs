//! The machine below the agent besides its runtime and disk: what the node says of itself, volumes, cgroups. It survives
//! the agent's deaths.

use std::sync::Arc;

use async_trait::async_trait;
use crablet_host::fake::{FakeFiles, Gate};
use crablet_model::cgroup::limits::{CgroupLimits, CgroupNow};
use crablet_model::cgroup::{Cgroup, CgroupDriver};
use crablet_model::{PodUid, api};
use crablet_node::fake::FakeNodeHost;
use crablet_pods::ports::PodCgroups;
use crablet_resources::fake::FakeCgroups;
use crablet_resources::{CgroupHost, CgroupSettings, Cgroups};
use crablet_volumes::fake::FakeVolumeHost;
use crablet_volumes::port::PathKind;
use fastrand::Rng;
use tokio::sync::OnceCell;

use super::world::ROOT;

#[derive(Clone)]
pub struct Machine {
    pub volumes: FakeVolumeHost,
    pub node: Arc<FakeNodeHost>,
    cgroups: Arc<FakeCgroups>,
    gate: Gate,
}

impl Machine {
    pub fn new(rng: &mut Rng, gate: Gate) -> Self {
        let volumes = FakeVolumeHost::new(rng.fork());
        volumes.set_gate(Some(gate.clone()));
        Self { volumes, node: Arc::default(), cgroups: Arc::default(), gate }
    }

    /// As one life of the agent has them.
    pub fn cgroups(&self) -> Arc<dyn PodCgroups> {
        let settings = CgroupSettings {
            per_qos: true,
            root: "/".to_owned(),
            driver: CgroupDriver::Cgroupfs,
            pod_pids_limit: -1,
            cpu_quota: true,
            cpu_period: std::time::Duration::from_millis(100),
            allocatable: None,
            page_sizes: Vec::new(),
        };
        let host = GatedCgroups { host: self.cgroups.clone(), gate: self.gate.clone() };
        let cgroups = Cgroups::new(settings, Arc::new(host));
        Arc::new(AgentCgroups { cgroups, started: OnceCell::new() })
    }

    /// Says that there are ten times as many CPUs as there are.
    pub fn boast(&self) {
        if let Ok(mut machine) = self.node.0.lock() {
            machine.machine.cpus *= 10;
        }
    }

    pub fn fail_cgroups(&self, fail: bool) {
        self.cgroups.fail_with(fail.then_some("device or resource busy"));
    }

    /// What a mount of a pod is made of becomes a folder where it is not there; says whether it was so. Volumes have a disk
    /// of their own here, below the same folder of the pod.
    pub fn make_source(&self, files: &FakeFiles, path: &str) -> bool {
        let Some((uid, below)) =
            path.strip_prefix(&format!("{ROOT}/pods/")).and_then(|path| path.split_once('/'))
        else {
            return false;
        };
        if files.mode(path).is_some() || !self.volumes.paths_below(path).is_empty() {
            return false;
        }
        if below.starts_with("volume") {
            files.put_folder(format!("{ROOT}/pods/{uid}"));
            self.volumes.put(path, PathKind::Folder);
        } else {
            files.put_folder(path);
        }
        true
    }

    /// What is held by pods: mounts, volumes' folders and files, cgroups. One line each.
    pub fn held(&self) -> Vec<String> {
        let pods = format!("{ROOT}/pods");
        let mounts = self
            .volumes
            .mounted_below(&pods)
            .into_iter()
            .map(|mounted| format!("mount {}", mounted.path.display()));
        // Folders above volumes are the business of the pod's own folder.
        let depth_of_volumes = pods.matches('/').count() + 2;
        let paths = self.volumes.paths_below(&pods).into_iter();
        let paths =
            paths.filter(move |path| path.trim_end_matches('/').matches('/').count() > depth_of_volumes);
        let is_pod = |path: &String| path.rsplit('/').next().is_some_and(|name| name.starts_with("pod"));
        let cgroups = self.cgroups.made().into_keys().filter(is_pod).map(|path| format!("cgroup {path}"));
        mounts.chain(paths.map(|path| format!("volume {path}"))).chain(cgroups).collect()
    }

    /// What one pod holds.
    pub fn held_by(&self, uid: &str) -> Vec<String> {
        self.held().into_iter().filter(|text| text.contains(uid)).collect()
    }
}

/// A dead agent changes no cgroup.
struct GatedCgroups {
    host: Arc<FakeCgroups>,
    gate: Gate,
}

impl GatedCgroups {
    /// A place to die.
    async fn step(&self, call: &'static str) {
        // The real one asks another thread, which gives others a turn.
        tokio::task::yield_now().await;
        if !(self.gate)(call) {
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl CgroupHost for GatedCgroups {
    async fn check(&self, cgroup: &Cgroup) -> Result<(), String> {
        self.step("check_cgroup").await;
        self.host.check(cgroup).await
    }

    async fn create(&self, cgroup: &Cgroup, limits: &CgroupLimits) -> Result<(), String> {
        self.step("create_cgroup").await;
        self.host.create(cgroup, limits).await
    }

    async fn update(&self, cgroup: &Cgroup, limits: &CgroupLimits) -> Result<(), String> {
        self.step("update_cgroup").await;
        self.host.update(cgroup, limits).await
    }

    async fn now(&self, cgroup: &Cgroup) -> Result<CgroupNow, String> {
        self.step("read_cgroup").await;
        self.host.now(cgroup).await
    }

    async fn remove(&self, cgroup: &Cgroup) -> Result<(), String> {
        self.step("remove_cgroup").await;
        self.host.remove(cgroup).await
    }

    async fn children(&self, cgroup: &Cgroup) -> Result<Vec<String>, String> {
        self.step("list_cgroups").await;
        self.host.children(cgroup).await
    }
}

/// As the program's wiring joins them, without a runtime that is asked for the driver.
struct AgentCgroups {
    cgroups: Arc<Cgroups>,
    started: OnceCell<()>,
}

impl AgentCgroups {
    async fn ready(&self) -> Result<&Arc<Cgroups>, String> {
        self.started.get_or_try_init(|| self.cgroups.start()).await?;
        Ok(&self.cgroups)
    }
}

#[async_trait]
impl PodCgroups for AgentCgroups {
    async fn parent(&self, pod: &api::Pod) -> Result<String, String> {
        Ok(self.ready().await?.pod_parent(pod))
    }

    async fn ensure(&self, pod: &api::Pod) -> Result<(), String> {
        self.ready().await?.ensure_pod(pod).await
    }

    async fn compare(&self, pod: &api::Pod) -> Result<Option<(CgroupLimits, CgroupNow)>, String> {
        let cgroups = self.ready().await?;
        Ok(cgroups.wanted(pod).zip(cgroups.now(pod).await?))
    }

    async fn set(&self, pod: &api::Pod, limits: &CgroupLimits) -> Result<(), String> {
        self.ready().await?.set(pod, limits).await
    }

    async fn recount(&self, pod: &api::Pod) {
        self.cgroups.recount(pod).await;
    }

    async fn remove(&self, uid: &PodUid) -> Result<(), String> {
        self.ready().await?.remove_pod(uid).await
    }
}
