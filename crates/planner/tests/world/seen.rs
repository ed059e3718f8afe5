//! What stories have come to: a world remembers each kind of thing that happened in it, so that a test can tell whether
//! the stories that the properties draw reach all of them.

use crablet_model::Role;
use crablet_model::roster;
use crablet_planner::pod::{Action, OpKey, Plan};

use super::{Happening, World};

/// All kinds of operations.
pub const OPERATIONS: [&str; 13] = [
    "CreateSandbox",
    "StopSandbox",
    "RemoveSandbox",
    "EnsureImage",
    "StartContainer",
    "StartCreated",
    "PreStop",
    "StopContainer",
    "RemoveContainer",
    "TakeOver",
    "Resize",
    "Release",
    "Cleanup",
];

/// The first word of what `Debug` says: the name of a variant.
fn word(thing: &impl std::fmt::Debug) -> String {
    let text = format!("{thing:?}");
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

impl World {
    pub(super) fn saw(&mut self, what: impl Into<String>) {
        self.seen.insert(what.into());
    }

    pub(super) fn saw_happening(&mut self, happening: &Happening) {
        self.saw(word(happening));
        if let Happening::Resized { answer, .. } = happening {
            self.saw(format!("asks: {answer:?}"));
        }
    }

    pub(super) fn saw_end(&mut self, action: &Action, well: bool) {
        self.saw(format!("{} {}", word(action), if well { "works" } else { "fails" }));
    }

    /// The agent dies while this is under way.
    pub(super) fn saw_death(&mut self, action: &Action, took_effect: bool) {
        self.saw(format!("dies in {}", word(action)));
        self.saw(if took_effect { "dies too late" } else { "dies too early" });
    }

    pub(super) fn saw_creation(&mut self, name: &str, attempt: u32) {
        let spec = self.pod.spec.as_ref();
        let role = spec.and_then(|spec| roster::find(spec, name)).map(|(role, _)| role);
        if let Some(role) = role {
            self.saw(format!("{role:?} {}", if attempt == 0 { "starts" } else { "restarts" }));
        }
    }

    pub(super) fn saw_plan(&mut self, plan: &Plan) {
        if plan.memory.restarting_all {
            self.saw("all begin afresh");
        }
        if let Some(verdict) = &plan.memory.verdict {
            self.saw(format!("verdict {}", verdict.reason));
        }
        if let Some(phase) = plan.status.as_ref().and_then(|status| status.phase.as_deref()) {
            self.saw(format!("phase {phase}"));
        }
        if let Some(resizing) = &plan.memory.resizing {
            self.saw(if resizing.failure.is_some() { "resize has failed" } else { "resize in progress" });
        }
        for key in &plan.cancel {
            self.saw(format!("gives up {}", word(key)));
        }
        for action in &plan.actions {
            self.saw_action(action);
        }
        if !plan.memory.crash_loops.is_empty() && plan.actions.is_empty() && plan.wake_at.is_some() {
            self.saw("backs off");
        }
    }

    fn saw_action(&mut self, action: &Action) {
        let Action::StopContainer { id, .. } = action else { return };
        let Some(stopped) = self.runtime.containers.iter().find(|c| c.id == *id).cloned() else { return };
        let probed = self.probes.of(id);
        let spec = self.pod.spec.as_ref();
        let role = spec.and_then(|spec| roster::find(spec, &stopped.name)).map(|(role, _)| role);
        for (holds, why) in [
            (probed.liveness == Some(false), "liveness"),
            (probed.startup == Some(false), "startup"),
            (self.restarts_for_its_size(&stopped), "its size"),
            (role == Some(Role::Sidecar), "a sidecar's turn"),
            (self.session.ops.contains_key(&OpKey::Container(id.clone())), "a shorter grace"),
        ] {
            if holds {
                self.saw(format!("stop for {why}"));
            }
        }
    }
}
