//! Mounts below a folder: containers' root file systems, shared memory, network namespaces, volumes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use rustix::mount::{UnmountFlags, unmount};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub point: PathBuf,
    /// `nsfs` is a namespace that someone keeps alive by binding it to a file.
    pub kind: String,
}

/// All mounts below `folder`, in the order in which they were made.
pub fn below(folder: &Path) -> Vec<Mount> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().filter_map(parse).filter(|mount| mount.point.starts_with(folder)).collect()
}

/// Takes them off, last one first. Lazily, so that a process that still looks at one cannot stop us.
pub fn remove_below(folder: &Path) -> Result<()> {
    for mount in below(folder).iter().rev() {
        // Whether it worked is asked below: one may vanish with another, or be there twice.
        let _ = unmount(&mount.point, UnmountFlags::DETACH);
    }
    match below(folder).first() {
        Some(mount) => bail!("`{}` cannot be unmounted", mount.point.display()),
        None => Ok(()),
    }
}

/// `36 35 98:0 / /mount/point rw,noatime master:1 - ext4 /dev/sda1 rw`
fn parse(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let point = unescape(before.split(' ').nth(4)?);
    Some(Mount { point: point.into(), kind: after.split(' ').next()?.to_owned() })
}

/// The kernel writes blanks and backslashes in paths as three octal digits.
fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((head, tail)) = rest.split_once('\\') {
        out.push_str(head);
        match tail.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte as char);
                rest = &tail[3..];
            }
            None => {
                out.push('\\');
                rest = tail;
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_with_a_blank_is_read_back() {
        let mount = parse(r"36 35 0:4 net:[4026] /tmp/a\040b/netns rw shared:9 - nsfs nsfs rw").unwrap();
        assert_eq!(mount, Mount { point: "/tmp/a b/netns".into(), kind: "nsfs".into() });
    }
}
