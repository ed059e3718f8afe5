//! What the pods room needs of its neighbours. `wiring.rs` of the program joins them.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use crablet_model::{PodRef, PodUid, api};
use crablet_planner::pod::config::{MountedVolume, SubPath};

/// The volumes of pods.
#[async_trait]
pub trait PodVolumes: Send + Sync + 'static {
    /// Afterwards everything that the pod's containers mount is there. Cheap when it was there already.
    async fn set_up(&self, pod: &api::Pod) -> Result<BTreeMap<String, MountedVolume>, String>;
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
    /// As the runtime is told; empty where pods have none.
    async fn parent(&self, pod: &api::Pod) -> Result<String, String>;
    async fn ensure(&self, pod: &api::Pod) -> Result<(), String>;
    /// With everything in it; absent is fine.
    async fn remove(&self, uid: &PodUid) -> Result<(), String>;
}
