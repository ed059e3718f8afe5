//! What the container verbs do.

use std::collections::BTreeMap;
use std::time::Duration;

use crablet_model::PodUid;
use crablet_model::names::label;
use crablet_model::runtime::{
    ContainerConfig, ContainerState, ContainerUpdate, Exit, RuntimeEventKind, SandboxConfig, SandboxState,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::behaviour::{Behaviour, Life, OnTerm};
use super::state::{ContainerRecord, Due, PlannedExit, State, not_found, refused};
use super::trace::{Cause, What};
use super::works::{Progress, WorkKind};
use crate::port::{CriError, ErrorKind, Result};

impl State {
    pub fn behaviour_of(&self, container: &ContainerRecord) -> &Behaviour {
        self.behaviours.of(&container.pod, &container.name, &container.config.user_specified_image)
    }

    pub fn begin_create(
        &mut self,
        sandbox_id: &str,
        config: ContainerConfig,
        sandbox_config: &SandboxConfig,
    ) -> Result<Progress<String>> {
        let Some(sandbox) = self.sandboxes.get(sandbox_id) else {
            let message = format!("failed to find sandbox id {sandbox_id:?}: not found");
            return Err(CriError::new(ErrorKind::NotFound, message));
        };
        if sandbox.state != SandboxState::Ready {
            return Err(refused(format!(
                "failed to get sandbox container task: no running task found: {sandbox_id}"
            )));
        }
        if !self.image(&config.image_ref).is_some_and(|(_, image)| image.present) {
            let message = format!("failed to resolve image {:?}: not found", config.image_ref);
            return Err(CriError::new(ErrorKind::NotFound, message));
        }
        let of = &sandbox.config;
        let reserved = format!("{}_{}_{}_{}_{}", config.name, of.name, of.namespace, of.uid, config.attempt);
        let labelled = |key: &str| config.labels.get(key).cloned().unwrap_or_default();
        let record = ContainerRecord {
            id: String::new(),
            reserved,
            sandbox_id: sandbox_id.to_owned(),
            uid: PodUid::new(labelled(label::POD_UID)),
            pod: labelled(label::POD_NAME),
            namespace: labelled(label::POD_NAMESPACE),
            name: labelled(label::CONTAINER_NAME),
            attempt: config.attempt,
            log_path: format!("{}/{}", sandbox_config.log_directory, config.log_path),
            config,
            created_at: (self.now)(),
            state: ContainerState::Created,
            starting: false,
            exit: None,
            waiters: BTreeMap::new(),
        };
        let id = self.new_id();
        let record = ContainerRecord { id: id.clone(), ..record };
        self.reserve("container", &record.reserved, &id)?;
        let time = self.usual_work_time();
        self.start_work(WorkKind::Create { record: Box::new(record) }, time)
    }

    pub fn add_container(&mut self, mut record: ContainerRecord) -> Result<String> {
        if !self.sandboxes.contains_key(&record.sandbox_id) {
            self.release(&record.reserved, &record.id);
            return Err(not_found("sandbox", &record.sandbox_id));
        }
        record.created_at = (self.now)();
        let (id, uid, subject) = (record.id.clone(), record.uid.clone(), record.subject());
        self.containers.insert(id.clone(), record);
        self.record(What::ContainerCreated { container: subject });
        self.tell(&uid, &id, RuntimeEventKind::Created);
        Ok(id)
    }

    pub fn begin_start(&mut self, id: &str) -> Result<Progress<String>> {
        let time = self.usual_work_time();
        let container = self.containers.get_mut(id).ok_or_else(|| not_found("container", id))?;
        if container.state != ContainerState::Created {
            return Err(refused(format!("container {id:?} is in {:?} state", container.listing().state)));
        }
        if container.starting {
            return Err(refused(format!(
                "failed to set starting state for container {id:?}: already in starting state"
            )));
        }
        container.starting = true;
        self.start_work(WorkKind::Start { id: id.to_owned() }, time)
    }

    pub fn finish_start(&mut self, id: &str) -> Result<String> {
        let container = self.containers.get_mut(id).ok_or_else(|| not_found("container", id))?;
        container.starting = false;
        let (sandbox_id, log_path, attempt) =
            (container.sandbox_id.clone(), container.log_path.clone(), container.attempt);
        if !self.sandboxes.get(&sandbox_id).is_some_and(|sandbox| sandbox.state == SandboxState::Ready) {
            return Err(refused(format!("sandbox container {sandbox_id:?} is not running")));
        }
        if let Err(e) = self.write(&log_path, b"") {
            let message =
                format!("failed to create containerd task: failed to open log file {log_path:?}: {e}");
            return self.start_failed(id, message);
        }
        let now = Instant::now();
        let planned = match self.behaviour_of(&self.containers[id]).life(attempt).clone() {
            Life::Forever => None,
            Life::Exits { after, code } => {
                let reason = if code == 0 { "Completed" } else { "Error" };
                Some(PlannedExit { at: now + after, code, reason, cause: Cause::Itself })
            }
            Life::OomKilled { after } => {
                Some(PlannedExit { at: now + after, code: 137, reason: "OOMKilled", cause: Cause::Itself })
            }
            Life::FailsToStart(message) => return self.start_failed(id, message),
        };
        let started_at = (self.now)();
        let container = self.containers.get_mut(id).ok_or_else(|| not_found("container", id))?;
        container.state = ContainerState::Running { started_at };
        let (uid, subject) = (container.uid.clone(), container.subject());
        self.record(What::ContainerStarted { container: subject });
        self.check_container_started(id);
        self.tell(&uid, id, RuntimeEventKind::Started);
        if let Some(planned) = planned {
            self.plan_exit(id, planned);
        }
        Ok(id.to_owned())
    }

    /// containerd leaves a container that would not start exited, with a code and a reason of its own, and sends no
    /// event.
    fn start_failed(&mut self, id: &str, message: String) -> Result<String> {
        let finished_at = (self.now)();
        let container = self.containers.get_mut(id).ok_or_else(|| not_found("container", id))?;
        container.state = ContainerState::Exited(Exit {
            code: 128,
            reason: "StartError".to_owned(),
            message: message.clone(),
            started_at: None,
            finished_at,
        });
        let subject = container.subject();
        self.record(What::ContainerNotStarted { container: subject, message: message.clone() });
        Err(refused(message))
    }

    /// Puts an exit on the agenda, unless an earlier one is there.
    fn plan_exit(&mut self, id: &str, exit: PlannedExit) {
        let Some(container) = self.containers.get_mut(id) else { return };
        if container.exit.as_ref().is_none_or(|planned| exit.at < planned.at) {
            self.agenda.add(exit.at, Due::Exit(id.to_owned()));
            container.exit = Some(exit);
        }
    }

    pub fn exit_as_planned(&mut self, id: &str, now: Instant) {
        let Some(container) = self.containers.get_mut(id) else { return };
        if container.exit.as_ref().is_none_or(|planned| planned.at > now) {
            return;
        }
        let Some(PlannedExit { code, reason, cause, .. }) = container.exit.take() else { return };
        self.exit(id, code, reason, cause);
    }

    pub fn exit(&mut self, id: &str, code: i32, reason: &str, cause: Cause) {
        let finished_at = (self.now)();
        let Some(container) = self.containers.get_mut(id) else { return };
        let started_at = match container.state {
            ContainerState::Running { started_at } => Some(started_at),
            ContainerState::Unknown => None,
            _ => return,
        };
        container.exit = None;
        container.state = ContainerState::Exited(Exit {
            code,
            reason: reason.to_owned(),
            message: String::new(),
            started_at,
            finished_at,
        });
        let (uid, subject) = (container.uid.clone(), container.subject());
        let waiters = std::mem::take(&mut container.waiters);
        self.last_words(id);
        self.record(What::ContainerExited { container: subject, code, cause });
        self.tell(&uid, id, RuntimeEventKind::Stopped);
        for waiter in waiters.into_values() {
            let _ = waiter.send(Ok(String::new()));
        }
    }

    fn last_words(&mut self, id: &str) {
        let container = &self.containers[id];
        let words = self.behaviour_of(container).last_words.clone();
        if words.is_empty() {
            return;
        }
        let log = container.log_path.clone();
        if let Some(path) = container.termination_file() {
            let _ = self.write(&path, words.as_bytes());
        }
        let line = format!("{} stdout F {words}\n", (self.now)());
        let _ = self.write(&log, line.as_bytes());
    }

    /// Writes to the host, outside the agent's ports.
    fn write(&self, path: &str, content: &[u8]) -> std::result::Result<(), String> {
        self.write_file.as_ref().map_or(Ok(()), |write| write(path, content))
    }

    /// Sends a TERM, plans the KILL, and answers when the container has exited. Stopping what does not run does
    /// nothing: containerd does not even mark a created container as stopped.
    pub fn begin_stop(&mut self, id: &str, grace: Duration) -> Result<Progress<String>> {
        let Some(container) = self.containers.get(id) else {
            return self.absent("container", id).map(|()| Progress::Done(String::new()));
        };
        match container.state {
            ContainerState::Running { .. } => {}
            ContainerState::Unknown => {
                self.exit(id, 255, "Unknown", Cause::Kill);
                return Ok(Progress::Done(String::new()));
            }
            _ => return Ok(Progress::Done(String::new())),
        }
        let on_term = self.behaviour_of(container).on_term.clone();
        if grace.is_zero() && on_term != OnTerm::Stuck {
            self.exit(id, 137, "Error", Cause::Kill);
            return Ok(Progress::Done(String::new()));
        }
        let now = Instant::now();
        let ticket = self.new_ticket();
        match on_term {
            OnTerm::Exits { after, code } => {
                let reason = if code == 0 { "Completed" } else { "Error" };
                self.plan_exit(id, PlannedExit { at: now + after, code, reason, cause: Cause::Term });
            }
            OnTerm::Ignores | OnTerm::Stuck => {}
        }
        if on_term != OnTerm::Stuck {
            self.agenda.add(now + grace, Due::Kill { id: id.to_owned(), ticket });
        }
        let (answer, receiver) = oneshot::channel();
        if let Some(container) = self.containers.get_mut(id) {
            container.waiters.insert(ticket, answer);
        }
        Ok(Progress::Later(receiver, ticket))
    }

    pub fn kill_after_grace(&mut self, id: &str, ticket: u64) {
        let is_waited_for =
            self.containers.get(id).is_some_and(|container| container.waiters.contains_key(&ticket));
        if is_waited_for {
            self.exit(id, 137, "Error", Cause::Kill);
        }
    }

    /// Removes a container. A running one is killed first: containerd does so, without any grace, and an agent that
    /// relies on it shows up in the trace as [`Cause::Removed`].
    pub fn update_container(&mut self, id: &str, update: &ContainerUpdate) -> Result<()> {
        let container = self.containers.get_mut(id).ok_or_else(|| not_found("container", id))?;
        if !container.state.is_running() {
            return Err(refused(format!("failed to update resources: container {id:?} is not running")));
        }
        container.config.resources = update.resources;
        Ok(())
    }

    pub fn remove_container(&mut self, id: &str) -> Result<()> {
        let Some(container) = self.containers.get(id) else {
            return self.absent("container", id);
        };
        if container.starting {
            return Err(refused(format!(
                "failed to set removing state for container {id:?}: container is in starting state, can't be removed"
            )));
        }
        self.end_for_good(id, Cause::Removed)?;
        let Some(container) = self.containers.remove(id) else { return Ok(()) };
        self.release(&container.reserved, id);
        self.record(What::ContainerRemoved { container: container.subject() });
        self.tell(&container.uid, id, RuntimeEventKind::Deleted);
        self.forget_if_gone(&container.uid);
        Ok(())
    }
}
