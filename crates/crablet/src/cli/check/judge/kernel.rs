//! The kernel: its version, what it was built with, and the settings that upstream's kubelet insists on.

use super::super::facts::{Kernel, Module, Read, Security, Sysctls};
use super::super::report::{Finding, Group, State};
use super::super::wanted::Wanted;
use super::listed;

const GROUP: Group = Group("kernel");
const SECURITY: Group = Group("security");

/// What upstream's kubelet sets at start, or demands with `protectKernelDefaults`.
pub const DEFAULTS: [(&str, i64); 6] = [
    ("vm.overcommit_memory", 1),
    ("vm.panic_on_oom", 0),
    ("kernel.panic", 10),
    ("kernel.panic_on_oops", 1),
    ("kernel.keys.root_maxkeys", 1_000_000),
    ("kernel.keys.root_maxbytes", 25_000_000),
];

const NAMESPACES: [&str; 5] = ["ipc", "mnt", "net", "pid", "uts"];

/// The oldest that Kubernetes still names, and the oldest on which cgroup v2 has all that pods use.
const OLDEST: (u32, u32) = (4, 19);
const COMFORTABLE: (u32, u32) = (5, 8);

pub fn judge(wanted: &Wanted, kernel: &Read<Kernel>, sysctls: &Read<Sysctls>) -> Vec<Finding> {
    let mut found = match kernel {
        Ok(kernel) => vec![release(&kernel.release), overlay(kernel), namespaces(kernel), seccomp(kernel)],
        Err(why) => vec![GROUP.unread("version", why)],
    };
    found.push(match sysctls {
        Ok(sysctls) => defaults(wanted, sysctls),
        Err(why) => GROUP.unread("settings", why),
    });
    found
}

/// `6.1.0-13-amd64` is 6.1.
pub fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn release(release: &str) -> Finding {
    let fix = format!("use a newer kernel: at least {}.{}", COMFORTABLE.0, COMFORTABLE.1);
    match version(release) {
        None => GROUP.warning("version", format!("`{release}` is not a version"), fix),
        Some(version) if version < OLDEST => {
            GROUP.error("version", format!("{release} is too old for Kubernetes"), fix)
        }
        Some(version) if version < COMFORTABLE => {
            GROUP.warning("version", format!("{release}: cgroup v2 is not complete in it"), fix)
        }
        Some(_) => GROUP.ok("version", release),
    }
}

fn overlay(kernel: &Kernel) -> Finding {
    match kernel.overlay {
        Module::Here => GROUP.ok("overlayfs", "supported"),
        Module::Loadable => GROUP.ok("overlayfs", "a module that is loaded on first use"),
        Module::Absent => GROUP.warning(
            "overlayfs",
            "not supported by this kernel",
            "`modprobe overlay`, or have the runtime use another snapshotter (slower, and more disk)",
        ),
    }
}

fn namespaces(kernel: &Kernel) -> Finding {
    let has = |name: &str| kernel.namespaces.iter().any(|have| have == name);
    let missing: Vec<_> = NAMESPACES.into_iter().filter(|name| !has(name)).collect();
    if !missing.is_empty() {
        let seen = format!("missing: {}", listed(&missing));
        return GROUP.error("namespaces", seen, "use a kernel with CONFIG_NAMESPACES and all its kinds");
    }
    match (has("user"), has("cgroup")) {
        (true, true) => GROUP.ok("namespaces", "all kinds"),
        (user, _) => {
            let missing = if user { "cgroup" } else { "user" };
            GROUP.warning(
                "namespaces",
                format!("no {missing} namespaces"),
                "use a kernel that has them if pods ask for them",
            )
        }
    }
}

fn seccomp(kernel: &Kernel) -> Finding {
    if kernel.seccomp {
        GROUP.ok("seccomp", "supported")
    } else {
        GROUP.warning(
            "seccomp",
            "not in this kernel: containers run without a filter, or not at all if they ask for one",
            "use a kernel with CONFIG_SECCOMP_FILTER",
        )
    }
}

fn defaults(wanted: &Wanted, sysctls: &Sysctls) -> Finding {
    let other = |(name, value): &(&'static str, i64)| {
        let have = sysctls.get(name)?;
        (have != value).then_some((*name, *have, *value))
    };
    let wrong: Vec<_> = DEFAULTS.iter().filter_map(other).collect();
    if wrong.is_empty() {
        return GROUP.ok("settings", "as Kubernetes wants them");
    }
    let seen: Vec<_> =
        wrong.iter().map(|(name, have, want)| format!("{name} is {have}, not {want}")).collect();
    let set: Vec<_> = wrong.iter().map(|(name, _, want)| format!("{name}={want}")).collect();
    let fix = format!("`sysctl -w {}`, and the same in a file of /etc/sysctl.d", set.join(" "));
    let state = if wanted.protect_kernel_defaults { State::Error } else { State::Warning };
    let why = if wanted.protect_kernel_defaults { "; protectKernelDefaults demands it" } else { "" };
    GROUP.finding("settings", state, format!("{}{why}", listed(&seen)), fix)
}

pub fn security(security: &Read<Security>) -> Vec<Finding> {
    let security = match security {
        Ok(security) => security,
        Err(why) => return vec![SECURITY.unread("modules", why)],
    };
    let app_armor =
        if security.app_armor { "on" } else { "off: pods that ask for a profile of their own are refused" };
    let selinux = match security.selinux {
        Some(true) => "enforcing",
        Some(false) => "permissive: it only logs",
        None => "off",
    };
    vec![SECURITY.ok("AppArmor", app_armor), SECURITY.ok("SELinux", selinux)]
}
