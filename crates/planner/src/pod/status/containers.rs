//! The status of each container.

use crablet_model::names::container_reason;
use crablet_model::runtime::{Container, ContainerState, SandboxState};
use crablet_model::{Role, api, roster, text};

use super::super::facts::{Facts, Wish};
use super::super::memory::Memory;
use super::super::plan::OpKey;
use super::states::{
    NOT_LOCATED_RESTARTED, ended_well, ever_left_waiting, finish, is_running, is_waiting,
    removed_to_restart_all, show_waiting, taken_for_completed, terminated, unknown_end, waiting,
};
use super::{End, health, mounts, restart_all, waits};

/// All terminated messages of a pod together are no longer than this.
const MESSAGE_BYTES_PER_POD: usize = 12 * 1024;

/// The statuses of a pod's containers.
#[derive(Default)]
pub(super) struct Statuses {
    /// In the order of the specification.
    pub init: Vec<api::ContainerStatus>,
    /// Sorted by name, as the ephemeral ones are.
    pub regular: Vec<api::ContainerStatus>,
    pub ephemeral: Vec<api::ContainerStatus>,
}

impl Statuses {
    pub(super) fn of(facts: &Facts<'_>, pod: &api::Pod, memory: &Memory, end: End) -> Self {
        let Some(spec) = &pod.spec else { return Self::default() };
        let mut all = Self::default();
        let whole = Whole::of(facts, pod, memory, spec);
        // Init containers have their turn one after the other; the regular ones all at once, after the last of them.
        let mut initialised = true;
        for (role, container) in roster::roster(spec) {
            let is_its_turn = match role {
                Role::Ephemeral => true,
                Role::Regular => initialised || whole.has_begun,
                Role::Init | Role::Sidecar => initialised,
            };
            let old = published(memory, role).iter().find(|s| s.name == container.name);
            let spec = &container;
            let one = One { facts, pod, memory, end, whole: &whole, role, spec, old, is_its_turn };
            let status = one.status();
            initialised &= !role.is_init() || is_initialised(role, &status);
            all.list(role).push(status);
        }
        if end == End::Down {
            all.finish(memory);
        }
        all.regular.sort_by(|a, b| a.name.cmp(&b.name));
        all.ephemeral.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    fn list(&mut self, role: Role) -> &mut Vec<api::ContainerStatus> {
        match role {
            Role::Init | Role::Sidecar => &mut self.init,
            Role::Regular => &mut self.regular,
            Role::Ephemeral => &mut self.ephemeral,
        }
    }

    /// Of an init or regular container.
    pub(super) fn find(&self, name: &str) -> Option<&api::ContainerStatus> {
        self.init.iter().chain(&self.regular).find(|s| s.name == name)
    }

    /// The pod is down for good. What was begun and has not been seen to end is declared ended; what had never had its
    /// turn goes on waiting for ever.
    fn finish(&mut self, memory: &Memory) {
        let was_initialised = super::holds(memory.status.as_ref(), super::condition::INITIALIZED);
        let last_is_done = self.init.last().is_none_or(ended_well);
        if was_initialised || last_is_done || self.regular.iter().any(ever_left_waiting) {
            self.regular.iter_mut().for_each(finish);
        }
        // At least the first: the pod's end may have come before it was seen.
        let begun = self.init.iter().rposition(ever_left_waiting).map_or(1, |last| last + 1);
        self.init.iter_mut().take(begun).for_each(finish);
    }
}

/// Has an init container of this status done what the next one waits for?
pub(super) fn is_initialised(role: Role, status: &api::ContainerStatus) -> bool {
    match role {
        Role::Sidecar => status.started == Some(true),
        _ => status.ready,
    }
}

/// As published last.
fn published(memory: &Memory, role: Role) -> &[api::ContainerStatus] {
    let list = memory.status.as_ref().and_then(|status| match role {
        Role::Init | Role::Sidecar => status.init_container_statuses.as_deref(),
        Role::Regular => status.container_statuses.as_deref(),
        Role::Ephemeral => status.ephemeral_container_statuses.as_deref(),
    });
    list.unwrap_or_default()
}

/// What is the same for all containers of a pod.
pub(super) struct Whole {
    message_bytes: usize,
    has_init: bool,
    /// A regular container was created: the init containers have done their work.
    has_begun: bool,
    /// All containers are begun afresh.
    restarts_all: bool,
    /// The runtime has no init or regular container of it.
    is_empty: bool,
}

impl Whole {
    fn of(facts: &Facts<'_>, pod: &api::Pod, memory: &Memory, spec: &api::PodSpec) -> Self {
        let created = |container: &api::Container| {
            let newest = facts.runtime.instances(&container.name).next();
            newest.is_some_and(|c| c.state != ContainerState::Unknown)
        };
        let init = spec.init_containers.as_ref().map_or(0, Vec::len);
        let ephemeral = spec.ephemeral_containers.as_ref().map_or(0, Vec::len);
        Self {
            message_bytes: MESSAGE_BYTES_PER_POD / (spec.containers.len() + init + ephemeral).max(1),
            has_init: init > 0,
            has_begun: spec.containers.iter().any(created),
            restarts_all: restart_all::is_under_way(facts, pod, memory),
            is_empty: restart_all::is_cleaned_up(pod, facts.runtime),
        }
    }
}

/// Everything that the status of one container is made from.
pub(super) struct One<'a> {
    pub facts: &'a Facts<'a>,
    pub pod: &'a api::Pod,
    pub memory: &'a Memory,
    pub end: End,
    whole: &'a Whole,
    pub role: Role,
    pub spec: &'a api::Container,
    /// As published last.
    pub old: Option<&'a api::ContainerStatus>,
    /// Nothing before it in the pod's order is missing.
    pub is_its_turn: bool,
}

