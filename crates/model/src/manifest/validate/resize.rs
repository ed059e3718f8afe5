//! What a container does when its resources change.

use std::collections::BTreeSet;

use super::super::error::{Problems, quoted};
use super::one_of;
use crate::api::{Container, PodSpec};

const RESTART: &str = "RestartContainer";

pub(super) fn check(path: &str, container: &Container, spec: &PodSpec, problems: &mut Problems) {
    let never = spec.restart_policy.as_deref() == Some("Never");
    let mut seen = BTreeSet::new();
    for (index, policy) in container.resize_policy.iter().flatten().enumerate() {
        let path = format!("{path}.resizePolicy[{index}]");
        let name = policy.resource_name.as_str();
        one_of(format!("{path}.resourceName"), Some(name), &["cpu", "memory"], problems);
        if !seen.insert(name) {
            let message = format!("{} is named above; names must be unique", quoted(name));
            problems.add(format!("{path}.resourceName"), message);
        }
        let restart = policy.restart_policy.as_str();
        one_of(format!("{path}.restartPolicy"), Some(restart), &["NotRequired", RESTART], problems);
        if never && restart != "NotRequired" {
            let message = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            problems.add(format!("{path}.restartPolicy"), message);
        }
    }
}

/// For init containers that end by themselves.
pub(super) fn refuse_restarts(path: &str, container: &Container, problems: &mut Problems) {
    for (index, policy) in container.resize_policy.iter().flatten().enumerate() {
        if policy.restart_policy == RESTART {
            let message = "must not be set to 'RestartContainer' for non-sidecar initContainers";
            problems.add(format!("{path}.resizePolicy[{index}].restartPolicy"), message);
        }
    }
}
