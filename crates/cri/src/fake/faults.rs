//! What goes wrong with calls.

use std::time::Duration;

use super::trace::{Call, Subject};
use crate::port::{CriError, ErrorKind};

#[derive(Clone, Debug, PartialEq)]
pub enum FaultKind {
    /// The call fails and nothing happened.
    ErrBefore(String),
    /// The call fails although it took effect.
    ErrAfter(String),
    /// The call is not answered until its deadline. The effect may have happened all the same.
    Hang { effect: bool },
    /// The call begins this much virtual time late.
    Slow(Duration),
    /// The call is received in time, and its work takes this much longer: whatever it was for may be gone by then.
    Stalls(Duration),
}

/// A rule: this call (any where `None`), for pods and containers of these names (any where `None`).
#[derive(Clone, Debug)]
pub struct CallFault {
    pub call: Option<Call>,
    pub pod: Option<String>,
    pub container: Option<String>,
    pub kind: FaultKind,
    /// How many calls it hits before it is spent; `None` never ends.
    pub times: Option<u32>,
}

impl CallFault {
    pub fn on(call: Call, kind: FaultKind) -> Self {
        Self { call: Some(call), pod: None, container: None, kind, times: None }
    }

    pub fn of_pod(mut self, pod: &str) -> Self {
        self.pod = Some(pod.to_owned());
        self
    }

    pub fn of_container(mut self, container: &str) -> Self {
        self.container = Some(container.to_owned());
        self
    }

    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    fn hits(&self, call: Call, subject: &Subject) -> bool {
        self.call.is_none_or(|c| c == call)
            && self.times != Some(0)
            && self.pod.as_ref().is_none_or(|pod| **pod == *subject.pod)
            && self.container.as_ref().is_none_or(|container| **container == *subject.container)
    }
}

/// Faults by chance, each a probability per call. The default is a healthy runtime.
#[derive(Clone, Debug, Default)]
pub struct Chaos {
    pub err_before: f64,
    pub err_after: f64,
    pub hang: f64,
    pub slow: f64,
    /// A slow call begins up to this much late.
    pub slow_for: Duration,
}

#[derive(Default)]
pub(super) struct Faults {
    pub rules: Vec<CallFault>,
    pub chaos: Chaos,
}

/// What becomes of one call.
#[derive(Debug, Default)]
pub(super) struct Course {
    pub late: Duration,
    /// Its work takes this much longer.
    pub stalls: Duration,
    /// The error that the client gets in place of the answer.
    pub error: Option<CriError>,
    pub has_no_effect: bool,
    /// The client gets no answer at all.
    pub silent: bool,
}

impl Faults {
    pub fn course(&mut self, call: Call, subject: &Subject, rng: &mut fastrand::Rng) -> Course {
        let kind = match self.rules.iter_mut().find(|rule| rule.hits(call, subject)) {
            Some(rule) => {
                if let Some(times) = &mut rule.times {
                    *times -= 1;
                }
                Some(rule.kind.clone())
            }
            None => self.by_chance(call, rng),
        };
        let mut course = Course::default();
        match kind {
            None => {}
            Some(FaultKind::ErrBefore(message)) => {
                course.error = Some(CriError::new(ErrorKind::Refused, message));
                course.has_no_effect = true;
            }
            Some(FaultKind::ErrAfter(message)) => {
                course.error = Some(CriError::new(ErrorKind::Refused, message));
            }
            Some(FaultKind::Hang { effect }) => {
                course.silent = true;
                course.has_no_effect = !effect;
            }
            Some(FaultKind::Slow(late)) => course.late = late,
            Some(FaultKind::Stalls(time)) => course.stalls = time,
        }
        course
    }

    fn by_chance(&self, call: Call, rng: &mut fastrand::Rng) -> Option<FaultKind> {
        let chaos = &self.chaos;
        if hit(rng, chaos.err_before) {
            return Some(FaultKind::ErrBefore(format!("{}: some fault", call.name())));
        }
        if hit(rng, chaos.err_after) {
            return Some(FaultKind::ErrAfter(format!("{}: some fault, after the fact", call.name())));
        }
        if hit(rng, chaos.hang) {
            return Some(FaultKind::Hang { effect: rng.bool() });
        }
        if hit(rng, chaos.slow) {
            return Some(FaultKind::Slow(Duration::from_millis(
                rng.u64(0..=chaos.slow_for.as_millis() as u64),
            )));
        }
        None
    }
}

/// Draws only where there is a chance at all, so that switching one fault off leaves the rest of a run alone.
pub(super) fn hit(rng: &mut fastrand::Rng, chance: f64) -> bool {
    chance > 0.0 && rng.f64() < chance
}
