//! The kernel and what it tells about the machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::process::{Resource, getrlimit};

use super::super::facts::{
    CgroupVersion, Cgroups, Clock, Kernel, Memory, Module, Mount, OpenFiles, Privileges, Read, Security,
    Swap, Sysctls,
};
use super::disk::mounts;
use super::{failed, kernel_text, text};

/// Those that something is judged by.
const SYSCTLS: [&str; 16] = [
    "vm.overcommit_memory",
    "vm.panic_on_oom",
    "kernel.panic",
    "kernel.panic_on_oops",
    "kernel.keys.root_maxkeys",
    "kernel.keys.root_maxbytes",
    "kernel.pid_max",
    "kernel.threads-max",
    "fs.nr_open",
    "fs.inotify.max_user_instances",
    "fs.inotify.max_user_watches",
    "net.ipv4.ip_forward",
    "net.ipv6.conf.all.forwarding",
    "net.bridge.bridge-nf-call-iptables",
    "net.netfilter.nf_conntrack_count",
    "net.netfilter.nf_conntrack_max",
];

const TOOLS: [&str; 2] = ["iptables", "nft"];

pub fn privileges() -> Read<Privileges> {
    let status = kernel_text("/proc/self/status")?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.ok_or_else(|| failed(format!("/proc/self/status has no `{name}`")))
    };
    // Real, effective, saved, file system.
    let uid = field("Uid:")?.split_whitespace().nth(1).unwrap_or_default();
    let capabilities = field("CapEff:")?.trim();
    Ok(Privileges {
        uid: uid.parse().map_err(failed)?,
        capabilities: u64::from_str_radix(capabilities, 16).map_err(failed)?,
    })
}

pub fn kernel() -> Read<Kernel> {
    let release = kernel_text("/proc/sys/kernel/osrelease")?.trim().to_owned();
    let file_systems = text("/proc/filesystems").unwrap_or_default();
    let overlay = file_systems.lines().any(|line| line.split_whitespace().next_back() == Some("overlay"));
    let bridges = Path::new("/proc/sys/net/bridge").exists();
    let files = module_files(&release);
    Ok(Kernel {
        overlay: module(overlay, &files, "overlay"),
        br_netfilter: module(bridges, &files, "br_netfilter"),
        namespaces: names("/proc/self/ns").unwrap_or_default(),
        seccomp: text("/proc/self/status").is_ok_and(|status| status.contains("\nSeccomp:")),
        release,
    })
}

/// The lists that `modprobe` goes by.
fn module_files(release: &str) -> String {
    let folder = PathBuf::from("/lib/modules").join(release);
    ["modules.dep", "modules.builtin"].map(|list| text(folder.join(list)).unwrap_or_default()).join("\n")
}

fn module(here: bool, files: &str, name: &str) -> Module {
    if here {
        Module::Here
    } else if files.contains(&format!("/{name}.ko")) {
        Module::Loadable
    } else {
        Module::Absent
    }
}

pub fn sysctls() -> Read<Sysctls> {
    // Without /proc nothing here means anything.
    kernel_text("/proc/sys/kernel/osrelease")?;
    let read = |name: &'static str| {
        let path = Path::new("/proc/sys").join(name.replace('.', "/"));
        Some((name, text(path).ok()?.trim().parse().ok()?))
    };
    Ok(SYSCTLS.into_iter().filter_map(read).collect::<BTreeMap<_, _>>())
}

