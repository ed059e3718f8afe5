//! Reaching into running containers, and what is asked about them.

use async_trait::async_trait;
use bytes::Bytes;
use crablet_cri::Streams;

/// A container that somebody names in a request's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerName {
    pub namespace: String,
    pub pod: String,
    /// Where the path has one. A pod with another UID is not meant.
    pub uid: Option<String>,
    pub container: String,
}

/// A pod that should run here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPod {
    pub uid: String,
    /// Names of all its containers: ordinary, init and ephemeral ones.
    pub containers: Vec<String>,
}

/// The containers that run on this node.
///
/// Addresses are those of the runtime's streaming server: each is good for one connection, soon.
#[async_trait]
pub trait Containers: Send + Sync + 'static {
    fn pod(&self, namespace: &str, name: &str) -> Option<KnownPod>;

    /// Runs a command, with the streams that the caller holds. Returns an address.
    async fn exec(
        &self,
        name: &ContainerName,
        command: &[String],
        streams: Streams,
    ) -> Result<String, Refusal>;

    /// To the container's own process. Whether it has a terminal is the container's business: `streams.tty` is not
    /// looked at. Returns an address.
    async fn attach(&self, name: &ContainerName, streams: Streams) -> Result<String, Refusal>;

    /// To ports of a pod. Returns an address.
    async fn port_forward(&self, namespace: &str, pod: &str, ports: &[u16]) -> Result<String, Refusal>;

    /// Runs a command to its end, and returns what it printed on both outputs. A command that fails is a refusal.
    async fn run(&self, name: &ContainerName, command: &[String]) -> Result<Bytes, Refusal>;

    /// Writes a container's state to a file in the checkpoints folder, and returns the file's path.
    async fn checkpoint(&self, name: &ContainerName, timeout_seconds: i64) -> Result<String, Refusal>;

    /// A `v1.PodList` of what the runtime says that runs.
    async fn running_pods_json(&self) -> Result<Bytes, Refusal>;
}

/// Why not, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The runtime does not know the container.
    #[error("{0}")]
    NotFound(String),
    /// The runtime has too many of these.
    #[error("{0}")]
    Exhausted(String),
    #[error("{0}")]
    Failed(String),
}
