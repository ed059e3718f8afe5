//! What the servers show and take, as they want it.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use crablet_pods::images::Images;
use crablet_pods::pleg::Hint;
use crablet_pods::sources::{Refusal, Submitted};
use crablet_pods::view::View;
use crablet_server::{ImagePulls, ManifestRefusal, Manifests, PodView, Stored};
use prometheus::proto::MetricFamily;
use tokio::sync::{mpsc, watch};

use super::figured::Figured;

/// What the outside may see of the pods.
pub struct ServedView {
    pub view: Arc<View>,
    pub hints: mpsc::WeakSender<Hint>,
    pub figured: Arc<Figured>,
}

impl PodView for ServedView {
    fn pods_json(&self) -> Vec<Bytes> {
        self.view.pods().into_iter().map(Bytes::from).collect()
    }

    fn summary_json(&self) -> Bytes {
        serde_json::to_vec(&self.view.summary()).unwrap_or_default().into()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.view.changes()
    }

    fn explain_json(&self, namespace: &str, name: &str) -> Option<Bytes> {
        let journal = self.view.journal(namespace, name)?;
        Some(serde_json::to_vec(&journal).unwrap_or_default().into())
    }

    /// The registry takes hints in microseconds; when they pile up, it is stuck.
    fn health(&self) -> Result<(), String> {
        match self.hints.upgrade() {
            Some(hints) if hints.capacity() > 0 => Ok(()),
            Some(_) => Err("the pod registry does not keep up".to_owned()),
            None => Err("the pod registry has ended".to_owned()),
        }
    }

    fn figures(&self) -> Vec<MetricFamily> {
        self.figured.all()
    }

    fn probe_figures(&self) -> Vec<MetricFamily> {
        self.figured.probes()
    }
}

/// Images on their way.
pub struct ServedPulls(pub Arc<Images>);

#[async_trait]
impl ImagePulls for ServedPulls {
    async fn under_way_json(&self) -> Bytes {
        serde_json::to_vec(&self.0.under_way().await).unwrap_or_default().into()
    }
}

/// Manifests that a program on this node hands in.
pub struct ServedManifests(pub Submitted);

#[async_trait]
impl Manifests for ServedManifests {
    async fn put(&self, name: &str, body: &[u8]) -> Result<Stored, ManifestRefusal> {
        match self.0.put(name, body.to_vec()).await {
            Ok(stored) => Ok(Stored { created: stored.created, warnings: stored.warnings }),
            Err(Refusal::Invalid(text)) => Err(ManifestRefusal::Invalid(text)),
            Err(Refusal::Storage(text)) => Err(ManifestRefusal::Storage(text)),
        }
    }

    async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        self.0.get(name).await.map_err(|refusal| refusal.to_string())
    }

    async fn list(&self) -> Result<Vec<String>, String> {
        let listed = self.0.list().await.map_err(|refusal| refusal.to_string())?;
        Ok(listed.into_iter().map(|listed| listed.name).collect())
    }

    async fn delete(&self, name: &str) -> Result<bool, String> {
        self.0.delete(name).await.map_err(|refusal| refusal.to_string())
    }
}
