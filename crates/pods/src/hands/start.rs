//! Starts: everything between an image that is ready and a container that has begun.

use std::collections::BTreeMap;
use std::path::Path;

use crablet_cri::CriError;
use crablet_model::api;
use crablet_model::names::{container_reason, event_reason};
use crablet_model::roster::{self, Role};
use crablet_model::runtime::{ContainerState, SandboxState};
use crablet_planner::pod::config::{self, ContainerInputs};
use crablet_planner::pod::{Action, Outcome, PreparedImage};

use super::{
    Hands, LOG_FOLDER_MODE, Operation, Seen, StartRefusal, config_error, gone_is_fine, not_configured,
    start_refusal,
};
use crate::order::Kind;

/// Of a refusal that is nobody's fault: the sandbox had gone.
const SANDBOX_LOST: &str = "SandboxLost";

impl Hands {
    pub(super) async fn start_container(
        &self,
        op: &Operation,
        name: &str,
        attempt: u32,
        sandbox_id: &str,
        image: &PreparedImage,
    ) -> Result<String, StartRefusal> {
        let pod = op.pod.as_deref().ok_or_else(|| config_error("the pod has no specification"))?;
        let spec = pod.spec.as_ref().and_then(|spec| roster::find(spec, name));
        let (role, container) =
            spec.ok_or_else(|| config_error("the pod's specification does not name it"))?;
        let sandbox = match &op.seen {
            Seen::Sandbox(sandbox) => (**sandbox).clone(),
            _ => self.runtime.sandbox_status(sandbox_id).await.map_err(|e| config_error(&e.message))?,
        };
        let volumes = self.volumes.set_up(pod).await.map_err(|e| config_error(&e))?;
        let placement = self.placement(op, pod, &volumes).await.map_err(|e| config_error(&e))?;
        let node = self.node_now(&op.node).await.map_err(|e| config_error(&e))?;
        let (sandbox_config, _) = config::sandbox_config(pod, &node, sandbox.attempt, &placement)
            .map_err(|e| config_error(&e.to_string()))?;
        let pod_ips = if sandbox.host_network { op.node.host_ips.clone() } else { sandbox.ips };

        let target_id = self.target_id(op, pod, name).await?;
        let etc_hosts = match config::has_own_hosts(&container) {
            true => None,
            false => self.write_hosts(op, pod, &pod_ips, sandbox.host_network).await?,
        };
        let termination_file = self.make_termination_file(op, &container).await?;
        let objects = self.env_objects(pod, &container, &volumes).await?;
        let image_volumes = self.image_volumes(op, &container).await?;
        let mut inputs = ContainerInputs {
            objects: &objects,
            volumes: &volumes,
            sub_paths: &BTreeMap::new(),
            pod,
            container: &container,
            attempt,
            image,
            node: &op.node,
            pod_ips: &pod_ips,
            etc_hosts: etc_hosts.as_deref(),
            termination_file: termination_file.as_deref(),
            target_id: target_id.as_deref(),
            placement: &placement,
            image_volumes: &image_volumes,
        };
        let sub_paths = self.sub_paths(&op.id, &inputs).await?;
        inputs.sub_paths = &sub_paths;
        let config = config::container_config(&inputs).map_err(|e| not_configured(&e))?;
        let log_folder = self.folders.container_log(&op.id, name);
        let made = self.files.create_folder(&log_folder, LOG_FOLDER_MODE).await;
        made.map_err(|e| config_error(&format!("create {}: {e}", log_folder.display())))?;

        self.note_container(op, pod, &container).await;
        let start = async {
            let created = self.runtime.create_container(sandbox_id, &config, &sandbox_config).await;
            let refused = |e: CriError| start_refusal(container_reason::CREATE_CONTAINER_ERROR, e.message);
            let id = match created.map_err(refused) {
                Ok(id) => id,
                Err(refusal) => return Err(self.unless_lost(role, sandbox_id, None, refusal).await),
            };
            self.tell(op, name, event_reason::CREATED, "Container created");
            match self.start_instance(op, name, &id).await {
                Ok(()) => Ok(id),
                Err(refusal) => Err(self.unless_lost(role, sandbox_id, Some(&id), refusal).await),
            }
        };
        let id = op.order.pass(Kind::StartContainer, op.stage.call(start)).await?;
        let log = Path::new(&sandbox_config.log_directory).join(&config.log_path);
        self.link_log(&op.id, name, &id, &log).await;
        self.after_start(op, &container, &id).await.map(|()| id)
    }

