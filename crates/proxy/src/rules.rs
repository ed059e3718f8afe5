//! Rules that change what a proxy does with a call.
//!
//! The rules are asked in the order in which they were added. The first that matches the call, and whose turn it is
//! (the third match, say), decides; a call that no rule wants is passed on untouched.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::gate::Gate;
use crate::glob::Glob;

/// What a rule can see of a call.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// `/runtime.v1.RuntimeService/RunPodSandbox`, or the path of a URL without its query.
    pub path: &'a str,
    /// Kubernetes' word for what an API request does (`get`, `list`, `watch`, `patch`); empty for CRI.
    pub verb: &'a str,
    /// Who asks the API server; empty for CRI.
    pub user: &'a str,
    /// The request's message, not redacted, if it could be read.
    pub request: Option<&'a Value>,
}

type Predicate = Arc<dyn Fn(&Facts<'_>) -> bool + Send + Sync>;

/// Which calls a rule is about. All that was asked for must hold.
#[derive(Clone, Default)]
pub struct Matcher {
    path: Option<Glob>,
    verb: Option<String>,
    user: Option<Glob>,
    fields: Vec<(String, Value)>,
    predicates: Vec<Predicate>,
}

impl Matcher {
    /// Every call.
    pub fn any() -> Matcher {
        Matcher::default()
    }

    /// The calls of one gRPC method, whatever the service: `RunPodSandbox`. Stars are allowed: `*Container`.
    pub fn method(name: &str) -> Matcher {
        Matcher::path(format!("/*/{name}"))
    }

    /// The calls to these paths: exact, or with `*` (within a segment) and `**`.
    pub fn path(glob: impl Into<String>) -> Matcher {
        Matcher { path: Some(Glob::new(glob)), ..Matcher::default() }
    }

    pub fn verb(mut self, verb: impl Into<String>) -> Matcher {
        self.verb = Some(verb.into());
        self
    }

    pub fn user(mut self, glob: impl Into<String>) -> Matcher {
        self.user = Some(Glob::new(glob));
        self
    }

    /// A field of the request has this value: `/config/metadata/name` and `web`. The path is a JSON pointer; CRI's
    /// fields have the names of the `.proto` file, enums are their names, and a field with its default value is absent.
    /// Of API requests only JSON can be seen; a kubelet sends most objects as protobuf.
    pub fn field(mut self, pointer: impl Into<String>, value: impl Into<Value>) -> Matcher {
        self.fields.push((pointer.into(), value.into()));
        self
    }

    /// CRI calls that name this pod: those that make sandboxes and containers, and pulls.
    pub fn pod(self, name: impl Into<String>) -> Matcher {
        let name = name.into();
        self.when(move |facts| {
            let Some(request) = facts.request else { return false };
            let config = if request.get("sandbox_config").is_some() { "sandbox_config" } else { "config" };
            request[config]["metadata"]["name"] == name.as_str()
        })
    }

    /// CRI calls that create this container.
    pub fn container(self, name: impl Into<String>) -> Matcher {
        let name = name.into();
        self.when(move |facts| {
            let request = facts.request.filter(|request| request.get("sandbox_config").is_some());
            request.is_some_and(|request| request["config"]["metadata"]["name"] == name.as_str())
        })
    }

    /// Anything else.
    pub fn when(mut self, such: impl Fn(&Facts<'_>) -> bool + Send + Sync + 'static) -> Matcher {
        self.predicates.push(Arc::new(such));
        self
    }

    pub fn matches(&self, facts: &Facts<'_>) -> bool {
        let field = |pointer: &str| facts.request.and_then(|request| request.pointer(pointer));
        self.path.as_ref().is_none_or(|glob| glob.matches(facts.path))
            && self.verb.as_ref().is_none_or(|verb| verb == facts.verb)
            && self.user.as_ref().is_none_or(|glob| glob.matches(facts.user))
            && self.fields.iter().all(|(pointer, value)| field(pointer) == Some(value))
            && self.predicates.iter().all(|such| such(facts))
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matcher")
            .field("path", &self.path)
            .field("verb", &self.verb)
            .field("user", &self.user)
            .field("fields", &self.fields)
            .field("predicates", &self.predicates.len())
            .finish()
    }
}

/// An error that a proxy answers with by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// gRPC's code (14 is `UNAVAILABLE`) or HTTP's status.
    pub code: u16,
    pub message: String,
    /// HTTP only: when to come again, in seconds.
    pub retry_after: Option<u32>,
}

impl Failure {
    /// For the CRI proxy. The codes are in [`crate::grpc`].
    pub fn grpc(code: u16, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into(), retry_after: None }
    }

    /// For the API proxy, which makes it a `Status` object.
    pub fn http(status: u16, message: impl Into<String>) -> Failure {
        Failure { code: status, message: message.into(), retry_after: None }
    }

    pub fn retry_after(mut self, seconds: u32) -> Failure {
        self.retry_after = Some(seconds);
        self
    }
}

