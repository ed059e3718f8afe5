//! Giving a tree to a group.
//!
//! Containers may write into the tree meanwhile, so the walk goes from handle to handle and changes modes by handle: a
//! name that is swapped for a symlink leads nowhere. It stays on one file system.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat};
use rustix::io::Errno;
use tracing::error;

use crate::port::{GroupChange, Walk as Progress};

/// Handles that the walk holds at once. A tree that is deeper was made to be.
const MAX_DEPTH: usize = 256;
const READ_WRITE: u32 = 0o660;
const READ_ONLY: u32 = 0o440;
const FOLDER: u32 = 0o2110;

pub fn set_group(folder: &Path, change: GroupChange, progress: &Progress) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::open(folder, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&root)?;
    let bits = if change.read_only { READ_ONLY } else { READ_WRITE };
    let right = bits | FOLDER;
    if change.only_on_mismatch && stat.st_gid == change.group && stat.st_mode & right == right {
        return Ok(());
    }
    let walk = Walk { group: Gid::from_raw(change.group), bits, device: stat.st_dev, path: folder, progress };
    walk.folder(root, &stat, 0)
}

pub fn group_of(folder: &Path) -> io::Result<u32> {
    Ok(rustix::fs::stat(folder)?.st_gid)
}

struct Walk<'a> {
    group: Gid,
    bits: u32,
    device: u64,
    /// For the log.
    path: &'a Path,
    progress: &'a Progress,
}

impl Walk<'_> {
    /// Children first, so that a folder whose group is right has been walked to its end.
    fn folder(&self, folder: OwnedFd, stat: &Stat, depth: usize) -> io::Result<()> {
        let mut dir = Dir::read_from(&folder)?;
        while let Some(entry) = dir.read() {
            let entry = entry?;
            let name = entry.file_name();
            if !matches!(name.to_bytes(), b"." | b"..") {
                self.entry(folder.as_fd(), name, depth)?;
            }
        }
        self.progress.files.fetch_add(1, Ordering::Relaxed);
        self.note(rustix::fs::fchown(&folder, None, Some(self.group)));
        let mode = stat.st_mode & 0o7777 | self.bits | FOLDER;
        self.note(rustix::fs::fchmod(&folder, Mode::from_raw_mode(mode)));
        Ok(())
    }

    fn entry(&self, parent: BorrowedFd<'_>, name: &CStr, depth: usize) -> io::Result<()> {
        if self.progress.stopped.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "nobody waits for it any more"));
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = match rustix::fs::openat(parent, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(()),
            opened => opened?,
        };
        let stat = rustix::fs::fstat(&handle)?;
        if stat.st_dev != self.device {
            return Ok(());
        }
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory if depth >= MAX_DEPTH => {
                Err(io::Error::other(format!("folders are nested deeper than {MAX_DEPTH}")))
            }
            FileType::Directory => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let folder = rustix::fs::openat(&handle, c".", flags, Mode::empty())?;
                self.folder(folder, &stat, depth + 1)
            }
            kind => {
                self.progress.files.fetch_add(1, Ordering::Relaxed);
                let whole = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
                self.note(rustix::fs::chownat(&handle, c"", None, Some(self.group), whole));
                if kind != FileType::Symlink {
                    // A handle of this kind has no `fchmod`; its name in `/proc` means the very same file.
                    let this = format!("/proc/self/fd/{}", handle.as_raw_fd());
                    let mode = Mode::from_raw_mode(stat.st_mode & 0o7777 | self.bits);
                    self.note(rustix::fs::chmodat(CWD, this, mode, AtFlags::empty()));
                }
                Ok(())
            }
        }
    }

    /// As upstream, a file that cannot be changed stays as it is.
    fn note(&self, done: rustix::io::Result<()>) {
        if let Err(error) = done {
            error!(path = %self.path.display(), %error, "Failed to give a file of a volume to its group");
        }
    }
}
