//! The clock: certificates and leases depend on it.

use super::super::facts::{Clock, Process, Read};
use super::super::report::{Finding, Group};

const GROUP: Group = Group("clock");

/// Programs that set the clock, by the first 15 characters of their names: the kernel keeps no more.
const KEEPERS: [&str; 10] = [
    "chronyd",
    "ntpd",
    "ntpd-rs",
    "ntp-daemon",
    "openntpd",
    "systemd-timesyn",
    "ptp4l",
    "phc2sys",
    "vmtoolsd",
    "VBoxService",
];

/// Before this program was written, or long after anybody remembers it.
const YEARS: std::ops::Range<i16> = 2026..2100;

pub fn judge(clock: &Clock, processes: &Read<Vec<Process>>) -> Vec<Finding> {
    vec![time(clock), synchronised(clock, processes)]
}

fn time(clock: &Clock) -> Finding {
    let seen = clock.now.strftime("%Y-%m-%d %H:%M:%SZ").to_string();
    let year = clock.now.to_zoned(jiff::tz::TimeZone::UTC).year();
    if YEARS.contains(&year) {
        GROUP.ok("time", seen)
    } else {
        GROUP.error(
            "time",
            format!("{seen}, which cannot be"),
            "set the clock: `timedatectl set-ntp true`, or `date -s`",
        )
    }
}

/// Whether the kernel thinks that it is synchronised cannot be asked without `unsafe`; who would do it can be seen.
fn synchronised(clock: &Clock, processes: &Read<Vec<Process>>) -> Finding {
    if clock.synchronised {
        return GROUP.ok("synchronised", "by systemd-timesyncd");
    }
    let processes = match processes {
        Ok(processes) => processes,
        Err(why) => return GROUP.unread("synchronised", why),
    };
    match processes.iter().find(|process| KEEPERS.contains(&process.name.as_str())) {
        Some(keeper) if keeper.name == "systemd-timesyn" => GROUP.warning(
            "synchronised",
            "systemd-timesyncd runs, but has not reached a server yet",
            "see `timedatectl timesync-status`",
        ),
        Some(keeper) => GROUP.ok("synchronised", format!("`{}` runs", keeper.name)),
        None => GROUP.warning(
            "synchronised",
            "no time service is seen to run",
            "install one, such as `chrony`, unless the machine's host keeps its clock right",
        ),
    }
}
