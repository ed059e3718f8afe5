//! What pods need of the cluster besides themselves.

use std::sync::Arc;

use async_trait::async_trait;
use crablet_model::{PodRef, PodUid, api};
use jiff::Timestamp;
use tokio::sync::broadcast;

/// Why an object cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// The API server says that there is none: an optional reference may go without it.
    #[error("{0}")]
    NotFound(String),
    /// In upstream's words.
    #[error("{0}")]
    Unavailable(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    ConfigMap,
    Secret,
}

impl ObjectKind {
    /// As messages name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
        }
    }
}

/// Which object is meant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    pub kind: ObjectKind,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

/// A service account token that a pod wants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenWanted {
    pub pod: PodRef,
    pub service_account: String,
    /// Empty for the API server's own.
    pub audiences: Vec<String>,
    pub expiration_seconds: i64,
}

/// Never printed: `Debug` hides the text.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    pub text: String,
    /// When it should be asked for again; the old one may be served until it expires.
    pub refresh_at: Timestamp,
    pub expires: Timestamp,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("refresh_at", &self.refresh_at).finish_non_exhaustive()
    }
}

/// A service, as far as environment variables tell of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceView {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub cluster_ip: String,
    pub ports: Vec<ServicePort>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    pub name: String,
    pub protocol: String,
    pub port: i32,
}

/// The cluster's objects that pods refer to. Watched per object while some pod refers to it; reads come from memory,
/// except the first, which waits for at most a second.
#[async_trait]
pub trait Objects: Send + Sync + 'static {
    /// The pod refers to objects from now on, until [`Objects::forget`]. Again for each new version of the pod.
    fn register(&self, pod: &api::Pod);

    fn forget(&self, uid: &PodUid);

    async fn config_map(&self, namespace: &str, name: &str) -> Result<Arc<api::ConfigMap>, ObjectError>;

    async fn secret(&self, namespace: &str, name: &str) -> Result<Arc<api::Secret>, ObjectError>;

    async fn token(&self, wanted: &TokenWanted) -> Result<Token, ObjectError>;

    /// Services that pods of a namespace are told of: its own, and `kubernetes` of `default`, sorted by namespace and
    /// name. Waits until the services are known at all.
    async fn services(&self, namespace: &str) -> Result<Vec<ServiceView>, ObjectError>;

    /// The runtime's handler of a runtime class.
    async fn runtime_handler(&self, class: &str) -> Result<String, ObjectError>;

    /// The pods that refer to an object, as far as they were registered.
    fn referring(&self, _: &ObjectKey) -> Vec<PodUid> {
        Vec::new()
    }

    /// Tells which objects have changed since. A receiver that lags behind has to look at all.
    fn changes(&self) -> broadcast::Receiver<ObjectKey>;
}

/// Standalone: there are none, and that is said in upstream's words.
pub struct NoObjects {
    changes: broadcast::Sender<ObjectKey>,
}

impl Default for NoObjects {
    fn default() -> Self {
        Self { changes: broadcast::channel(1).0 }
    }
}

fn no_client(kind: &str, namespace: &str, name: &str) -> ObjectError {
    ObjectError::Unavailable(format!("couldn't get {kind} {namespace}/{name}, no kubeClient defined"))
}

#[async_trait]
impl Objects for NoObjects {
    fn register(&self, _: &api::Pod) {}

    fn forget(&self, _: &PodUid) {}

    async fn config_map(&self, namespace: &str, name: &str) -> Result<Arc<api::ConfigMap>, ObjectError> {
        Err(no_client("configMap", namespace, name))
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<Arc<api::Secret>, ObjectError> {
        Err(no_client("secret", namespace, name))
    }

    async fn token(&self, _: &TokenWanted) -> Result<Token, ObjectError> {
        Err(ObjectError::Unavailable("cannot use TokenManager when kubelet is in standalone mode".to_owned()))
    }

    async fn services(&self, _: &str) -> Result<Vec<ServiceView>, ObjectError> {
        Ok(Vec::new())
    }

    async fn runtime_handler(&self, class: &str) -> Result<String, ObjectError> {
        Err(ObjectError::Unavailable(format!(
            "failed to get RuntimeClass {class:?}: there is no API server in standalone mode"
        )))
    }

    fn changes(&self) -> broadcast::Receiver<ObjectKey> {
        self.changes.subscribe()
    }
}
