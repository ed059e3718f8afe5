//! The runtime port.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use crablet_model::PodUid;
use crablet_model::runtime::{
    Container, ContainerConfig, ContainerListing, ContainerUpdate, Image, Incoming, LinuxResources,
    ListedImage, RuntimeEvent, RuntimeStatus, RuntimeVersion, Sandbox, SandboxConfig,
};
use futures_util::stream::BoxStream;

pub type Result<T> = std::result::Result<T, CriError>;

/// Hints until the stream ends or fails; then the caller relists and subscribes again.
pub type EventStream = BoxStream<'static, Result<RuntimeEvent>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The runtime does not know the thing that was named.
    NotFound,
    /// The runtime is too old for this call.
    Unimplemented,
    /// Nobody answers on the socket.
    Unavailable,
    /// No answer within the call's deadline; the runtime may still be at it.
    DeadlineExceeded,
    /// The runtime has too much of this at hand already.
    Exhausted,
    /// The runtime answered with an error.
    Refused,
}

/// The gRPC code that says nothing, in Go's words.
const UNKNOWN: &str = "Unknown";

/// A failed call. Displays the runtime's own words, without the gRPC code, as some of upstream's messages do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CriError {
    pub kind: ErrorKind,
    /// The gRPC code by the name that it has in Go; `None` for an answer that came and makes no sense.
    pub code: Option<&'static str>,
    pub message: String,
}

impl CriError {
    /// With the code that goes with the kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let code = match kind {
            ErrorKind::NotFound => "NotFound",
            ErrorKind::Unimplemented => "Unimplemented",
            ErrorKind::Unavailable => "Unavailable",
            ErrorKind::DeadlineExceeded => "DeadlineExceeded",
            ErrorKind::Exhausted => "ResourceExhausted",
            // What runtimes say of nearly all else.
            ErrorKind::Refused => UNKNOWN,
        };
        Self { kind, code: Some(code), message: message.into() }
    }

    /// With the gRPC code before it, as Go prints it.
    pub fn with_code(&self) -> String {
        match self.code {
            Some(code) => format!("rpc error: code = {code} desc = {}", self.message),
            None => self.message.clone(),
        }
    }

    /// The same, but without a code that says nothing: as upstream tells of pulls.
    pub fn with_known_code(&self) -> String {
        if self.code == Some(UNKNOWN) { self.message.clone() } else { self.with_code() }
    }

    pub fn is_not_found(&self) -> bool {
        self.kind == ErrorKind::NotFound
    }
}

/// Which of a process's streams somebody wants to hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    pub stdin: bool,
    pub stdout: bool,
    /// Never together with `tty`: a terminal has one output.
    pub stderr: bool,
    pub tty: bool,
}

/// Who asks a registry for an image. The password does not print.
#[derive(Clone, PartialEq, Eq)]
pub struct RegistryAuth {
    pub username: String,
    pub password: String,
}

impl fmt::Debug for RegistryAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryAuth").field("username", &self.username).finish_non_exhaustive()
    }
}

/// What a command that ran to its end left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandOutput {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub exit_code: i32,
}

/// Everything that Crablet asks of a container runtime.
///
/// Each call has its own deadline inside the implementation. Dropping a call's future gives the call up; what the
/// runtime made of it shows in the next inspection.
#[async_trait]
pub trait Runtime: Send + Sync + 'static {
    async fn version(&self) -> Result<RuntimeVersion>;
    async fn status(&self) -> Result<RuntimeStatus>;

    /// [`ErrorKind::Unimplemented`] where the runtime has no event stream.
    async fn events(&self) -> Result<EventStream>;

    /// All sandboxes, or those of one pod. Addresses are not filled in.
    async fn list_sandboxes(&self, uid: Option<&PodUid>) -> Result<Vec<Sandbox>>;
    /// All containers in any state, or those of one pod.
    async fn list_containers(&self, uid: Option<&PodUid>) -> Result<Vec<ContainerListing>>;
    async fn sandbox_status(&self, id: &str) -> Result<Sandbox>;
    async fn container_status(&self, id: &str) -> Result<Container>;

    /// Creates and starts a sandbox, and returns its id.
    async fn run_sandbox(&self, config: &SandboxConfig) -> Result<String>;
    async fn stop_sandbox(&self, id: &str) -> Result<()>;
    async fn remove_sandbox(&self, id: &str) -> Result<()>;

    async fn create_container(
        &self,
        sandbox_id: &str,
        config: &ContainerConfig,
        sandbox: &SandboxConfig,
    ) -> Result<String>;
    async fn start_container(&self, id: &str) -> Result<()>;
    /// Asks the container to stop, and forces it after `grace`.
    async fn stop_container(&self, id: &str, grace: Duration) -> Result<()>;
    async fn remove_container(&self, id: &str) -> Result<()>;
    /// Changes what a running container may use.
    async fn update_container(&self, id: &str, update: &ContainerUpdate) -> Result<()>;
    /// Tells the runtime what the sandbox needs for itself, and what its containers may use together.
    async fn update_sandbox(
        &self,
        id: &str,
        overhead: &LinuxResources,
        resources: &LinuxResources,
    ) -> Result<()>;
    /// Bytes of memory that a running container uses; `None` where the runtime does not say.
    async fn memory_usage(&self, id: &str) -> Result<Option<u64>>;

    /// `None` when the image is not on the node. `sandbox`: of the pod that needs it.
    async fn image_status(&self, image: &str, sandbox: Option<&SandboxConfig>) -> Result<Option<Image>>;
    async fn list_images(&self) -> Result<Vec<ListedImage>>;
    /// What pulls are bringing right now; `None` where the runtime does not say. CRI has no word for it.
    async fn incoming(&self) -> Result<Option<Vec<Incoming>>>;
    /// Tells the runtime which addresses pods get, for networks that it sets up itself.
    async fn set_pod_cidr(&self, cidr: &str) -> Result<()>;
    /// Pulls an image and returns the reference to create containers from. Has no deadline of its own.
    async fn pull_image(
        &self,
        image: &str,
        auth: Option<&RegistryAuth>,
        sandbox: Option<&SandboxConfig>,
    ) -> Result<String>;

    /// Runs a command in a container to its end. Without `timeout` it may take as long as it takes; with one, a command
    /// that takes longer is killed and the answer is [`ErrorKind::DeadlineExceeded`].
    async fn exec_sync(
        &self,
        id: &str,
        command: &[String],
        timeout: Option<Duration>,
    ) -> Result<CommandOutput>;
    /// Prepares a command in a container. The address that comes back is good for one connection, soon.
    async fn exec(&self, id: &str, command: &[String], streams: Streams) -> Result<String>;
    /// Prepares a connection to a container's own process, as [`Runtime::exec`] does to a new one.
    async fn attach(&self, id: &str, streams: Streams) -> Result<String>;
    /// Prepares connections to ports inside a sandbox. `ports` may be empty: then the connection names them.
    async fn port_forward(&self, sandbox_id: &str, ports: &[u16]) -> Result<String>;
    /// Writes a running container's state to a file. `timeout` in seconds is the runtime's to keep; 0 is its default.
    async fn checkpoint(&self, id: &str, location: &str, timeout: i64) -> Result<()>;
}
