//! Carries the actions of plans out. Each call is one operation; dropping it gives the operation up.
//!
//! | module | what it does |
//! |---|---|
//! | `sandbox` | sandboxes, and what a pod needs before it has one |
//! | `resolver` | the node's resolver settings |
//! | `start` | containers of every role, from a ready image to the hook after their start |
//! | `resize` | other resources for what runs |
//! | `environment` | what a container takes from the cluster and from its volumes |
//! | `images` | the images of containers, and those that they mount |
//! | `files` | hosts file, last words, the link to a log |
//! | `teardown` | stops, removals, what a pod leaves behind |

mod environment;
mod files;
mod images;
mod resize;
mod resolver;
mod sandbox;
mod start;
mod teardown;

use std::path::PathBuf;
use std::sync::Arc;

use crablet_apiserver::Objects;
use crablet_cri::{CriError, Runtime};
use crablet_host::Files;
use crablet_model::events::Event;
use crablet_model::names::{container_reason, event_reason};
use crablet_model::runtime::{Container, Sandbox};
use crablet_model::{PodRef, Role, api, roster};
use crablet_planner::pod::config::ContainerError;
use crablet_planner::pod::{Action, NodeFacts, Outcome};

use crate::events::EventSink;
use crate::figures;
use crate::hooks::Hooks;
use crate::images::Images;
use crate::ledger::Ledgers;
use crate::order::{Kind, Order};
use crate::ports::{PodCgroups, PodVolumes};
use crate::settings::Folders;
use crate::sight::Touched;
use crate::stage::Stage;
use crate::users::Users;

pub use resolver::check_resolv_conf;

const LOG_FOLDER_MODE: u32 = 0o755;
const POD_FOLDER_MODE: u32 = 0o750;

/// What operations work with. Shared by all workers.
pub struct Hands {
    pub runtime: Arc<dyn Runtime>,
    pub files: Arc<dyn Files>,
    pub images: Arc<Images>,
    pub events: Arc<dyn EventSink>,
    pub folders: Folders,
    /// The node's resolver settings, read anew for each sandbox: other programs change them. `None`: there are none.
    pub resolv_conf: Option<PathBuf>,
    pub volumes: Arc<dyn PodVolumes>,
    pub cgroups: Arc<dyn PodCgroups>,
    pub objects: Arc<dyn Objects>,
    pub users: Arc<Users>,
    pub ledgers: Arc<Ledgers>,
}

/// One operation: an action, and what was known when it was decided.
pub(crate) struct Operation {
    pub id: PodRef,
    pub pod: Option<Arc<api::Pod>>,
    pub node: Arc<NodeFacts>,
    pub action: Action,
    /// What the worker knows of the thing that the action works on.
    pub seen: Seen,
    /// Makes the names of files unique: drawn by the worker from its seeded generator.
    pub token: u32,
    pub order: Arc<Order>,
    pub stage: Arc<Stage>,
}

impl Operation {
    /// The part that a container plays. One that the specification does not name was a regular one, as far as anybody
    /// can tell.
    pub fn role(&self, container: &str) -> Role {
        let spec = self.pod.as_deref().and_then(|pod| pod.spec.as_ref());
        spec.and_then(|spec| roster::find(spec, container)).map_or(Role::Regular, |(role, _)| role)
    }

    /// Whether the pod has a user namespace of its own.
    pub fn has_users(&self) -> bool {
        let spec = self.pod.as_deref().and_then(|pod| pod.spec.as_ref());
        spec.is_some_and(|spec| spec.host_users == Some(false))
    }
}

/// Saves calls: what is not known is asked for.
pub(crate) enum Seen {
    Nothing,
    /// In which a container starts, or for which its images are made ready.
    Sandbox(Box<Sandbox>),
    /// That is to be removed.
    Container(Box<Container>),
    /// The sandbox to be removed was stopped by this agent.
    Stopped,
}

/// How an operation ended, and what in the runtime is no longer as it was seen.
pub(crate) struct Performed {
    pub outcome: Outcome,
    pub touched: Touched,
}

/// Why a container did not start, or did not stay.
struct StartRefusal {
    reason: &'static str,
    message: String,
    /// Of the instance that would not start.
    id: Option<String>,
}

impl StartRefusal {
    /// As an event tells it. An id differs with every try: with it, events about the same would not be counted as one.
    fn told(&self, container: &str) -> String {
        match &self.id {
            Some(id) => self.message.replace(id.as_str(), container),
            None => self.message.clone(),
        }
    }
}

impl Hands {
    pub(crate) async fn perform(&self, op: Operation) -> Performed {
        let mut made = None;
        let outcome = self.outcome(&op, &mut made).await;
        if let Action::StartContainer { container, .. }
        | Action::StartCreated { container, .. }
        | Action::EnsureImage { container, .. } = &op.action
        {
            figures::performed(&op.action, &outcome, op.role(container));
            if op.has_users() {
                figures::performed_with_users(&op.action, &outcome);
            }
        }
        let touched = touched(&op.action, &outcome, made);
        Performed { outcome, touched }
    }

