//! How much of everything the machine lets the agent and its pods have.

use super::super::facts::{Facts, OpenFiles, Privileges, Read, Sysctls};
use super::super::report::{Finding, Group};
use super::super::wanted::Wanted;

const GROUP: Group = Group("limits");

const SYS_RESOURCE: u64 = 1 << 24;

/// Sysctl, how much a node with a hundred pods needs, and what it is good for.
const LEAST: [(&str, &str, i64, &str); 4] = [
    ("inotify instances", "fs.inotify.max_user_instances", 128, "watching files"),
    ("inotify watches", "fs.inotify.max_user_watches", 8192, "watching files"),
    ("process ids", "kernel.pid_max", 32768, "processes of pods"),
    ("threads", "kernel.threads-max", 8192, "threads of pods"),
];

pub fn judge(wanted: &Wanted, facts: &Facts) -> Vec<Finding> {
    let mut found = vec![open_files(wanted, &facts.open_files, &facts.sysctls, &facts.privileges)];
    match &facts.sysctls {
        Ok(sysctls) => {
            found.extend(LEAST.iter().filter_map(|least| judge_least(least, sysctls)));
            found.extend(pod_pids(wanted, sysctls));
        }
        Err(why) => found.push(GROUP.unread("kernel", why)),
    }
    found
}

fn open_files(
    wanted: &Wanted,
    limit: &Read<OpenFiles>,
    sysctls: &Read<Sysctls>,
    privileges: &Read<Privileges>,
) -> Finding {
    let limit = match limit {
        Ok(limit) => limit,
        Err(why) => return GROUP.unread("open files", why),
    };
    let want = wanted.max_open_files;
    // Where it is not known, the best is hoped for: that it is not known is told elsewhere.
    let may_raise = privileges.as_ref().map_or(true, |have| have.capabilities & SYS_RESOURCE != 0);
    let ceiling = sysctls.as_ref().ok().and_then(|sysctls| sysctls.get("fs.nr_open")).copied();
    let ceiling = ceiling.and_then(|most| u64::try_from(most).ok()).unwrap_or(u64::MAX);
    if want > ceiling {
        return GROUP.warning(
            "open files",
            format!("fs.nr_open is {ceiling}, less than maxOpenFiles {want}"),
            format!("`sysctl -w fs.nr_open={want}`, or a smaller `maxOpenFiles`"),
        );
    }
    if want > limit.hard && !may_raise {
        return GROUP.warning(
            "open files",
            format!("at most {}, and without CAP_SYS_RESOURCE not maxOpenFiles {want}", limit.hard),
            format!("`LimitNOFILE={want}` in the unit, or a smaller `maxOpenFiles`"),
        );
    }
    GROUP.ok("open files", format!("{} now, {want} for the agent", shown(limit.soft)))
}

fn shown(limit: u64) -> String {
    if limit == u64::MAX { "no limit".to_owned() } else { limit.to_string() }
}

fn judge_least(least: &(&str, &'static str, i64, &str), sysctls: &Sysctls) -> Option<Finding> {
    let (title, name, enough, what) = *least;
    let have = *sysctls.get(name)?;
    Some(if have < enough {
        GROUP.warning(
            title,
            format!("{name} is {have}: little for {what}"),
            format!("`sysctl -w {name}={enough}` or more, and the same in /etc/sysctl.d"),
        )
    } else {
        GROUP.ok(title, have.to_string())
    })
}

fn pod_pids(wanted: &Wanted, sysctls: &Sysctls) -> Option<Finding> {
    let most = *sysctls.get("kernel.pid_max")?;
    (wanted.pod_pids_limit > most).then(|| {
        GROUP.warning(
            "process ids of a pod",
            format!("podPidsLimit {} is more than the machine has ({most})", wanted.pod_pids_limit),
            "a smaller `podPidsLimit`, or a larger kernel.pid_max",
        )
    })
}
