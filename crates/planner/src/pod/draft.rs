//! A plan in the making.

use crablet_model::PodRef;
use crablet_model::events::Event;
use jiff::Timestamp;

use super::facts::{Facts, Wish};
use super::memory::{Memory, later};
use super::plan::{Action, OpKey, Plan};
use super::status;

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
        Self {
            facts,
            memory: facts.memory.clone(),
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

    /// Adds an action, unless the very same one succeeded a moment ago and the inspection does not show it: then the
    /// runtime is given time before it is asked again.
    pub fn act(&mut self, action: Action, why: impl Into<String>) {
        if let Some((done, at)) = self.facts.session.done.get(&action.key())
            && same(done, &action)
            && self.facts.now < later(*at, BELIEF_SECONDS)
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

    pub fn finish(mut self) -> Plan {
        let status = self.facts.pod.map(|pod| status::status(self.facts, pod, &self.memory));
        if status.is_some() {
            self.memory.status.clone_from(&status);
        }
        Plan {
            cancel: self.cancel,
            actions: self.actions,
            status,
            memory: self.memory,
            events: self.events,
            wake_at: self.wake_at,
            why: self.why,
            released: self.released,
            finished: self.finished,
        }
    }
}
