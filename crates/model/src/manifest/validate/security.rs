//! Security contexts.

use super::super::error::Problems;
use super::{id, one_of};
use crate::api::{SeccompProfile, SecurityContext};

pub(super) fn check(path: &str, context: &SecurityContext, problems: &mut Problems) {
    id(format!("{path}.runAsUser"), context.run_as_user, problems);
    id(format!("{path}.runAsGroup"), context.run_as_group, problems);
    let proc_mount = context.proc_mount.as_deref().filter(|kind| !kind.is_empty());
    one_of(format!("{path}.procMount"), proc_mount, &["Default", "Unmasked"], problems);
    seccomp(&format!("{path}.seccompProfile"), context.seccomp_profile.as_ref(), problems);
    if context.allow_privilege_escalation == Some(false) {
        let path = format!("{path}.allowPrivilegeEscalation");
        if context.privileged == Some(true) {
            problems.add(path.clone(), "cannot be `false` together with `privileged`; remove one of them");
        }
        let added = context.capabilities.iter().flat_map(|capabilities| capabilities.add.iter().flatten());
        // Upstream compares with this spelling alone.
        if added.into_iter().any(|capability| capability == "CAP_SYS_ADMIN") {
            problems.add(
                path,
                "cannot be `false` together with the capability `CAP_SYS_ADMIN`; remove one of them",
            );
        }
    }
}

pub(super) fn seccomp(path: &str, profile: Option<&SeccompProfile>, problems: &mut Problems) {
    let Some(profile) = profile else { return };
    if profile.type_.is_empty() {
        return problems.add(format!("{path}.type"), "required");
    }
    let types = ["Localhost", "RuntimeDefault", "Unconfined"];
    one_of(format!("{path}.type"), Some(&profile.type_), &types, problems);
    let file = profile.localhost_profile.as_deref().unwrap_or_default();
    match (profile.type_ == "Localhost", file.is_empty()) {
        (true, true) => problems.add(format!("{path}.localhostProfile"), "required with type `Localhost`"),
        (false, false) => {
            problems.add(format!("{path}.localhostProfile"), "only for type `Localhost`; remove it")
        }
        _ => {}
    }
}
