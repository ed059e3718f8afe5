//! What others do to a pod: its source, its users, the node and the clock.

use crablet_model::api;
use crablet_model::hash::container_hash;
use crablet_model::runtime::Container;
use crablet_planner::pod::{Ending, Wish};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::pods::RULED;
use super::{Happening, Planner, World};

impl World {
    pub fn planned_by(self, planner: Planner) -> Self {
        Self { planner, ..self }
    }

    pub(super) fn moves(&mut self, happening: Happening) {
        match happening {
            Happening::DeleteInApi if !self.is_static() => self.delete_in_api(),
            Happening::LeavesApi => {
                if let Wish::End(end) = &mut self.wish {
                    end.forget = true;
                }
            }
            Happening::Revived if self.is_static() && !self.forgotten => self.revive(),
            Happening::Edited { which } => self.edit_nth(which),
            Happening::Debugged if self.wish == Wish::Run => self.add_ephemeral(),
            Happening::Network { ready } => self.network_is(ready),
            Happening::SetBack { seconds } => {
                self.now -= SignedDuration::from_secs(seconds);
                self.was_set_back = true;
            }
            Happening::Resized { which, cpu, memory, answer } => self.asks(which, cpu, memory, answer),
            Happening::RoomComes => self.room_comes(),
            Happening::Crash { which } => self.crash(which),
            Happening::ObjectsCame => self.memory.objects_came(true, self.now),
            _ => {}
        }
    }

    pub(super) fn network_is(&mut self, ready: bool) {
        self.node.network_ready = ready;
        self.node.network_problem = (!ready).then(|| "cni plugin not initialized".to_owned());
    }

    pub fn now(&self) -> Timestamp {
        self.now
    }

    pub fn was_set_back(&self) -> bool {
        self.was_set_back
    }

    pub fn is_released(&self) -> bool {
        self.released
    }

    pub(super) fn is_static(&self) -> bool {
        let annotations = self.pod.metadata.annotations.as_ref();
        annotations
            .and_then(|all| all.get("kubernetes.io/config.source"))
            .is_some_and(|source| source == "file")
    }

    /// As its specification has it, and nobody found anything wrong with it.
    pub(super) fn runs_well(&self, spec: &api::Container, instance: &Container) -> bool {
        let hash = container_hash(&spec.name, spec.image.as_deref().unwrap_or_default());
        instance.state.is_running()
            && instance.hash == hash
            && self.has_its_size(instance)
            && self.probes.of(&instance.id).liveness != Some(false)
            && self.probes.of(&instance.id).startup != Some(false)
    }

    /// Has ended, and neither its rules nor its policy have it run again.
    pub(super) fn rests(&self, spec: &api::Container, instance: &Container) -> bool {
        instance.state.exit().is_some_and(|exit| self.rests_after(spec, exit.code))
    }

    /// The same of one of which nothing is left.
    pub(super) fn was_told_to_rest(&self, spec: &api::Container) -> bool {
        let told = self.memory.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        let told = told.filter(|told| told.name == spec.name).find_map(|told| told.state.as_ref());
        let end = told.and_then(|state| state.terminated.as_ref());
        end.is_some_and(|end| self.rests_after(spec, end.exit_code))
    }

    fn rests_after(&self, spec: &api::Container, code: i32) -> bool {
        let rules = spec.restart_policy_rules.iter().flatten().filter_map(|rule| rule.exit_codes.as_ref());
        let ruled = rules.into_iter().any(|codes| (code == RULED) == (codes.operator == "In"));
        let of_pod = self.pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
        match spec.restart_policy.as_deref().or(of_pod) {
            _ if ruled => false,
            Some("Never") => true,
            Some("OnFailure") => code == 0,
            _ => false,
        }
    }

    /// The pod is over by itself, and yet some container's rule says that it runs again.
    pub(super) fn gave_up_too_early(&self) -> bool {
        let Some(spec) = &self.pod.spec else { return false };
        let ruled_by = |c: &api::Container| c.restart_policy_rules.is_some();
        let waits = |c: &api::Container| {
            let newest = self.runtime.instances(&c.name).next().and_then(|newest| newest.state.exit());
            ruled_by(c) && newest.is_some_and(|exit| exit.code == RULED) && !self.rests_after(c, RULED)
        };
        let by_itself =
            self.memory.verdict.is_none() && spec.init_containers.iter().flatten().next().is_none();
        by_itself && spec.containers.iter().any(waits)
    }

    pub(super) fn is_past_deadline(&self) -> bool {
        let deadline = self.pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
        let start = self.memory.status.as_ref().and_then(|status| status.start_time.as_ref());
        let passed = start.map(|start| self.now.duration_since(start.0).as_secs());
        deadline.zip(passed).is_some_and(|(deadline, passed)| passed > deadline)
    }

    /// What was begun comes to its end, and then the n-th running container ends badly.
    fn crash(&mut self, which: usize) {
        for _ in 0..4 {
            self.watch_progress();
            self.turn();
            while !self.under_way.is_empty() {
                self.end(0, true);
            }
        }
        self.exit(which, 1, false);
    }

    fn delete_in_api(&mut self) {
        if self.wish != Wish::Run {
            return;
        }
        let spec = self.pod.spec.as_ref();
        let grace_seconds = spec.and_then(|s| s.termination_grace_period_seconds).unwrap_or(30).max(1);
        let why = "somebody deleted it".to_owned();
        self.wish = Wish::End(Ending { since: self.now, grace_seconds, forget: false, why });
    }

    fn revive(&mut self) {
        if self.wish == Wish::Run {
            return;
        }
        self.agent_restarts(true);
        (self.wish, self.verdict) = (Wish::Run, None);
        self.laws.begins_anew();
    }

    fn edit_nth(&mut self, which: usize) {
        let number = self.next_id;
        let containers = self.pod.spec.as_mut().map(|spec| &mut spec.containers);
        let Some(containers) = containers.filter(|_| self.wish == Wish::Run) else { return };
        let nth = which % containers.len().max(1);
        if let Some(container) = containers.get_mut(nth) {
            container.image = Some(format!("example.test/{}:{number}", container.name));
            self.laws.back_off.forget(&container.name);
        }
    }

    fn add_ephemeral(&mut self) {
        let Some(spec) = &mut self.pod.spec else { return };
        let all = spec.ephemeral_containers.get_or_insert_default();
        let container = json!({"name": format!("e{}", all.len()), "image": "example.test/debug:1"});
        let container: Option<api::EphemeralContainer> = serde_json::from_value(container).ok();
        if all.len() < 3 {
            all.extend(container);
        }
    }
}
