//! What the machine is.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crablet_planner::node::Machine;

/// `root` is `/`, or a copy of the few files that matter.
pub(super) fn read(root: &Path) -> io::Result<Machine> {
    let text = |path: &str| fs::read_to_string(root.join(path));
    let first = |paths: &[&str]| {
        let found = paths.iter().find_map(|path| text(path).ok());
        found.map(|text| text.trim_matches(['\0', '\n', ' ', '\t']).to_owned()).unwrap_or_default()
    };
    let memory = text("proc/meminfo")?;
    let total = kilobytes(&memory, "MemTotal:")
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "`/proc/meminfo` has no `MemTotal`"))?;
    let cpus =
        text("sys/devices/system/cpu/online").map(|ranges| count_of_ranges(&ranges)).or_else(|_| {
            text("proc/cpuinfo")
                .map(|info| info.lines().filter(|l| l.starts_with("processor")).count() as u32)
        })?;
    Ok(Machine {
        machine_id: first(&["etc/machine-id", "var/lib/dbus/machine-id"]),
        system_uuid: first(&[
            "sys/class/dmi/id/product_uuid",
            "proc/device-tree/system-id",
            "proc/device-tree/vm,uuid",
            "etc/machine-id",
        ]),
        boot_id: first(&["proc/sys/kernel/random/boot_id"]),
        kernel_version: rustix::system::uname().release().to_string_lossy().into_owned(),
        os_image: os_image(text("etc/os-release").or_else(|_| text("usr/lib/os-release")).ok().as_deref()),
        cpus,
        memory_bytes: total.saturating_mul(1024),
        swap_bytes: kilobytes(&memory, "SwapTotal:").unwrap_or_default().saturating_mul(1024),
        huge_pages: huge_pages(&root.join("sys/kernel/mm/hugepages"))?,
    })
}

fn kilobytes(meminfo: &str, field: &str) -> Option<u64> {
    meminfo.lines().find_map(|line| line.strip_prefix(field))?.split_whitespace().next()?.parse().ok()
}

/// `0-3,8,10-11`
fn count_of_ranges(text: &str) -> u32 {
    let range = |range: &str| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let (from, to) = (from.parse::<u32>().ok()?, to.parse::<u32>().ok()?);
        Some(to.checked_sub(from)?.saturating_add(1))
    };
    text.trim().split(',').filter_map(range).sum()
}

fn os_image(release: Option<&str>) -> String {
    let Some(release) = release else { return "Unknown".to_owned() };
    let pretty = release.lines().find_map(|line| line.trim().strip_prefix("PRETTY_NAME="));
    pretty.map_or("Linux", |name| name.trim_matches(['"', '\''])).to_owned()
}

/// Without a folder the kernel has none.
fn huge_pages(folder: &Path) -> io::Result<BTreeMap<u64, u64>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        entries => entries?,
    };
    let mut pages = BTreeMap::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let size =
            name.to_str().and_then(|n| n.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok());
        let Some(size) = size else { continue };
        let count = fs::read_to_string(entry.path().join("nr_hugepages"))?.trim().parse().unwrap_or_default();
        pages.insert(size.saturating_mul(1024), count);
    }
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_machine_is_what_the_kernel_says() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        file(root, "proc/meminfo", "MemTotal:       16384256 kB\nMemFree: 1 kB\nSwapTotal:     2048 kB\n");
        file(root, "sys/devices/system/cpu/online", "0-3,8,10-11\n");
        file(root, "etc/machine-id", "m1\n");
        file(root, "sys/class/dmi/id/product_uuid", "u1\n");
        file(root, "proc/sys/kernel/random/boot_id", "b1\n");
        file(root, "usr/lib/os-release", "NAME=x\nPRETTY_NAME=\"Some Linux 12\"\n");
        file(root, "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0\n");
        file(root, "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "3\n");
        let machine = read(root).unwrap();
        let release = machine.kernel_version.clone();
        assert!(!release.is_empty());
        let expected = Machine {
            machine_id: "m1".to_owned(),
            system_uuid: "u1".to_owned(),
            boot_id: "b1".to_owned(),
            kernel_version: release,
            os_image: "Some Linux 12".to_owned(),
            cpus: 7,
            memory_bytes: 16_384_256 * 1024,
            swap_bytes: 2048 * 1024,
            huge_pages: [(2 << 20, 0), (1 << 30, 3)].into(),
        };
        assert_eq!(machine, expected);
        fs::remove_file(root.join("usr/lib/os-release")).unwrap();
        assert_eq!(read(root).unwrap().os_image, "Unknown");
    }
}
