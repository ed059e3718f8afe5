//! What must survive the agent: kept on disk, written before it is acted on.

use std::collections::{BTreeMap, BTreeSet};

use crablet_model::api;
use crablet_model::names::container_reason;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::facts::{Ending, REJECTED, Session, Verdict};
use super::plan::Outcome;
use super::resize::Resizing;

/// First wait after a failed operation; doubles up to [`RETRY_MAX_SECONDS`].
const RETRY_FIRST_SECONDS: i64 = 1;
const RETRY_MAX_SECONDS: i64 = 10;
/// Image pulls wait as upstream: 10 s, doubling up to 5 min, forgotten after twice that.
const PULL_FIRST_SECONDS: i64 = 10;
const PULL_MAX_SECONDS: i64 = 300;
/// Upstream looks at a pod of which something failed again after 10 to 15 s.
const NEXT_SYNC_SECONDS: i64 = 12;
/// A failed start is tried again after this long, as upstream's sync error back-off.
pub(super) const START_RETRY_SECONDS: i64 = 10;

/// A pod's memory over the agent's deaths.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// The status that was published last. Start time and transition times live on in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<api::PodStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
    /// Of a pod that ends, those that others need, in the order of their start: the next life of the agent may have to
    /// finish the end before anybody tells it what the pod was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sidecars: Vec<String>,
    /// Once given, it is never taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Since when everything of a finished pod, or of one whose sandbox is replaced, is being stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopping_since: Option<Timestamp>,
    /// A container's rule asked for all containers to begin afresh, and instances of before are still there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub restarting_all: bool,
    /// Instances that are stopped in order to be started again, whatever they end with: container name to instance
    /// id. As with upstream there is one try: if it comes to no instance, the end counts as any other.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub replaced: BTreeMap<String, String>,
    /// By container name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub crash_loops: BTreeMap<String, CrashLoop>,
    /// By image.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub pulls: BTreeMap<String, PullBackOff>,
    /// Why the last try to start a container failed, by container name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<String, Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_failure: Option<Failure>,
    /// A resize that was granted and has not come to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resizing: Option<Resizing>,
    /// The generation of the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub granted: Option<i64>,
    /// Stops and removals that failed, by container or sandbox id.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub teardown_failures: BTreeMap<String, Failure>,
    /// Containers that wait for their turn to be stopped, and of which that has been told: ids.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub told_stops: BTreeSet<String>,
}

/// A container's crash-loop back-off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CrashLoop {
    /// Names image and resources too, so that a changed container starts afresh.
    pub key: String,
    /// How long the container has to stay down after its next exit.
    pub delay_seconds: i64,
    /// When the delay was last raised.
    pub updated_at: Timestamp,
    /// The exited instance for which it was raised: each exit counts once.
    pub exit_id: String,
    /// The exited instance whose waiting has been told as an event.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub announced: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PullBackOff {
    pub delay_seconds: i64,
    pub failed_at: Timestamp,
    pub reason: String,
    pub message: String,
    /// The failure for which the back-off was told as an event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announced: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    pub reason: String,
    pub message: String,
    pub count: u32,
    pub failed_at: Timestamp,
    pub retry_at: Timestamp,
}

impl Failure {
    fn again(earlier: Option<&Self>, reason: &str, message: String, now: Timestamp, delay: i64) -> Self {
        let count = earlier.map_or(0, |f| f.count).saturating_add(1);
        Self { reason: reason.to_owned(), message, count, failed_at: now, retry_at: later(now, delay) }
    }
}

impl PullBackOff {
    pub fn retry_at(&self) -> Timestamp {
        later(self.failed_at, self.delay_seconds)
    }

    /// Until then the failure itself is shown, afterwards the back-off: from upstream's next look at the pod on.
    pub fn shown_at(&self) -> Timestamp {
        later(self.failed_at, (self.delay_seconds / 2).min(NEXT_SYNC_SECONDS))
    }
}

