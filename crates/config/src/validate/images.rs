//! Images: who may use them, and how long they stay.

use super::Check;
use crate::go;

const POLICIES: [&str; 4] =
    ["NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"];

pub(super) fn check(check: &mut Check<'_>) {
    collection(check);
    if check.gates.enabled("KubeletEnsureSecretPulledImages") {
        verification(check)
    } else {
        unverified(check)
    }
    endpoints(check);
}

fn collection(check: &mut Check<'_>) {
    const HIGH: &str = "imageGCHighThresholdPercent";
    const LOW: &str = "imageGCLowThresholdPercent";
    let (high, low) = (check.tree.int(HIGH), check.tree.int(LOW));
    if low >= high {
        let message = format!("{} {low} must be less than {} {high}", check.title(LOW), check.title(HIGH));
        check.invalid(LOW, message, "make the low threshold smaller, or the high one larger");
    }
    const MIN: &str = "imageMinimumGCAge";
    const MAX: &str = "imageMaximumGCAge";
    let (min, max) = (check.tree.duration(MIN), check.tree.duration(MAX));
    for (key, age) in [(MIN, min), (MAX, max)] {
        if age < 0 {
            let message = format!("{key} {} must not be negative", go::format_duration(age));
            check.invalid(key, message, "give a duration such as `2m0s`");
        }
    }
    if max > 0 && max <= min {
        let (longest, shortest) = (go::format_duration(max), go::format_duration(min));
        let message = format!("{MAX} {longest} must be greater than {MIN} {shortest}");
        check.invalid(MAX, message, "make the maximum longer, or `0s` for none");
    }
}

const POLICY: &str = "imagePullCredentialsVerificationPolicy";
const ALLOWED: &str = "preloadedImagesVerificationAllowlist";

fn verification(check: &mut Check<'_>) {
    let policy = check.tree.text(POLICY);
    if !POLICIES.contains(&policy) {
        let [a, b, c, d] = POLICIES;
        let message = format!(
            "option {policy:?} specified for {POLICY}. Valid options are {a:?}, {b:?}, {c:?} or {d:?}"
        );
        check.invalid(POLICY, message, "give one of them");
    }
    let allowed = check.tree.texts(ALLOWED);
    if !allowed.is_empty() && policy != "NeverVerifyAllowlistedImages" {
        let message = "can't set `preloadedImagesVerificationAllowlist` if `imagePullCredentialsVertificationPolicy` is not \"NeverVerifyAllowlistedImages\"";
        check.invalid(ALLOWED, message, "set that policy, or leave the list out");
        return;
    }
    for pattern in allowed {
        if let Some(why) = pattern_problem(pattern) {
            let message = format!(
                "invalid image pattern in `preloadedImagesVerificationAllowlist`: {pattern:?}: {why}"
            );
            check.invalid(ALLOWED, message, "write it like `registry.example/team/*`");
        }
    }
}

fn pattern_problem(pattern: &str) -> Option<&'static str> {
    let name = pattern.strip_suffix("/*").unwrap_or(pattern);
    let last = name.rsplit('/').next().unwrap_or_default();
    if name.is_empty() || pattern != pattern.trim() {
        Some("the pattern is empty or has white space around it")
    } else if name.contains('*') {
        Some("only a trailing `/*` may be a wildcard")
    } else if name.contains('@') || (name.contains('/') && last.contains(':')) {
        Some("a tag or a digest is not allowed")
    } else {
        None
    }
}

fn unverified(check: &mut Check<'_>) {
    for (key, said) in
        [(POLICY, !check.tree.text(POLICY).is_empty()), (ALLOWED, !check.tree.items(ALLOWED).is_empty())]
    {
        if said {
            let message = format!(
                "`{key}` must not be set if KubeletEnsureSecretPulledImages feature gate is not enabled"
            );
            check.invalid(key, message, "leave it out, or switch the gate on");
        }
    }
}

fn endpoints(check: &mut Check<'_>) {
    const RUNTIME: &str = "containerRuntimeEndpoint";
    let hint = "give a unix socket, such as `unix:///run/containerd/containerd.sock`";
    if check.tree.text(RUNTIME).is_empty() {
        check.invalid(RUNTIME, "the containerRuntimeEndpoint was not specified or empty", hint);
    }
    for key in [RUNTIME, "imageServiceEndpoint"] {
        let endpoint = check.tree.text(key);
        let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
        if !endpoint.is_empty() && !path.starts_with('/') {
            let title = check.title(key);
            check.refuse(key, format!("{title} is {endpoint:?}"), hint);
        }
    }
}
