//! Other resources for a pod that runs: what its user asks for, what the node says to it, and what operations note of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crablet_model::allocation::{Allocation, Sizes, actuated};
use crablet_model::api;
use crablet_model::roster::{self, Role};
use crablet_model::runtime::Container;
use crablet_planner::pod::resize::{Change, Resize};
use crablet_planner::pod::{Outcome, Pending, Plan, Wish};
use serde_json::json;

use super::World;

/// What the node says to a pod that asks for other resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Granted,
    Deferred,
    Infeasible,
}

/// What is known of a pod's resources outside of the planner.
#[derive(Clone, Debug, Default)]
pub struct Books {
    /// What the pod asks for and was not granted.
    asked: Option<(Allocation, Answer)>,
    /// What the runtime was told of each instance, by its id.
    given: BTreeMap<String, Sizes>,
}

fn resources(cpu: i64, memory: i64) -> api::ResourceRequirements {
    let amounts = json!({"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")});
    serde_json::from_value(json!({"requests": amounts, "limits": amounts})).expect("resources")
}

impl World {
    /// The n-th container that has amounts of its own is to have others.
    pub(super) fn asks(&mut self, which: usize, cpu: i64, memory: i64, answer: Answer) {
        let Some(mut spec) = self.pod.spec.clone().filter(|_| self.wish == Wish::Run) else { return };
        let sidecars = spec.init_containers.iter_mut().flatten().filter(|c| c.restart_policy.is_some());
        let all = sidecars.chain(&mut spec.containers).filter(|c| c.resources.is_some());
        let mut sized: Vec<&mut api::Container> = all.collect();
        let nth = which % sized.len().max(1);
        let Some(container) = sized.get_mut(nth) else { return };
        container.resources = Some(resources(cpu, memory));
        let generation = self.pod.metadata.generation.get_or_insert(1);
        *generation += 1;
        self.books.asked = Some((Allocation::of(&spec), answer));
        self.is_answered();
    }

    /// What was in the way has gone, or somebody looks again.
    pub(super) fn room_comes(&mut self) {
        if let Some((_, answer @ Answer::Deferred)) = &mut self.books.asked {
            *answer = Answer::Granted;
        }
        self.is_answered();
    }

    /// The registry judges what the pod asks for.
    pub(super) fn is_answered(&mut self) {
        let generation = self.pod.metadata.generation;
        let reason = match &self.books.asked {
            None => return,
            Some((_, Answer::Deferred)) => "Deferred",
            Some((_, Answer::Infeasible)) => "Infeasible",
            Some((asked, Answer::Granted)) => {
                if let Some(spec) = &mut self.pod.spec {
                    let before = Allocation::of(spec);
                    asked.overlay(spec);
                    // As upstream: with other resources a container's back-off begins afresh.
                    let after = Allocation::of(spec);
                    let other = after.containers.iter().filter(|(name, own)| {
                        Sizes::of(Some(own)) != Sizes::of(before.containers.get(*name))
                    });
                    other.for_each(|(name, _)| self.laws.back_off.forget(name));
                }
                (self.grants.pending, self.grants.granted) = (Pending::Nothing, generation);
                self.books.asked = None;
                return;
            }
        };
        let message = "there is no room".to_owned();
        self.grants.pending = Pending::Waits { reason, message, generation };
    }

    /// The next life knows what is on disk, and has judged nothing.
    pub(super) fn forgets_grants(&mut self) {
        self.grants.granted = None;
        if self.books.asked.is_some() {
            self.grants.pending = Pending::Unjudged;
        }
    }

    /// Before a sandbox is made.
    pub(super) fn adopt(&mut self) {
        if let Some(spec) = self.pod.spec.as_ref().filter(|_| self.grants.actuated.is_none()) {
            self.grants.actuated = Some(Arc::new(Allocation::actuated(spec)));
        }
    }

    fn note(&mut self, name: &str, given: api::ResourceRequirements) {
        let mut all = self.grants.actuated.as_deref().cloned().unwrap_or_default();
        all.containers.insert(name.to_owned(), given);
        self.grants.actuated = Some(Arc::new(all));
    }

    /// Before a container is made.
    pub(super) fn note_start(&mut self, name: &str) {
        if let Some(granted) = self.granted(name) {
            self.note(name, granted);
        }
    }

