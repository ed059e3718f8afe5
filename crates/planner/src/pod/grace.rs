//! How much time a container has for its end.

use crablet_model::names::annotation;
use crablet_model::runtime::Container;
use crablet_model::{api, roster};
use jiff::Timestamp;

use super::draft::Draft;
use super::facts::Verdict;
use super::memory::later;
use super::status;
use super::stop::StopReason;

/// Upstream never gives a container less.
pub(super) const MINIMUM_GRACE_SECONDS: i64 = 2;
/// The least that upstream gives a pod that the node itself stops, or that has come to its end.
const LEAST_POD_GRACE_SECONDS: i64 = 1;

/// The time that a container has from the moment at which its end began.
#[derive(Clone, Copy)]
pub(super) struct Grace {
    since: Timestamp,
    seconds: i64,
}

impl Grace {
    pub fn until(self) -> Timestamp {
        later(self.since, self.seconds)
    }

    /// Only whole seconds count as passed, as upstream.
    pub fn left(self, now: Timestamp) -> i64 {
        self.seconds - now.duration_since(self.since).as_secs().max(0)
    }

    pub fn of(draft: &Draft<'_>, container: &Container, reason: StopReason<'_>) -> Self {
        let now = draft.facts.now;
        let own = |seconds| {
            let hook = draft.facts.session.pre_stops.get(&container.id);
            Self { since: hook.map_or(now, |hook| hook.since), seconds }
        };
        let of_pod = pod_grace_seconds(draft, container);
        let of_verdict = |verdict: &Verdict| Self {
            since: verdict.since,
            seconds: verdict.grace_seconds.unwrap_or(of_pod).max(LEAST_POD_GRACE_SECONDS),
        };
        match reason {
            StopReason::PodEnds(end) => {
                let asked = Self { since: end.since, seconds: end.grace_seconds };
                let granted = draft.memory.verdict.as_ref().map(of_verdict);
                granted.filter(|granted| granted.until() < asked.until()).unwrap_or(asked)
            }
            StopReason::Verdict(verdict) => of_verdict(verdict),
            StopReason::PodFinished | StopReason::SandboxChanged => match draft.memory.stopping_since {
                Some(since) if of_pod < LEAST_POD_GRACE_SECONDS && is_over(draft, reason) => {
                    Self { since, seconds: LEAST_POD_GRACE_SECONDS }
                }
                Some(since) => Self { since, seconds: of_pod },
                None => own(of_pod),
            },
            StopReason::LivenessFailed { .. } => {
                own(probe_grace_seconds(draft, container, |c| c.liveness_probe).unwrap_or(of_pod))
            }
            StopReason::StartupFailed { .. } => {
                own(probe_grace_seconds(draft, container, |c| c.startup_probe).unwrap_or(of_pod))
            }
            StopReason::EverythingRestarts => Self { since: now, seconds: 0 },
            StopReason::NotInSpec
            | StopReason::UnknownState
            | StopReason::DefinitionChanged { .. }
            | StopReason::Resized
            | StopReason::HookRan => own(of_pod),
        }
    }
}

/// Has the pod come to its end? What is stopped on the way there, or for a new sandbox, has the time that the
/// pod itself says, be it none at all: then, as with upstream, hooks do not run.
fn is_over(draft: &Draft<'_>, reason: StopReason<'_>) -> bool {
    let has_ended = |pod: &api::Pod| status::is_terminal(draft.facts, pod, &draft.memory).is_some();
    matches!(reason, StopReason::PodFinished) && draft.facts.pod.is_some_and(has_ended)
}

fn pod_grace_seconds(draft: &Draft<'_>, container: &Container) -> i64 {
    let pod = draft.facts.pod;
    let annotated = |name| container.annotations.get(name).and_then(|text| text.parse().ok());
    let asked = pod.and_then(|p| p.metadata.deletion_grace_period_seconds);
    let granted = pod.and_then(|p| p.spec.as_ref()).and_then(|s| s.termination_grace_period_seconds);
    asked
        .or(granted)
        .or_else(|| annotated(annotation::POD_DELETION_GRACE_PERIOD))
        .or_else(|| annotated(annotation::POD_TERMINATION_GRACE_PERIOD))
        .unwrap_or(MINIMUM_GRACE_SECONDS)
}

/// What the failed probe itself says. A deletion that has been asked for goes first.
fn probe_grace_seconds(
    draft: &Draft<'_>,
    container: &Container,
    probe: fn(api::Container) -> Option<api::Probe>,
) -> Option<i64> {
    let pod = draft.facts.pod.filter(|p| p.metadata.deletion_grace_period_seconds.is_none())?;
    let (_, spec) = roster::find(pod.spec.as_ref()?, &container.name)?;
    probe(spec.into_owned())?.termination_grace_period_seconds
}
