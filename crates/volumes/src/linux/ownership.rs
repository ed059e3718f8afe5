//! Giving a tree to a group.
//!
//! Containers may write into the tree meanwhile, so the walk goes from handle to handle and changes modes by handle: a
//! name that is swapped for a symlink leads nowhere. It stays on one file system.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat};
use rustix::io::Errno;
use tracing::error;

/// Handles that the walk holds at once. A tree that is deeper was made to be.
const MAX_DEPTH: usize = 256;
const READ_WRITE: u32 = 0o660;
const READ_ONLY: u32 = 0o440;
const FOLDER: u32 = 0o2110;

pub fn set_group(folder: &Path, group: u32, read_only: bool) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::open(folder, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&root)?;
    let walk = Walk {
        group: Gid::from_raw(group),
        bits: if read_only { READ_ONLY } else { READ_WRITE },
        device: stat.st_dev,
        path: folder,
    };
    walk.folder(root, &stat, 0)
}

struct Walk<'a> {
    group: Gid,
    bits: u32,
    device: u64,
    /// For the log.
    path: &'a Path,
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
        self.note(rustix::fs::fchown(&folder, None, Some(self.group)));
        let mode = stat.st_mode & 0o7777 | self.bits | FOLDER;
        self.note(rustix::fs::fchmod(&folder, Mode::from_raw_mode(mode)));
        Ok(())
    }

    fn entry(&self, parent: BorrowedFd<'_>, name: &CStr, depth: usize) -> io::Result<()> {
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