    /// A container was made.
    pub(super) fn gives(&mut self, id: &str, name: &str) {
        let granted = self.granted(name);
        self.books.given.insert(id.to_owned(), Sizes::of(granted.as_ref()));
    }

    fn granted(&self, name: &str) -> Option<api::ResourceRequirements> {
        let spec = self.pod.spec.as_ref()?;
        let (role, container) = roster::find(spec, name)?;
        (role != Role::Ephemeral).then(|| actuated(spec, &container))
    }

    /// Carries a resize out, all of it or its first step.
    pub(super) fn resize(&mut self, resize: &Resize, all: bool) -> Outcome {
        let steps = resize.memory.iter().map(|change| (change, true));
        let steps: Vec<_> = steps.chain(resize.cpu.iter().map(|change| (change, false))).collect();
        for (change, is_memory) in steps.iter().take(if all { usize::MAX } else { 1 }) {
            if !self.runtime.containers.iter().any(|c| c.id == change.id && c.state.is_running()) {
                return Outcome::ResizeFailed { message: "it does not run".to_owned() };
            }
            self.change(change, *is_memory);
        }
        match all {
            true => Outcome::Resized { digest: resize.digest },
            false => Outcome::ResizeFailed { message: "bad luck".to_owned() },
        }
    }

    fn change(&mut self, change: &Change, is_memory: bool) {
        let known = self.books.given.entry(change.id.clone()).or_default();
        *known = if is_memory { change.to.with_cpu_of(*known) } else { known.with_cpu_of(change.to) };
        let known = *known;
        if let Some(base) = self.granted(&change.container) {
            self.note(&change.container, known.into_requirements(&base));
        }
    }

    /// The runtime was told what the container was granted.
    pub(super) fn has_its_size(&self, instance: &Container) -> bool {
        let granted = self.granted(&instance.name);
        let given = self.books.given.get(&instance.id).copied().unwrap_or_default();
        granted.is_none_or(|granted| Sizes::of(Some(&granted)) == given)
    }

    /// It has other resources than it was granted, and its policy asks for a restart.
    pub(super) fn restarts_for_its_size(&self, instance: &Container) -> bool {
        let Some(granted) = self.granted(&instance.name) else { return false };
        let to = Sizes::of(Some(&granted));
        let from = self.books.given.get(&instance.id).copied().unwrap_or_default();
        let other_cpu = from.with_cpu_of(to) != from;
        let other_memory = to.with_cpu_of(from) != from;
        let found = self.pod.spec.as_ref().and_then(|spec| roster::find(spec, &instance.name));
        let asks = |resource: &str| {
            let mut policies = found.iter().flat_map(|(_, c)| c.resize_policy.iter().flatten());
            policies.any(|p| p.resource_name == resource && p.restart_policy == "RestartContainer")
        };
        other_cpu && asks("cpu") || other_memory && asks("memory")
    }

    /// What is changed while it runs differs, runs, and may be changed that way. What the status says of it is true.
    pub(super) fn watch_resize(&mut self, plan: &Plan) {
        for action in &plan.actions {
            let crablet_planner::pod::Action::Resize(resize) = action else { continue };
            for change in resize.memory.iter().chain(&resize.cpu) {
                let running = self.runtime.containers.iter().find(|c| c.id == change.id);
                let wrong = match running.filter(|c| c.state.is_running()) {
                    None => "does not run",
                    Some(instance) if self.restarts_for_its_size(instance) => "asks for a restart",
                    Some(_) if change.from == change.to => "has it already",
                    Some(_) => continue,
                };
                self.broken.push(format!("{} is resized and {wrong}", change.container));
            }
        }
        let Some(status) = &plan.status else { return };
        let is_over = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
        if is_over || self.wish != Wish::Run || plan.memory.verdict.is_some() {
            return;
        }
        let told = status.conditions.iter().flatten().find(|c| c.type_ == "PodResizePending");
        let told = told.and_then(|c| c.reason.as_deref());
        match &self.grants.pending {
            Pending::Nothing if told.is_some() => {
                self.broken.push("a resize that nobody waits for is told".to_owned())
            }
            Pending::Waits { reason, .. } if told != Some(*reason) => {
                self.broken.push(format!("a resize waits ({reason}) and the status says {told:?}"));
            }
            _ => {}
        }
    }
}
