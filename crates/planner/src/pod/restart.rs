//! Restart policy and crash-loop back-off.

use crablet_model::hash::fnv1a_64;
use crablet_model::names::container_reason;
use crablet_model::runtime::{Container, ContainerState, Exit};
use crablet_model::{Role, api};
use jiff::Timestamp;

use super::facts::Facts;
use super::memory::{CrashLoop, Memory, later};

/// First crash-loop back-off; doubles up to the node's maximum. The first restart is immediate.
pub const CRASH_LOOP_FIRST_SECONDS: i64 = 10;
/// This long after its last restart a container starts afresh, whether it ran meanwhile or waited.
pub const CRASH_LOOP_RESET_SECONDS: i64 = 600;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

impl RestartPolicy {
    pub fn of(pod: &api::Pod) -> Self {
        Self::named(pod.spec.as_ref().and_then(|s| s.restart_policy.as_deref()))
    }

    fn named(name: Option<&str>) -> Self {
        match name {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
    }

    /// Does a container that ended with `code` run again?
    pub fn restarts(self, code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

/// What follows from a container's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    No,
    Yes,
    /// All containers of the pod begin afresh, the init containers too.
    Everything,
}

/// What follows if a container ends with `code`. Its own rules are asked first, then its own policy, then the pod's.
pub fn after_end(pod: &api::Pod, role: Role, container: &api::Container, code: i32) -> Restart {
    if role == Role::Ephemeral {
        return Restart::No;
    }
    let rules = container.restart_policy_rules.iter().flatten();
    if let Some(rule) = rules.into_iter().find(|rule| applies(rule, code)) {
        return match rule.action.as_str() {
            "RestartAllContainers" => Restart::Everything,
            _ => Restart::Yes,
        };
    }
    let policy = match (container.restart_policy.as_deref(), role) {
        (Some(own), _) => RestartPolicy::named(Some(own)),
        // What has done its work is not asked to do it again.
        (None, Role::Init) if RestartPolicy::of(pod) == RestartPolicy::Always => RestartPolicy::OnFailure,
        (None, _) => RestartPolicy::of(pod),
    };
    if policy.restarts(code) { Restart::Yes } else { Restart::No }
}

/// What an init container that was killed for its memory counts as, whatever it ended with.
const KILLED: i32 = 137;

/// What follows from this instance's end. One that was stopped in order to be started again is started again, whatever
/// it ended with; one that has not ended runs on.
pub fn after(
    memory: &Memory,
    pod: &api::Pod,
    role: Role,
    container: &api::Container,
    instance: &Container,
) -> Restart {
    let Some(exit) = instance.state.exit() else {
        return if role == Role::Ephemeral { Restart::No } else { Restart::Yes };
    };
    if role == Role::Init && has_succeeded(memory, container, instance) {
        // It has done its work; but its rules may still ask for everything to begin afresh.
        let everything = after_end(pod, role, container, exit.code) == Restart::Everything;
        return if everything { Restart::Everything } else { Restart::No };
    }
    let code = if role == Role::Init && exit.code == 0 { KILLED } else { exit.code };
    match after_end(pod, role, container, code) {
        Restart::No if memory.replaced.get(&container.name) == Some(&instance.id) => Restart::Yes,
        verdict => verdict,
    }
}

/// Has this instance of an init container done its work? One that was stopped has not, whatever it ended with.
pub fn has_succeeded(memory: &Memory, container: &api::Container, instance: &Container) -> bool {
    let was_stopped = memory.replaced.get(&container.name) == Some(&instance.id);
    instance.state.exit().is_some_and(|exit| !init_failed(exit)) && !was_stopped
}

/// Upstream: an init container that ran out of memory has failed, also if its first process ended with 0.
fn init_failed(exit: &Exit) -> bool {
    exit.code != 0 || exit.reason == container_reason::OOM_KILLED
}

/// Is a container started again that the agent itself stops because it fails? Rules speak of exit codes and are not
/// asked.
pub fn restarts_when_stopped(pod: &api::Pod, container: &api::Container) -> bool {
    match container.restart_policy.as_deref() {
        Some(own) => RestartPolicy::named(Some(own)) != RestartPolicy::Never,
        None => RestartPolicy::of(pod) != RestartPolicy::Never,
    }
}

/// Is a regular container over of which the runtime has nothing left? What was told last says how it ended: in this
/// sandbox, and not to run again. Who removes what is left of it does not ask for its work to be done twice. (Upstream
/// does it again when it next looks at the pod, a minute later; in a new sandbox everything begins afresh for us, too.)
pub fn is_over(facts: &Facts<'_>, memory: &Memory, pod: &api::Pod, container: &api::Container) -> bool {
    let told = memory.status.as_ref().and_then(|status| {
        let told = status.container_statuses.iter().flatten().find(|told| told.name == container.name)?;
        told.state.as_ref()?.terminated.as_ref()
    });
    let sandbox = facts.runtime.sandboxes.first();
    let (Some(end), Some(sandbox)) = (told, sandbox) else { return false };
    // Statuses have whole seconds.
    let begun = sandbox.created_at.as_second();
    let ended_here = end.finished_at.as_ref().is_some_and(|finished| finished.0.as_second() >= begun);
    ended_here
        && !facts.memory.restarting_all
        && facts.runtime.instances(&container.name).next().is_none()
        && after_end(pod, Role::Regular, container, end.exit_code) == Restart::No
}

fn applies(rule: &api::ContainerRestartRule, code: i32) -> bool {
    let Some(codes) = &rule.exit_codes else { return false };
    let named = codes.values.iter().flatten().any(|value| *value == code);
    match codes.operator.as_str() {
        "In" => named,
        "NotIn" => !named,
        _ => false,
    }
}

/// Should this container run, given its newest instance? A running one should; the question is what happens if not.
pub fn should_run(policy: RestartPolicy, newest: Option<&Container>) -> bool {
    match newest.map(|c| &c.state) {
        None | Some(ContainerState::Created | ContainerState::Running { .. } | ContainerState::Unknown) => {
            true
        }
        Some(ContainerState::Exited(exit)) => policy.restarts(exit.code),
    }
}

/// A crash-looping container that has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub until: Timestamp,
    pub delay_seconds: i64,
}

/// Does the container have to stay down for now? Judged by the wall-clock time of its last exit, so that a restart of
/// the agent changes nothing.
pub fn waiting(
    facts: &Facts<'_>,
    memory: &Memory,
    container: &api::Container,
    exited: &Container,
) -> Option<Waiting> {
    let exit = exited.state.exit()?;
    let entry = current_entry(facts, memory, container, exited)?;
    if entry.exit_id == exited.id {
        return None; // its turn has come already: the start after this exit was begun
    }
    // A clock that was set back would make the exit lie in the future and the wait as long as the jump.
    let from = if exit.finished_at > facts.now { entry.updated_at.min(facts.now) } else { exit.finished_at };
    // Nobody waits for longer than the entry is kept, which is counted in whole seconds.
    let forgotten = later(entry.updated_at, CRASH_LOOP_RESET_SECONDS + 1);
    let until = later(from, entry.delay_seconds).min(forgotten);
    (facts.now < until).then_some(Waiting { until, delay_seconds: entry.delay_seconds })
}

/// Notes that the container is started again after this exit, which makes the wait after the next one longer.
pub fn advance(facts: &Facts<'_>, memory: &mut Memory, container: &api::Container, exited: &Container) {
    let max = facts.node.max_crash_loop_seconds.max(1);
    let delay_seconds = match current_entry(facts, memory, container, exited) {
        Some(entry) if entry.exit_id == exited.id => return,
        Some(entry) => (entry.delay_seconds * 2).min(max),
        None => CRASH_LOOP_FIRST_SECONDS.min(max),
    };
    let entry = CrashLoop {
        key: key(facts, container),
        delay_seconds,
        updated_at: facts.now,
        exit_id: exited.id.clone(),
        announced: String::new(),
    };
    memory.crash_loops.insert(container.name.clone(), entry);
}

/// The entry that applies to this exit: for the same definition, and not too old. As with upstream, which
/// tidies old entries away at any time, it does not matter whether the container ran meanwhile or waited.
fn current_entry<'m>(
    facts: &Facts<'_>,
    memory: &'m Memory,
    container: &api::Container,
    exited: &Container,
) -> Option<&'m CrashLoop> {
    let finished_at = exited.state.exit()?.finished_at;
    let entry = memory.crash_loops.get(&container.name)?;
    let age = facts.now.max(finished_at).duration_since(entry.updated_at).as_secs();
    (entry.key == key(facts, container) && age <= CRASH_LOOP_RESET_SECONDS).then_some(entry)
}

/// Changes with the image and the resources: a container whose definition was mended does not wait for the old one's
/// crashes.
fn key(facts: &Facts<'_>, container: &api::Container) -> String {
    let id = facts.id;
    let resources = container.resources.as_ref().map(|r| format!("{:?}{:?}", r.limits, r.requests));
    let text = format!(
        "{}/{}/{}/{}/{}/{}",
        id.name,
        id.namespace,
        id.uid,
        container.name,
        container.image.as_deref().unwrap_or_default(),
        resources.unwrap_or_default()
    );
    format!("{:x}", fnv1a_64(text.as_bytes()))
}
