//! Ends: containers stopped and removed with all that belongs to them, and what a pod leaves behind.

use std::path::Path;
use std::time::Duration;

use crablet_cri::CriError;
use crablet_model::PodRef;
use crablet_model::events::Event;
use crablet_model::names::event_reason;
use crablet_planner::pod::{Outcome, config};

use super::{Hands, Operation, Seen, gone_is_fine};
use crate::hooks::in_grpc_words;
use crate::settings::Folders;

impl Hands {
    /// `message` is empty where the end has been told already: before the hook that preceded it.
    pub(super) async fn stop_container(
        &self,
        op: &Operation,
        container: &str,
        id: &str,
        grace: Duration,
        message: &str,
    ) -> Outcome {
        if !message.is_empty() {
            self.tell(op, container, event_reason::KILLING, message);
        }
        match gone_is_fine(self.runtime.stop_container(id, grace).await) {
            Ok(()) => Outcome::ContainerStopped { id: id.to_owned() },
            Err(error) => self.teardown_failed(&op.id, ("KillContainer", container), id, &error),
        }
    }

    /// Logs and links first: once the runtime has forgotten the container, nobody knows what they belong to.
    pub(super) async fn remove_container(
        &self,
        op: &Operation,
        name: &str,
        id: &str,
        keep_logs: bool,
    ) -> Outcome {
        let pod = &op.id;
        let container = match &op.seen {
            Seen::Container(container) => Some((**container).clone()),
            _ => self.runtime.container_status(id).await.ok(),
        };
        if let Some(container) = container {
            if !keep_logs {
                self.remove_logs(pod, name, container.restart_count).await;
            }
            if let Some(path) = container.termination_file
                && Folders::is_below(Path::new(&path), &self.folders.pod(pod))
            {
                self.remove_file(Path::new(&path)).await;
            }
        }
        if !keep_logs {
            self.remove_file(&self.folders.container_logs.join(config::log_link_name(pod, name, id))).await;
        }
        match gone_is_fine(self.runtime.remove_container(id).await) {
            Ok(()) => Outcome::ContainerRemoved { id: id.to_owned() },
            Err(error) => self.teardown_failed(pod, ("RemoveContainer", name), id, &error),
        }
    }

    /// `<n>.log` and what rotation made of it.
    async fn remove_logs(&self, pod: &PodRef, container: &str, attempt: u32) {
        let folder = self.folders.container_log(pod, container);
        let log = format!("{attempt}.log");
        let entries = match self.files.list(&folder).await {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => {
                let folder = folder.display();
                tracing::warn!(%folder, %error, "could not look for the logs of a removed container; they stay until the pod goes");
                return;
            }
        };
        for entry in entries {
            let rotated =
                entry.name.strip_prefix(&log).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
            if rotated {
                self.remove_file(&folder.join(&entry.name)).await;
            }
        }
    }

    async fn remove_file(&self, path: &Path) {
        if let Err(error) = self.files.remove_file(path).await {
            tracing::warn!(path = %path.display(), %error, "could not remove a file of a removed container");
        }
    }

    /// Volumes before the cgroup: a process that is left over may keep a volume busy, and is killed with the cgroup the
    /// next time.
    pub(super) async fn release(&self, pod: &PodRef) -> Result<(), String> {
        let unmounted = self.volumes.tear_down(pod).await;
        let removed = self.cgroups.remove(&pod.uid).await;
        unmounted.and(removed)?;
        // Last: what is left of the pod may still use them.
        self.users.release(&pod.uid).await
    }

    pub(super) async fn clean_up(&self, pod: &PodRef) -> Result<(), String> {
        self.release(pod).await?;
        self.remove_folders(pod).await.map_err(|error| error.to_string())
    }

    /// The pod's links, logs and folder, the record last: until then a restarted agent finds the rest by it.
    async fn remove_folders(&self, pod: &PodRef) -> std::io::Result<()> {
        let logs = self.folders.logs(pod);
        let prefix = format!("{}_{}_", pod.name, pod.namespace);
        let links = match self.files.list(&self.folders.container_logs).await {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            listed => listed?,
        };
        for entry in links.iter().filter(|e| e.name.starts_with(&prefix)) {
            let link = self.folders.container_logs.join(&entry.name);
            if self.files.read_link(&link).await?.is_some_and(|target| target.starts_with(&logs)) {
                self.files.remove_file(&link).await?;
            }
        }
        self.files.remove_tree(&logs).await?;
        self.files.remove_tree(&self.folders.pod(pod)).await
    }

    /// Told in upstream's words: the action, and the name of the container or the UID of the pod.
    pub(super) fn teardown_failed(
        &self,
        pod: &PodRef,
        (action, target): (&str, &str),
        id: &str,
        error: &CriError,
    ) -> Outcome {
        let why = in_grpc_words(error);
        let text =
            format!("error killing pod: failed to {action:?} for {target:?} with {action}Error: {why:?}");
        self.events.emit(Event::warning(pod, event_reason::FAILED_KILL_POD, text));
        Outcome::TeardownFailed { id: id.to_owned(), message: error.message.clone() }
    }
}
