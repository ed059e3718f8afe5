//! What this crate needs from the rest of the program.

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;

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
