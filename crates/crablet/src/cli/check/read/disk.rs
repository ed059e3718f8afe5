//! File systems and how they are mounted.

use std::path::{Path, PathBuf};

use rustix::fs::statvfs;

use super::super::facts::{Amount, DiskState, Mount, Read};
use super::{failed, kernel_text};

pub fn state(path: &Path) -> Read<DiskState> {
    let existing = existing(path)?;
    let stat = statvfs(&existing).map_err(|error| failed(format!("{}: {error}", existing.display())))?;
    let mount = mounts().ok().and_then(|mounts| covering(mounts, &existing));
    Ok(DiskState {
        space: Amount {
            total: stat.f_blocks.saturating_mul(stat.f_frsize),
            // What is kept for root is not for pods.
            free: stat.f_bavail.saturating_mul(stat.f_frsize),
        },
        inodes: Amount { total: stat.f_files, free: stat.f_favail },
        mount,
        existing,
    })
}

/// The folder with symlinks followed, or the nearest one above it: it would be made there.
fn existing(path: &Path) -> Read<PathBuf> {
    let found = path.ancestors().find_map(|ancestor| ancestor.canonicalize().ok());
    found.ok_or_else(|| failed(format!("{} and all above it are out of reach", path.display())))
}

pub fn mounts() -> Read<Vec<Mount>> {
    Ok(parse_mounts(&kernel_text("/proc/self/mountinfo")?))
}

pub fn parse_mounts(mountinfo: &str) -> Vec<Mount> {
    mountinfo.lines().filter_map(parse_mount).collect()
}

/// `36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/sda rw`; see `man 5 proc_pid_mountinfo`.
fn parse_mount(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(4);
    let (point, options) = (left.next()?, left.next()?);
    let shared = left.any(|field| field.starts_with("shared:"));
    let mut right = right.split(' ');
    let kind = right.next()?.to_owned();
    let super_options = split(right.nth(1).unwrap_or_default());
    Some(Mount { point: unescape(point).into(), kind, options: split(options), super_options, shared })
}

fn split(options: &str) -> Vec<String> {
    options.split(',').filter(|option| !option.is_empty()).map(str::to_owned).collect()
}

/// The kernel writes a blank as `\040`, and a few others like it.
fn unescape(point: &str) -> String {
    point.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

/// The deepest mount over a path; of those at the same point, the last hides the others.
fn covering(mounts: Vec<Mount>, path: &Path) -> Option<Mount> {
    mounts
        .into_iter()
        .filter(|mount| path.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.components().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n\
                        28 27 0:25 / /var/lib rw,nodev,noexec - xfs /dev/vdb rw\n\
                        29 27 0:26 / /var/lib ro - tmpfs tmpfs rw\n\
                        30 27 0:26 / /with\\040blank rw master:3 - tmpfs none rw\n\
                        nonsense\n";

    #[test]
    fn the_deepest_and_latest_mount_covers_a_path() {
        for (path, kind, shared) in [
            ("/etc", "ext4", true),
            ("/var/library", "ext4", true),
            ("/var/lib/kubelet", "tmpfs", false),
            ("/with blank/x", "tmpfs", false),
        ] {
            let mount = covering(parse_mounts(TEXT), Path::new(path)).expect("a mount");
            assert_eq!((mount.kind.as_str(), mount.shared), (kind, shared), "{path}");
        }
    }

    #[test]
    fn options_of_the_mount_and_of_the_file_system_are_told_apart() {
        let mounts = parse_mounts(TEXT);
        assert_eq!(mounts.len(), 4);
        assert_eq!(mounts[2].options, ["ro"]);
        assert_eq!(mounts[2].super_options, ["rw"]);
    }

    #[test]
    fn a_folder_that_is_not_there_yet_is_judged_by_the_one_above() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = state(&folder.path().join("not/yet")).expect("a state");
        assert_eq!(state.existing, folder.path().canonicalize().expect("a path"));
        assert!(state.space.total > 0 && state.mount.is_some());
    }
}
