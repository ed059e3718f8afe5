//! The phase of a pod.

use crablet_model::names::condition;
use crablet_model::names::container_reason::{OOM_KILLED, RESTARTING_ALL_CONTAINERS};
use crablet_model::names::phase::{self, FAILED, PENDING, RUNNING, SUCCEEDED};
use crablet_model::runtime::SandboxState;
use crablet_model::{Role, api, roster};

use super::super::facts::{Facts, Verdict};
use super::super::memory::Memory;
use super::super::plan::OpKey;
use super::super::restart::{self, Restart};
use super::containers::{Statuses, is_begun_in_this_sandbox};
use super::states::{KILLED, is_running, is_waiting, terminated};
use super::{End, is_static, restart_all};

/// Upstream knows of a deadline when it generates a status; of an eviction only when the pod is stopped.
const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";

/// What has become of the pod, and what is said of it.
pub(super) struct Phase {
    /// A pod of the API server is not called finished before its sandbox is down: others take that for leave to use what it holds.
    pub shown: &'static str,
    /// What conditions are made of: they tell of a failure at once.
    pub known: &'static str,
    /// What the pod comes to once everything that still runs is stopped.
    pub decided: &'static str,
}

impl Phase {
    /// A terminal phase that was published, or that the API knows, is never taken back.
    pub(super) fn of(
        facts: &Facts<'_>,
        pod: &api::Pod,
        memory: &Memory,
        statuses: &Statuses,
        end: End,
    ) -> Self {
        if let Some(kept) = kept(pod, memory) {
            // Conditions that were written before the phase stay, too.
            let known = if is_cut_short(memory) { PENDING } else { kept };
            return Self { shown: kept, known, decided: kept };
        }
        let has_begun = is_begun_in_this_sandbox(facts, pod);
        let forced = end >= End::Stopped && !is_static(pod);
        // Who is stopped because all begin afresh is not asked for its policy.
        let afresh = restart_all::is_under_way(facts, pod, memory);
        let again = |role: Role, container: &api::Container, ended: &api::ContainerStateTerminated| {
            afresh || restarts(pod, memory, role, container, ended)
        };
        let table_of = |statuses: &Statuses, with_sidecars| {
            Counts::of(pod, statuses, with_sidecars, again).phase(has_begun, forced)
        };
        let (now, work) = (table_of(statuses, true), table_of(statuses, false));
        let old = memory.status.as_ref().and_then(|s| s.phase.as_deref());
        let verdict = memory.verdict.as_ref();
        let decided = match (now, work) {
            // As upstream: the node only stops such a pod, and what its containers end with is what has become of it.
            (SUCCEEDED, _) if verdict.is_some_and(|v| !is_deadline(v) && !v.is_rejection()) => SUCCEEDED,
            _ if verdict.is_some() => FAILED,
            (FAILED | SUCCEEDED, _) => now,
            // Its work is done: what only accompanied it does not keep it.
            (_, FAILED | SUCCEEDED) => work,
            // Upstream's status manager: a pod that is gone for good without having done its work has failed.
            _ if end == End::Down && !is_static(pod) => FAILED,
            // By now all containers are declared ended, which says nothing about the pod.
            _ if end == End::Down && old == Some(PENDING) => PENDING,
            _ => now,
        };
        if !phase::is_terminal(decided) || !is_up(facts, pod) {
            // Upstream's status manager declares what is missing ended, and the pod failed, in a status whose conditions
            // were made before: they tell of a pod that had not come so far.
            let ended = || table_of(&Statuses::of(facts, pod, memory, End::Stopped), true);
            let cut_short = end == End::Down && !is_static(pod) && verdict.is_none();
            let known = if cut_short && ended() == PENDING { PENDING } else { decided };
            return Self { shown: decided, known, decided };
        }
        let fails_already = verdict.is_some_and(is_deadline);
        let known = if fails_already { FAILED } else { now };
        let shown = match (phase::is_terminal(now), old) {
            (false, _) => now,
            (true, Some(RUNNING)) => RUNNING,
            (true, _) => PENDING,
        };
        Self { shown, known, decided }
    }
}

fn is_deadline(verdict: &Verdict) -> bool {
    verdict.reason == DEADLINE_EXCEEDED
}

/// The status that was published last is of a pod that failed because it went, before it had run.
fn is_cut_short(memory: &Memory) -> bool {
    let status = memory.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().find(|one| one.type_ == condition::CONTAINERS_READY);
    terminal(status) == Some(FAILED)
        && ready.and_then(|one| one.reason.as_deref()) == Some(condition::REASON_CONTAINERS_NOT_READY)
}

/// The terminal phase that is known already.
pub(super) fn kept(pod: &api::Pod, memory: &Memory) -> Option<&'static str> {
    terminal(pod.status.as_ref()).or_else(|| terminal(memory.status.as_ref()))
}

fn terminal(status: Option<&api::PodStatus>) -> Option<&'static str> {
    match status?.phase.as_deref()? {
        SUCCEEDED => Some(SUCCEEDED),
        FAILED => Some(FAILED),
        _ => None,
    }
}

/// Something of the pod runs, or is about to.
pub(super) fn could_run(facts: &Facts<'_>) -> bool {
    let runs = facts.runtime.containers.iter().any(|c| c.state.is_running());
    runs || facts.session.ops.keys().any(|key| matches!(key, OpKey::CreateSandbox | OpKey::Start(_)))
}