impl Memory {
    /// Takes in how an operation ended.
    pub fn absorb(&mut self, session: &mut Session, outcome: Outcome, now: Timestamp) {
        match outcome {
            Outcome::SandboxCreated => {
                self.sandbox_failure = None;
                session.released = false;
                session.taken_over = true;
            }
            Outcome::SandboxFailed { message } => {
                let delay = doubling(self.sandbox_failure.as_ref());
                self.sandbox_failure =
                    Some(Failure::again(self.sandbox_failure.as_ref(), "SandboxFailed", message, now, delay));
            }
            Outcome::Rejected { reason, message } => {
                self.verdict.get_or_insert_with(|| Verdict {
                    reason: reason.to_owned(),
                    message: format!("{REJECTED}{message}"),
                    since: now,
                    grace_seconds: None,
                    disruption: None,
                });
            }
            Outcome::SandboxStopped { id } => {
                self.teardown_failures.remove(&id);
                session.stopped_sandboxes.insert(id);
            }
            Outcome::SandboxRemoved => {}
            Outcome::ImageReady { container, image, prepared } => {
                self.pulls.remove(&image);
                session.images.insert(container, (image, prepared));
            }
            Outcome::ImageFailed { container, image, reason, message, pulled } => {
                self.replaced.remove(&container);
                self.image_failed(container, image, reason, message, pulled, now);
            }
            Outcome::ImageMissing { container } => {
                // What was in the way of the look no longer is: what is left is the failed pull.
                self.failures.remove(&container);
                self.replaced.remove(&container);
                session.image_looks.insert(container, now);
            }
            Outcome::ContainerStarted { container } => {
                self.failures.remove(&container);
                session.images.remove(&container);
                session.image_looks.remove(&container);
                session.in_vain.remove(&container);
            }
            Outcome::TakenOver => (session.taken_over, session.take_over_at) = (true, None),
            // Told by who tried.
            Outcome::TakeOverFailed { .. } => session.take_over_at = Some(later(now, START_RETRY_SECONDS)),
            Outcome::StartFailed { container, reason, message } => {
                session.images.remove(&container);
                session.in_vain.remove(&container);
                // What fails to run is there, and is judged by itself.
                if reason != container_reason::RUN_CONTAINER_ERROR {
                    self.replaced.remove(&container);
                }
                let earlier = self.failures.get(&container);
                // After a failed hook there is an instance that has ended: its back-off decides.
                let ran = reason == container_reason::POST_START_HOOK_ERROR;
                let delay = if ran { 0 } else { START_RETRY_SECONDS };
                let failure = Failure::again(earlier, reason, message, now, delay);
                self.failures.insert(container, failure);
            }
            Outcome::StartedInVain { container, attempt } => {
                session.images.remove(&container);
                session.in_vain.insert(container, attempt);
            }
            Outcome::ContainerStopped { id } | Outcome::ContainerRemoved { id } => {
                self.teardown_failures.remove(&id);
            }
            Outcome::Resized { digest } => {
                session.cgroup_for = Some(digest);
                if let Some(resizing) = &mut self.resizing {
                    (resizing.failure, resizing.announced) = (None, String::new());
                }
            }
            Outcome::ResizeFailed { message } => {
                let resizing = self.resizing.get_or_insert_default();
                let earlier = resizing.failure.as_ref();
                let failure = Failure::again(earlier, "Error", message, now, START_RETRY_SECONDS);
                resizing.failure = Some(failure);
            }
            Outcome::PreStopEnded { id } => {
                if let Some(hook) = session.pre_stops.get_mut(&id) {
                    hook.ended = true;
                }
            }
            Outcome::TeardownFailed { id, message } => {
                let earlier = self.teardown_failures.get(&id);
                let failure = Failure::again(earlier, "TeardownFailed", message, now, doubling(earlier));
                self.teardown_failures.insert(id, failure);
            }
            Outcome::Released => {
                self.teardown_failures.remove(RELEASE);
                session.released = true;
                session.taken_over = false;
            }
            Outcome::ReleaseFailed { message } => self.tidying_failed(RELEASE, "ReleaseFailed", message, now),
            Outcome::Cleaned => session.cleaned = true,
            Outcome::CleanupFailed { message } => self.tidying_failed(CLEANUP, "CleanupFailed", message, now),
        }
    }

    /// An object came or changed that the pod refers to: what failed for want of it is tried at once. `for_pulls`: images
    /// may be pulled with it.
    pub fn objects_came(&mut self, for_pulls: bool, now: Timestamp) {
        for failure in self.failures.values_mut().filter(|f| waits_for_objects(f)) {
            failure.retry_at = failure.retry_at.min(now);
        }
        for back_off in self.pulls.values_mut().filter(|_| for_pulls) {
            let passed = now.duration_since(back_off.failed_at).as_secs().max(0);
            back_off.delay_seconds = back_off.delay_seconds.min(passed);
        }
    }

    /// Is there anything that an object of the API server could put right?
    pub fn waits_for_objects(&self) -> bool {
        !self.pulls.is_empty() || self.failures.values().any(waits_for_objects)
    }

    fn tidying_failed(&mut self, what: &str, reason: &str, message: String, now: Timestamp) {
        let earlier = self.teardown_failures.get(what);
        let failure = Failure::again(earlier, reason, message, now, doubling(earlier));
        self.teardown_failures.insert(what.to_owned(), failure);
    }

    fn image_failed(
        &mut self,
        container: String,
        image: String,
        reason: String,
        message: String,
        pulled: bool,
        now: Timestamp,
    ) {
        if !pulled {
            let earlier = self.failures.get(&container);
            let failure = Failure::again(earlier, &reason, message, now, START_RETRY_SECONDS);
            self.failures.insert(container, failure);
            return;
        }
        self.failures.remove(&container);
        let delay = match self.pulls.get(&image) {
            Some(earlier) if now.duration_since(earlier.failed_at).as_secs() <= 2 * PULL_MAX_SECONDS => {
                (earlier.delay_seconds * 2).clamp(PULL_FIRST_SECONDS, PULL_MAX_SECONDS)
            }
            _ => PULL_FIRST_SECONDS,
        };
        let back_off = PullBackOff { delay_seconds: delay, failed_at: now, reason, message, announced: None };
        self.pulls.insert(image, back_off);
    }
}

fn waits_for_objects(failure: &Failure) -> bool {
    failure.reason == container_reason::CREATE_CONTAINER_CONFIG_ERROR
}

/// The key of a failed cleanup among the teardown failures.
pub(super) const CLEANUP: &str = "cleanup";
/// The same of a failed release.
pub(super) const RELEASE: &str = "release";

/// A time some seconds later; never beyond what a timestamp can hold.
pub(super) fn later(time: Timestamp, seconds: i64) -> Timestamp {
    time.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

fn doubling(earlier: Option<&Failure>) -> i64 {
    let doublings = earlier.map_or(0, |f| f.count).min(8);
    (RETRY_FIRST_SECONDS << doublings).min(RETRY_MAX_SECONDS)
}
