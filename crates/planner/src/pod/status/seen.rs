//! A container that the runtime knows: its state, and the end before it.

use crablet_model::api;
use crablet_model::runtime::{Container, ContainerState, Exit};
use jiff::Timestamp;

use super::super::restart::{self, Restart};
use super::containers::One;
use super::states::{
    NOT_LOCATED_RESTARTED, NOT_LOCATED_TERMINATED, is_running, terminated, unknown_end, waiting,
};
use super::{sizes, some_text, time};

impl One<'_> {
    /// The newest instance gives the state, the one before it the last state.
    pub(super) fn seen(&self, newest: &Container, second: Option<&Container>) -> api::ContainerStatus {
        let (state, lost) = match newest.state {
            ContainerState::Unknown => self.unknown(newest),
            _ => (self.state_of(newest), false),
        };
        let restart_count = i32::try_from(newest.restart_count).unwrap_or(i32::MAX);
        let published = self.old.map_or(0, |s| s.restart_count);
        let granted = self.spec.resources.clone().unwrap_or_default();
        api::ContainerStatus {
            image: newest.image.clone(),
            image_id: newest.image_ref.clone(),
            container_id: Some(self.full_id(newest)),
            state: Some(state),
            last_state: Some(second.map_or_else(|| self.inherited_end(newest), |c| self.state_of(c))),
            restart_count: restart_count.max(if lost { published.saturating_add(1) } else { published }),
            resources: Some(sizes::of(self, newest, &granted)),
            allocated_resources: granted.requests.filter(|requests| !requests.is_empty()),
            user: self.user(newest),
            stop_signal: newest.stop_signal.clone().filter(|_| self.facts.node.stop_signals),
            ..self.blank()
        }
    }

    /// A runtime that is just removing an instance may have forgotten whose it was, which never changes.
    fn user(&self, newest: &Container) -> Option<api::ContainerUser> {
        let told = || {
            let same = |old: &&api::ContainerStatus| old.container_id == Some(self.full_id(newest));
            self.old.filter(same)?.user.clone()
        };
        let known = newest.user.as_ref().map(|user| api::ContainerUser {
            linux: Some(api::LinuxContainerUser {
                uid: user.uid,
                gid: user.gid,
                supplemental_groups: super::non_empty(user.supplemental_groups.clone()),
            }),
        });
        known.or_else(told)
    }

    /// The end before this instance, as it was published: the runtime may have forgotten what ended.
    fn inherited_end(&self, newest: &Container) -> api::ContainerState {
        let id = Some(self.full_id(newest));
        let before = self.old.and_then(|old| {
            let another = terminated(old.state.as_ref()).filter(|_| old.container_id != id);
            another.or_else(|| terminated(old.last_state.as_ref()))
        });
        // While an instance waits, its own end is shown as the last one, and stays so if no other comes.
        // Of an instance that waited only because it was to be replaced, upstream has never told that.
        let own = |t: &&api::ContainerStateTerminated| {
            t.container_id == id && self.ends_here(newest)
                || newest.state == ContainerState::Unknown
                    && t.message.as_deref() == Some(NOT_LOCATED_TERMINATED)
        };
        api::ContainerState { terminated: before.filter(|t| !own(t)).cloned(), ..Default::default() }
    }

    /// It has ended, and neither its rules nor its policy have it start again.
    fn ends_here(&self, instance: &Container) -> bool {
        let exit = instance.state.exit();
        exit.is_some_and(|e| restart::after_end(self.pod, self.role, self.spec, e.code) == Restart::No)
    }

    fn state_of(&self, instance: &Container) -> api::ContainerState {
        match &instance.state {
            ContainerState::Running { started_at } => api::ContainerState {
                running: Some(api::ContainerStateRunning { started_at: Some(time(*started_at)) }),
                ..Default::default()
            },
            ContainerState::Exited(exit) => self.exited(instance, exit),
            ContainerState::Created => waiting("", ""),
            ContainerState::Unknown => unknown_end(NOT_LOCATED_RESTARTED),
        }
    }

    /// The state of a newest instance that the runtime cannot tell, and whether this is the moment at which it got
    /// lost. One that ran counts as ended. Unlike upstream, it stays so when it is looked at again, instead of falling
    /// back to waiting.
    fn unknown(&self, instance: &Container) -> (api::ContainerState, bool) {
        let Some(old) = self.old else { return (waiting("", ""), false) };
        let told = |state: &Option<api::ContainerState>| {
            terminated(state.as_ref()).is_some_and(|t| t.message.as_deref() == Some(NOT_LOCATED_TERMINATED))
        };
        let same = old.container_id.as_deref() == Some(&self.full_id(instance));
        if is_running(old) {
            (unknown_end(NOT_LOCATED_TERMINATED), true)
        } else if same && (told(&old.state) || told(&old.last_state)) {
            (unknown_end(NOT_LOCATED_TERMINATED), false)
        } else {
            (waiting("", ""), false)
        }
    }

    fn exited(&self, instance: &Container, exit: &Exit) -> api::ContainerState {
        let id = self.full_id(instance);
        let message = match self.facts.session.termination_messages.get(&instance.id) {
            Some(text) if text.is_empty() => exit.message.clone(),
            Some(text) if exit.message.is_empty() => text.clone(),
            Some(text) => format!("{}: {text}", exit.message),
            // Not read in this life of the agent: what was published may know more than the runtime.
            None => self.published_message(&id).unwrap_or_else(|| exit.message.clone()),
        };
        api::ContainerState {
            terminated: Some(api::ContainerStateTerminated {
                exit_code: exit.code,
                reason: some_text(&exit.reason),
                message: some_text(&message),
                // As upstream, a container that never started shows the zero of Unix time.
                started_at: Some(time(exit.started_at.unwrap_or(Timestamp::UNIX_EPOCH))),
                finished_at: Some(time(exit.finished_at)),
                container_id: Some(id),
                signal: None,
            }),
            ..Default::default()
        }
    }

    fn published_message(&self, container_id: &str) -> Option<String> {
        let old = self.old?;
        let mut ends = [&old.state, &old.last_state].into_iter().filter_map(|s| terminated(s.as_ref()));
        ends.find(|t| t.container_id.as_deref() == Some(container_id))?.message.clone()
    }
}
