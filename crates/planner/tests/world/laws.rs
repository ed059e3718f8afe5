//! What no story may break, watched on every plan and on every effect.

mod back_off;
mod peace;
mod told;

use std::collections::{BTreeMap, BTreeSet};

use crablet_model::Role;
use crablet_model::roster::{self, roster};
use crablet_model::runtime::{Container, ContainerState};
use crablet_planner::pod::{Action, OpKey, Plan, Wish};
use jiff::{SignedDuration, Timestamp};

use super::World;

/// What the world remembers in order to judge.
#[derive(Default)]
pub struct Laws {
    /// Init containers that have succeeded and sidecars that have started, by sandbox, since the pod last began afresh.
    done: BTreeSet<(String, String)>,
    restarting_all: bool,
    /// A final phase was published.
    finished: bool,
    /// The node has decided that the pod does not run, or not run on.
    refused: bool,
    hooks_begun: BTreeSet<String>,
    ephemeral_begun: BTreeSet<String>,
    published: BTreeMap<String, i32>,
    pub(super) back_off: back_off::Chains,
    /// When an image was last looked for whose pulls wait, by container.
    looks: BTreeMap<String, Timestamp>,
    told: Option<crablet_model::api::PodStatus>,
}

impl Laws {
    pub fn agent_restarted(&mut self) {
        self.hooks_begun.clear();
        self.looks.clear();
    }

    /// The pod was not wanted, and is wanted again.
    pub fn begins_anew(&mut self) {
        (self.finished, self.refused, self.told) = (false, false, None);
    }
}

impl World {
    /// Looks at what the runtime shows before a plan is made.
    pub(super) fn watch_progress(&mut self) {
        let Some(spec) = &self.pod.spec else { return };
        for instance in &self.runtime.containers {
            let Some((role, container)) = roster::find(spec, &instance.name) else { continue };
            let probed = self.probes.of(&instance.id);
            let done = match (role, &instance.state) {
                (Role::Init, ContainerState::Exited(exit)) => exit.code == 0 && exit.reason != "OOMKilled",
                (Role::Sidecar, ContainerState::Running { .. }) => {
                    container.startup_probe.is_none() || probed.startup == Some(true)
                }
                _ => false,
            };
            if done {
                self.laws.done.insert((instance.sandbox_id.clone(), instance.name.clone()));
            }
        }
    }

    pub(super) fn watch_plan(&mut self, plan: &Plan) {
        if self.laws.restarting_all && !plan.memory.restarting_all {
            self.laws.done.clear();
        }
        self.laws.restarting_all = plan.memory.restarting_all;
        for action in &plan.actions {
            self.watch_action(action);
            self.watch_peace(plan, action);
            self.watch_back_off(action);
        }
        self.watch_status(plan);
        self.watch_resize(plan);
        self.watch_words(plan);
        self.watch_wait(plan);
    }

    fn watch_action(&mut self, action: &Action) {
        let begins = matches!(
            action,
            Action::CreateSandbox { .. }
                | Action::EnsureImage { .. }
                | Action::StartContainer { .. }
                | Action::StartCreated { .. }
        );
        if begins && (self.laws.finished || self.laws.refused) {
            self.broken.push(format!("a finished pod is begun again: {action:?}"));
        }
        match action {
            Action::StartContainer { container, sandbox_id, attempt, .. } => {
                self.watch_start(container, sandbox_id);
                if container.starts_with('e')
                    && (*attempt != 0 || self.laws.ephemeral_begun.contains(container))
                {
                    self.broken.push(format!("{container} is started again"));
                }
            }
            Action::StartCreated { container, id } => {
                let created = self.runtime.containers.iter().find(|c| c.id == *id);
                if let Some(sandbox) = created.map(|c| c.sandbox_id.clone()) {
                    self.watch_start(container, &sandbox);
                }
            }
            Action::EnsureImage { container, held, .. } if !held.is_empty() => self.watch_look(container),
            Action::PreStop { id, container, message, limit } => {
                if !self.laws.hooks_begun.insert(id.clone()) {
                    self.broken.push(format!("the hook of {container} runs twice"));
                }
                if message.is_empty() || limit.is_zero() {
                    self.broken.push(format!("the hook of {container} has no time or no message"));
                }
            }
            Action::StopContainer { id, container, .. } => {
                let stopped = self.runtime.containers.iter().find(|c| c.id == *id).cloned();
                if let Some(stopped) = stopped {
                    self.watch_stop(&stopped, container);
                }
            }
            _ => {}
        }
    }

