//! The little of a pod that says when it came and how it ends.

use crablet_planner::pod::Ending;
use jiff::Timestamp;
use serde::Deserialize;

/// Upstream: nobody gets less.
pub(super) const MINIMUM_GRACE_SECONDS: i64 = 1;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Terms {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<String>,
    deletion_grace_period_seconds: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    termination_grace_period_seconds: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: String,
}

impl Terms {
    pub(super) fn of(json: &[u8]) -> Self {
        serde_json::from_slice(json).unwrap_or_default()
    }

    /// Sorts as the times do; empty for a pod that nobody has stamped.
    pub(super) fn created(self) -> String {
        self.metadata.creation_timestamp.unwrap_or_default()
    }

    /// Whether the API server has the pod as one that will never run again.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// The grace that was asked for with the deletion, or else the one of the pod's own specification.
    pub(super) fn grace_seconds(&self) -> i64 {
        let asked = self.metadata.deletion_grace_period_seconds;
        asked.or(self.spec.termination_grace_period_seconds).unwrap_or(30).max(MINIMUM_GRACE_SECONDS)
    }

    /// The end that somebody asked the API server for.
    pub(super) fn deletion(&self, now: Timestamp) -> Option<Ending> {
        self.metadata.deletion_timestamp.as_ref()?;
        let (grace_seconds, why) = (self.grace_seconds(), "the pod was deleted".to_owned());
        Some(Ending { since: now, grace_seconds, forget: false, why })
    }
}
