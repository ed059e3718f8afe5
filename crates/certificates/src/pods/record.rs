//! How far the certificate of one source has come.
//!
//! ```text
//!              ┌───────── deleted ─────────┐
//!              v                           │
//!           nothing ──> asked ──> issued ──┴─> issued, asked again ──> issued
//!                         │                          │
//!                         └────────> over <──────────┘     denied or failed: for good, as upstream has it
//! ```

use std::sync::Arc;

use crablet_model::events::Event;
use jiff::{SignedDuration, Timestamp};

use super::request::{Asked, Name, Outcome};
use super::{Bundle, Lacking, Wanted};

/// A request that the watch does not show so long after it was made has been deleted.
const ABANDONED_AFTER: SignedDuration = SignedDuration::from_mins(10);
/// A certificate that is still the old one so long after its refresh was due is overdue.
const OVERDUE_AFTER: SignedDuration = SignedDuration::from_mins(10);
const FIRST_RETRY: SignedDuration = SignedDuration::from_secs(1);
const LAST_RETRY: SignedDuration = SignedDuration::from_mins(2);

pub(super) struct Record {
    pub wanted: Arc<Wanted>,
    issued: Option<Issued>,
    ticket: Option<Ticket>,
    /// `Denied` or `Failed`, and the text about it.
    over: Option<(&'static str, String)>,
    /// A request is being made.
    asking: bool,
    failures: u32,
    retry_at: Option<Timestamp>,
    /// Why the last try came to nothing.
    why: String,
}

struct Issued {
    bundle: Bundle,
    refresh_at: Timestamp,
    not_after: Timestamp,
    told_overdue: bool,
    told_expired: bool,
}

/// A request that is waited for.
struct Ticket {
    name: Name,
    key: Arc<str>,
    abandon_at: Timestamp,
    /// The watch has shown it.
    seen: bool,
}

impl Record {
    pub fn new(wanted: Arc<Wanted>) -> Self {
        Self {
            wanted,
            issued: None,
            ticket: None,
            over: None,
            asking: false,
            failures: 0,
            retry_at: None,
            why: String::new(),
        }
    }

    /// What the volume may show, or why there is nothing to show.
    pub fn bundle(&self) -> Result<Bundle, Lacking> {
        if let Some((_, text)) = &self.over {
            return Err(Lacking { text: text.clone(), for_good: true });
        }
        match &self.issued {
            Some(issued) => Ok(issued.bundle.clone()),
            None if self.why.is_empty() => Err(Lacking::pending("")),
            None => Err(Lacking::pending(&self.why)),
        }
    }

    /// `not_yet_issued`, `fresh`, `overdue_for_refresh`, `expired`, `denied` or `failed`: upstream's words for the metric.
    pub fn state(&self, now: Timestamp) -> &'static str {
        match (&self.over, &self.issued) {
            (Some(("Denied", _)), _) => "denied",
            (Some(_), _) => "failed",
            (None, None) => "not_yet_issued",
            (None, Some(issued)) if now > issued.not_after => "expired",
            (None, Some(issued)) if now > issued.refresh_at + OVERDUE_AFTER => "overdue_for_refresh",
            (None, Some(_)) => "fresh",
        }
    }

    /// Whether a request has to be made now. If so, it counts as being made.
    pub fn begin(&mut self, now: Timestamp) -> bool {
        let due = self.asks_at().is_some_and(|at| at <= now);
        self.asking |= due;
        due
    }

    /// When the next request has to be made. `None`: not before something else happens.
    fn asks_at(&self) -> Option<Timestamp> {
        if self.asking || self.ticket.is_some() || self.over.is_some() {
            return None;
        }
        let due = self.issued.as_ref().map_or(Timestamp::UNIX_EPOCH, |issued| issued.refresh_at);
        Some(self.retry_at.map_or(due, |at| at.max(due)))
    }

    /// When to look again without a reason from outside.
    pub fn looks_at(&self) -> Option<Timestamp> {
        let abandon = self.ticket.as_ref().filter(|ticket| !ticket.seen).map(|ticket| ticket.abandon_at);
        let issued = self.issued.as_ref().filter(|_| self.over.is_none());
        let overdue = issued.filter(|issued| !issued.told_overdue).map(|i| i.refresh_at + OVERDUE_AFTER);
        let expired = issued.filter(|issued| !issued.told_expired).map(|i| i.not_after);
        [self.asks_at(), abandon, overdue, expired].into_iter().flatten().min()
    }