/// When the client's connection is closed, without a word and with everything else that runs over it. An upgraded
/// connection has no answer's body any more, so only [`Cut::Now`] stops an upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Before the other side hears of the call.
    Now,
    /// Once so many bytes of the answer's body were let through.
    AfterBytes(u64),
    /// Once so many messages of the answer were let through: gRPC messages, or a watch's events.
    AfterEvents(u64),
}

/// What is done with a call.
#[derive(Debug, Clone)]
pub enum Action {
    /// Passed on after this time.
    Delay(Duration),
    /// Passed on once the gate lets it.
    Hold(Gate),
    /// Passed on; the answer, when it is there and whole, waits for the gate.
    HoldAnswer(Gate),
    /// Answered with an error; the other side never hears of it.
    Fail(Failure),
    /// Passed on; when the answer is there and whole it is thrown away, and the client gets an error.
    FailAfter(Failure),
    /// Neither passed on nor answered, until the client gives up or the proxy stops.
    Drop,
    /// The client's connection is closed.
    Cut(Cut),
}

/// An action for the calls that match; for each of them unless said otherwise.
#[derive(Debug, Clone)]
pub struct Rule {
    name: Option<String>,
    matcher: Matcher,
    action: Action,
    from: u64,
    to: Option<u64>,
}

impl Rule {
    pub fn new(matcher: Matcher, action: Action) -> Rule {
        Rule { name: None, matcher, action, from: 1, to: None }
    }

    /// The name that the record shows when the rule acted; otherwise it is `rule` and a number.
    pub fn named(mut self, name: impl Into<String>) -> Rule {
        self.name = Some(name.into());
        self
    }

    /// Only for the first matches.
    pub fn first(self, count: u64) -> Rule {
        self.between(1, count)
    }

    /// Only for the match with this number, counted from 1.
    pub fn nth(self, number: u64) -> Rule {
        self.between(number, number)
    }

    /// Only from the match after so many on.
    pub fn after(mut self, count: u64) -> Rule {
        self.from = count.saturating_add(1);
        self.to = None;
        self
    }

    /// Only for the matches from one number to another, both included, counted from 1.
    pub fn between(mut self, from: u64, to: u64) -> Rule {
        self.from = from;
        self.to = Some(to);
        self
    }
}

/// Names a rule that was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleId(u64);

/// The rules of a running proxy; clones are the same rules.
#[derive(Debug, Clone, Default)]
pub struct Rules(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    active: Vec<Active>,
}

#[derive(Debug)]
struct Active {
    id: RuleId,
    rule: Rule,
    matched: u64,
    fired: u64,
}

/// A rule's decision about one call.
#[derive(Debug, Clone)]
pub(crate) struct Fired {
    pub rule: String,
    pub action: Action,
}

impl Rules {
    /// From now on; calls under way are not touched.
    pub fn add(&self, rule: Rule) -> RuleId {
        let mut state = self.state();
        state.next += 1;
        let id = RuleId(state.next);
        state.active.push(Active { id, rule, matched: 0, fired: 0 });
        id
    }

    /// What it held or dropped stays so.
    pub fn remove(&self, id: RuleId) {
        self.state().active.retain(|active| active.id != id);
    }

    pub fn clear(&self) {
        self.state().active.clear();
    }

    /// How often a rule has acted; 0 for one that was removed.
    pub fn fired(&self, id: RuleId) -> u64 {
        self.state().fired(id)
    }

    /// Blocks until a rule has acted so often.
    pub fn wait_fired(&self, id: RuleId, count: u64, within: Duration) -> Result<()> {
        let waited = self.0.changed.wait_timeout_while(self.state(), within, |state| state.fired(id) < count);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.fired(id) >= count {
            return Ok(());
        }
        Err(Error::Waited {
            what: format!("a rule acting {count} times (it did {})", state.fired(id)),
            within,
        })
    }

    pub(crate) fn decide(&self, facts: &Facts<'_>) -> Option<Fired> {
        let mut state = self.state();
        for active in &mut state.active {
            if !active.rule.matcher.matches(facts) {
                continue;
            }
            active.matched += 1;
            let rule = &active.rule;
            if active.matched < rule.from || rule.to.is_some_and(|to| active.matched > to) {
                continue;
            }
            active.fired += 1;
            let name = rule.name.clone().unwrap_or_else(|| format!("rule {}", active.id.0));
            let fired = Fired { rule: name, action: rule.action.clone() };
            drop(state);
            self.0.changed.notify_all();
            return Some(fired);
        }
        None
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn fired(&self, id: RuleId) -> u64 {
        self.active.iter().find(|active| active.id == id).map_or(0, |active| active.fired)
    }
}

#[cfg(test)]
mod tests;
