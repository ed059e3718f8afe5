//! The settings themselves. That they are valid was decided before: here is what they bring along.

use super::super::report::{Finding, Group};
use super::super::wanted::Wanted;
use super::listed;

const GROUP: Group = Group("configuration");

pub fn judge(wanted: &Wanted) -> Vec<Finding> {
    let mut found = notices(&wanted.notices);
    if !wanted.not_yet.is_empty() {
        found.push(GROUP.warning(
            "settings",
            format!("without effect in this version: {}", wanted.not_yet.join(", ")),
            "leave them out, or live without them",
        ));
    }
    if found.is_empty() {
        found.push(GROUP.ok("settings", "accepted"));
    }
    if wanted.standalone() {
        found.push(GROUP.ok("mode", "standalone: there is no kubeconfig, pods come from manifests only"));
    }
    found
}

/// Command lines in the wild are full of deprecated flags: those make one line together.
fn notices(notices: &[String]) -> Vec<Finding> {
    let deprecated: Vec<_> = notices.iter().filter_map(|notice| deprecated_flag(notice)).collect();
    let others = notices.iter().filter(|notice| deprecated_flag(notice).is_none());
    let mut found: Vec<_> = others
        .map(|notice| GROUP.warning("settings", notice, "see `crablet config view` for where it comes from"))
        .collect();
    if !deprecated.is_empty() {
        found.push(GROUP.warning(
            "flags",
            format!("deprecated: {}", listed(&deprecated)),
            "say the same in the file behind `--config`; `crablet config view` prints it",
        ));
    }
    found
}

/// `Flag --address has been deprecated, ...`
fn deprecated_flag(notice: &str) -> Option<&str> {
    notice.strip_prefix("Flag ")?.split_once(" has been deprecated").map(|(flag, _)| flag)
}
