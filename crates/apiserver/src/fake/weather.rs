//! What goes wrong between the agent and the fake, and when.

use std::time::Duration;

use bytes::Bytes;

use crate::port::{ApiError, ErrorKind, Verb};

/// What was asked of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    Call(Verb),
    Watch,
}

/// Which requests have bad weather: all that `verb` and `path` agree with.
#[derive(Clone, Debug, Default)]
pub struct Where {
    /// Any if absent.
    pub asked: Option<Asked>,
    /// A part of the path with its query; empty for any.
    pub path: String,
}

impl Where {
    pub fn anywhere() -> Self {
        Self::default()
    }

    pub fn path(part: impl Into<String>) -> Self {
        Self { asked: None, path: part.into() }
    }

    pub fn call(verb: Verb, part: impl Into<String>) -> Self {
        Self { asked: Some(Asked::Call(verb)), path: part.into() }
    }

    pub fn watch(part: impl Into<String>) -> Self {
        Self { asked: Some(Asked::Watch), path: part.into() }
    }

    fn covers(&self, asked: Asked, path: &str) -> bool {
        self.asked.is_none_or(|wanted| wanted == asked) && path.contains(&self.path)
    }
}

#[derive(Clone, Debug)]
pub enum Effect {
    /// No answer, nothing is done.
    Unreachable,
    /// The answer takes this long. Longer than the call's deadline: nothing is done, and the call times out.
    Slow(Duration),
    /// The server answers with an HTTP status code, and nothing is done.
    Fail(u16),
    /// The same with the `reason` and `message` of a status.
    Refuse { code: u16, reason: String, message: String },
    /// What is asked for is done, and the answer is lost.
    LostAnswer,
    /// A fixed answer; nothing is done.
    Answer(Bytes),
}

#[derive(Debug)]
struct Fault {
    at: Where,
    effect: Effect,
    /// How many more requests it strikes; for good if absent.
    left: Option<u32>,
}

/// Faults in the order in which they were set; the first that covers a request strikes it.
#[derive(Debug, Default)]
pub(super) struct Weather {
    faults: Vec<Fault>,
    pub unreachable: bool,
}

impl Weather {
    pub fn set(&mut self, at: Where, effect: Effect, times: Option<u32>) {
        if times != Some(0) {
            self.faults.push(Fault { at, effect, left: times });
        }
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    pub fn strikes(&mut self, asked: Asked, path: &str) -> Option<Effect> {
        if self.unreachable {
            return Some(Effect::Unreachable);
        }
        let at = self.faults.iter().position(|fault| fault.at.covers(asked, path))?;
        let fault = &mut self.faults[at];
        let effect = fault.effect.clone();
        if let Some(left) = &mut fault.left {
            *left -= 1;
            if *left == 0 {
                self.faults.remove(at);
            }
        }
        Some(effect)
    }
}

pub(super) fn unreachable() -> ApiError {
    ApiError::new(ErrorKind::Unreachable, "connect: connection refused")
}

pub(super) fn timed_out() -> ApiError {
    ApiError::new(ErrorKind::TimedOut, "context deadline exceeded")
}

/// As the real server words it.
pub(super) fn status(code: u16, reason: &str, message: impl Into<String>) -> ApiError {
    let message: String = message.into();
    let body = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": code,
    });
    ApiError::of_status(code, body.to_string().as_bytes())
}
