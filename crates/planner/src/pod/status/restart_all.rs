//! Whether all containers of the pod are begun afresh, because one ended as its restart rules say.

use std::borrow::Cow;

use crablet_model::names::condition;
use crablet_model::runtime::PodRuntime;
use crablet_model::{Role, api, roster};

use super::super::facts::{Facts, Wish};
use super::super::memory::Memory;
use super::super::restart::{self, Restart};
use super::phase;

const RESTART_ALL: &str = "RestartAllContainers";

/// Only a pod that has such a rule tells whether it happens.
pub(super) fn could_happen(pod: &api::Pod) -> bool {
    let asks = |container: &api::Container| {
        container.restart_policy_rules.iter().flatten().any(|rule| rule.action == RESTART_ALL)
    };
    workers(pod).any(|(_, container)| asks(&container))
}

/// From the end that calls for it until nothing is left of any container. Never in a pod that is over.
pub(super) fn is_under_way(facts: &Facts<'_>, pod: &api::Pod, memory: &Memory) -> bool {
    let runtime = facts.runtime;
    if *facts.wish != Wish::Run || memory.verdict.is_some() || phase::kept(pod, memory).is_some() {
        return false;
    }
    let was_told = super::holds(memory.status.as_ref(), condition::ALL_CONTAINERS_RESTARTING);
    memory.restarting_all || was_told || is_called_for(pod, runtime, memory)
}

/// As the condition tells it: from then on containers are started as if they had never been.
pub(super) fn is_cleaned_up(pod: &api::Pod, runtime: &PodRuntime) -> bool {
    workers(pod).all(|(_, c)| runtime.instances(&c.name).next().is_none())
}

fn is_called_for(pod: &api::Pod, runtime: &PodRuntime, memory: &Memory) -> bool {
    workers(pod).any(|(role, container)| {
        let newest = runtime.instances(&container.name).next().filter(|c| c.state.exit().is_some());
        newest.is_some_and(|c| restart::after(memory, pod, role, &container, c) == Restart::Everything)
    })
}

/// All but those that only look on.
fn workers(pod: &api::Pod) -> impl Iterator<Item = (Role, Cow<'_, api::Container>)> {
    pod.spec.iter().flat_map(roster::roster).filter(|(role, _)| *role != Role::Ephemeral)
}