    /// The container whose processes an ephemeral one wants to see: the newest of that name, whether it runs or not.
    async fn target_id(
        &self,
        op: &Operation,
        pod: &api::Pod,
        name: &str,
    ) -> Result<Option<String>, StartRefusal> {
        let Some(target) = pod.spec.as_ref().and_then(|spec| roster::target(spec, name)) else {
            return Ok(None);
        };
        let listed = self.runtime.list_containers(Some(&op.id.uid)).await;
        let listed = listed.map_err(|error| config_error(&error.message))?;
        let named = listed.into_iter().filter(|c| c.name == target);
        let newest = named.max_by_key(|c| c.created_at);
        let missing = || config_error(&format!("unable to find target container {target}"));
        newest.map(|c| Some(c.id)).ok_or_else(missing)
    }

    async fn start_instance(&self, op: &Operation, name: &str, id: &str) -> Result<(), StartRefusal> {
        self.runtime.start_container(id).await.map_err(|e| StartRefusal {
            reason: container_reason::RUN_CONTAINER_ERROR,
            message: e.message,
            id: Some(id.to_owned()),
        })?;
        self.tell(op, name, event_reason::STARTED, "Container started");
        Ok(())
    }

    /// Whoever stops a sandbox stops its containers first, and one that is begun again in between fails for want of the
    /// sandbox. That says nothing about the container: what was made of it goes, so that it does not count as a restart.
    /// An ephemeral one is tried once.
    async fn unless_lost(
        &self,
        role: Role,
        sandbox_id: &str,
        made: Option<&str>,
        refusal: StartRefusal,
    ) -> StartRefusal {
        if role == Role::Ephemeral || !self.is_lost(sandbox_id).await {
            return refusal;
        }
        if let Some(id) = made
            && !self.never_ran(id).await
        {
            return refusal;
        }
        if let Some(id) = made
            && let Err(error) = gone_is_fine(self.runtime.remove_container(id).await)
        {
            tracing::warn!(container = id, %error, "could not remove a container whose sandbox went before it began");
            return refusal;
        }
        StartRefusal { reason: SANDBOX_LOST, ..refusal }
    }

    async fn is_lost(&self, sandbox_id: &str) -> bool {
        match self.runtime.sandbox_status(sandbox_id).await {
            Ok(sandbox) => sandbox.state != SandboxState::Ready,
            Err(error) => error.is_not_found(),
        }
    }

    /// A call may fail that took effect.
    async fn never_ran(&self, id: &str) -> bool {
        match self.runtime.container_status(id).await {
            Ok(container) => match container.state {
                ContainerState::Created => true,
                ContainerState::Exited(exit) => exit.started_at.is_none(),
                ContainerState::Running { .. } | ContainerState::Unknown => false,
            },
            Err(error) => error.is_not_found(),
        }
    }

    /// Starts what an earlier life of the agent created: where its log lies, the runtime knows.
    pub(super) async fn start_created(
        &self,
        op: &Operation,
        name: &str,
        id: &str,
    ) -> Result<(), StartRefusal> {
        op.stage.call(self.start_instance(op, name, id)).await?;
        if let Ok(container) = self.runtime.container_status(id).await {
            self.link_log(&op.id, name, id, Path::new(&container.log_path)).await;
        }
        let spec = op.pod.as_deref().and_then(|pod| pod.spec.as_ref());
        match spec.and_then(|spec| roster::find(spec, name)) {
            Some((_, container)) => self.after_start(op, &container, id).await,
            None => Ok(()),
        }
    }

    /// The hook is part of the start: the next containers wait for it, and where it fails the container has not started.
    async fn after_start(
        &self,
        op: &Operation,
        container: &api::Container,
        id: &str,
    ) -> Result<(), StartRefusal> {
        let hook = self.hooks(op).post_start(container, id).await;
        hook.map_err(|message| start_refusal(container_reason::POST_START_HOOK_ERROR, message))
    }

    pub(super) fn start_failed(&self, op: &Operation, container: &str, refusal: StartRefusal) -> Outcome {
        let told = refusal.told(container);
        let StartRefusal { reason, message, .. } = refusal;
        if let Action::StartContainer { attempt, .. } = op.action
            && reason == SANDBOX_LOST
        {
            return Outcome::StartedInVain { container: container.to_owned(), attempt };
        }
        // A hook that failed has been told already, and without its message: that may hold anything.
        if reason != container_reason::POST_START_HOOK_ERROR {
            self.warn(op, container, event_reason::FAILED, &format!("Error: {told}"));
        }
        Outcome::StartFailed { container: container.to_owned(), reason, message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_the_name_where_the_message_has_the_id() {
        let message = "container 0123abcd: exec: \"nope\": not found".to_owned();
        let reason = container_reason::RUN_CONTAINER_ERROR;
        let refusal = StartRefusal { reason, message, id: Some("0123abcd".to_owned()) };
        assert_eq!(refusal.told("main"), "container main: exec: \"nope\": not found");
        assert!(refusal.message.contains("0123abcd"));
        assert_eq!(start_refusal(reason, "0123abcd").told("main"), "0123abcd");
    }
}
