//! What may never happen, whatever the agent, the runtime and the disk go through. Noticed on the spot, so that the
//! trace shows it where it happened.

use std::collections::BTreeMap;
use std::time::Duration;

use crablet_model::PodUid;
use crablet_model::runtime::SandboxState;

use super::state::{ContainerRecord, SandboxRecord, State};
use super::trace::What;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViolationKind {
    TwoReadySandboxes,
    TwoLiveInstances,
    RestartCountFell,
    CreatedInStoppedSandbox,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    pub elapsed: Duration,
    pub kind: ViolationKind,
    pub uid: PodUid,
    /// When the other thing happened that makes this one a violation.
    pub since: Duration,
    pub message: String,
}

/// The highest attempt that was ever started, of each container of each pod, and when.
///
/// It is forgotten when the runtime has nothing left of the pod: a static pod that is deleted and put back has the UID
/// it had, and rightly begins at 0.
#[derive(Default)]
pub(super) struct StartedAttempts(BTreeMap<PodUid, BTreeMap<String, (u32, Duration)>>);

impl State {
    fn violated(&mut self, kind: ViolationKind, uid: PodUid, since: Duration, message: String) {
        let elapsed = self.elapsed();
        self.record(What::Violated(message.clone()));
        self.violations.push(Violation { elapsed, kind, uid, since, message });
    }

    /// Called when a sandbox has become ready.
    pub fn check_sandbox_ready(&mut self, id: &str) {
        let sandbox = &self.sandboxes[id];
        let is_rival = |other: &&SandboxRecord| {
            other.id != id && other.uid == sandbox.uid && other.state == SandboxState::Ready
        };
        if let Some(rival) = self.sandboxes.values().find(is_rival) {
            let message =
                format!("two ready sandboxes of one pod: {} and {}", sandbox.subject(), rival.subject());
            let (uid, since) = (sandbox.uid.clone(), rival.made);
            self.violated(ViolationKind::TwoReadySandboxes, uid, since, message);
        }
    }

    /// Called when a container is asked for. A sandbox that died by itself may surprise anyone; one that the agent
    /// stopped, and knows it stopped, may not.
    pub fn check_sandbox_of_create(&mut self, sandbox_id: &str, container: &str) {
        let Some(sandbox) = self.sandboxes.get(sandbox_id) else { return };
        if sandbox.stopped_by_agent {
            let message =
                format!("container {container} created in a sandbox that was stopped: {}", sandbox.subject());
            let (uid, since) = (sandbox.uid.clone(), sandbox.made);
            self.violated(ViolationKind::CreatedInStoppedSandbox, uid, since, message);
        }
    }

    /// Called when a container has started.
    pub fn check_container_started(&mut self, id: &str) {
        let now = self.elapsed();
        let container = &self.containers[id];
        let (uid, name, attempt) = (container.uid.clone(), container.name.clone(), container.attempt);
        let subject = container.subject();
        let is_rival = |other: &&ContainerRecord| {
            other.id != id && other.uid == uid && other.name == name && other.state.is_running()
        };
        if let Some(rival) = self.containers.values().find(is_rival) {
            let message = format!("two live instances of one container: {subject} and {}", rival.subject());
            self.violated(ViolationKind::TwoLiveInstances, uid.clone(), now, message);
        }
        let attempts = self.started_attempts.0.entry(uid.clone()).or_default();
        match attempts.get(&name) {
            Some(&(earlier, since)) if earlier >= attempt => {
                let message = format!("restart count fell: {subject} started after attempt {earlier}");
                self.violated(ViolationKind::RestartCountFell, uid, since, message);
            }
            _ => {
                attempts.insert(name, (attempt, now));
            }
        }
    }

    /// Called when something was removed.
    pub fn forget_if_gone(&mut self, uid: &PodUid) {
        let left =
            self.sandboxes.values().any(|s| s.uid == *uid) || self.containers.values().any(|c| c.uid == *uid);
        if !left {
            self.started_attempts.0.remove(uid);
        }
    }
}