pub fn cgroups() -> Read<Cgroups> {
    let mounts = mounts()?;
    let offered = text("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    let (version, read_only, controllers) = hierarchy(&mounts, &offered);
    Ok(Cgroups { version, controllers, read_only, init: kernel_text("/proc/1/comm")?.trim().to_owned() })
}

/// Version 2 is what is mounted on `/sys/fs/cgroup` itself; a version 2 beside version 1 controls nothing.
fn hierarchy(mounts: &[Mount], offered: &str) -> (CgroupVersion, bool, Vec<String>) {
    // The last one mounted is the one that is seen.
    let unified = mounts
        .iter()
        .rfind(|mount| mount.point == Path::new("/sys/fs/cgroup"))
        .filter(|m| m.kind == "cgroup2");
    if let Some(unified) = unified {
        let read_only = unified.options.iter().any(|option| option == "ro");
        return (CgroupVersion::V2, read_only, offered.split_whitespace().map(str::to_owned).collect());
    }
    let old: Vec<_> = mounts.iter().filter(|mount| mount.kind == "cgroup").collect();
    if old.is_empty() {
        return (CgroupVersion::None, false, Vec::new());
    }
    let mut controllers: Vec<String> = old
        .iter()
        .flat_map(|mount| &mount.super_options)
        .filter(|option| {
            !option.contains('=') && !["rw", "ro", "xattr", "noprefix"].contains(&option.as_str())
        })
        .cloned()
        .collect();
    controllers.sort();
    controllers.dedup();
    (CgroupVersion::V1, false, controllers)
}

pub fn swaps() -> Read<Vec<Swap>> {
    // A kernel without swap has no such file.
    if !Path::new("/proc/swaps").exists() {
        return Ok(Vec::new());
    }
    Ok(kernel_text("/proc/swaps")?.lines().skip(1).filter_map(swap).collect())
}

/// `/dev/dm-1   partition   999420   0   -2`
fn swap(line: &str) -> Option<Swap> {
    let mut words = line.split_whitespace();
    let name = words.next()?.to_owned();
    Some(Swap { name, kib: words.nth(1).and_then(|size| size.parse().ok()).unwrap_or(0) })
}

pub fn memory() -> Read<Memory> {
    let info = kernel_text("/proc/meminfo")?;
    let value = |name: &str| {
        let kib = info.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB"));
        let kib: Option<u64> = kib.and_then(|kib| kib.trim().parse().ok());
        kib.map(|kib| kib.saturating_mul(1024))
            .ok_or_else(|| failed(format!("/proc/meminfo has no `{name}`")))
    };
    Ok(Memory { total: value("MemTotal:")?, available: value("MemAvailable:")? })
}

pub fn security() -> Read<Security> {
    let on = |path: &str| text(path).ok().map(|text| text.trim().to_owned());
    Ok(Security {
        app_armor: on("/sys/module/apparmor/parameters/enabled").as_deref() == Some("Y"),
        selinux: on("/sys/fs/selinux/enforce").map(|enforce| enforce == "1"),
    })
}

pub fn open_files() -> Read<OpenFiles> {
    let limit = getrlimit(Resource::Nofile);
    Ok(OpenFiles { soft: limit.current.unwrap_or(u64::MAX), hard: limit.maximum.unwrap_or(u64::MAX) })
}

/// Those that are installed. A unit's path may lack the folders where such tools are.
pub fn tools() -> Read<Vec<String>> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin"];
    let folders: Vec<_> = std::env::split_paths(&path).chain(usual.map(PathBuf::from)).collect();
    let has = |tool: &&str| folders.iter().any(|folder| folder.join(tool).is_file());
    Ok(TOOLS.into_iter().filter(has).map(str::to_owned).collect())
}

/// In upstream's order.
pub fn machine_id() -> Read<String> {
    let id = kernel_text("/etc/machine-id")
        .or_else(|first| text("/var/lib/dbus/machine-id").map_err(|_| first))?;
    Ok(id.trim().to_owned())
}

pub fn clock() -> Clock {
    Clock { now: Timestamp::now(), synchronised: Path::new("/run/systemd/timesync/synchronized").exists() }
}

/// What a folder holds, sorted.
pub fn names(folder: impl AsRef<Path>) -> Option<Vec<String>> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::super::disk::parse_mounts;
    use super::*;

    #[test]
    fn the_cgroup_version_is_what_is_mounted_at_the_top() {
        let unified = "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        let read_only = unified.replace("rw,nosuid", "ro,nosuid");
        let hybrid = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                      40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        for (text, offered, expected) in [
            (unified, "cpu memory\n", (CgroupVersion::V2, false, names(&["cpu", "memory"]))),
            (&read_only, "cpu\n", (CgroupVersion::V2, true, names(&["cpu"]))),
            (hybrid, "", (CgroupVersion::V1, false, names(&["cpu", "cpuacct"]))),
            ("", "", (CgroupVersion::None, false, names(&[]))),
        ] {
            assert_eq!(hierarchy(&parse_mounts(text), offered), expected, "{text}");
        }
    }

    #[test]
    fn swaps_are_read_as_the_kernel_lists_them() {
        let line = "/dev/dm-1                               partition\t999420\t\t0\t\t-2";
        assert_eq!(swap(line), Some(Swap { name: "/dev/dm-1".into(), kib: 999_420 }));
        assert_eq!(swap(""), None);
    }

    #[test]
    fn a_module_is_found_in_the_lists_of_modprobe() {
        let files = "kernel/fs/overlayfs/overlay.ko.xz:\n";
        assert_eq!(module(false, files, "overlay"), Module::Loadable);
        assert_eq!(module(false, files, "br_netfilter"), Module::Absent);
        assert_eq!(module(true, "", "overlay"), Module::Here);
    }

    /// On whatever machine the tests run.
    #[test]
    fn this_machine_can_be_read() {
        assert!(privileges().is_ok() && memory().is_ok() && open_files().is_ok() && cgroups().is_ok());
        assert!(kernel().expect("a kernel").namespaces.iter().any(|name| name == "pid"));
        assert!(sysctls().expect("sysctls").contains_key("kernel.pid_max"));
    }
}
