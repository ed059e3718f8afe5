//! File systems: is there room, and do they allow what pods do with them?

use super::super::facts::{Amount, Disk, DiskRole, DiskState, Mount};
use super::super::report::{Finding, Group};
use super::super::wanted::Wanted;
use super::{amount, bytes, listed};

const GROUP: Group = Group("disk");

pub fn judge(wanted: &Wanted, disks: &[Disk]) -> Vec<Finding> {
    disks.iter().flat_map(|disk| judge_disk(wanted, disk)).collect()
}

fn name(role: DiskRole) -> &'static str {
    match role {
        DiskRole::Root => "root",
        DiskRole::PodLogs => "pod logs",
        DiskRole::Images => "images",
    }
}

fn judge_disk(wanted: &Wanted, disk: &Disk) -> Vec<Finding> {
    let state = match &disk.state {
        Ok(state) => state,
        Err(why) => return vec![GROUP.unread(format!("{} {}", name(disk.role), disk.path.display()), why)],
    };
    let mut found = vec![space(wanted, disk, state)];
    found.extend(inodes(wanted, disk, state));
    if disk.role == DiskRole::Root {
        found.extend(state.mount.as_ref().map(options));
        found.extend(state.mount.as_ref().map(propagation));
    }
    found
}

/// Eviction sees the images' file system apart from the others.
fn signal(role: DiskRole, what: &str) -> String {
    let file_system = if role == DiskRole::Images { "imagefs" } else { "nodefs" };
    format!("{file_system}.{what}")
}

fn below<'a>(wanted: &'a Wanted, signal: &str, amount_of: Amount) -> Option<&'a str> {
    let threshold = wanted.eviction_hard.get(signal)?;
    (amount_of.free < amount(threshold, amount_of.total)?).then_some(threshold)
}

fn space(wanted: &Wanted, disk: &Disk, state: &DiskState) -> Finding {
    let title = format!("{} space", name(disk.role));
    let path = disk.path.display();
    let seen = format!("{path}: {} of {} free", bytes(state.space.free), bytes(state.space.total));
    let signal = signal(disk.role, "available");
    if let Some(threshold) = below(wanted, &signal, state.space) {
        let seen = format!("{seen}, less than {signal} of {threshold}");
        return GROUP.error(
            title,
            seen,
            format!("make room on {path}: the node would be under disk pressure at once"),
        );
    }
    let used = state.space.total.saturating_sub(state.space.free).saturating_mul(100);
    let used = used.checked_div(state.space.total).unwrap_or(0);
    if disk.role == DiskRole::Images && used >= wanted.image_gc_high {
        let seen =
            format!("{seen}, {used}% used: more than imageGCHighThresholdPercent {}", wanted.image_gc_high);
        return GROUP.warning(
            title,
            seen,
            "make room, or unused images are deleted as soon as the agent starts",
        );
    }
    GROUP.ok(title, seen)
}

/// Some file systems make inodes as they go and report none.
fn inodes(wanted: &Wanted, disk: &Disk, state: &DiskState) -> Option<Finding> {
    if state.inodes.total == 0 {
        return None;
    }
    let signal = signal(disk.role, "inodesFree");
    let threshold = below(wanted, &signal, state.inodes)?;
    Some(GROUP.error(
        format!("{} inodes", name(disk.role)),
        format!(
            "{}: {} of {} free, less than {signal} of {threshold}",
            disk.path.display(),
            state.inodes.free,
            state.inodes.total
        ),
        "remove small files: the node would be under disk pressure at once",
    ))
}

fn options(mount: &Mount) -> Finding {
    let point = mount.point.display();
    let has = |name: &str| mount.options.iter().any(|option| option == name);
    if has("ro") || mount.super_options.iter().any(|option| option == "ro") {
        return GROUP.error(
            "root mount",
            format!("{point} is mounted read-only"),
            format!("`mount -o remount,rw {point}`, or another `--root-dir`"),
        );
    }
    let odd: Vec<_> = ["noexec", "nodev", "nosuid"].into_iter().filter(|name| has(name)).collect();
    if odd.is_empty() {
        return GROUP.ok("root mount", format!("{} on {point}", mount.kind));
    }
    GROUP.warning(
        "root mount",
        format!("{point} is mounted with {}: volumes of pods inherit it", listed(&odd)),
        format!("take it out of /etc/fstab, or `mount -o remount,exec,dev,suid {point}`"),
    )
}

fn propagation(mount: &Mount) -> Finding {
    let point = mount.point.display();
    if mount.shared {
        GROUP.ok("root propagation", "shared")
    } else {
        GROUP.warning(
            "root propagation",
            format!("mounts below {point} are not shared: `mountPropagation: Bidirectional` and CSI drivers will not work"),
            format!("`mount --make-rshared {point}`; systemd does so at boot"),
        )
    }
}
