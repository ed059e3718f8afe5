//! Whoever runs in a pod that is wanted is stopped for a reason that somebody else could name.

use crablet_model::hash::container_hash;
use crablet_model::roster::{self, Role, roster};
use crablet_model::runtime::{Container, SandboxState};
use crablet_planner::pod::{Action, Plan, Wish};

use super::super::World;

impl World {
    pub(super) fn watch_peace(&mut self, plan: &Plan, action: &Action) {
        let (Action::StopContainer { id, .. } | Action::PreStop { id, .. }) = action else { return };
        let running = self.runtime.containers.iter().find(|c| c.id == *id && c.state.is_running());
        let Some(running) = running.filter(|_| self.wish == Wish::Run) else { return };
        let pod_goes = self.laws.refused || plan.memory.verdict.is_some() || self.work_is_over();
        if !pod_goes
            && !self.sandbox_is_unfit(running)
            && !self.is_unwell(running)
            && !self.restarts_for_its_size(running)
            && !self.begins_afresh(plan)
        {
            let name = running.name.clone();
            self.broken.push(format!("{name} is stopped and nothing is wrong with it"));
        }
    }

    /// No regular container runs, or an init container has failed: those beside them go.
    fn work_is_over(&self) -> bool {
        let all: Vec<_> = self.pod.spec.iter().flat_map(roster).collect();
        let newest = |name: &str| self.runtime.containers.iter().find(|c| c.name == name);
        let of = |wanted: Role| all.iter().filter(move |(role, _)| *role == wanted);
        let ended = |c: &Container| c.state.exit().is_some();
        // Somebody may have removed what had ended.
        let was_there = |name: &str| self.highest_attempt.contains_key(name);
        of(Role::Regular).all(|(_, c)| newest(&c.name).map_or_else(|| was_there(&c.name), ended))
            || of(Role::Init).any(|(_, c)| match newest(&c.name) {
                Some(instance) => !instance.state.is_running(),
                None => was_there(&c.name),
            })
    }

    fn sandbox_is_unfit(&self, running: &Container) -> bool {
        let ready = self.runtime.sandboxes.iter().filter(|s| s.state == SandboxState::Ready);
        let newest = self.runtime.sandboxes.first();
        let own = newest.filter(|s| s.id == running.sandbox_id && s.state == SandboxState::Ready);
        ready.count() > 1 || own.is_none_or(|s| !s.host_network && s.ips.is_empty())
    }

    fn is_unwell(&self, running: &Container) -> bool {
        let probed = self.probes.of(&running.id);
        let spec = self.pod.spec.as_ref().and_then(|spec| roster::find(spec, &running.name));
        let image = spec.and_then(|(_, c)| c.image.clone()).unwrap_or_default();
        probed.liveness == Some(false)
            || probed.startup == Some(false)
            || running.hash != container_hash(&running.name, &image)
            // It has prepared for its end already.
            || self.session.pre_stops.contains_key(&running.id)
    }

    fn begins_afresh(&self, plan: &Plan) -> bool {
        let asks = |c: &crablet_model::api::Container| {
            c.restart_policy_rules.iter().flatten().any(|rule| rule.action == "RestartAllContainers")
        };
        plan.memory.restarting_all && self.pod.spec.iter().flat_map(roster).any(|(_, c)| asks(&c))
    }
}
