//! What this crate needs from the rest of the program.

mod containers;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use prometheus::proto::MetricFamily;
use tokio::sync::watch;

pub use containers::{ContainerName, Containers, KnownPod, Refusal};

/// What is known about pods, ready to be sent.
pub trait PodView: Send + Sync + 'static {
    /// Each a complete `v1.Pod` object as JSON; only pods that should run here.
    fn pods_json(&self) -> Vec<Bytes>;

    /// One JSON object without a newline in it.
    fn summary_json(&self) -> Bytes;

    /// Changes after each change of what the other methods tell.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Why is this pod the way it is? `None`: there is no such pod.
    fn explain_json(&self, namespace: &str, name: &str) -> Option<Bytes>;

    /// `Err` says in one line what is wrong with the agent.
    fn health(&self) -> Result<(), String>;

    /// What `/metrics` shows beside the server's own figures.
    fn figures(&self) -> Vec<MetricFamily> {
        Vec::new()
    }

    /// What `/metrics/probes` shows.
    fn probe_figures(&self) -> Vec<MetricFamily> {
        Vec::new()
    }
}

/// Images on their way to this node.
#[async_trait]
pub trait ImagePulls: Send + Sync + 'static {
    /// One JSON object: who waits for which image since when, and what has come of them.
    async fn under_way_json(&self) -> Bytes;
}

/// Manifests handed in through the local socket. Names are checked before they come here: they are DNS subdomains.
#[async_trait]
pub trait Manifests: Send + Sync + 'static {
    async fn put(&self, name: &str, body: &[u8]) -> Result<Stored, ManifestRefusal>;
    /// `None`: there is none. `Err` says why that cannot be told.
    async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, String>;
    async fn list(&self) -> Result<Vec<String>, String>;
    /// `false`: there was none.
    async fn delete(&self, name: &str) -> Result<bool, String>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// `false`: an earlier manifest of that name was replaced.
    pub created: bool,
    /// What in the manifest will not do what its author may think.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestRefusal {
    /// The manifest is wrong: one line says where.
    #[error("{0}")]
    Invalid(String),
    /// The manifest may be right, but could not be kept.
    #[error("cannot store the manifest: {0}")]
    Storage(String),
}

/// How much the program writes to its log.
pub trait Verbosity: Send + Sync + 'static {
    /// klog's number.
    fn set(&self, verbosity: u32);
}

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

/// What somebody wants to do with this node: `verb` on `nodes/<subresource>` named `node`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessAttributes {
    pub user: Arc<UserInfo>,
    /// Empty for methods that have no verb in the API.
    pub verb: &'static str,
    pub subresource: &'static str,
    pub node: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Allowed,
    /// Also when there is no opinion.
    Denied,
}

/// Asks the cluster about those who ask. Answers are remembered by this crate.
#[async_trait]
pub trait Reviews: Send + Sync + 'static {
    /// `None`: nobody has this token. `Err` says why that cannot be told, without the token.
    async fn token_review(&self, token: &str) -> Result<Option<UserInfo>, String>;

    async fn access_review(&self, attributes: &AccessAttributes) -> Result<Decision, String>;
}

/// Finds the logs of containers.
#[async_trait]
pub trait Logs: Send + Sync + 'static {
    /// `previous`: of the run before the current one.
    async fn find(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        previous: bool,
    ) -> Result<LogFile, LogRefusal>;
}

/// Where a container's log is.
#[derive(Clone, Debug)]
pub struct LogFile {
    /// Opened without following a symlink in its last component.
    pub path: PathBuf,
    /// Whether the container has ended, after which nothing is written any more. A sender that is gone counts as an end.
    pub ended: watch::Receiver<bool>,
}

/// Why there is no log, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogRefusal {
    #[error("pod {pod:?} does not exist")]
    NoPod { pod: String },
    /// The pod's specification has no such container.
    #[error("container {container:?} not found in pod {pod:?}")]
    NoContainer { container: String, pod: String },
    /// The pod's status does not tell of it yet.
    #[error("container {container:?} in pod {pod:?} is not available")]
    NotAvailable { container: String, pod: String },
    #[error("container {container:?} in pod {pod:?} is waiting to start: {}", waiting(.reason))]
    Waiting { container: String, pod: String, reason: String },
    #[error("container {container:?} in pod {pod:?} is waiting to start - no logs yet")]
    NotStarted { container: String, pod: String },
    /// It has ended, and nobody knows which container it was.
    #[error("container {container:?} in pod {pod:?} is terminated")]
    Terminated { container: String, pod: String },
    #[error("previous terminated container {container:?} in pod {pod:?} not found")]
    NoPrevious { container: String, pod: String },
    /// The runtime does not know it, or does not answer. `id` is like `containerd://abc`.
    #[error("unable to retrieve container logs for {id}")]
    Unretrievable { id: String },
}

/// What waiting for an image is called where logs are asked for.
fn waiting(reason: &str) -> &str {
    match reason {
        "ErrImagePull" => "image can't be pulled",
        "ImagePullBackOff" => "trying and failing to pull image",
        other => other,
    }
}
