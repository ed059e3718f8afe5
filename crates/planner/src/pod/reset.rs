//! A container's rule asked for all containers of the pod to begin afresh: every instance goes, then the pod starts over
//! in its sandbox, with its volumes and its address. Who asked goes last, so that the reason is there until the end.

use crablet_model::api;
use crablet_model::roster::{Role, roster};
use crablet_model::runtime::Container;

use super::draft::Draft;
use super::ending;
use super::plan::OpKey;
use super::restart::{self, Restart};
use super::stop::{self, StopReason};

/// Returns whether that is under way: nothing is started meanwhile.
pub(super) fn decide(draft: &mut Draft<'_>, pod: &api::Pod) -> bool {
    let groups = Groups::of(draft, pod);
    if groups.asked {
        draft.memory.restarting_all = true;
    }
    if !draft.memory.restarting_all {
        return false;
    }
    let Some(next) = groups.in_order.into_iter().find(|group| !group.is_empty()) else {
        draft.memory.restarting_all = groups.starting;
        return groups.starting;
    };
    for instance in next {
        if stop::is_alive(draft, instance) {
            stop::stop(draft, instance, StopReason::EverythingRestarts);
        } else {
            ending::remove_but_logs(draft, instance, "all containers of the pod begin afresh");
        }
    }
    true
}

/// The instances that have to go: regular containers before those that were started first, who asked last.
struct Groups<'a> {
    in_order: [Vec<&'a Container>; 4],
    asked: bool,
    starting: bool,
}

impl<'a> Groups<'a> {
    fn of(draft: &Draft<'a>, pod: &api::Pod) -> Self {
        let mut groups = Self { in_order: Default::default(), asked: false, starting: false };
        for (role, spec) in pod.spec.iter().flat_map(roster) {
            if role == Role::Ephemeral {
                continue;
            }
            groups.starting |= draft.busy(&OpKey::Start(spec.name.clone()));
            let instances = draft.facts.runtime.containers.iter().filter(|c| c.name == spec.name);
            for (age, instance) in instances.enumerate() {
                let asks = restart::after(&draft.memory, pod, role, &spec, instance) == Restart::Everything;
                groups.asked |= asks && age == 0;
                groups.in_order[usize::from(role.is_init()) + 2 * usize::from(asks)].push(instance);
            }
        }
        groups
    }
}
