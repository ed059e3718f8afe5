//! Security contexts.

use std::collections::BTreeSet;

use super::super::Gates;
use super::super::error::{Problems, quoted};
use super::{id, one_of};
use crate::api::{AppArmorProfile, PodSecurityContext, SeccompProfile, SecurityContext, Sysctl};

const MAX_SYSCTL_BYTES: usize = 253;
const MAX_APPARMOR_BYTES: usize = 4095;

pub(super) fn check_pod(path: &str, context: &PodSecurityContext, gates: Gates, problems: &mut Problems) {
    id(format!("{path}.runAsUser"), context.run_as_user, problems);
    id(format!("{path}.runAsGroup"), context.run_as_group, problems);
    id(format!("{path}.fsGroup"), context.fs_group, problems);
    let change = context.fs_group_change_policy.as_deref();
    one_of(format!("{path}.fsGroupChangePolicy"), change, &["OnRootMismatch", "Always"], problems);
    for (index, group) in context.supplemental_groups.iter().flatten().enumerate() {
        id(format!("{path}.supplementalGroups[{index}]"), Some(*group), problems);
    }
    let policy = context.supplemental_groups_policy.as_deref();
    one_of(format!("{path}.supplementalGroupsPolicy"), policy, &["Merge", "Strict"], problems);
    let policies: &[&str] = if gates.selinux_mount { &["MountOption", "Recursive"] } else { &["Recursive"] };
    let policy = context.se_linux_change_policy.as_deref();
    one_of(format!("{path}.seLinuxChangePolicy"), policy, policies, problems);
    seccomp(&format!("{path}.seccompProfile"), context.seccomp_profile.as_ref(), problems);
    apparmor(&format!("{path}.appArmorProfile"), context.app_armor_profile.as_ref(), problems);
    sysctls(&format!("{path}.sysctls"), context.sysctls.as_deref().unwrap_or_default(), problems);
}

fn sysctls(path: &str, sysctls: &[Sysctl], problems: &mut Problems) {
    let mut seen = BTreeSet::new();
    for (index, sysctl) in sysctls.iter().enumerate() {
        let (path, name) = (format!("{path}[{index}].name"), sysctl.name.as_str());
        if name.is_empty() {
            problems.add(path, "required");
        } else if !is_sysctl(name) {
            let message = format!(
                "{} must be at most {MAX_SYSCTL_BYTES} lower-case letters, digits, `-` and `_` in parts with `.` or `/` between them",
                quoted(name)
            );
            problems.add(path, message);
        } else if !seen.insert(name) {
            problems.add(path, format!("{} is set above; names must be unique", quoted(name)));
        }
    }
}

fn is_sysctl(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_part = |part: &str| {
        part.bytes().next().is_some_and(inner)
            && part.bytes().last().is_some_and(inner)
            && part.bytes().all(|b| inner(b) || matches!(b, b'-' | b'_'))
    };
    name.len() <= MAX_SYSCTL_BYTES && name.split(['.', '/']).all(is_part)
}

fn apparmor(path: &str, profile: Option<&AppArmorProfile>, problems: &mut Problems) {
    let Some(profile) = profile else { return };
    if profile.type_.is_empty() {
        return problems.add(format!("{path}.type"), "type is required when appArmorProfile is set");
    }
    let types = ["Localhost", "RuntimeDefault", "Unconfined"];
    one_of(format!("{path}.type"), Some(&profile.type_), &types, problems);
    let path = format!("{path}.localhostProfile");
    match (profile.type_.as_str(), profile.localhost_profile.as_deref()) {
        ("Localhost", None | Some("")) => problems.add(path, "must be set when AppArmor type is Localhost"),
        ("Localhost", Some(name)) if name.trim() != name => {
            problems.add(path, "must not be padded with whitespace");
        }
        ("Localhost", Some(name)) if name.len() > MAX_APPARMOR_BYTES => {
            problems.add(path, format!("{} characters; the limit is {MAX_APPARMOR_BYTES}", name.len()));
        }
        ("Localhost", Some(_)) | (_, None) => {}
        (_, Some(_)) => problems.add(path, "can only be set when AppArmor type is Localhost"),
    }
}

pub(super) fn check(path: &str, context: &SecurityContext, host_users: bool, problems: &mut Problems) {
    id(format!("{path}.runAsUser"), context.run_as_user, problems);
    id(format!("{path}.runAsGroup"), context.run_as_group, problems);
    let proc_mount = context.proc_mount.as_deref().filter(|kind| !kind.is_empty());
    one_of(format!("{path}.procMount"), proc_mount, &["Default", "Unmasked"], problems);
    if host_users && proc_mount == Some("Unmasked") {
        problems.add(format!("{path}.procMount"), "`hostUsers` must be false to use `Unmasked`");
    }
    apparmor(&format!("{path}.appArmorProfile"), context.app_armor_profile.as_ref(), problems);
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

fn seccomp(path: &str, profile: Option<&SeccompProfile>, problems: &mut Problems) {
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
