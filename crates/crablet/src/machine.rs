//! What the machine is like: read once at start.

use std::fs;
use std::path::Path;

use crablet_planner::pod::SwapControl;
use rustix::mount::{FsOpenFlags, fsconfig_set_flag, fsopen};

const CGROUPS: &str = "/sys/fs/cgroup";

/// Facts about the machine that plans depend on.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    pub memory_bytes: i64,
    pub milli_cpus: i64,
    /// Files below `/sys/devices/system/cpu` that containers must not see.
    pub masked_paths: Vec<String>,
    pub selinux_enabled: bool,
    /// As cgroups name them, from small to large: `2MB`, `1GB`.
    pub hugepage_sizes: Vec<String>,
    pub swap_control: SwapControl,
    /// Swap is on, and the kernel cannot keep volumes in memory out of it.
    pub volumes_may_swap: bool,
    /// One hierarchy for all controllers.
    pub cgroup_v2: bool,
    /// Major and minor; `None` where the kernel does not tell.
    pub kernel: Option<(u32, u32)>,
    /// The kernel enforces AppArmor profiles.
    pub apparmor: bool,
}

impl Machine {
    /// Reads what can be read; what cannot stays at its harmless default.
    pub fn read() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
        Self {
            memory_bytes: fs::read_to_string("/proc/meminfo")
                .ok()
                .and_then(|t| memory(&t))
                .unwrap_or_default(),
            milli_cpus: i64::try_from(cpus).unwrap_or(1) * 1000,
            masked_paths: thermal_files(),
            selinux_enabled: Path::new("/sys/fs/selinux/enforce").exists(),
            hugepage_sizes: hugepage_sizes(),
            swap_control: swap_control(),
            volumes_may_swap: has_swap(&fs::read_to_string("/proc/swaps").unwrap_or_default())
                && !tmpfs_without_swap(),
            cgroup_v2: Path::new(CGROUPS).join("cgroup.controllers").exists(),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").ok().and_then(|t| release(&t)),
            apparmor: apparmor(),
        }
    }
}

/// `MemTotal:       24614144 kB`
fn memory(meminfo: &str) -> Option<i64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// `6.12.0-3-amd64`
fn release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.trim().split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// As upstream looks: the kernel has it, and it is switched on.
fn apparmor() -> bool {
    let switch = fs::read_to_string("/sys/module/apparmor/parameters/enabled").unwrap_or_default();
    Path::new("/sys/kernel/security/apparmor").exists() && switch.starts_with('Y')
}

/// The kernel has a folder for each size, such as `hugepages-2048kB`.
fn hugepage_sizes() -> Vec<String> {
    let Ok(entries) = fs::read_dir("/sys/kernel/mm/hugepages") else {
        return Vec::new();
    };
    let size = |name: &str| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok();
    let mut sizes: Vec<u64> = entries.flatten().filter_map(|e| size(e.file_name().to_str()?)).collect();
    sizes.sort_unstable();
    sizes.into_iter().map(size_name).collect()
}

/// The root of cgroup v2 has no such file, so the agent's own cgroup is looked at.
fn swap_control() -> SwapControl {
    let v2 = Path::new(CGROUPS);
    if v2.join("cgroup.controllers").exists() {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        let file = v2.join(own).join("memory.swap.max");
        return if file.exists() { SwapControl::Alone } else { SwapControl::Absent };
    }
    let file = v2.join("memory/memory.memsw.limit_in_bytes");
    if file.exists() { SwapControl::Together } else { SwapControl::Absent }
}

/// A heading, and a line for each swap area that is on.
fn has_swap(swaps: &str) -> bool {
    swaps.trim().lines().count() > 1
}

/// Asks the kernel, without a mount: older ones do not know the option, and none allows it in a user namespace.
fn tmpfs_without_swap() -> bool {
    fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).and_then(|fs| fsconfig_set_flag(fs, "noswap")).is_ok()
}

fn size_name(kib: u64) -> String {
    match kib {
        kib if kib % (1 << 20) == 0 => format!("{}GB", kib >> 20),
        kib if kib % (1 << 10) == 0 => format!("{}MB", kib >> 10),
        kib => format!("{kib}KB"),
    }
}

fn thermal_files() -> Vec<String> {
    let Ok(entries) = fs::read_dir("/sys/devices/system/cpu") else {
        return Vec::new();
    };
    let is_cpu = |name: &str| {
        name.strip_prefix("cpu").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let mut paths: Vec<String> = entries
        .flatten()
        .filter(|e| e.file_name().to_str().is_some_and(is_cpu))
        .map(|e| e.path().join("thermal_throttle"))
        .filter(|path| path.exists())
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::{has_swap, memory, release, size_name};

    #[test]
    fn swap_is_on_where_there_is_an_area() {
        assert!(has_swap("Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2\n"));
        assert!(!has_swap("Filename Type Size Used Priority\n") && !has_swap(""));
    }

    #[test]
    fn huge_pages_are_named_as_cgroups_do() {
        assert_eq!([64, 2048, 1 << 20].map(size_name), ["64KB", "2MB", "1GB"]);
    }

    #[test]
    fn the_kernels_version_is_its_first_two_numbers() {
        assert_eq!(release("6.12.0-3-amd64\n"), Some((6, 12)));
        assert_eq!(release("strange"), None);
    }

    #[test]
    fn memory_is_read_from_meminfo() {
        assert_eq!(memory("MemTotal:       24614144 kB\nMemFree: 1 kB\n"), Some(24_614_144 * 1024));
        assert_eq!(memory("nothing of the kind"), None);
    }
}
