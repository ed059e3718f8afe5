//! The phase of a pod.

use crablet_model::api;
use crablet_model::names::phase::{self, FAILED, PENDING, RUNNING, SUCCEEDED};

use super::super::restart::RestartPolicy;
use super::{End, is_static};

/// The phase now. A terminal one that was published, or that the API knows, is never taken back.
pub(super) fn phase(
    pod: &api::Pod,
    containers: &[api::ContainerStatus],
    old: Option<&api::PodStatus>,
    end: End,
) -> &'static str {
    if let Some(kept) = terminal(pod.status.as_ref()).or_else(|| terminal(old)) {
        return kept;
    }
    let forced = end >= End::Stopped && !is_static(pod);
    let phase = Counts::of(pod, containers).phase(forced);
    if phase::is_terminal(phase) {
        return phase;
    }
    match (end, old.and_then(|s| s.phase.as_deref())) {
        // Upstream's status manager: a pod that is gone for good without having done its work has failed.
        (End::Down, _) if !is_static(pod) => FAILED,
        // By now all containers are declared ended, which says nothing about the pod.
        (End::Down, Some(PENDING)) => PENDING,
        _ => phase,
    }
}

fn terminal(status: Option<&api::PodStatus>) -> Option<&'static str> {
    match status?.phase.as_deref()? {
        SUCCEEDED => Some(SUCCEEDED),
        FAILED => Some(FAILED),
        _ => None,
    }
}

/// Upstream's counts over the regular containers.
#[derive(Default)]
struct Counts {
    running: usize,
    /// Ended, now or before a wait.
    stopped: usize,
    /// Ended now with 0. One that waits after a 0 is not among them.
    succeeded: usize,
    stopped_for_good: usize,
    /// Never ran.
    waiting: usize,
    unknown: usize,
}

impl Counts {
    fn of(pod: &api::Pod, statuses: &[api::ContainerStatus]) -> Self {
        let policy = RestartPolicy::of(pod);
        let mut counts = Self::default();
        for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
            match statuses.iter().find(|s| s.name == container.name) {
                Some(status) => counts.add(policy, status),
                None => counts.unknown += 1,
            }
        }
        counts
    }

    fn add(&mut self, policy: RestartPolicy, status: &api::ContainerStatus) {
        let state = status.state.as_ref();
        let ended_before = status.last_state.as_ref().and_then(|s| s.terminated.as_ref());
        if state.is_some_and(|s| s.running.is_some()) {
            self.running += 1;
        } else if let Some(ended) = state.and_then(|s| s.terminated.as_ref()) {
            self.succeeded += usize::from(ended.exit_code == 0);
            self.stop(policy, ended.exit_code);
        } else if state.is_some_and(|s| s.waiting.is_some()) {
            match ended_before {
                Some(ended) => self.stop(policy, ended.exit_code),
                None => self.waiting += 1,
            }
        } else {
            self.unknown += 1;
        }
    }

    fn stop(&mut self, policy: RestartPolicy, exit_code: i32) {
        self.stopped += 1;
        self.stopped_for_good += usize::from(!policy.restarts(exit_code));
    }

    /// Upstream's table, in its order. `forced`: nothing will run again, whatever the restart policy says.
    fn phase(&self, forced: bool) -> &'static str {
        if self.waiting > 0 {
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
