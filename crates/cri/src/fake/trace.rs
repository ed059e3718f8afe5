//! What an outsider could have seen.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crablet_model::PodUid;
use jiff::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    Version,
    Status,
    Events,
    ListSandboxes,
    ListContainers,
    SandboxStatus,
    ContainerStatus,
    RunSandbox,
    StopSandbox,
    RemoveSandbox,
    CreateContainer,
    StartContainer,
    StopContainer,
    RemoveContainer,
    UpdateContainer,
    UpdateSandbox,
    MemoryUsage,
    ImageStatus,
    ListImages,
    SetPodCidr,
    PullImage,
}

impl Call {
    pub fn name(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Status => "status",
            Self::Events => "events",
            Self::ListSandboxes => "list_sandboxes",
            Self::ListContainers => "list_containers",
            Self::SandboxStatus => "sandbox_status",
            Self::ContainerStatus => "container_status",
            Self::RunSandbox => "run_sandbox",
            Self::StopSandbox => "stop_sandbox",
            Self::RemoveSandbox => "remove_sandbox",
            Self::CreateContainer => "create_container",
            Self::StartContainer => "start_container",
            Self::StopContainer => "stop_container",
            Self::RemoveContainer => "remove_container",
            Self::UpdateContainer => "update_container",
            Self::UpdateSandbox => "update_sandbox",
            Self::MemoryUsage => "memory_usage",
            Self::ImageStatus => "image_status",
            Self::ListImages => "list_images",
            Self::SetPodCidr => "set_pod_cidr",
            Self::PullImage => "pull_image",
        }
    }

    pub fn reads(self) -> bool {
        use Call::*;
        matches!(
            self,
            Version
                | Status
                | ListSandboxes
                | ListContainers
                | SandboxStatus
                | ContainerStatus
                | MemoryUsage
                | ImageStatus
                | ListImages
        )
    }
}

/// What a call or a change is about. Parts that do not apply are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    pub uid: Option<PodUid>,
    pub pod: Arc<str>,
    /// The container's name; empty for a sandbox.
    pub container: Arc<str>,
    /// The runtime's id of the sandbox or the container, or the image's name.
    pub id: Arc<str>,
    pub attempt: u32,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pod.is_empty() {
            return f.write_str(&self.id);
        }
        write!(f, "{}", self.pod)?;
        if let Some(uid) = &self.uid {
            write!(f, "({})", uid.as_str().get(..6).unwrap_or(uid.as_str()))?;
        }
        if !self.container.is_empty() {
            write!(f, "/{}", self.container)?;
        }
        write!(f, " #{}", self.attempt)?;
        if !self.id.is_empty() {
            write!(f, " {}", self.id.get(..8).unwrap_or(&self.id))?;
        }
        Ok(())
    }
}

/// Why a container is no longer running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It was its own decision.
    Itself,
    /// It was asked to stop and did.
    Term,
    /// It was asked to stop, and killed when the grace was over.
    Kill,
    SandboxStopped,
    /// It was removed while it ran.
    Removed,
    /// Somebody outside the agent did it.
    Outside,
}

#[derive(Clone, Debug, PartialEq)]
pub enum What {
    Called {
        call: Call,
        subject: Subject,
        grace: Option<Duration>,
    },
    Failed {
        call: Call,
        subject: Subject,
        error: String,
    },
    SandboxReady {
        sandbox: Subject,
    },
    SandboxNotReady {
        sandbox: Subject,
        cause: Cause,
    },
    SandboxRemoved {
        sandbox: Subject,
    },
    ContainerCreated {
        container: Subject,
    },
    ContainerStarted {
        container: Subject,
    },
    /// A start that the runtime could not carry out.
    ContainerNotStarted {
        container: Subject,
        message: String,
    },
    ContainerExited {
        container: Subject,
        code: i32,
        cause: Cause,
    },
    ContainerUnknown {
        container: Subject,
    },
    ContainerRemoved {
        container: Subject,
    },
    ImagePulled {
        image: String,
    },
    WentAway,
    CameBack,
    Violated(String),
    /// Something that the test did.
    Note(String),
}

#[derive(Clone, Debug, PartialEq)]
pub struct TraceEntry {
    /// Wall-clock time, as the runtime's records have it.
    pub at: Timestamp,
    /// Virtual time since the runtime was made: grows steadily where the wall clock jumps.
    pub elapsed: Duration,
    pub what: What,
}

impl fmt::Display for TraceEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>10.3}s  ", self.elapsed.as_secs_f64())?;
        match &self.what {
            What::Called { call, subject, grace: None } => write!(f, "  {} {subject}", call.name()),
            What::Called { call, subject, grace: Some(grace) } => {
                write!(f, "  {} {subject} grace {grace:?}", call.name())
            }
            What::Failed { call, subject, error } => write!(f, "  {} {subject} failed: {error}", call.name()),
            What::SandboxReady { sandbox } => write!(f, "sandbox {sandbox} ready"),
            What::SandboxNotReady { sandbox, cause } => write!(f, "sandbox {sandbox} not ready ({cause:?})"),
            What::SandboxRemoved { sandbox } => write!(f, "sandbox {sandbox} removed"),
            What::ContainerCreated { container } => write!(f, "container {container} created"),
            What::ContainerStarted { container } => write!(f, "container {container} started"),
            What::ContainerNotStarted { container, message } => {
                write!(f, "container {container} not started: {message}")
            }
            What::ContainerExited { container, code, cause } => {
                write!(f, "container {container} exited with {code} ({cause:?})")
            }
            What::ContainerUnknown { container } => write!(f, "container {container} is unknown now"),
            What::ContainerRemoved { container } => write!(f, "container {container} removed"),
            What::ImagePulled { image } => write!(f, "image {image} pulled"),
            What::WentAway => f.write_str("--- runtime away"),
            What::CameBack => f.write_str("--- runtime back"),
            What::Violated(text) => write!(f, "!!! {text}"),
            What::Note(text) => write!(f, "--- {text}"),
        }
    }
}
