//! The states that a container is shown in, and questions about them.

use crablet_model::api;
use crablet_model::names::container_reason;

use super::some_text;

/// What a killed process ends with; told where nobody saw the end.
pub(super) const KILLED: i32 = 137;
pub(super) const NOT_LOCATED_RESTARTED: &str =
    "The container could not be located when the pod was deleted.  The container used to be Running";
pub(super) const NOT_LOCATED_TERMINATED: &str =
    "The container could not be located when the pod was terminated";
const REMOVED_TO_RESTART_ALL: &str = "The container is removed because RestartAllContainers in place";
const TAKEN_FOR_COMPLETED: &str = "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally";

pub(super) fn waiting(reason: &str, message: &str) -> api::ContainerState {
    api::ContainerState {
        waiting: Some(api::ContainerStateWaiting { reason: some_text(reason), message: some_text(message) }),
        ..Default::default()
    }
}

fn ended(exit_code: i32, reason: &str, message: &str) -> api::ContainerState {
    api::ContainerState {
        terminated: Some(api::ContainerStateTerminated {
            exit_code,
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// It ran, and how it ended is not known.
pub(super) fn unknown_end(message: &str) -> api::ContainerState {
    ended(KILLED, container_reason::CONTAINER_STATUS_UNKNOWN, message)
}

/// An init container of which nothing is left, in a pod whose work has begun.
pub(super) fn taken_for_completed() -> api::ContainerState {
    ended(0, container_reason::COMPLETED, TAKEN_FOR_COMPLETED)
}

/// The end of a container that was removed because all begin afresh, and its wait for its turn.
pub(super) fn removed_to_restart_all() -> (api::ContainerState, api::ContainerState) {
    let reason = container_reason::RESTARTING_ALL_CONTAINERS;
    (ended(KILLED, reason, REMOVED_TO_RESTART_ALL), waiting(reason, REMOVED_TO_RESTART_ALL))
}

/// A container that should be started and is not. Its end, if it had one, is its last state.
pub(super) fn show_waiting(status: &mut api::ContainerStatus, reason: &str, message: &str) {
    if terminated(status.state.as_ref()).is_some() {
        status.last_state = status.state.take();
    }
    status.state = Some(waiting(reason, message));
}

/// Upstream's status manager at the very end of a pod: what has not ended is declared ended.
pub(super) fn finish(status: &mut api::ContainerStatus) {
    if terminated(status.state.as_ref()).is_none() {
        status.state = Some(unknown_end(NOT_LOCATED_TERMINATED));
    }
}

pub(super) fn is_running(status: &api::ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|s| s.running.is_some())
}

pub(super) fn is_waiting(status: &api::ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|s| s.waiting.is_some())
}

/// It runs, ran, or ended: it was more than a wish.
pub(super) fn ever_left_waiting(status: &api::ContainerStatus) -> bool {
    !is_waiting(status) || terminated(status.last_state.as_ref()).is_some()
}

pub(super) fn ended_well(status: &api::ContainerStatus) -> bool {
    terminated(status.state.as_ref()).is_some_and(|t| t.exit_code == 0)
}

pub(super) fn terminated(state: Option<&api::ContainerState>) -> Option<&api::ContainerStateTerminated> {
    state?.terminated.as_ref()
}