/// Something of the pod is there that holds an address and may run: upstream's status manager waits for its end. Of a
/// static pod it is told as soon as its containers have ended.
fn is_up(facts: &Facts<'_>, pod: &api::Pod) -> bool {
    could_run(facts)
        || !is_static(pod) && facts.runtime.sandboxes.iter().any(|s| s.state == SandboxState::Ready)
}

/// Upstream's counts over the containers.
#[derive(Default)]
struct Counts {
    /// Init containers that have not ended yet.
    pending_init: usize,
    failed_init_for_good: usize,
    /// Sidecars that have not started yet.
    pending_sidecars: usize,
    running: usize,
    /// Ended, now or before a wait. Of regular containers, as those below.
    stopped: usize,
    /// Ended now with 0. One that waits after a 0 is not among them.
    succeeded: usize,
    stopped_for_good: usize,
    /// Never ran.
    waiting: usize,
    unknown: usize,
}

impl Counts {
    fn of(
        pod: &api::Pod,
        statuses: &Statuses,
        with_sidecars: bool,
        again: impl Fn(Role, &api::Container, &api::ContainerStateTerminated) -> bool,
    ) -> Self {
        let mut counts = Self::default();
        for (role, container) in pod.spec.iter().flat_map(roster::roster) {
            let status = statuses.find(&container.name);
            let again = |ended: &api::ContainerStateTerminated| again(role, &container, ended);
            match role {
                Role::Init => counts.add_init(status, again),
                Role::Sidecar if with_sidecars => counts.add_sidecar(status),
                Role::Regular => counts.add_regular(status, again),
                Role::Sidecar | Role::Ephemeral => {}
            }
        }
        counts
    }

    fn add_init(
        &mut self,
        status: Option<&api::ContainerStatus>,
        again: impl Fn(&api::ContainerStateTerminated) -> bool,
    ) {
        match status.and_then(last_end) {
            Some(ended) => self.failed_init_for_good += usize::from(init_failed(ended) && !again(ended)),
            None => self.pending_init += 1,
        }
    }

    /// One that has ended counts for nothing.
    fn add_sidecar(&mut self, status: Option<&api::ContainerStatus>) {
        let Some(status) = status else {
            self.unknown += 1;
            return;
        };
        if is_running(status) {
            self.running += 1;
            self.pending_sidecars += usize::from(status.started != Some(true));
        } else if last_end(status).is_none() {
            self.pending_sidecars += 1;
            let count = if is_waiting(status) { &mut self.waiting } else { &mut self.unknown };
            *count += 1;
        }
    }

    fn add_regular(
        &mut self,
        status: Option<&api::ContainerStatus>,
        again: impl Fn(&api::ContainerStateTerminated) -> bool,
    ) {
        match status {
            Some(status) if is_running(status) => self.running += 1,
            Some(status) => match last_end(status) {
                Some(ended) => {
                    self.stopped += 1;
                    self.stopped_for_good += usize::from(!again(ended));
                    self.succeeded += usize::from(!is_waiting(status) && ended.exit_code == 0);
                }
                None if is_waiting(status) => self.waiting += 1,
                None => self.unknown += 1,
            },
            None => self.unknown += 1,
        }
    }

    /// Upstream's table, in its order. `forced`: nothing will run again, whatever the restart policy says.
    fn phase(&self, has_begun: bool, forced: bool) -> &'static str {
        if self.failed_init_for_good > 0 {
            FAILED
        } else if self.pending_init > 0 || self.waiting > 0 || self.pending_sidecars > 0 && !has_begun {
            PENDING
        } else if self.running > 0 && self.unknown == 0 {
            RUNNING
        } else if self.running == 0 && self.stopped > 0 && self.unknown == 0 {
            if !forced && self.stopped_for_good < self.stopped {
                RUNNING
            } else if self.stopped == self.succeeded {
                SUCCEEDED
            } else {
                FAILED
            }
        } else {
            PENDING
        }
    }
}

/// The end that a container is in, or that it waits after. One that runs again has none.
fn last_end(status: &api::ContainerStatus) -> Option<&api::ContainerStateTerminated> {
    let waits = is_waiting(status).then_some(status.last_state.as_ref()).flatten();
    terminated(status.state.as_ref()).or_else(|| terminated(waits))
}

/// As the planner sees it: one that ran out of memory has failed, also if its first process ended with 0.
fn init_failed(ended: &api::ContainerStateTerminated) -> bool {
    ended.exit_code != 0 || ended.reason.as_deref() == Some(OOM_KILLED)
}

fn restarts(
    pod: &api::Pod,
    memory: &Memory,
    role: Role,
    container: &api::Container,
    ended: &api::ContainerStateTerminated,
) -> bool {
    // Stopped in order to be started again.
    let replaced = memory
        .replaced
        .get(&container.name)
        .is_some_and(|id| ended.container_id.as_deref().is_some_and(|full| full.ends_with(id.as_str())));
    // An init container is asked only where it has failed.
    let code = if role == Role::Init && ended.exit_code == 0 { KILLED } else { ended.exit_code };
    replaced
        || ended.reason.as_deref() == Some(RESTARTING_ALL_CONTAINERS)
        || restart::after_end(pod, role, container, code) != Restart::No
}
