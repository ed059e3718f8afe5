//! One probe of one container: asks, counts, and judges.
//!
//! ```text
//!            an instance runs, and nothing holds this probe back
//!  Idle ───────────────────────────────────────────────────────> Due ── ask ──> counted ──┐
//!   ^                                                             ^                       │
//!   └── not alive · startup decided (until the next instance) ────┼───────────────────────┤
//!                                                                 └── a period later ─────┘
//! ```
//!
//! When a new instance is asked first:
//! - after `initialDelaySeconds`, if there are some;
//! - readiness: a second after its start, as upstream does it on average. Over the network it is asked at once as well:
//!   if it is up already it need not wait, and if not, nobody hears of it;
//! - liveness and startup: about a period later. Upstream's questions come at a fixed beat which knows nothing of the
//!   container's start, at most that far apart. Up to a quarter of the period is taken off by lot, so that pods that
//!   started together are not asked together;
//! - an instance that ran before this life of the agent: at any moment of the first period, by lot, as upstream.
//!
//! What is not ready need not wait for a long period: upstream asks it with each look at the pod, which comes after 60 to
//! 90 seconds at most.

use std::sync::Arc;
use std::time::Duration;

use crablet_model::events::Event;
use crablet_model::names::event_reason;
use crablet_model::{PodRef, Role};
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::board::{Board, Target};
use super::question::{Question, Timing};
use super::{Kind, Means};
use crate::figures::OfProbe;
use crate::handlers::{Answer, Trouble};
use crate::nudge::Nudge;

/// What has just started is given this long before its answers count.
const TO_COME_UP: Duration = Duration::from_secs(1);
/// What is not ready is asked again after this long, and up to half as long again by lot, however long its period is.
const UNTIL_READY: Duration = Duration::from_secs(60);

pub(super) struct Watch {
    pub means: Arc<Means>,
    pub board: Arc<Board>,
    pub nudge: Arc<Nudge>,
    pub poke: Arc<Notify>,
    pub pod: PodRef,
    pub container: Box<str>,
    pub role: Role,
    pub kind: Kind,
    pub question: Question,
    pub timing: Timing,
    pub random: fastrand::Rng,
    /// Whom it asks.
    pub instance: Option<Instance>,
    pub figures: OfProbe,
}

/// What a watch knows of the instance that it asks.
pub(super) struct Instance {
    id: Arc<str>,
    /// When to ask next. `None`: something holds the probe back.
    due: Option<Instant>,
    /// The next question is before its time: only a success counts.
    early: bool,
    /// The last answer, and how often it came in a row.
    last: bool,
    run: u32,
    /// There is a verdict that ends the instance, or the probe's part in it.
    decided: bool,
}

impl Watch {
    /// Until its owner gives it up. Both arms of the wait are cancel-safe.
    pub async fn run(mut self) {
        loop {
            match self.due() {
                None => self.poke.notified().await,
                Some(due) => {
                    tokio::select! {
                        biased;
                        () = self.poke.notified() => {}
                        // Boxed: a watch that waits should not carry the size of a question.
                        () = sleep_until(due) => Box::pin(self.round()).await,
                    }
                }
            }
        }
    }

    /// When to ask next, if there is anybody to ask.
    fn due(&mut self) -> Option<Instant> {
        let target = self.board.target(&self.container)?;
        let since = target.running_since?;
        if self.instance.as_ref().is_none_or(|known| known.id != target.id) {
            self.instance = Some(Instance::new(&target));
        }
        let held_back = target.started == (self.kind == Kind::Startup);
        let known = self.instance.as_ref()?;
        if known.decided || held_back {
            return None;
        }
        if known.due.is_none() {
            let (due, early) = self.first(since);
            let known = self.instance.as_mut()?;
            (known.due, known.early) = (Some(due), early);
        }
        self.instance.as_ref()?.due
    }

