//! Which file holds a container's log.

use std::sync::Arc;

use async_trait::async_trait;
use crablet_cri::Runtime;
use crablet_model::{api, roster};
use crablet_pods::view::{Shown, View};
use crablet_server::{LogFile, LogRefusal, Logs};
use tokio::sync::watch;

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
        let bare = id.split_once("://").map_or(id.as_str(), |(_, bare)| bare);
        let found = self.runtime.container_status(bare).await.map_err(|error| {
            tracing::warn!(%error, containerID = id, "the runtime does not know where the log of a container is");
            LogRefusal::Unretrievable { id: id.clone() }
        })?;
        let ended = self.end_of(namespace, pod, container, &id);
        Ok(LogFile { path: found.log_path.into(), ended })
    }
}

impl FoundLogs {
    /// Turns true when the container no longer runs. Followed as long as somebody listens.
    fn end_of(&self, namespace: &str, pod: &str, container: &str, id: &str) -> watch::Receiver<bool> {
        let (view, id) = (self.view.clone(), id.to_owned());
        let name = (namespace.to_owned(), pod.to_owned(), container.to_owned());
        let runs = move |view: &View| {
            let status = view.find(&name.0, &name.1).and_then(|shown| shown.status);
            let status: api::PodStatus =
                status.and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or_default();
            status_of(&status, &name.2).is_some_and(|s| {
                s.container_id.as_deref() == Some(&id)
                    && s.state.as_ref().is_some_and(|s| s.running.is_some())
            })
        };
        let (sender, ended) = watch::channel(!runs(&view));
        tokio::spawn(async move {
            let mut changes = view.changes();
            loop {
                if !runs(&view) {
                    sender.send_replace(true);
                    return;
                }
                // Cancel-safe: neither holds anything.
                tokio::select! {
                    biased;
                    () = sender.closed() => return,
                    changed = changes.changed() => if changed.is_err() { return },
                }
            }
        });
        ended
    }
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
