//! Dead containers and sandboxes of a pod that lives on. As upstream's defaults: of each container the newest dead
//! instance stays, for its logs and its last state; a dead sandbox stays only while it is the newest or holds one.

use crablet_model::runtime::{ContainerState, SandboxState};

use super::draft::Draft;
use super::ending::{remove, remove_sandbox};

pub(super) fn decide(draft: &mut Draft<'_>) {
    if draft.is_ending() {
        return; // the end of the pod removes everything in its own order
    }
    let runtime = draft.facts.runtime;
    for (i, container) in runtime.containers.iter().enumerate() {
        let mut newer = runtime.containers[..i].iter().filter(|c| c.name == container.name);
        match container.state {
            ContainerState::Exited(_) if newer.any(|c| c.state.exit().is_some()) => {
                remove(draft, container, "a newer instance of it has ended too");
            }
            ContainerState::Created if newer.next().is_some() => {
                remove(draft, container, "it was never started and a newer instance exists");
            }
            _ => {}
        }
    }
    for sandbox in runtime.sandboxes.iter().skip(1) {
        let holds_any = runtime.containers.iter().any(|c| c.sandbox_id == sandbox.id);
        if sandbox.state == SandboxState::NotReady && !holds_any {
            remove_sandbox(draft, &sandbox.id, "a newer sandbox has taken its place");
        }
    }
}
