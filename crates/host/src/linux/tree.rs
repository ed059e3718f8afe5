//! Removing a folder that containers could write into.
//!
//! The walk goes from folder handle to folder handle, so a name that is swapped for a symlink meanwhile leads nowhere,
//! and it stays inside one mount: a volume that is still mounted below a pod's folder must never be emptied. Depth is
//! somebody else's choice too, so a folder that lies deeper than [`MAX_DEPTH`] is first moved up to the top; handles and
//! stack stay bounded.

use std::cell::Cell;
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

use super::ops::is_dot;

const MAX_DEPTH: usize = 32;
/// Names are taken in batches, so that a folder of a million files does not become a list of a million names.
const BATCH: usize = 512;

pub fn remove(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(named(path, "not a folder that can be removed"));
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let name = CString::new(name.as_bytes())?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = match rustix::fs::open(parent, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        opened => opened?,
    };
    let mount = Mount::of(&parent)?;
    let top = match open_folder(&parent, &name) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened.map_err(|error| at(path, error))?,
    };
    mount.must_hold(&top, path)?;

    let walk = Walk { top: &top, mount, moved_up: Cell::new(0) };
    loop {
        let before = walk.moved_up.get();
        walk.empty(rustix::io::dup(&top)?, path, 0)?;
        if walk.moved_up.get() == before {
            break;
        }
    }
    match rustix::fs::unlinkat(&parent, &name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(at(path, error)),
    }
}

struct Walk<'a> {
    top: &'a OwnedFd,
    mount: Mount,
    moved_up: Cell<u64>,
}

impl Walk<'_> {
    fn empty(&self, folder: OwnedFd, path: &Path, depth: usize) -> io::Result<()> {
        let mut dir = Dir::new(folder)?;
        loop {
            dir.rewind();
            let names = next_names(&mut dir)?;
            if names.is_empty() {
                return Ok(());
            }
            let before = self.moved_up.get();
            for name in &names {
                self.remove_entry(dir.fd()?, name, path, depth)?;
            }
            // What was moved up into the top itself is for the next round over the top, or a batch would never empty.
            if depth == 0 && self.moved_up.get() != before {
                return Ok(());
            }
        }
    }

    fn remove_entry(&self, folder: BorrowedFd<'_>, name: &CStr, path: &Path, depth: usize) -> io::Result<()> {
        match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // Linux says EISDIR for a folder, POSIX EPERM; a file that may not be removed also gives EPERM, and then
            // opening it as a folder fails below.
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(error) => return Err(at(&below(path, name), error)),
        }
        let inside = below(path, name);
        let child = match open_folder(folder, name) {
            Err(Errno::NOENT) => return Ok(()),
            opened => opened.map_err(|error| at(&inside, error))?,
        };
        self.mount.must_hold(&child, &inside)?;
        if depth >= MAX_DEPTH {
            return self.move_up(folder, name, &inside);
        }
        self.empty(child, &inside, depth + 1)?;
        match rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(at(&inside, error)),
        }
    }

    fn move_up(&self, folder: BorrowedFd<'_>, name: &CStr, path: &Path) -> io::Result<()> {
        loop {
            let number = self.moved_up.get();
            self.moved_up.set(number + 1);
            let new_name = format!(".crablet-removing-{number}");
            match rustix::fs::renameat(folder, name, self.top, new_name.as_str()) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                // The name is taken. (An empty folder of that name was replaced, which is as good as removed.)
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => continue,
                Err(error) => return Err(at(path, error)),
            }
        }
    }
}

/// Which mount a folder lies in. The device number alone does not tell: a bind mount from the same disk has the same.
#[derive(PartialEq, Eq)]
struct Mount {
    id: u64,
    device: u64,
}

impl Mount {
    fn of(folder: &OwnedFd) -> io::Result<Self> {
        let device = rustix::fs::fstat(folder)?.st_dev;
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", folder.as_raw_fd()))?;
        let id = mount_id(&info).ok_or_else(|| io::Error::other("no `mnt_id` in /proc/self/fdinfo"))?;
        Ok(Self { id, device })
    }

    fn must_hold(&self, folder: &OwnedFd, path: &Path) -> io::Result<()> {
        if *self == Self::of(folder)? { Ok(()) } else { Err(named(path, "is a mount point: not removed")) }
    }
}

fn mount_id(fdinfo: &str) -> Option<u64> {
    fdinfo.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok())
}

fn open_folder(parent: impl rustix::fd::AsFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

fn next_names(dir: &mut Dir) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    while names.len() < BATCH
        && let Some(entry) = dir.read()
    {
        let entry = entry?;
        if !is_dot(entry.file_name()) {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

fn below(path: &Path, name: &CStr) -> PathBuf {
    path.join(OsStr::from_bytes(name.to_bytes()))
}

fn at(path: &Path, error: Errno) -> io::Error {
    if error == Errno::BUSY {
        return named(path, "is a mount point: not removed");
    }
    let source = io::Error::from(error);
    io::Error::new(source.kind(), format!("`{}`: {source}", path.display()))
}

fn named(path: &Path, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, format!("`{}` {what}", path.display()))
}

#[cfg(test)]
mod tests;
