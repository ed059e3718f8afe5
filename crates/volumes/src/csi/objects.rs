//! What the cluster knows of drivers and volumes: CSIDriver objects by a watch that begins with the first question, the
//! rest by single requests, as upstream has it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crablet_apiserver::reflector::{Reflected, Reflection, reflect};
use crablet_apiserver::{ApiServer, Call, Lane, Verb};
use crablet_model::api;
use futures_util::StreamExt;
use k8s_openapi::api::storage::v1::{CSIDriver, CSIDriverSpec, VolumeAttachment};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{Notify, watch};

/// How long the first one that asks waits for the list.
const PATIENCE: Duration = Duration::from_secs(5);

pub struct CsiObjects {
    /// `None` in standalone mode.
    api: Option<Arc<dyn ApiServer>>,
    drivers: Mutex<BTreeMap<String, Arc<CSIDriverSpec>>>,
    known: watch::Sender<bool>,
    wanted: Notify,
    /// Moves with every change of a CSIDriver.
    changes: watch::Sender<u64>,
}

impl CsiObjects {
    pub fn new(api: Option<Arc<dyn ApiServer>>) -> Self {
        Self {
            api,
            drivers: Mutex::default(),
            known: watch::Sender::new(false),
            wanted: Notify::new(),
            changes: watch::Sender::new(0),
        }
    }

    /// Watches CSIDriver objects once somebody has asked.
    pub async fn follow(&self, seed: u64) {
        let Some(api) = &self.api else { return std::future::pending().await };
        self.wanted.notified().await;
        let what = Reflection {
            path: "/apis/storage.k8s.io/v1/csidrivers".to_owned(),
            selector: None,
            lane: Lane::Main,
            timeout: (300, 600),
        };
        let mut reflected = reflect(api.clone(), what, seed);
        while let Some(news) = reflected.next().await {
            match news {
                Reflected::Replaced(all) => {
                    *self.drivers() = all.iter().filter_map(|json| read(json)).collect();
                    self.known.send_replace(true);
                }
                Reflected::Applied(json) => self.drivers().extend(read(&json)),
                Reflected::Deleted(json) => {
                    if let Some((name, _)) = read(&json) {
                        self.drivers().remove(&name);
                    }
                }
                Reflected::Failed(error) => {
                    tracing::warn!(err = %error, "Failed to watch CSIDrivers, will retry");
                    continue;
                }
            }
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// The driver's CSIDriver object, if there is one.
    pub async fn driver(&self, name: &str) -> Result<Option<Arc<CSIDriverSpec>>, String> {
        if self.api.is_none() {
            return Ok(None);
        }
        self.wanted.notify_one();
        let mut known = self.known.subscribe();
        let waited = tokio::time::timeout(PATIENCE, known.wait_for(|known| *known)).await;
        if !matches!(waited, Ok(Ok(_))) {
            return Err("the CSIDrivers of the cluster have not been read yet".to_owned());
        }
        Ok(self.drivers().get(name).cloned())
    }

    /// What is known now, without waiting.
    pub fn known_driver(&self, name: &str) -> Option<Arc<CSIDriverSpec>> {
        self.wanted.notify_one();
        self.drivers().get(name).cloned()
    }

    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub async fn attachment(&self, name: &str) -> Result<VolumeAttachment, String> {
        self.get(format!("/apis/storage.k8s.io/v1/volumeattachments/{name}")).await
    }

    pub async fn claim(&self, namespace: &str, name: &str) -> Result<api::PersistentVolumeClaim, String> {
        self.get(claim_path(namespace, name)).await
    }

    /// Of the status, as a strategic merge patch.
    pub async fn patch_claim_status(
        &self,
        namespace: &str,
        name: &str,
        patch: Value,
    ) -> Result<api::PersistentVolumeClaim, String> {
        let path = format!("{}/status", claim_path(namespace, name));
        let call = Call::new(Verb::StrategicPatch, Lane::Main, path).with_body(patch.to_string());
        let answer = self.server()?.call(call).await.map_err(|error| error.to_string())?;
        serde_json::from_slice(&answer).map_err(|error| format!("the answer is not understood: {error}"))
    }

    /// What a secret holds, as text: drivers take nothing else.
    pub async fn credentials(&self, namespace: &str, name: &str) -> Result<BTreeMap<String, String>, String> {
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        let secret: api::Secret = self.get(path).await.map_err(|error| {
            format!(
                "kubernetes.io/csi: failed to find the secret {name} in the namespace {namespace} with error: {error}"
            )
        })?;
        let text = |bytes: k8s_openapi::ByteString| String::from_utf8_lossy(&bytes.0).into_owned();
        Ok(secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, text(value))).collect())
    }

    async fn get<T: DeserializeOwned>(&self, path: String) -> Result<T, String> {
        let answer =
            self.server()?.call(Call::get(Lane::Main, path)).await.map_err(|error| error.to_string())?;
        // What exactly cannot be read is not said: it could be a secret.
        serde_json::from_slice(&answer)
            .map_err(|_| "the answer of the API server is not understood".to_owned())
    }

    fn server(&self) -> Result<&Arc<dyn ApiServer>, String> {
        self.api.as_ref().ok_or_else(|| "there is no API server in standalone mode".to_owned())
    }

    fn drivers(&self) -> MutexGuard<'_, BTreeMap<String, Arc<CSIDriverSpec>>> {
        self.drivers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn claim_path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")
}

fn read(json: &[u8]) -> Option<(String, Arc<CSIDriverSpec>)> {
    match serde_json::from_slice::<CSIDriver>(json) {
        Ok(driver) => Some((driver.metadata.name?, Arc::new(driver.spec))),
        Err(error) => {
            tracing::warn!(err = %error, "A CSIDriver cannot be read, ignoring it");
            None
        }
    }
}
