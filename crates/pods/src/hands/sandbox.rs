//! Sandboxes, and what a pod needs before it has one: its cgroup, its folders, its volumes.

use std::collections::BTreeMap;

use crablet_model::events::Event;
use crablet_model::names::event_reason;
use crablet_model::{PodRef, api};
use crablet_planner::pod::Outcome;
use crablet_planner::pod::config::{self, MountedVolume, Placement};

use tokio::time::Instant;

use super::{Hands, LOG_FOLDER_MODE, Operation, POD_FOLDER_MODE, Seen, gone_is_fine};
use crate::figures;
use crate::order::Kind;
use crate::ports::Refusal;
use crate::users::check_handler;

/// A pod's volumes by name.
type Volumes = BTreeMap<String, MountedVolume>;

impl Hands {
    pub(super) async fn create_sandbox(
        &self,
        op: &Operation,
        attempt: u32,
        made: &mut Option<String>,
    ) -> Outcome {
        let Some(pod) = op.pod.as_deref() else {
            return Outcome::SandboxFailed { message: "the pod has no specification".to_owned() };
        };
        let volumes = match self.make_ready(op, pod).await {
            Ok(volumes) => volumes,
            Err(message) => return self.not_ready(op, message).await,
        };
        match self.run_sandbox(op, pod, attempt, &volumes).await {
            Ok(id) => {
                *made = Some(id);
                Outcome::SandboxCreated
            }
            Err(message) => {
                // A network that cannot find a pod that goes is no failure, as upstream has it.
                if !op.stage.pod_ends() {
                    let text = format!("Failed to create pod sandbox: {message}");
                    self.events.emit(Event::warning(&op.id, event_reason::FAILED_CREATE_POD_SANDBOX, text));
                }
                Outcome::SandboxFailed { message }
            }
        }
    }

    /// Most failures pass; a node that can never have the pod's volumes says so.
    async fn not_ready(&self, op: &Operation, message: String) -> Outcome {
        let Some(Refusal { reason, message }) = self.volumes.refusal(&op.id).await else {
            return Outcome::SandboxFailed { message };
        };
        tracing::info!(pod = op.id.object_ref(), podUID = %op.id.uid, reason, why = message, "Pod admission denied");
        self.events.emit(Event::warning(&op.id, reason, message.clone()));
        figures::rejected(reason);
        Outcome::Rejected { reason, message }
    }

    /// What a pod needs before its sandbox: its cgroup, its folders, its volumes. Says by itself what goes wrong.
    async fn make_ready(&self, op: &Operation, pod: &api::Pod) -> Result<Volumes, String> {
        self.note_pod(op, pod).await;
        if let Err(error) = self.cgroups.ensure(pod).await {
            let text = format!("unable to ensure pod container exists: {error}");
            self.events.emit(Event::warning(&op.id, event_reason::FAILED_CREATE_POD_CONTAINER, text.clone()));
            return Err(text);
        }
        let folder = self.folders.pod(&op.id);
        let of_volumes = ["volumes", "plugins"].map(|name| (folder.join(name), POD_FOLDER_MODE));
        let folders = [(folder, POD_FOLDER_MODE), (self.folders.logs(&op.id), LOG_FOLDER_MODE)];
        for (path, mode) in folders.into_iter().chain(of_volumes) {
            if let Err(error) = self.files.create_folder(&path, mode).await {
                let why = told(&error);
                let text = format!("error making pod data directories: mkdir {}: {why}", path.display());
                self.events.emit(Event::warning(
                    &op.id,
                    event_reason::FAILED_TO_MAKE_DIRECTORIES,
                    text.clone(),
                ));
                return Err(text);
            }
        }
        self.volumes.set_up(pod).await
    }

    pub(super) async fn take_over(&self, op: &Operation) -> Result<(), String> {
        let pod = op.pod.as_deref().ok_or("the pod has no specification")?;
        self.adopt(op, pod);
        self.cgroups.ensure(pod).await?;
        self.volumes.set_up(pod).await.map(drop)
    }

    async fn run_sandbox(
        &self,
        op: &Operation,
        pod: &api::Pod,
        attempt: u32,
        volumes: &Volumes,
    ) -> Result<String, String> {
        let placement = self.placement(op, pod, volumes).await?;
        let node = self.node_now(&op.node).await?;
        let made = config::sandbox_config(pod, &node, attempt, &placement);
        let (config, events) = made.map_err(|e| e.to_string())?;
        config::told_of_node(&events).into_iter().for_each(|event| self.events.emit_node(event));
        events.into_iter().for_each(|event| self.events.emit(event));
        let run = async {
            let begun = Instant::now();
            let ran = self.runtime.run_sandbox(&config).await;
            figures::sandbox(&config.runtime_handler, op.has_users(), ran.is_ok(), begun.elapsed());
            ran
        };
        let run = op.stage.call(run);
        op.order.pass(Kind::RunSandbox, run).await.map_err(|e| e.with_code())
    }

    pub(super) async fn placement(
        &self,
        op: &Operation,
        pod: &api::Pod,
        volumes: &Volumes,
    ) -> Result<Placement, String> {
        let class = pod.spec.as_ref().and_then(|s| s.runtime_class_name.as_deref());
        let runtime_handler = match class.filter(|class| !class.is_empty()) {
            Some(class) => self.objects.runtime_handler(class).await.map_err(|e| e.to_string())?,
            None => String::new(),
        };
        let cgroup_parent = self.cgroups.parent(pod).await?;
        let volume_groups = config::volume_groups(pod, volumes);
        let users = match pod.spec.as_ref().and_then(|spec| spec.host_users) {
            Some(false) => {
                check_handler(&op.node.runtime_handlers, &runtime_handler)?;
                Some(self.users.of(&op.id.uid).await?)
            }
            _ => None,
        };
        Ok(Placement { cgroup_parent, runtime_handler, users, volume_groups })
    }

    pub(super) async fn stop_sandbox(&self, pod: &PodRef, id: &str) -> Outcome {
        match gone_is_fine(self.runtime.stop_sandbox(id).await) {
            Ok(()) => Outcome::SandboxStopped { id: id.to_owned() },
            Err(error) => self.teardown_failed(pod, ("KillPodSandbox", pod.uid.as_str()), id, &error),
        }
    }

    /// Stops first: a sandbox that died by itself may still hold its network.
    pub(super) async fn remove_sandbox(&self, op: &Operation, id: &str) -> Outcome {
        let stopped = match op.seen {
            Seen::Stopped => Ok(()),
            _ => gone_is_fine(self.runtime.stop_sandbox(id).await),
        };
        let removed = match stopped {
            Ok(()) => gone_is_fine(self.runtime.remove_sandbox(id).await),
            Err(error) => Err(error),
        };
        match removed {
            Ok(()) => Outcome::SandboxRemoved,
            Err(error) => self.teardown_failed(&op.id, ("RemovePodSandbox", op.id.uid.as_str()), id, &error),
        }
    }
}

/// As upstream's messages tell of system calls: `no space left on device`.
pub(super) fn told(error: &std::io::Error) -> String {
    error.to_string().split(" (os error").next().unwrap_or_default().to_lowercase()
}