    /// `made` gets the id of a sandbox that was created or of a container that was started.
    async fn outcome(&self, op: &Operation, made: &mut Option<String>) -> Outcome {
        match &op.action {
            Action::CreateSandbox { attempt } => self.create_sandbox(op, *attempt, made).await,
            Action::StopSandbox { id } => {
                op.order.pass(Kind::StopSandbox, self.stop_sandbox(&op.id, id)).await
            }
            Action::RemoveSandbox { id } => self.remove_sandbox(op, id).await,
            Action::EnsureImage { container, held, .. } => self.ensure_images(op, container, held).await,
            Action::StartContainer { container, attempt, sandbox_id, image } => {
                match self.start_container(op, container, *attempt, sandbox_id, image).await {
                    Ok(id) => {
                        *made = Some(id);
                        Outcome::ContainerStarted { container: container.clone() }
                    }
                    Err(refusal) => self.start_failed(op, container, refusal),
                }
            }
            Action::StartCreated { container, id } => match self.start_created(op, container, id).await {
                Ok(()) => {
                    *made = Some(id.clone());
                    Outcome::ContainerStarted { container: container.clone() }
                }
                Err(refusal) => self.start_failed(op, container, refusal),
            },
            Action::PreStop { container, id, limit, message } => {
                self.tell(op, container, event_reason::KILLING, message);
                self.hooks(op).pre_stop(container, id, *limit).await;
                Outcome::PreStopEnded { id: id.clone() }
            }
            Action::StopContainer { container, id, grace, message } => {
                let stop = self.stop_container(op, container, id, *grace, message);
                op.order.pass(Kind::StopContainer, stop).await
            }
            Action::RemoveContainer { container, id, keep_logs } => {
                self.remove_container(op, container, id, *keep_logs).await
            }
            Action::Resize(resize) => self.resize(op, resize).await,
            Action::TakeOver => match self.take_over(op).await {
                Ok(()) => Outcome::TakenOver,
                Err(message) => Outcome::TakeOverFailed { message },
            },
            Action::Release => match self.release(&op.id).await {
                Ok(()) => Outcome::Released,
                Err(message) => Outcome::ReleaseFailed { message },
            },
            Action::Cleanup => match self.clean_up(&op.id).await {
                Ok(()) => Outcome::Cleaned,
                Err(message) => Outcome::CleanupFailed { message },
            },
        }
    }

    fn hooks<'a>(&'a self, op: &'a Operation) -> Hooks<'a> {
        Hooks { runtime: &*self.runtime, events: &*self.events, op }
    }

    fn tell(&self, op: &Operation, container: &str, reason: &'static str, message: &str) {
        self.events.emit(Event::normal(&op.id, reason, message).on(op.role(container), container));
    }

    fn warn(&self, op: &Operation, container: &str, reason: &'static str, message: &str) {
        self.events.emit(Event::warning(&op.id, reason, message).on(op.role(container), container));
    }
}

/// What an operation has changed in the runtime, by how it ended.
fn touched(action: &Action, outcome: &Outcome, made: Option<String>) -> Touched {
    match (action, outcome) {
        (Action::CreateSandbox { .. }, Outcome::SandboxCreated) => {
            made.map_or(Touched::Unknown, Touched::Sandbox)
        }
        (_, Outcome::ContainerStarted { .. }) => made.map_or(Touched::Unknown, Touched::Container),
        (Action::StopSandbox { id }, Outcome::SandboxStopped { .. }) => Touched::Sandbox(id.clone()),
        (Action::StopContainer { id, .. }, Outcome::ContainerStopped { .. }) => {
            Touched::Container(id.clone())
        }
        (Action::RemoveSandbox { id }, Outcome::SandboxRemoved) => Touched::SandboxGone(id.clone()),
        (_, Outcome::ContainerRemoved { id }) => Touched::ContainerGone(id.clone()),
        (
            Action::EnsureImage { .. }
            | Action::PreStop { .. }
            | Action::TakeOver
            | Action::Release
            | Action::Cleanup,
            _,
        ) => Touched::Nothing,
        // Each container that it names may show other numbers.
        (Action::Resize(resize), Outcome::Resized { .. }) => Touched::Sandbox(resize.sandbox_id.clone()),
        _ => Touched::Unknown,
    }
}

/// The reason says how far upstream comes with it.
fn not_configured(error: &ContainerError) -> StartRefusal {
    match error {
        ContainerError::Config(error) => config_error(&error.to_string()),
        ContainerError::NotText => start_refusal(container_reason::CREATE_CONTAINER_ERROR, error.to_string()),
    }
}

fn config_error(message: &str) -> StartRefusal {
    start_refusal(container_reason::CREATE_CONTAINER_CONFIG_ERROR, message)
}

/// Before there is an instance, or where its id does not matter.
fn start_refusal(reason: &'static str, message: impl Into<String>) -> StartRefusal {
    StartRefusal { reason, message: message.into(), id: None }
}

/// What is asked to go and is not there has gone.
fn gone_is_fine(result: Result<(), CriError>) -> Result<(), CriError> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}
