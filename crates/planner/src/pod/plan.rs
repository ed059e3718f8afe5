//! What a plan says.

use std::time::Duration;

use crablet_model::api;
use crablet_model::events::Event;
use jiff::Timestamp;

use super::facts::{Facts, PreparedImage, Wish};
use super::memory::Memory;
use super::resize::Resize;
use super::{draft::Draft, ending, gc, run};

/// What to do next for a pod. Same facts, same plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Operations that are under way and no longer wanted: given up before anything new begins.
    pub cancel: Vec<OpKey>,
    /// To be begun now, side by side.
    pub actions: Vec<Action>,
    /// The pod's status as of now; `None` for a pod that only the runtime knows.
    pub status: Option<api::PodStatus>,
    pub urgency: Urgency,
    /// To be on disk before any action begins.
    pub memory: Memory,
    pub events: Vec<Event>,
    /// Plan again at this time, even if nothing happens until then.
    pub wake_at: Option<Timestamp>,
    /// One line for each decision, in the order in which they were taken.
    pub why: Vec<String>,
    /// The pod has come to its end and holds nothing of the node any more: who asked for its deletion can be told.
    pub released: bool,
    /// Nothing is left of the pod and nobody wants it.
    pub finished: bool,
}

/// When the status is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    Now,
    /// It tells of a step on the way, and the next step is under way: together with that one, if that one comes soon.
    Soon,
    /// It says nothing that anybody waits for: together with the next one.
    WithTheNext,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

/// One thing to do. Each becomes an operation with its own deadline, and may be given up at any moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    CreateSandbox {
        attempt: u32,
    },
    /// Also tears down the network of a sandbox that died by itself.
    StopSandbox {
        id: String,
    },
    RemoveSandbox {
        id: String,
    },
    EnsureImage {
        container: String,
        image: String,
        policy: PullPolicy,
        /// Of all images that the container needs, those whose pulls have failed and wait: they may have come by
        /// another way and are looked for, but not pulled.
        held: Vec<String>,
    },
    /// Creates an instance and starts it.
    StartContainer {
        container: String,
        attempt: u32,
        sandbox_id: String,
        image: PreparedImage,
    },
    /// Starts an instance that an earlier life of the agent created.
    StartCreated {
        container: String,
        id: String,
    },
    /// Runs the hook that a container has for its end. However it ends, the container is stopped afterwards, or when
    /// its grace is over: the hook is not waited for any longer then.
    PreStop {
        container: String,
        id: String,
        /// What is left of the grace.
        limit: Duration,
        /// Told when the hook begins, as the container's end begins with it.
        message: String,
    },
    StopContainer {
        container: String,
        id: String,
        grace: Duration,
        /// Empty if it was told before.
        message: String,
    },
    /// With its rotated logs and its link in the container log folder, unless those are to stay.
    RemoveContainer {
        container: String,
        id: String,
        keep_logs: bool,
    },
    /// Looks after the cgroup and the volumes of a pod that an earlier life of the agent started: its volumes go on to show
    /// what is true, and it counts among the pods of its class.
    TakeOver,
    /// Gives running containers, and the pod's cgroup, the resources that the pod was granted.
    Resize(Resize),
    /// Unmounts the pod's volumes and removes its cgroup. Its folder and its dead containers stay for their logs.
    Release,
    /// Releases, and removes the pod's folder, logs and links.
    Cleanup,
}

/// What an operation works on. Two operations with the same key never run at the same time: a later one replaces the
/// earlier.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OpKey {
    CreateSandbox,
    /// Stop or remove.
    Sandbox(String),
    /// By container name.
    Image(String),
    /// By container name: create, start, or both.
    Start(String),
    /// By container id: stop or remove.
    Container(String),
    /// By container id.
    PreStop(String),
    Resize,
    TakeOver,
    Release,
    Cleanup,
}

impl Action {
    pub fn key(&self) -> OpKey {
        match self {
            Self::CreateSandbox { .. } => OpKey::CreateSandbox,
            Self::StopSandbox { id } | Self::RemoveSandbox { id } => OpKey::Sandbox(id.clone()),
            Self::EnsureImage { container, .. } => OpKey::Image(container.clone()),
            Self::StartContainer { container, .. } | Self::StartCreated { container, .. } => {
                OpKey::Start(container.clone())
            }
            Self::StopContainer { id, .. } | Self::RemoveContainer { id, .. } => OpKey::Container(id.clone()),
            Self::PreStop { id, .. } => OpKey::PreStop(id.clone()),
            Self::Resize(_) => OpKey::Resize,
            Self::TakeOver => OpKey::TakeOver,
            Self::Release => OpKey::Release,
            Self::Cleanup => OpKey::Cleanup,
        }
    }
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    SandboxCreated,
    SandboxFailed {
        message: String,
    },
    /// What the pod needs can never be had on this node: it has failed.
    Rejected {
        reason: &'static str,
        message: String,
    },
    SandboxStopped {
        id: String,
    },
    SandboxRemoved,
    ImageReady {
        container: String,
        image: String,
        prepared: PreparedImage,
    },
    /// `pulled` tells a failed pull, which has a back-off of its own, from a refusal before it.
    ImageFailed {
        container: String,
        image: String,
        reason: String,
        message: String,
        pulled: bool,
    },
    /// One that is held is not there yet.
    ImageMissing {
        container: String,
    },
    ContainerStarted {
        container: String,
    },
    StartFailed {
        container: String,
        reason: &'static str,
        message: String,
    },
    /// The sandbox had gone before the container could begin in it: nothing is left of the try.
    StartedInVain {
        container: String,
        attempt: u32,
    },
    PreStopEnded {
        id: String,
    },
    ContainerStopped {
        id: String,
    },
    ContainerRemoved {
        id: String,
    },
    /// A stop or removal of a container or sandbox that failed.
    TeardownFailed {
        id: String,
        message: String,
    },
    /// `digest` of the grant that holds now.
    Resized {
        digest: u64,
    },
    ResizeFailed {
        message: String,
    },
    TakenOver,
    TakeOverFailed {
        message: String,
    },
    Released,
    ReleaseFailed {
        message: String,
    },
    Cleaned,
    CleanupFailed {
        message: String,
    },
}

/// Looks at the facts and decides.
pub fn plan(facts: &Facts<'_>) -> Plan {
    let mut draft = Draft::new(facts);
    match (facts.wish, facts.pod) {
        (Wish::Run, Some(pod)) => run::decide(&mut draft, pod),
        (Wish::End(end), _) => ending::decide(&mut draft, end),
        (Wish::Run, None) => draft.why("the pod has no specification and nobody asked for its end: waiting"),
    }
    gc::decide(&mut draft);
    draft.finish()
}
