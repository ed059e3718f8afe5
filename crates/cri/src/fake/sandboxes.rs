//! What the sandbox verbs do.

use crablet_model::runtime::{NamespaceMode, RuntimeEventKind, SandboxConfig, SandboxState};

use super::behaviour::OnTerm;
use super::state::{SandboxRecord, State, not_found, refused};
use super::trace::{Cause, What};
use super::works::{Progress, WorkKind};
use crate::port::Result;

impl State {
    pub fn begin_sandbox(&mut self, config: SandboxConfig) -> Result<Progress<String>> {
        let reserved = format!("{}_{}_{}_{}", config.name, config.namespace, config.uid, config.attempt);
        let id = self.new_id();
        self.reserve("sandbox", &reserved, &id)?;
        let time = self.usual_work_time();
        self.start_work(WorkKind::Sandbox { id, reserved, config: Box::new(config) }, time)
    }

    pub fn add_sandbox(
        &mut self,
        id: String,
        reserved: String,
        config: SandboxConfig,
        state: SandboxState,
    ) -> Result<String> {
        let ips = match config.namespaces.network {
            NamespaceMode::Node => Vec::new(),
            _ => vec![self.new_address()],
        };
        let uid = config.uid.clone();
        let sandbox = SandboxRecord {
            id: id.clone(),
            reserved,
            uid: uid.clone(),
            config,
            state,
            created_at: (self.now)(),
            made: self.elapsed(),
            ips,
            stopped_by_agent: false,
        };
        let subject = sandbox.subject();
        self.sandboxes.insert(id.clone(), sandbox);
        self.tell(&uid, &id, RuntimeEventKind::Created);
        if state == SandboxState::Ready {
            self.record(What::SandboxReady { sandbox: subject });
            self.check_sandbox_ready(&id);
            self.tell(&uid, &id, RuntimeEventKind::Started);
        } else {
            self.record(What::SandboxNotReady { sandbox: subject, cause: Cause::Itself });
        }
        Ok(id)
    }

    /// Kills what runs in the sandbox and takes its network away. Idempotent, as CRI asks.
    pub fn stop_sandbox(&mut self, id: &str) -> Result<()> {
        if !self.sandboxes.contains_key(id) {
            return self.absent("sandbox", id);
        }
        for container in self.containers_in(id) {
            self.end_for_good(&container, Cause::SandboxStopped)?;
        }
        self.sandbox_is_down(id, Cause::Term);
        Ok(())
    }

    pub fn sandbox_is_down(&mut self, id: &str, cause: Cause) {
        let Some(sandbox) = self.sandboxes.get_mut(id) else { return };
        if sandbox.state == SandboxState::NotReady {
            return;
        }
        sandbox.state = SandboxState::NotReady;
        let (uid, subject) = (sandbox.uid.clone(), sandbox.subject());
        self.record(What::SandboxNotReady { sandbox: subject, cause });
        self.tell(&uid, id, RuntimeEventKind::Stopped);
    }

    /// Removes the sandbox and its containers; what still runs is stopped by force first, as containerd does.
    pub fn remove_sandbox(&mut self, id: &str) -> Result<()> {
        if !self.sandboxes.contains_key(id) {
            return self.absent("sandbox", id);
        }
        self.stop_sandbox(id)?;
        for container in self.containers_in(id) {
            self.remove_container(&container)?;
        }
        let Some(sandbox) = self.sandboxes.remove(id) else { return Ok(()) };
        self.release(&sandbox.reserved, id);
        self.record(What::SandboxRemoved { sandbox: sandbox.subject() });
        self.tell(&sandbox.uid, id, RuntimeEventKind::Deleted);
        self.forget_if_gone(&sandbox.uid);
        Ok(())
    }

    pub fn containers_in(&self, sandbox_id: &str) -> Vec<String> {
        let inside = self.containers.values().filter(|c| c.sandbox_id == sandbox_id);
        inside.map(|c| c.id.clone()).collect()
    }

    /// Ends a container without asking it. A container that is stuck resists, and the call that tried fails.
    pub fn end_for_good(&mut self, id: &str, cause: Cause) -> Result<()> {
        let container = &self.containers[id];
        if !container.state.is_running() {
            return Ok(());
        }
        if self.behaviour_of(container).on_term == OnTerm::Stuck {
            return Err(refused(format!(
                "failed to stop container {id:?}: an error occurs during waiting for container {id:?} to be killed: \
                 wait container {id:?}: context deadline exceeded"
            )));
        }
        self.exit(id, 137, "Error", cause);
        Ok(())
    }

    pub fn absent(&self, kind: &str, id: &str) -> Result<()> {
        if self.settings.forgives_absence { Ok(()) } else { Err(not_found(kind, id)) }
    }
}
