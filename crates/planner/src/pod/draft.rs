//! A plan in the making.

use crablet_model::events::Event;
use crablet_model::names::phase;
use crablet_model::{PodRef, api};
use jiff::Timestamp;

use super::facts::{Facts, Wish};
use super::memory::{Memory, later};
use super::plan::{Action, OpKey, Plan, Urgency};
use super::{clock, status};

/// How long a runtime has to show what it said it did.
const BELIEF_SECONDS: i64 = 10;

/// Would this repeat what was done? Preparing an image leaves its own trace, and a stop is a stop at any grace.
fn same(done: &Action, action: &Action) -> bool {
    match (done, action) {
        (Action::EnsureImage { .. }, _) => false,
        (Action::StopContainer { id: a, .. }, Action::StopContainer { id: b, .. }) => a == b,
        _ => done == action,
    }
}

pub(super) struct Draft<'a> {
    pub facts: &'a Facts<'a>,
    pub memory: Memory,
    cancel: Vec<OpKey>,
    actions: Vec<Action>,
    events: Vec<Event>,
    wake_at: Option<Timestamp>,
    why: Vec<String>,
    released: bool,
    finished: bool,
}

impl<'a> Draft<'a> {
    pub fn new(facts: &'a Facts<'a>) -> Self {
        let mut memory = facts.memory.clone();
        clock::heed(&mut memory, facts.now);
        Self {
            facts,
            memory,
            cancel: Vec::new(),
            actions: Vec::new(),
            events: Vec::new(),
            wake_at: None,
            why: Vec::new(),
            released: false,
            finished: false,
        }
    }

    pub fn id(&self) -> &'a PodRef {
        self.facts.id
    }

    /// Is an operation on this thing under way, or begun by this very plan?
    pub fn busy(&self, key: &OpKey) -> bool {
        self.facts.session.ops.contains_key(key) || self.actions.iter().any(|a| a.key() == *key)
    }

    /// Is this image made ready just now, for whichever container?
    pub fn fetches(&self, wanted: &str) -> bool {
        let begun = |action: &Action| matches!(action, Action::EnsureImage { image, .. } if image == wanted);
        let mut under_way =
            self.facts.session.ops.values().filter_map(|operation| operation.image.as_deref());
        under_way.any(|image| image == wanted) || self.actions.iter().any(begun)
    }

    /// Adds an action, unless the very same one succeeded a moment ago and the inspection does not show it: then the
    /// runtime is given time before it is asked again.
    pub fn act(&mut self, action: Action, why: impl Into<String>) {
        if let Some((done, at)) = self.facts.session.done.get(&action.key())
            && same(done, &action)
            && (*at..later(*at, BELIEF_SECONDS)).contains(&self.facts.now)
        {
            self.wake(later(*at, BELIEF_SECONDS));
            self.why.push(format!("the runtime said that it did this, and does not show it yet: {action:?}"));
            return;
        }
        self.why.push(why.into());
        self.actions.push(action);
    }

    /// Gives an operation up that is under way.
    pub fn cancel(&mut self, key: &OpKey, why: impl Into<String>) {
        self.why.push(why.into());
        self.cancel.push(key.clone());
    }

    pub fn why(&mut self, why: impl Into<String>) {
        self.why.push(why.into());
    }

    pub fn event(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Plan again at `time`, or earlier if something asks for it.
    pub fn wake(&mut self, time: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(time, |earlier| earlier.min(time)));
    }

    pub fn finished(&mut self, why: impl Into<String>) {
        self.why.push(why.into());
        self.finished = true;
    }

    pub fn released(&mut self) {
        self.released = true;
    }

    /// Did a stop of this container succeed, whatever the runtime shows?
    pub fn was_stopped(&self, id: &str) -> bool {
        let done = self.facts.session.done.get(&OpKey::Container(id.to_owned()));
        matches!(done, Some((Action::StopContainer { .. }, _)))
    }

    pub fn is_ending(&self) -> bool {
        matches!(self.facts.wish, Wish::End(_))
    }

    /// Whether somebody waits for this status, or for a better one that is on its way.
    fn urgency(&self, status: &api::PodStatus) -> Urgency {
        let Some(published) = &self.facts.memory.status else {
            return Urgency::Now; // that the node has the pod is news
        };
        let mut keys: Vec<_> = self.actions.iter().map(Action::key).collect();
        keys.extend(self.facts.session.ops.keys().filter(|key| !self.cancel.contains(key)).cloned());
        match self.facts.wish {
            _ if published == status || self.released => Urgency::Now,
            // Who asked for the end waits for the end.
            Wish::End(_) if keys.is_empty() => Urgency::Now,
            Wish::End(_) if differs_in_generation_only(published, status) => Urgency::WithTheNext,
            Wish::End(_) => Urgency::Soon,
            // A sandbox on the way to the first start. Whatever a container says is news.
            Wish::Run => {
                let pending = |s: &api::PodStatus| s.phase.as_deref() == Some(phase::PENDING);
                let makes =
                    |key: &OpKey| matches!(key, OpKey::CreateSandbox | OpKey::Image(_) | OpKey::Start(_));
                let on_its_way = pending(published)
                    && pending(status)
                    && published.container_statuses == status.container_statuses
                    && published.init_container_statuses == status.init_container_statuses
                    && published.ephemeral_container_statuses == status.ephemeral_container_statuses
                    && keys.iter().any(makes);
                if on_its_way { Urgency::Soon } else { Urgency::Now }
            }
        }
    }

    pub fn finish(mut self) -> Plan {
        let known = &self.facts.runtime.containers;
        self.memory.told_stops.retain(|id| known.iter().any(|c| c.id == *id));
        let status = self.facts.pod.map(|pod| status::status(self.facts, pod, &self.memory));
        let urgency = status.as_ref().map_or(Urgency::Now, |status| self.urgency(status));
        if let Some((pod, status)) = self.facts.pod.zip(status.as_ref()) {
            if let Some(at) = status::resources_due(self.facts, pod, status) {
                self.wake(at);
            }
            self.memory.status = Some(status.clone());
        }
        Plan {
            cancel: self.cancel,
            actions: self.actions,
            status,
            urgency,
            memory: self.memory,
            events: self.events,
            wake_at: self.wake_at,
            why: self.why,
            released: self.released,
            finished: self.finished,
        }
    }
}

/// A deletion counts up the generation of the pod.
fn differs_in_generation_only(published: &api::PodStatus, status: &api::PodStatus) -> bool {
    let mut as_before = status.clone();
    as_before.observed_generation = published.observed_generation;
    let before = published.conditions.iter().flatten();
    for (condition, before) in as_before.conditions.iter_mut().flatten().zip(before) {
        condition.observed_generation = before.observed_generation;
    }
    as_before == *published
}
