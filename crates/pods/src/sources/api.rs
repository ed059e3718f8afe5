//! Pods of the API server: a watch of those that are bound to this node.
//!
//! Begins once the Node object has been looked for, as upstream: a pod is judged with the node at hand. Mirrors of static
//! pods come along and are not pods to run: they go to [`Mirrors`](crate::mirrors::Mirrors).

use std::sync::Arc;

use bytes::Bytes;
use crablet_apiserver::reflector::{Reflected, Reflection, reflect};
use crablet_apiserver::{ApiServer, Lane};
use crablet_model::names::annotation;
use crablet_model::{PodRef, api, manifest};
use futures_util::StreamExt;
use tokio::sync::watch;

use super::Source;
use super::mux::Stated;
use super::outlet::{Closed, Outlet};
use crate::cluster::Cluster;

/// Bounds of the time after which the server is asked to end a watch.
const WATCH_SECONDS: (u64, u64) = (300, 600);

/// The watch of this node's pods.
pub struct ApiSource {
    pub api: Arc<dyn ApiServer>,
    pub node_name: String,
    pub cluster: Arc<Cluster>,
    /// Turns true when the Node object has been looked for.
    pub node_known: watch::Receiver<bool>,
    pub seed: u64,
}

impl ApiSource {
    pub(super) async fn run(mut self, outlet: Outlet) {
        if self.node_known.wait_for(|known| *known).await.is_err() {
            return std::future::pending().await; // the agent is going down
        }
        let reflection = Reflection {
            path: "/api/v1/pods".to_owned(),
            selector: Some(format!("spec.nodeName={}", self.node_name)),
            lane: Lane::Main,
            timeout: WATCH_SECONDS,
        };
        let mut pods = reflect(self.api.clone(), reflection, self.seed);
        let mut troubled = false;
        while let Some(change) = pods.next().await {
            if let Reflected::Failed(error) = &change {
                if !std::mem::replace(&mut troubled, true) {
                    tracing::warn!(%error, "cannot watch the pods of this node; what runs goes on, and the watch is tried again");
                }
                continue;
            }
            if std::mem::take(&mut troubled) {
                tracing::info!("the pods of this node are watched again");
            }
            if self.take_in(change, &outlet).await.is_err() {
                return;
            }
        }
    }

    async fn take_in(&self, change: Reflected, outlet: &Outlet) -> Result<(), Closed> {
        match change {
            Reflected::Replaced(objects) => {
                let pods: Vec<api::Pod> = objects.iter().filter_map(decode).collect();
                self.cluster.replaced(&pods);
                let mut stated: Vec<_> =
                    pods.iter().filter(|pod| !is_mirror(pod)).map(|pod| state(pod, None)).collect();
                if pods.len() < objects.len() {
                    for id in objects.iter().filter(|object| decode(object).is_none()).filter_map(id_of) {
                        stated.extend(outlet.known(Source::Api, &id.uid).await);
                    }
                }
                outlet.set(Source::Api, &mut stated).await
            }
            Reflected::Applied(object) => {
                let Some(pod) = decode(&object) else { return Ok(()) };
                self.cluster.seen(&pod);
                if is_mirror(&pod) {
                    return Ok(());
                }
                let known = outlet.known(Source::Api, &PodRef::of(&pod).uid).await;
                outlet.put(Source::Api, &state(&pod, known.as_ref())).await
            }
            Reflected::Deleted(object) => {
                // One that cannot be understood goes all the same.
                let Some(id) = id_of(&object) else { return Ok(()) };
                self.cluster.gone(&id);
                outlet.take(Source::Api, &id.uid).await
            }
            Reflected::Failed(_) => Ok(()),
        }
    }
}

fn is_mirror(pod: &api::Pod) -> bool {
    pod.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(annotation::CONFIG_MIRROR))
}

fn state(pod: &api::Pod, known: Option<&Stated>) -> Stated {
    Stated::of_api(pod, known, |pod| manifest::unsupported(pod).map(Arc::from))
}

/// Who a pod is that may not be understood otherwise.
fn id_of(object: &Bytes) -> Option<PodRef> {
    let object: serde_json::Value = serde_json::from_slice(object).ok()?;
    let text = |field: &str| object["metadata"][field].as_str();
    let (name, namespace) = (text("name").unwrap_or_default(), text("namespace").unwrap_or_default());
    Some(PodRef::new(name, namespace, text("uid")?))
}

/// Without what no decision needs. A pod that does not decode is said; what runs of it goes on.
fn decode(object: &Bytes) -> Option<api::Pod> {
    match serde_json::from_slice::<api::Pod>(object) {
        Ok(mut pod) => {
            pod.metadata.managed_fields = None;
            Some(pod)
        }
        Err(error) => {
            tracing::error!(%error, "the API server sent a pod that cannot be understood; it is left as it is");
            None
        }
    }
}

#[cfg(test)]
mod tests;
