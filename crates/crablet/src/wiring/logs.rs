//! Which file holds a container's log.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use crablet_cri::{ErrorKind, Runtime};
use crablet_model::{api, roster};
use crablet_pods::view::{Shown, View};
use crablet_server::{LogFile, LogRefusal, Logs};
use tokio::sync::watch;

/// How often the runtime is asked whether a container still runs of which the agent knows nothing.
const ASKING_PACE: Duration = Duration::from_secs(1);

pub struct FoundLogs {
    pub view: Arc<View>,
    pub runtime: Arc<dyn Runtime>,
}

#[async_trait]
impl Logs for FoundLogs {
    async fn find(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        previous: bool,
    ) -> Result<LogFile, LogRefusal> {
        let Shown { pod: spec, status } =
            self.view.find(namespace, pod).ok_or_else(|| LogRefusal::NoPod { pod: pod.to_owned() })?;
        let spec: api::Pod = serde_json::from_slice(&spec).unwrap_or_default();
        if spec.spec.as_ref().and_then(|spec| roster::find(spec, container)).is_none() {
            return Err(LogRefusal::NoContainer { container: container.to_owned(), pod: pod.to_owned() });
        }
        let status = status.and_then(|json| serde_json::from_slice::<api::PodStatus>(&json).ok());
        // As upstream, what the API server has of the pod counts until this agent has something to say of it.
        let status = status.or(spec.status).unwrap_or_default();
        let id = container_id(&status, pod, container, previous)?;
        let found = self.runtime.container_status(bare(&id)).await.map_err(|error| {
            tracing::warn!(%error, containerID = id, "the runtime does not know where the log of a container is");
            LogRefusal::Unretrievable { id: id.clone() }
        })?;
        let followed = Followed {
            view: self.view.clone(),
            runtime: self.runtime.clone(),
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            container: container.to_owned(),
            id,
        };
        let ended = followed.follow(found.state.is_running());
        Ok(LogFile { path: found.log_path.into(), ended })
    }
}

/// A container whose log somebody reads.
struct Followed {
    view: Arc<View>,
    runtime: Arc<dyn Runtime>,
    namespace: String,
    pod: String,
    container: String,
    /// As the API has it: `containerd://abc`.
    id: String,
}

/// What the agent itself knows of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Runs,
    Ended,
    /// Only the runtime can tell: the agent has just started, or the pod is not to run here any more and has its
    /// grace, or another pod has its name.
    Nothing,
}

impl Followed {
    /// Turns true when the container no longer runs. Followed as long as somebody listens. `ran`: what the runtime
    /// has just said.
    fn follow(self, ran: bool) -> watch::Receiver<bool> {
        let runs = match self.known() {
            Known::Runs => true,
            Known::Ended => false,
            Known::Nothing => ran,
        };
        let (sender, ended) = watch::channel(!runs);
        if runs {
            tokio::spawn(async move {
                // Cancel-safe: neither holds anything, and a question that is given up changes nothing.
                tokio::select! {
                    biased;
                    () = sender.closed() => {}
                    () = self.end() => {
                        sender.send_replace(true);
                    }
                }
            });
        }
        ended
    }

    /// Returns when the container no longer runs.
    async fn end(&self) {
        let mut changes = self.view.changes();
        loop {
            match self.known() {
                Known::Ended => return,
                Known::Runs => {
                    if changes.changed().await.is_err() {
                        return;
                    }
                }
                Known::Nothing => {
                    tokio::time::sleep(ASKING_PACE).await;
                    if self.known() == Known::Nothing && !self.runs_in_runtime().await {
                        return;
                    }
                }
            }
        }
    }

    fn known(&self) -> Known {
        let status = self.view.find(&self.namespace, &self.pod).and_then(|shown| shown.status);
        let status = status.and_then(|json| serde_json::from_slice::<api::PodStatus>(&json).ok());
        status.map_or(Known::Nothing, |status| told_of(&status, &self.container, &self.id))
    }

    async fn runs_in_runtime(&self) -> bool {
        match self.runtime.container_status(bare(&self.id)).await {
            Ok(found) => found.state.is_running(),
            // As upstream has it: containers outlive a runtime that is away.
            Err(error) => error.kind == ErrorKind::Unavailable,
        }
    }
}

/// The runtime's own id.
fn bare(id: &str) -> &str {
    id.split_once("://").map_or(id, |(_, bare)| bare)
}

/// What the status says of the container with this id, which need not be the one that has the name now.
fn told_of(status: &api::PodStatus, container: &str, id: &str) -> Known {
    let Some(status) = status_of(status, container) else { return Known::Nothing };
    let states = [&status.state, &status.last_state].into_iter().flatten();
    let mut ended = states.filter_map(|state| state.terminated.as_ref());
    if ended.any(|ended| ended.container_id.as_deref() == Some(id)) {
        return Known::Ended;
    }
    if status.container_id.as_deref() != Some(id) {
        return Known::Nothing;
    }
    let runs = status.state.as_ref().is_some_and(|state| state.running.is_some());
    if runs { Known::Runs } else { Known::Ended }
}

/// What the status says of a container, whatever its role.
fn status_of<'a>(status: &'a api::PodStatus, container: &str) -> Option<&'a api::ContainerStatus> {
    let lists =
        [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    lists.into_iter().flatten().flatten().find(|s| s.name == container)
}

/// Upstream's choice: the running one, else the one that ended last.
fn container_id(
    status: &api::PodStatus,
    pod: &str,
    container: &str,
    previous: bool,
) -> Result<String, LogRefusal> {
    let (pod, container) = (pod.to_owned(), container.to_owned());
    let Some(status) = status_of(status, &container) else {
        return Err(LogRefusal::NotAvailable { container, pod });
    };
    let state = status.state.clone().unwrap_or_default();
    let ended_before = status.last_state.as_ref().and_then(|s| s.terminated.as_ref());
    let known = |id: Option<&String>| id.filter(|id| !id.is_empty()).cloned();
    let before = ended_before.and_then(|t| known(t.container_id.as_ref()));
    if previous {
        return before.ok_or(LogRefusal::NoPrevious { container, pod });
    }
    if state.running.is_some() {
        return known(status.container_id.as_ref()).ok_or(LogRefusal::NotStarted { container, pod });
    }
    if let Some(ended) = &state.terminated {
        let id = known(ended.container_id.as_ref()).or(before);
        return id.ok_or(LogRefusal::Terminated { container, pod });
    }
    match (before, &state.waiting) {
        (Some(id), _) => Ok(id),
        (None, _) if ended_before.is_some() => Err(LogRefusal::Terminated { container, pod }),
        (None, Some(waiting)) => {
            let reason = waiting.reason.clone().unwrap_or_default();
            Err(LogRefusal::Waiting { container, pod, reason })
        }
        (None, None) => Err(LogRefusal::NotStarted { container, pod }),
    }
}

#[cfg(test)]
mod tests;