    /// When to ask an instance first, and whether that is before its time.
    fn first(&mut self, running_since: Timestamp) -> (Instant, bool) {
        let (now, clock) = (Instant::now(), self.means.clock.now());
        let until = |age: Duration| {
            let then = running_since.checked_add(age).unwrap_or(clock);
            Duration::try_from(then.duration_since(clock)).unwrap_or_default()
        };
        let delay = until(self.timing.delay);
        if !delay.is_zero() {
            return (now + delay, false);
        }
        let lot = self.random.f64();
        if self.board.was_found(running_since) {
            return (now + self.timing.period.mul_f64(lot), false);
        }
        if self.kind != Kind::Readiness {
            return (now + self.timing.period.mul_f64(1.0 - lot / 4.0), false);
        }
        let up = until(TO_COME_UP);
        match self.question.is_light() {
            true => (now, !up.is_zero()),
            false => (now + up, false),
        }
    }

    /// Asks once, and takes the answer in.
    async fn round(&mut self) {
        let Some((id, due)) = self.instance.as_ref().and_then(|known| Some((known.id.clone(), known.due?)))
        else {
            return;
        };
        let (runtime, pod_ip) = (&*self.means.runtime, self.board.pod_ip());
        let begun = Instant::now();
        let answer = self.question.ask(runtime, &id, &pod_ip, self.timing.timeout).await;
        let took = begun.elapsed();
        let target = self.board.target(&self.container).filter(|target| target.id == id);
        // Who has gone or ended meanwhile is not judged by what it said on its way.
        let Some(since) = target.and_then(|target| target.running_since) else { return };
        let Some(known) = &mut self.instance else { return };
        if known.early && !matches!(answer, Ok(Answer::Success(_) | Answer::Warning(_))) {
            let age = Duration::try_from(self.means.clock.now().duration_since(since)).unwrap_or_default();
            known.due = Some(Instant::now() + TO_COME_UP.saturating_sub(age));
            known.early = false;
            return;
        }
        known.early = false;
        self.tell(&answer);
        if let Ok(answer) = answer {
            let is_well = !matches!(answer, Answer::Failure(_));
            self.figures.answered(is_well, took);
            self.count(is_well);
        }
        let next = (due + self.pause(&id)).max(Instant::now());
        if let Some(known) = &mut self.instance {
            known.due = Some(next);
        }
    }

    /// Until the instance is asked again.
    fn pause(&mut self, id: &str) -> Duration {
        let period = self.timing.period;
        if self.kind != Kind::Readiness || period <= UNTIL_READY || self.board.is_ready(id) {
            return period;
        }
        period.min(UNTIL_READY.mul_f64(1.0 + self.random.f64() / 2.0))
    }

    fn count(&mut self, is_well: bool) {
        let Some(known) = &mut self.instance else { return };
        known.run = if known.last == is_well { known.run.saturating_add(1) } else { 1 };
        known.last = is_well;
        let enough = if is_well { self.timing.successes } else { self.timing.failures };
        if known.run < enough {
            return;
        }
        known.decided = match self.kind {
            Kind::Startup => true,
            Kind::Liveness => !is_well,
            Kind::Readiness => false,
        };
        if self.board.judge(&self.container, &known.id, self.kind, is_well) {
            self.nudge.probed();
        }
    }

    /// Every failure is told, also one that does not count yet.
    fn tell(&self, answer: &Result<Answer, Trouble>) {
        let kind = self.kind.name();
        let (reason, message) = match answer {
            Ok(Answer::Success(_)) => return,
            Ok(Answer::Warning(output)) => {
                (event_reason::PROBE_WARNING, format!("{kind} probe warning: {output}"))
            }
            Ok(Answer::Failure(output)) => {
                (event_reason::UNHEALTHY, format!("{kind} probe failed: {output}"))
            }
            Err(Trouble { state, message }) => (
                event_reason::UNHEALTHY,
                format!("{kind} probe errored and resulted in {state} state: {message}"),
            ),
        };
        self.means.events.emit(Event::warning(&self.pod, reason, message).on(self.role, &self.container));
    }
}

impl Instance {
    fn new(target: &Target) -> Self {
        Self { id: target.id.clone(), due: None, early: false, last: false, run: 0, decided: false }
    }
}