    /// Nobody looks all the time for what does not come.
    fn watch_look(&mut self, container: &str) {
        let last = self.laws.looks.insert(container.to_owned(), self.now);
        let passed = last.map(|last| self.now.duration_since(last).as_secs());
        if passed.is_some_and(|passed| passed < 10) && !self.was_set_back {
            self.broken.push(format!("the image of {container} is looked for again after {passed:?} s"));
        }
    }

    /// Whoever starts has everything behind it that must come before it, in this sandbox.
    fn watch_start(&mut self, container: &str, sandbox: &str) {
        let Some(spec) = &self.pod.spec else { return };
        for (role, before) in roster(spec).take_while(|(_, c)| c.name != container) {
            if container.starts_with('e') || !role.is_init() {
                continue;
            }
            if !self.laws.done.contains(&(sandbox.to_owned(), before.name.clone())) {
                self.broken.push(format!("{container} starts before {} is done", before.name));
            }
        }
        let newest = self.runtime.instances(container).next();
        let plain = spec.containers.iter().any(|c| c.name == container && c.restart_policy.is_none());
        let never = spec.restart_policy.as_deref() == Some("Never");
        let replaced = self.memory.replaced.contains_key(container);
        if never
            && plain
            && !replaced
            && newest.is_some_and(|c| c.state.exit().is_some() && c.sandbox_id == sandbox)
        {
            self.broken.push(format!("{container} has ended and never restarts, but is started"));
        }
    }

    /// When the pod ends, those that others need wait for them; and nobody is stopped while its hook has time.
    fn watch_stop(&mut self, stopped: &Container, name: &str) {
        let Wish::End(end) = &self.wish else { return };
        let verdict = self.memory.verdict.as_ref();
        let until = end.since + SignedDuration::from_secs(end.grace_seconds);
        let of_pod = self.pod.spec.as_ref().and_then(|s| s.termination_grace_period_seconds).unwrap_or(30);
        let granted =
            verdict.map(|v| v.since + SignedDuration::from_secs(v.grace_seconds.unwrap_or(of_pod).max(1)));
        let until: Timestamp = granted.map_or(until, |granted| granted.min(until));
        if self.now >= until || self.session.ops.contains_key(&OpKey::Container(stopped.id.clone())) {
            return;
        }
        let Some(spec) = &self.pod.spec else { return };
        let Some((role, container)) = roster::find(spec, name) else { return };
        let ended = self.session.pre_stops.get(&stopped.id).is_some_and(|hook| hook.ended);
        let has_hook = container.lifecycle.as_ref().is_some_and(|l| l.pre_stop.is_some());
        if has_hook && stopped.state.is_running() && !ended {
            self.broken.push(format!("{name} is stopped before its hook has ended"));
        }
        if role != Role::Sidecar {
            return;
        }
        let needs_it = |(other, c): &(Role, std::borrow::Cow<'_, crablet_model::api::Container>)| {
            let later = *other == Role::Sidecar && c.name.as_str() > name;
            *other == Role::Regular || later
        };
        for (_, other) in roster(spec).filter(needs_it) {
            if self.runtime.instances(&other.name).any(|c| c.state.is_running()) {
                self.broken.push(format!("{name} is stopped before {}", other.name));
            }
        }
    }

    fn watch_status(&mut self, plan: &Plan) {
        let Some(status) = &plan.status else { return };
        let lists = [
            &status.init_container_statuses,
            &status.container_statuses,
            &status.ephemeral_container_statuses,
        ];
        for container in lists.into_iter().flatten().flatten() {
            let highest = self.laws.published.entry(container.name.clone()).or_default();
            if container.restart_count < *highest {
                self.broken.push(format!("{}: published restart count fell", container.name));
            }
            *highest = container.restart_count;
        }
        let terminal = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
        if self.laws.finished && !terminal {
            self.broken.push(format!("a finished pod is {:?} again", status.phase));
        }
        self.laws.finished |= terminal;
        self.laws.refused |= plan.memory.verdict.is_some();
    }

    /// A container has come to be.
    pub(super) fn watch_creation(&mut self, name: &str, attempt: u32) {
        if self.highest_attempt.get(name).is_some_and(|highest| attempt <= *highest) {
            self.broken.push(format!("{name}: restart count {attempt} again"));
        }
        self.highest_attempt.insert(name.to_owned(), attempt);
        if name.starts_with('e') {
            self.laws.ephemeral_begun.insert(name.to_owned());
        }
    }
}
