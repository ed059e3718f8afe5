//! Control groups: can pods be limited, and do the agent and the runtime agree on who makes the groups?

use crablet_cri::ErrorKind;
use crablet_model::cgroup::CgroupDriver;

use super::super::facts::{Answers, CgroupVersion, Cgroups, Read, Runtime};
use super::super::report::{Finding, Group};
use super::super::wanted::Wanted;
use super::listed;

const GROUP: Group = Group("cgroups");

/// Without these no pod can be held to its limits. `cpuacct` is a part of `cpu` in version 2.
const NEEDED: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];

const MOVE_TO_V2: &str =
    "boot with `systemd.unified_cgroup_hierarchy=1`, or use a distribution that boots with cgroup v2";

pub fn judge(wanted: &Wanted, cgroups: &Read<Cgroups>, runtime: &Read<Runtime>) -> Vec<Finding> {
    let answers = runtime.as_ref().ok().and_then(|runtime| runtime.answers.as_ref());
    let (driver, mut found) = driver(wanted, answers);
    match cgroups {
        Ok(cgroups) => {
            found.splice(0..0, [version(wanted, cgroups), controllers(cgroups)]);
            found.push(manager(driver, cgroups));
        }
        Err(why) => found.insert(0, GROUP.unread("version", why)),
    }
    found
}

fn version(wanted: &Wanted, cgroups: &Cgroups) -> Finding {
    match cgroups.version {
        CgroupVersion::V2 if cgroups.read_only => GROUP.error(
            "version",
            "v2, but /sys/fs/cgroup is mounted read-only",
            "`mount -o remount,rw /sys/fs/cgroup`; in a container, start that with writable cgroups",
        ),
        CgroupVersion::V2 => GROUP.ok("version", "v2"),
        CgroupVersion::V1 if wanted.fail_cgroup_v1 => GROUP.error(
            "version",
            "v1, which failCgroupV1 does not allow",
            format!("{MOVE_TO_V2}; until then set `failCgroupV1: false`"),
        ),
        CgroupVersion::V1 => {
            GROUP.warning("version", "v1, which Kubernetes is about to leave behind", MOVE_TO_V2)
        }
        CgroupVersion::None => GROUP.error(
            "version",
            "nothing is mounted on /sys/fs/cgroup",
            "`mount -t cgroup2 none /sys/fs/cgroup`; systemd does so at boot",
        ),
    }
}

fn controllers(cgroups: &Cgroups) -> Finding {
    let has = |name: &str| cgroups.controllers.iter().any(|have| have == name);
    let mut missing: Vec<_> = NEEDED.into_iter().filter(|name| !has(name)).collect();
    if cgroups.version == CgroupVersion::V1 && !has("cpuacct") {
        missing.push("cpuacct");
    }
    if !missing.is_empty() {
        let fix = match cgroups.version {
            CgroupVersion::V1 => {
                "mount them below /sys/fs/cgroup; `memory` may need `cgroup_enable=memory` at boot"
            }
            _ => {
                "look for `cgroup_disable=` on the kernel's command line, and for controllers that version 1 holds"
            }
        };
        return GROUP.error("controllers", format!("missing: {}", listed(&missing)), fix);
    }
    if has("hugetlb") {
        GROUP.ok("controllers", cgroups.controllers.join(" "))
    } else {
        GROUP.warning(
            "controllers",
            "`hugetlb` is missing: pods cannot be given huge pages",
            "nothing to do unless pods use huge pages; else mount or enable the controller",
        )
    }
}

/// The driver that will be used, and what there is to say about how it was chosen. Upstream lets the runtime decide.
fn driver(wanted: &Wanted, answers: Option<&Answers>) -> (CgroupDriver, Vec<Finding>) {
    let configured = wanted.cgroup_driver;
    let Some(answers) = answers else {
        return (configured, Vec::new());
    };
    let told = match &answers.cgroup_driver {
        Ok(Some(told)) => *told,
        Ok(None) => {
            let seen = format!("{}, by the configuration; the runtime leaves it open", name(configured));
            return (configured, vec![GROUP.ok("driver", seen)]);
        }
        Err(error) if error.kind == ErrorKind::Unimplemented => {
            let seen =
                format!("{}, by the configuration; the runtime is too old to tell its own", name(configured));
            let fix = "see that the runtime has the same (`SystemdCgroup` of containerd), or move to containerd 2, which \
                       tells it";
            return (configured, vec![GROUP.warning("driver", seen, fix)]);
        }
        // That the runtime does not answer is said where the runtime is judged.
        Err(_) => return (configured, Vec::new()),
    };
    let finding = if told == configured {
        GROUP.ok("driver", format!("{}, in the runtime and in the configuration", name(told)))
    } else {
        GROUP.warning(
            "driver",
            format!(
                "the runtime uses {}, the configuration says {}; the runtime's is taken",
                name(told),
                name(configured)
            ),
            format!("set `cgroupDriver: {}`", name(told)),
        )
    };
    (told, vec![finding])
}

/// systemd's driver needs systemd; without it, two programs would both think that they own the tree.
fn manager(driver: CgroupDriver, cgroups: &Cgroups) -> Finding {
    let systemd = cgroups.init == "systemd";
    match (driver, systemd) {
        (CgroupDriver::Systemd, true) => GROUP.ok("manager", "systemd"),
        (CgroupDriver::Systemd, false) => GROUP.error(
            "manager",
            format!("the driver is systemd, but process 1 is `{}`", cgroups.init),
            "set `cgroupDriver: cgroupfs` and the same in the runtime (`SystemdCgroup = false`)",
        ),
        (CgroupDriver::Cgroupfs, false) => GROUP.ok("manager", "none but the agent and the runtime"),
        (CgroupDriver::Cgroupfs, true) => GROUP.warning(
            "manager",
            "systemd runs the machine, but the driver is cgroupfs: both change the same groups",
            "set `cgroupDriver: systemd` and the same in the runtime (`SystemdCgroup = true`)",
        ),
    }
}

fn name(driver: CgroupDriver) -> &'static str {
    match driver {
        CgroupDriver::Systemd => "systemd",
        CgroupDriver::Cgroupfs => "cgroupfs",
    }
}