impl<'a> One<'a> {
    fn status(&self) -> api::ContainerStatus {
        let mut instances = self.instances();
        let newest = instances.next();
        let waits = waits::why(self, newest);
        let mut status = match newest {
            Some(newest) => self.seen(newest, instances.next()),
            None => self.unseen(waits.is_some()),
        };
        if newest.is_none() && self.is_behind() && is_waiting(&status) {
            status.state = Some(taken_for_completed());
        } else if let Some((reason, message)) = waits {
            show_waiting(&mut status, &reason, &message);
        }
        for state in [&mut status.state, &mut status.last_state] {
            self.shorten(state);
        }
        health::judge(self, &mut status, newest);
        status
    }

    /// Newest first. An instance that is being started, or whose hook after its start is under way, has not come yet,
    /// for the world: upstream tells of it once that is done. Otherwise a restart would be counted before it is one.
    pub(super) fn instances(&self) -> impl Iterator<Item = &'a Container> + use<'a> {
        let all = self.facts.runtime.instances(&self.spec.name);
        let hooked = self.spec.lifecycle.as_ref().is_some_and(|l| l.post_start.is_some());
        let starts = self.facts.session.ops.contains_key(&OpKey::Start(self.spec.name.clone()));
        let hides = starts && !self.ends();
        all.skip_while(move |c| match c.state {
            ContainerState::Created => hides,
            ContainerState::Running { .. } => hides && hooked,
            _ => false,
        })
    }

    /// An init container that has done its work, whatever is left of it, and is not to do it again.
    pub(super) fn is_behind(&self) -> bool {
        self.role == Role::Init && self.whole.has_begun && !self.whole.restarts_all
    }

    /// What a container waits for that nothing has been tried for yet.
    pub(super) fn first_wait(&self) -> &'static str {
        if self.whole.has_init {
            container_reason::POD_INITIALIZING
        } else {
            container_reason::CONTAINER_CREATING
        }
    }

    /// The runtime has nothing of the container: what was published is all that is known.
    fn unseen(&self, waits: bool) -> api::ContainerStatus {
        let old = self.old;
        if self.role != Role::Ephemeral
            && let Some(restarting) = self.removed_to_restart_all()
        {
            return restarting;
        }
        let ended = old.filter(|s| terminated(s.state.as_ref()).is_some());
        if let Some(old) = ended.filter(|_| !waits) {
            return old.clone();
        }
        let before = if ended.is_some() {
            old.and_then(|s| s.state.clone())
        } else {
            old.and_then(|s| s.last_state.clone())
        };
        let mut status = api::ContainerStatus {
            state: Some(waiting(self.first_wait(), "")),
            last_state: Some(before.unwrap_or_default()),
            restart_count: old.map_or(0, |s| s.restart_count),
            ..self.blank()
        };
        if old.is_some_and(is_running) && terminated(status.last_state.as_ref()).is_none() {
            // It ran and is gone: without a last state the pod would fall back to Pending.
            status.last_state = Some(unknown_end(NOT_LOCATED_RESTARTED));
            if !self.ends() {
                status.restart_count = status.restart_count.saturating_add(1);
            }
        }
        status
    }

    pub(super) fn blank(&self) -> api::ContainerStatus {
        api::ContainerStatus {
            name: self.spec.name.clone(),
            image: self.spec.image.clone().unwrap_or_default(),
            volume_mounts: mounts::of(self),
            ..Default::default()
        }
    }

    /// It was removed because all containers are begun afresh. Counted once, and shown until the first of them is there
    /// again: from then on it waits for its turn.
    fn removed_to_restart_all(&self) -> Option<api::ContainerStatus> {
        let old = self.old?;
        let told = old.state.as_ref().and_then(|s| s.waiting.as_ref()?.reason.as_deref());
        if told == Some(container_reason::RESTARTING_ALL_CONTAINERS) {
            return (self.whole.restarts_all || self.whole.is_empty).then(|| old.clone());
        }
        if !self.whole.restarts_all || is_waiting(old) {
            return None;
        }
        let (ended, waits) = removed_to_restart_all();
        Some(api::ContainerStatus {
            state: Some(waits),
            last_state: Some(ended),
            restart_count: old.restart_count.saturating_add(1),
            ..self.blank()
        })
    }

    pub(super) fn full_id(&self, instance: &Container) -> String {
        format!("{}://{}", self.facts.node.runtime_name, instance.id)
    }

    /// Upstream asks for a deletion timestamp only; a static pod that ends has none.
    pub(super) fn ends(&self) -> bool {
        *self.facts.wish != Wish::Run || self.pod.metadata.deletion_timestamp.is_some()
    }

    /// No message is longer than the container's share.
    fn shorten(&self, state: &mut Option<api::ContainerState>) {
        let Some(ended) = state.as_mut().and_then(|s| s.terminated.as_mut()) else { return };
        if let Some(message) = ended.message.as_mut() {
            text::cut(message, self.whole.message_bytes);
        }
    }
}

/// A regular container was created in the sandbox that is used now: a sidecar that restarts makes the pod wait no more.
pub(super) fn is_begun_in_this_sandbox(facts: &Facts<'_>, pod: &api::Pod) -> bool {
    let Some(sandbox) = facts.runtime.sandboxes.first().filter(|s| s.state == SandboxState::Ready) else {
        return false;
    };
    let regular = |name: &str| pod.spec.iter().flat_map(|s| &s.containers).any(|c| c.name == name);
    facts.runtime.containers.iter().any(|c| c.sandbox_id == sandbox.id && regular(&c.name))
}
