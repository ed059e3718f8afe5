//! What the cluster is told of this node's pods, and what it has of them.
//!
//! | module | what it does |
//! |---|---|
//! | [`statuses`](crate::statuses) | patches statuses, and deletes pods that have ended |
//! | [`mirrors`](crate::mirrors) | shows static pods to the cluster |
//!
//! In standalone mode there is none.

use std::collections::BTreeSet;
use std::sync::Arc;

use crablet_apiserver::ApiServer;
use crablet_model::names::annotation;
use crablet_model::{PodRef, api};
use tokio::task::JoinSet;

use crate::mirrors::{Mirror, Mirrors};
use crate::statuses::{ApiCopy, Statuses};

pub struct Cluster {
    pub statuses: Arc<Statuses>,
    pub mirrors: Arc<Mirrors>,
}

impl Cluster {
    pub fn start(api: Arc<dyn ApiServer>, node_name: &str, tasks: &mut JoinSet<()>) -> Arc<Self> {
        let statuses = Arc::new(Statuses::default());
        let mirrors = Arc::new(Mirrors::new(node_name));
        tasks.spawn(statuses.clone().run(api.clone()));
        tasks.spawn(mirrors.clone().run(api));
        Arc::new(Self { statuses, mirrors })
    }

    /// Everything that the API server has for this node.
    pub fn replaced(&self, pods: &[api::Pod]) {
        let ids: BTreeSet<PodRef> = pods.iter().map(PodRef::of).collect();
        self.statuses.retain(&ids);
        self.mirrors.retain(&ids);
        pods.iter().for_each(|pod| self.seen(pod));
        self.mirrors.listed();
    }

    pub fn seen(&self, pod: &api::Pod) {
        let id = PodRef::of(pod);
        let hash = pod.metadata.annotations.as_ref().and_then(|a| a.get(annotation::CONFIG_MIRROR));
        self.statuses.seen(&id, ApiCopy::of(pod, hash.is_some()));
        if let Some(hash) = hash {
            let is_ending = pod.metadata.deletion_timestamp.is_some();
            self.mirrors.seen(&id, Mirror { uid: id.uid.clone(), hash: hash.clone(), is_ending });
        }
    }

    /// What an agent has told of a static pod, if its mirror was made for just this form of it.
    pub fn status_of_mirror(&self, id: &PodRef, hash: &str) -> Option<api::PodStatus> {
        let told = self.statuses.of_mirror(id).filter(|_| self.mirrors.is_for(id, hash))?;
        let told: api::PodStatus = serde_json::from_slice(&told).ok()?;
        Some(told).filter(|status| status.start_time.is_some())
    }

    pub fn gone(&self, id: &PodRef) {
        self.statuses.gone(id);
        self.mirrors.gone(id);
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
