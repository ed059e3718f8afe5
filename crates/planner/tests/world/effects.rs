//! What operations do to the runtime.

use std::collections::BTreeMap;

use crablet_model::hash::container_hash;
use crablet_model::roster;
use crablet_model::runtime::{Container, ContainerState, Exit, Sandbox, SandboxState};
use crablet_planner::pod::{Action, Outcome, PreparedImage};
use jiff::Timestamp;

use super::World;

impl World {
    pub(super) fn take_effect(&mut self, action: &Action) -> Outcome {
        match action {
            Action::CreateSandbox { attempt } => {
                self.adopt();
                self.create_sandbox(*attempt)
            }
            Action::StopSandbox { id } => {
                self.stop_sandbox(id);
                Outcome::SandboxStopped { id: id.clone() }
            }
            Action::RemoveSandbox { id } => {
                self.stop_sandbox(id);
                self.runtime.sandboxes.retain(|s| s.id != *id);
                self.runtime.containers.retain(|c| c.sandbox_id != *id);
                Outcome::SandboxRemoved
            }
            Action::EnsureImage { container, image, .. } => Outcome::ImageReady {
                container: container.clone(),
                image: image.clone(),
                prepared: PreparedImage { image_ref: image.clone(), uid: None, username: String::new() },
            },
            Action::StartContainer { container, attempt, sandbox_id, .. } => {
                if self.in_hook.remove(container) {
                    return Outcome::ContainerStarted { container: container.clone() };
                }
                let mut sandboxes = self.runtime.sandboxes.iter();
                let is_lost = !sandboxes.any(|s| s.id == *sandbox_id && s.state == SandboxState::Ready);
                if is_lost && !container.starts_with('e') {
                    return Outcome::StartedInVain { container: container.clone(), attempt: *attempt };
                }
                self.create_container(container, *attempt, sandbox_id);
                self.start_newest(container)
            }
            Action::StartCreated { container, id } => {
                let created =
                    self.runtime.containers.iter().any(|c| c.id == *id && c.state == ContainerState::Created);
                if created { self.start_newest(container) } else { failure(action) }
            }
            Action::PreStop { id, .. } => Outcome::PreStopEnded { id: id.clone() },
            Action::StopContainer { id, .. } => {
                let now = self.now;
                // Some heed the signal, some die of it.
                let code = if id.ends_with(['0', '2', '4', '6', '8']) { 0 } else { 143 };
                for c in
                    self.runtime.containers.iter_mut().filter(|c| c.id == *id && c.state.exit().is_none())
                {
                    c.state = exited(code, now);
                }
                Outcome::ContainerStopped { id: id.clone() }
            }
            Action::RemoveContainer { id, .. } => {
                self.runtime.containers.retain(|c| c.id != *id);
                Outcome::ContainerRemoved { id: id.clone() }
            }
            Action::Resize(resize) => self.resize(resize, true),
            Action::TakeOver => Outcome::TakenOver,
            Action::Release => Outcome::Released,
            Action::Cleanup => Outcome::Cleaned,
        }
    }

    /// A start that fails in its hook leaves a container that ran and was stopped.
    pub(super) fn fail(&mut self, action: &Action) -> Outcome {
        if let Action::Resize(resize) = action {
            return self.resize(resize, false);
        }
        let Action::StartContainer { container, .. } = action else { return failure(action) };
        self.note_start(container);
        if !self.in_hook.remove(container) {
            return failure(action);
        }
        let now = self.now;
        let newest = self.runtime.containers.iter_mut().find(|c| c.name == *container);
        if let Some(c) = newest.filter(|c| c.state.is_running()) {
            c.state = exited(137, now);
        }
        let message = "PostStartHook failed".to_owned();
        Outcome::StartFailed { container: container.clone(), reason: "PostStartHookError", message }
    }

    fn create_sandbox(&mut self, attempt: u32) -> Outcome {
        if self.runtime.sandboxes.iter().any(|s| s.state == SandboxState::Ready) {
            self.broken.push("a second ready sandbox".to_owned());
        }
        if self.runtime.sandboxes.iter().any(|s| s.attempt == attempt) {
            self.broken.push(format!("sandbox attempt {attempt} twice"));
        }
        let host_network = self.pod.spec.as_ref().and_then(|s| s.host_network).unwrap_or(false);
        let sandbox = Sandbox {
            id: self.fresh("s"),
            uid: self.id.uid.clone(),
            name: "p".to_owned(),
            namespace: "default".to_owned(),
            attempt,
            state: SandboxState::Ready,
            created_at: self.now,
            ips: if host_network { vec![] } else { vec!["10.0.0.7".parse().expect("an address")] },
            host_network,
        };
        self.runtime.sandboxes.insert(0, sandbox);
        Outcome::SandboxCreated
    }

