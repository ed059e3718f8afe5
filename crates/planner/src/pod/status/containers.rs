//! The status of each container.

use std::time::Duration;

use crablet_model::api;
use crablet_model::image::with_default_tag;
use crablet_model::names::container_reason;
use crablet_model::runtime::{Container, ContainerState, Exit};
use jiff::Timestamp;

use super::super::facts::{Facts, Wish};
use super::super::memory::{Memory, PullBackOff, later};
use super::super::restart::{self, RestartPolicy};
use super::{End, some_text, time};

/// All terminated messages of a pod together are no longer than this.
const MESSAGE_BYTES_PER_POD: usize = 12 * 1024;
/// What a killed process ends with; told where nobody saw the end.
const KILLED: i32 = 137;
const NOT_LOCATED_RESTARTED: &str =
    "The container could not be located when the pod was deleted.  The container used to be Running";
const NOT_LOCATED_TERMINATED: &str = "The container could not be located when the pod was terminated";

/// The statuses of the pod's containers, sorted by name.
pub(super) fn statuses(
    facts: &Facts<'_>,
    pod: &api::Pod,
    memory: &Memory,
    end: End,
) -> Vec<api::ContainerStatus> {
    let specs = pod.spec.as_ref().map(|s| s.containers.as_slice()).unwrap_or_default();
    let published = memory.status.as_ref().and_then(|s| s.container_statuses.as_deref()).unwrap_or_default();
    let message_bytes = MESSAGE_BYTES_PER_POD / specs.len().max(1);
    let mut all: Vec<_> = specs
        .iter()
        .map(|spec| {
            let old = published.iter().find(|s| s.name == spec.name);
            let one = One { facts, pod, memory, end, spec, old, message_bytes };
            one.status()
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Everything that the status of one container is made from.
struct One<'a> {
    facts: &'a Facts<'a>,
    pod: &'a api::Pod,
    memory: &'a Memory,
    end: End,
    spec: &'a api::Container,
    /// As published last.
    old: Option<&'a api::ContainerStatus>,
    message_bytes: usize,
}

impl One<'_> {
    fn status(&self) -> api::ContainerStatus {
        let mut instances = self.facts.runtime.instances(&self.spec.name);
        let newest = instances.next();
        let waits = self.waits(newest);
        let mut status = match newest {
            Some(newest) => self.seen(newest, instances.next()),
            None => self.unseen(waits.is_some()),
        };
        if let Some((reason, message)) = waits {
            show_waiting(&mut status, &reason, &message);
        }
        if self.end == End::Down {
            finish(&mut status);
        }
        for state in [&mut status.state, &mut status.last_state] {
            self.shorten(state);
        }
        let running = is_running(&status);
        status.started = Some(running);
        status.ready = running;
        status
    }

    /// The runtime has nothing of the container: what was published is all that is known.
    fn unseen(&self, waits: bool) -> api::ContainerStatus {
        let old = self.old;
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
            name: self.spec.name.clone(),
            image: self.spec.image.clone().unwrap_or_default(),
            state: Some(waiting(container_reason::CONTAINER_CREATING, "")),
            last_state: Some(before.unwrap_or_default()),
            restart_count: old.map_or(0, |s| s.restart_count),
            ..Default::default()
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

    /// The newest instance gives the state, the one before it the last state.
    fn seen(&self, newest: &Container, second: Option<&Container>) -> api::ContainerStatus {
        let (state, lost) = match newest.state {
            ContainerState::Unknown => self.unknown(newest),
            _ => (self.state_of(newest), false),
        };
        let restart_count = i32::try_from(newest.restart_count).unwrap_or(i32::MAX);
        let published = self.old.map_or(0, |s| s.restart_count);
        let requirements = self.spec.resources.clone().unwrap_or_default();
        api::ContainerStatus {
            name: self.spec.name.clone(),
            image: newest.image.clone(),
            image_id: newest.image_ref.clone(),
            container_id: Some(self.full_id(newest)),
            state: Some(state),
            last_state: Some(second.map_or_else(|| self.inherited_end(newest), |c| self.state_of(c))),
            restart_count: restart_count.max(if lost { published.saturating_add(1) } else { published }),
            allocated_resources: requirements.requests.clone().filter(|requests| !requests.is_empty()),
            resources: Some(requirements),
            user: newest.user.as_ref().map(|user| api::ContainerUser {
                linux: Some(api::LinuxContainerUser {
                    uid: user.uid,
                    gid: user.gid,
                    supplemental_groups: super::non_empty(user.supplemental_groups.clone()),
                }),
            }),
            ..Default::default()
        }
    }

    /// The end before this instance, as it was published: the runtime may have forgotten what ended.
    fn inherited_end(&self, newest: &Container) -> api::ContainerState {
        let id = Some(self.full_id(newest));
        let before = self.old.and_then(|old| {
            let another = terminated(old.state.as_ref()).filter(|_| old.container_id != id);
            another.or_else(|| terminated(old.last_state.as_ref()))
        });
        // While an instance waits, its own end is shown as the last one.
        let own = |t: &&api::ContainerStateTerminated| {
            t.container_id == id
                || newest.state == ContainerState::Unknown
                    && t.message.as_deref() == Some(NOT_LOCATED_TERMINATED)
        };
        api::ContainerState { terminated: before.filter(|t| !own(t)).cloned(), ..Default::default() }
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

    fn full_id(&self, instance: &Container) -> String {
        format!("{}://{}", self.facts.node.runtime_name, instance.id)
    }

    /// Upstream asks for a deletion timestamp only; a static pod that ends has none.
    fn ends(&self) -> bool {
        *self.facts.wish != Wish::Run || self.pod.metadata.deletion_timestamp.is_some()
    }

    /// Why a container that should be started is not, if there is something to tell.
    fn waits(&self, newest: Option<&Container>) -> Option<(String, String)> {
        let running = newest.is_some_and(|c| c.state.is_running());
        if self.ends() || running || !restart::should_run(RestartPolicy::of(self.pod), newest) {
            return None;
        }
        if let Some(refused) = self.facts.refused {
            let reason = container_reason::CREATE_CONTAINER_CONFIG_ERROR;
            return Some((reason.to_owned(), format!("not supported yet: {refused}")));
        }
        self.crash_loop()
            .or_else(|| {
                self.memory.failures.get(&self.spec.name).map(|f| (f.reason.clone(), f.message.clone()))
            })
            .or_else(|| self.pull())
            .or_else(|| self.still_waits(newest?))
    }

    fn crash_loop(&self) -> Option<(String, String)> {
        let mut instances = self.facts.runtime.instances(&self.spec.name);
        let exited = instances.find(|c| c.state.exit().is_some())?;
        let wait = restart::waiting(self.facts, self.memory, self.spec, exited)?;
        let delay = crablet_model::duration::Go(Duration::from_secs(wait.delay_seconds.unsigned_abs()));
        let message =
            format!("back-off {delay} restarting failed container={} pod={}", self.spec.name, self.facts.id);
        Some((container_reason::CRASH_LOOP_BACK_OFF.to_owned(), message))
    }

    fn pull(&self) -> Option<(String, String)> {
        let image = self.spec.image.as_deref().unwrap_or_default();
        let key = with_default_tag(image).unwrap_or_else(|_| image.to_owned());
        let failed = self.memory.pulls.get(&key)?;
        if self.facts.now < back_off_shown_at(failed) {
            return Some((failed.reason.clone(), failed.message.clone()));
        }
        let message = format!("Back-off pulling image {image:?}: {}: {}", failed.reason, failed.message);
        Some((container_reason::IMAGE_PULL_BACK_OFF.to_owned(), message))
    }

    /// A wait that is over is shown until the next instance is there, as upstream's reason cache does: otherwise a
    /// crash-looping container would look ended for the moment of its start.
    fn still_waits(&self, newest: &Container) -> Option<(String, String)> {
        let old = self.old?;
        let ended = terminated(old.last_state.as_ref())?.container_id.as_deref()?;
        let shown = old.state.as_ref()?.waiting.as_ref()?;
        let reason = shown.reason.clone().filter(|r| r != container_reason::CONTAINER_CREATING)?;
        let same = newest.state.exit().is_some() && ended == self.full_id(newest);
        same.then(|| (reason, shown.message.clone().unwrap_or_default()))
    }

    /// No message is longer than the container's share.
    fn shorten(&self, state: &mut Option<api::ContainerState>) {
        let Some(ended) = state.as_mut().and_then(|s| s.terminated.as_mut()) else { return };
        if let Some(message) = ended.message.as_mut() {
            message.truncate(message.floor_char_boundary(self.message_bytes));
        }
    }
}

/// When a failed pull begins to show as a back-off instead of the failure itself: half way to the next try.
fn back_off_shown_at(failed: &PullBackOff) -> Timestamp {
    later(failed.failed_at, failed.delay_seconds / 2)
}

fn show_waiting(status: &mut api::ContainerStatus, reason: &str, message: &str) {
    if terminated(status.state.as_ref()).is_some() {
        status.last_state = status.state.take();
    }
    status.state = Some(waiting(reason, message));
}

/// Upstream's status manager at the very end of a pod: what has not ended is declared ended.
fn finish(status: &mut api::ContainerStatus) {
    if terminated(status.state.as_ref()).is_none() {
        status.state = Some(unknown_end(NOT_LOCATED_TERMINATED));
    }
}

fn waiting(reason: &str, message: &str) -> api::ContainerState {
    api::ContainerState {
        waiting: Some(api::ContainerStateWaiting { reason: some_text(reason), message: some_text(message) }),
        ..Default::default()
    }
}

fn unknown_end(message: &str) -> api::ContainerState {
    api::ContainerState {
        terminated: Some(api::ContainerStateTerminated {
            exit_code: KILLED,
            reason: Some(container_reason::CONTAINER_STATUS_UNKNOWN.to_owned()),
            message: Some(message.to_owned()),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn is_running(status: &api::ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|s| s.running.is_some())
}

fn terminated(state: Option<&api::ContainerState>) -> Option<&api::ContainerStateTerminated> {
    state?.terminated.as_ref()
}
