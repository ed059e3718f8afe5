//! How full a volume is.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::folders::absent;
use crate::port::Usage;

/// Folders nested deeper than this were made to be; what is below them is not counted.
const MAX_DEPTH: usize = 256;

pub fn of_file_system(path: &Path) -> io::Result<Usage> {
    let found = rustix::fs::statvfs(path)?;
    Ok(Usage {
        capacity: found.f_blocks * found.f_frsize,
        available: found.f_bavail * found.f_frsize,
        used: found.f_blocks.saturating_sub(found.f_bfree) * found.f_frsize,
        inodes: found.f_files,
        inodes_free: found.f_ffree,
        inodes_used: found.f_files.saturating_sub(found.f_ffree),
    })
}

pub fn of_folder(path: &Path) -> io::Result<Usage> {
    let whole = of_file_system(path)?;
    let device = fs::metadata(path)?.dev();
    let mut count = Count { device, bytes: 0, inodes: 0, linked: HashSet::new() };
    count.entry(path, 0)?;
    Ok(Usage { used: count.bytes, inodes_used: count.inodes, ..whole })
}

struct Count {
    device: u64,
    bytes: u64,
    inodes: u64,
    /// Files that have several names count once.
    linked: HashSet<u64>,
}

impl Count {
    fn entry(&mut self, path: &Path, depth: usize) -> io::Result<()> {
        let found = match fs::symlink_metadata(path) {
            // Containers write meanwhile.
            Err(error) if absent(&error) => return Ok(()),
            found => found?,
        };
        if found.dev() != self.device {
            return Ok(());
        }
        if found.nlink() > 1 && !found.is_dir() && !self.linked.insert(found.ino()) {
            return Ok(());
        }
        self.bytes += found.blocks() * 512;
        self.inodes += 1;
        if !found.is_dir() || depth >= MAX_DEPTH {
            return Ok(());
        }
        let entries = match fs::read_dir(path) {
            Err(error) if absent(&error) => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            self.entry(&entry?.path(), depth + 1)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_two_names_counts_once() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sub")).unwrap();
        fs::write(folder.path().join("sub/a"), vec![1; 1 << 20]).unwrap();
        fs::hard_link(folder.path().join("sub/a"), folder.path().join("b")).unwrap();
        let usage = of_folder(folder.path()).unwrap();
        assert_eq!(usage.inodes_used, 3);
        assert!((1 << 20..2 << 20).contains(&usage.used), "{}", usage.used);
        assert!(usage.capacity > 0 && usage.available <= usage.capacity);
    }
}
