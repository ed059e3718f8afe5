//! What the pods room needs of its neighbours. `wiring.rs` of the program joins them.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use crablet_model::cgroup::limits::{CgroupLimits, CgroupNow};
use crablet_model::{PodRef, PodUid, api};
use crablet_planner::pod::config::{MountedVolume, SubPath};

use crate::events::EventSink;

/// Why the node cannot have a pod, found out only after it was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Of the pod's status and of the event.
    pub reason: &'static str,
    pub message: String,
}

/// The volumes of pods.
#[async_trait]
pub trait PodVolumes: Send + Sync + 'static {
    /// Afterwards everything that the pod's containers mount is there. Cheap when it was there already.
    async fn set_up(&self, pod: &api::Pod) -> Result<BTreeMap<String, MountedVolume>, String>;
    /// After a failed set-up: why the pod must not run on this node at all.
    async fn refusal(&self, id: &PodRef) -> Option<Refusal>;
    /// The pod has other labels or annotations now, which volumes may show.
    fn pod_changed(&self, id: &PodRef, json: &Arc<[u8]>);
    /// Makes a part of a volume ready for a container, and returns its host path.
    async fn sub_path(&self, id: &PodRef, container: &str, wanted: &SubPath) -> Result<String, String>;
    /// Unmounts everything of the pod; absent is fine.
    async fn tear_down(&self, id: &PodRef) -> Result<(), String>;
}

/// The cgroups of pods, in which the runtime puts their containers.
#[async_trait]
pub trait PodCgroups: Send + Sync + 'static {
    /// Who hears what becomes of the cgroups that all pods share. Said once, before the first pod comes.
    fn tell(&self, _events: Arc<dyn EventSink>) {}
    /// As the runtime is told; empty where pods have none.
    async fn parent(&self, pod: &api::Pod) -> Result<String, String>;
    async fn ensure(&self, pod: &api::Pod) -> Result<(), String>;
    /// What the pod's cgroup is to be like, and what it is like now; `None` where pods have none.
    async fn compare(&self, pod: &api::Pod) -> Result<Option<(CgroupLimits, CgroupNow)>, String>;
    /// Changes the pod's cgroup; what is not said stays as it is.
    async fn set(&self, pod: &api::Pod, limits: &CgroupLimits) -> Result<(), String>;
    /// The pod was granted other resources: what its class has together changes with them.
    async fn recount(&self, pod: &api::Pod);
    /// With everything in it; absent is fine.
    async fn remove(&self, uid: &PodUid) -> Result<(), String>;
}