    pub fn asked(&mut self, asked: Asked, jitter: SignedDuration) {
        let Asked { name, key, created } = asked;
        self.asking = false;
        self.why.clear();
        let abandon_at = created + ABANDONED_AFTER + jitter;
        self.ticket = Some(Ticket { name, key, abandon_at, seen: false });
    }

    pub fn failed(&mut self, error: &str, now: Timestamp) {
        self.asking = false;
        let which = if self.issued.is_some() { "refresh" } else { "initial" };
        self.why = match error.strip_prefix("while creating on API") {
            Some(_) => format!("while creating {which} PodCertificateRequest: {error}"),
            None => error.to_owned(),
        };
        self.back_off(now);
    }

    fn back_off(&mut self, now: Timestamp) {
        let wait = FIRST_RETRY.saturating_mul(1 << self.failures.min(10)).min(LAST_RETRY);
        self.failures += 1;
        self.retry_at = Some(now + wait);
    }

    /// The request that is waited for.
    pub fn waits_for(&self) -> Option<&Name> {
        self.ticket.as_ref().map(|ticket| &ticket.name)
    }

    /// The watch shows the request. Says whether the volume shows something else from now on, and what to tell.
    pub fn seen(&mut self, outcome: &Outcome, jitter: SignedDuration) -> (bool, Option<Event>) {
        let Some(ticket) = &mut self.ticket else { return (false, None) };
        ticket.seen = true;
        match outcome {
            Outcome::Pending => (false, None),
            Outcome::Issued { chain, refresh_at, not_after } => {
                self.issued = Some(Issued {
                    bundle: Bundle { key: ticket.key.clone(), chain: chain.clone() },
                    refresh_at: *refresh_at + jitter,
                    not_after: *not_after,
                    told_overdue: false,
                    told_expired: false,
                });
                (self.failures, self.retry_at) = (0, None);
                self.ticket = None;
                (true, None)
            }
            Outcome::Over { verdict, reason, message } => {
                let (word, said) = match *verdict {
                    "Denied" => ("denied", "was denied"),
                    _ => ("failed", "failed"),
                };
                let text = format!(
                    "PodCertificateRequest was permanently {word}: reason={reason:?} message={message:?}"
                );
                let (namespace, name) = &ticket.name;
                let told = format!(
                    "PodCertificateRequest {namespace}/{name} {said}, reason={reason:?}, message={message:?}"
                );
                let event = Event::warning(&self.wanted.pod, *verdict, told);
                self.over = Some((verdict, text));
                self.ticket = None;
                (true, Some(event))
            }
        }
    }

    /// The request is gone before anything came of it: another one is made.
    pub fn deleted(&mut self, now: Timestamp) {
        let Some(ticket) = self.ticket.take() else { return };
        let (namespace, name) = ticket.name;
        let whole = format!("{namespace}/{name}");
        self.why = format!("PodCertificateRequest {whole:?} appears to have been deleted");
        self.back_off(now);
    }

    /// A list without the request. It may be older than the request, unless the watch has shown it before.
    pub fn unlisted(&mut self, now: Timestamp) {
        if self.ticket.as_ref().is_some_and(|ticket| ticket.seen) {
            self.deleted(now);
        }
    }

    /// What the time alone tells.
    pub fn look_at_clock(&mut self, now: Timestamp) -> Vec<Event> {
        if self.ticket.as_ref().is_some_and(|ticket| !ticket.seen && ticket.abandon_at <= now) {
            self.deleted(now);
        }
        let mut events = Vec::new();
        let Some(issued) = self.issued.as_mut().filter(|_| self.over.is_none()) else { return events };
        let pod = &self.wanted.pod;
        if now >= issued.refresh_at + OVERDUE_AFTER && !issued.told_overdue {
            issued.told_overdue = true;
            events.push(Event::warning(
                pod,
                "CertificateOverdueForRefresh",
                "PodCertificate refresh overdue",
            ));
        }
        if now >= issued.not_after && !issued.told_expired {
            issued.told_expired = true;
            events.push(Event::warning(pod, "CertificateExpired", "PodCertificate expired"));
        }
        events
    }
}
