//! May the agent do what it must?

use super::super::facts::{Privileges, Read};
use super::super::report::{Finding, Group, State};
use super::listed;

const GROUP: Group = Group("permissions");

/// Number, name, what is lost without it, and how bad that is.
const NEEDED: [(u32, &str, &str, State); 10] = [
    (0, "CAP_CHOWN", "giving volumes to their pods' groups", State::Error),
    (1, "CAP_DAC_OVERRIDE", "reading and cleaning what containers wrote", State::Error),
    (3, "CAP_FOWNER", "setting the modes of volumes", State::Error),
    (21, "CAP_SYS_ADMIN", "mounting volumes", State::Error),
    (5, "CAP_KILL", "ending what a container left running", State::Warning),
    (12, "CAP_NET_ADMIN", "seeing and setting up pods' networks", State::Warning),
    (19, "CAP_SYS_PTRACE", "looking into pods' namespaces", State::Warning),
    (24, "CAP_SYS_RESOURCE", "lowering OOM scores and raising limits", State::Warning),
    (27, "CAP_MKNOD", "block volumes", State::Warning),
    (34, "CAP_SYSLOG", "reading the kernel's log of out-of-memory kills", State::Warning),
];

pub fn judge(privileges: &Read<Privileges>) -> Vec<Finding> {
    match privileges {
        Ok(privileges) if privileges.uid == 0 => {
            vec![GROUP.ok("user", "root"), capabilities(privileges)]
        }
        // What an ordinary user may not do goes without saying.
        Ok(privileges) => vec![GROUP.error(
            "user",
            format!("runs as user {}, not as root", privileges.uid),
            "run it with `sudo`; the agent itself runs as root too",
        )],
        Err(why) => vec![GROUP.unread("user", why)],
    }
}

fn capabilities(privileges: &Privileges) -> Finding {
    let missing: Vec<_> =
        NEEDED.iter().filter(|(bit, ..)| privileges.capabilities & (1 << bit) == 0).collect();
    let Some(worst) = missing.iter().map(|(.., state)| *state).max() else {
        return GROUP.ok("capabilities", "all that are needed");
    };
    let names: Vec<_> = missing.iter().map(|(_, name, lost, _)| format!("{name} ({lost})")).collect();
    let seen = format!("missing: {}", listed(&names));
    let fix = "let the unit or container keep them (`CapabilityBoundingSet=`, `--cap-add`); where the machine itself lacks \
               them, live without";
    GROUP.finding("capabilities", worst, seen, fix)
}