    pub(super) fn stop_sandbox(&mut self, id: &str) {
        let now = self.now;
        for s in self.runtime.sandboxes.iter_mut().filter(|s| s.id == id) {
            s.state = SandboxState::NotReady;
        }
        for c in self.runtime.containers.iter_mut().filter(|c| c.sandbox_id == id) {
            if matches!(c.state, ContainerState::Running { .. } | ContainerState::Unknown) {
                c.state = exited(137, now);
            }
        }
    }

    pub(super) fn create_container(&mut self, name: &str, attempt: u32, sandbox_id: &str) {
        self.watch_creation(name, attempt);
        self.note_start(name);
        self.saw_creation(name, attempt);
        let spec = self.pod.spec.as_ref().and_then(|spec| roster::find(spec, name));
        let image = spec.and_then(|(_, c)| c.image.clone()).unwrap_or_default();
        let container = Container {
            id: self.fresh("c"),
            sandbox_id: sandbox_id.to_owned(),
            uid: self.id.uid.clone(),
            name: name.to_owned(),
            restart_count: attempt,
            hash: container_hash(name, &image),
            created_at: self.now,
            state: ContainerState::Created,
            image: image.clone(),
            image_ref: image,
            annotations: BTreeMap::new(),
            log_path: String::new(),
            termination_file: None,
            user: None,
            resources: None,
            stop_signal: None,
        };
        self.gives(&container.id, name);
        self.runtime.containers.insert(0, container);
    }

    pub(super) fn start_newest(&mut self, name: &str) -> Outcome {
        if self.runtime.instances(name).any(|c| c.state.is_running()) {
            self.broken.push(format!("{name}: a second live instance"));
        }
        let now = self.now;
        let sandboxes = &self.runtime.sandboxes;
        let newest = self.runtime.containers.iter_mut().find(|c| c.name == name);
        if let Some(c) = newest {
            let alive = sandboxes.iter().any(|s| s.id == c.sandbox_id && s.state == SandboxState::Ready);
            if !alive {
                c.state = exited(128, now);
                let reason = "RunContainerError";
                return Outcome::StartFailed {
                    container: name.to_owned(),
                    reason,
                    message: "no sandbox".to_owned(),
                };
            }
            c.state = ContainerState::Running { started_at: now };
        }
        Outcome::ContainerStarted { container: name.to_owned() }
    }
}

pub fn exited(code: i32, now: Timestamp) -> ContainerState {
    ContainerState::Exited(Exit {
        code,
        reason: String::new(),
        message: String::new(),
        started_at: None,
        finished_at: now,
    })
}

fn failure(action: &Action) -> Outcome {
    let message = "bad luck".to_owned();
    match action {
        Action::CreateSandbox { .. } => Outcome::SandboxFailed { message },
        Action::StopSandbox { id }
        | Action::RemoveSandbox { id }
        | Action::StopContainer { id, .. }
        | Action::RemoveContainer { id, .. } => Outcome::TeardownFailed { id: id.clone(), message },
        Action::EnsureImage { container, held, .. } if !held.is_empty() => {
            Outcome::ImageMissing { container: container.clone() }
        }
        Action::EnsureImage { container, image, .. } => Outcome::ImageFailed {
            container: container.clone(),
            image: image.clone(),
            reason: "ErrImagePull".to_owned(),
            message,
            pulled: true,
        },
        Action::StartContainer { container, .. } | Action::StartCreated { container, .. } => {
            Outcome::StartFailed { container: container.clone(), reason: "RunContainerError", message }
        }
        Action::PreStop { id, .. } => Outcome::PreStopEnded { id: id.clone() },
        Action::Resize(_) => Outcome::ResizeFailed { message },
        Action::TakeOver => Outcome::TakeOverFailed { message },
        Action::Release => Outcome::ReleaseFailed { message },
        Action::Cleanup => Outcome::CleanupFailed { message },
    }
}
