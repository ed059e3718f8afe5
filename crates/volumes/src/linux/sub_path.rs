//! Binding a path inside a volume.
//!
//! Containers write into the volume and may swap any name in it for a symlink at any moment. So links are resolved
//! once, the result must lie in the volume, and it is then opened element by element without following anything. What
//! gets bound is the handle, which nobody can swap.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::folders::absent;
use super::mounts;
use crate::port::SubPathError;

const HANDLE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

pub fn bind(root: &Path, sub_path: &Path, target: &Path) -> Result<(), SubPathError> {
    match fs::metadata(root.join(sub_path)) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            fs::metadata(root).map_err(SubPathError::Root)?;
            make(root, sub_path).map_err(SubPathError::Create)?;
        }
        // Whatever else is wrong with it shows when it is opened.
        _ => {}
    }
    prepare(root, sub_path, target).map_err(SubPathError::Prepare)
}

fn prepare(root: &Path, sub_path: &Path, target: &Path) -> io::Result<()> {
    let real_root = fs::canonicalize(root)?;
    let full = root.join(sub_path);
    // With a slash at its end the path wakes an automount.
    let _ = fs::metadata(full.join(""));
    let inside = below(&real_root, &fs::canonicalize(&full)?)?;
    let handle = open(&real_root, &inside)?;
    let found = rustix::fs::fstat(&handle)?;
    if mounted(target)? {
        if rustix::fs::lstat(target).is_ok_and(|bound| same(&bound, &found)) {
            return Ok(());
        }
        mounts::unmount(target)?;
    }
    make_target(target, FileType::from_raw_mode(found.st_mode) == FileType::Directory)?;
    let source = format!("/proc/self/fd/{}", handle.as_raw_fd());
    if let Err(error) = rustix::mount::mount_bind(source, target) {
        let _ = fs::remove_dir(target).or_else(|_| fs::remove_file(target));
        return Err(error.into());
    }
    Ok(())
}

fn below(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let inside = path.strip_prefix(root).map_err(|_| {
        refused(format!("subpath {:?} not within volume path {:?}", path.display(), root.display()))
    })?;
    Ok(inside.to_owned())
}

fn refused(text: String) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, text)
}

/// Opens a path that has no links in it, or fails.
fn open(root: &Path, inside: &Path) -> io::Result<OwnedFd> {
    let mut handle = rustix::fs::open(root, HANDLE, Mode::empty())?;
    for part in inside.components() {
        let Component::Normal(name) = part else {
            return Err(refused(format!("unexpected element in {:?}", inside.display())));
        };
        handle = rustix::fs::openat(&handle, name, HANDLE, Mode::empty())?;
        if FileType::from_raw_mode(rustix::fs::fstat(&handle)?.st_mode) == FileType::Symlink {
            return Err(refused(format!("unexpected symlink found {:?}", inside.display())));
        }
    }
    Ok(handle)
}

/// Makes what is missing of the path, with the mode of the volume's root.
fn make(root: &Path, sub_path: &Path) -> io::Result<()> {
    let real_root = fs::canonicalize(root)?;
    let mode = Mode::from_raw_mode(fs::metadata(&real_root)?.permissions().mode() & 0o7777);
    let mut existing = sub_path.to_owned();
    let real = loop {
        match fs::canonicalize(root.join(&existing)) {
            Err(error) if absent(&error) && existing.pop() => {}
            found => break found?,
        }
    };
    let mut handle = open(&real_root, &below(&real_root, &real)?)?;
    let missing = sub_path.strip_prefix(&existing).map_err(io::Error::other)?;
    for part in missing.components() {
        let Component::Normal(name) = part else { continue };
        // A name that is taken by now, be it by a link that leads nowhere, is an error.
        rustix::fs::mkdirat(&handle, name, mode)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(&handle, name, flags, Mode::empty())?;
        rustix::fs::fchmod(&made, mode)?;
        handle = made;
    }
    Ok(())
}

fn mounted(target: &Path) -> io::Result<bool> {
    Ok(mounts::at_or_below(target)?.iter().any(|mounted| mounted.path == target))
}

fn same(a: &Stat, b: &Stat) -> bool {
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
}

fn make_target(target: &Path, folder: bool) -> io::Result<()> {
    if let Some(parent) = target.parent() {
        DirBuilder::new().recursive(true).mode(0o750).create(parent)?;
    }
    // A sub path may have been a folder once and be a file now.
    match rustix::fs::lstat(target) {
        Ok(found) if (FileType::from_raw_mode(found.st_mode) == FileType::Directory) == folder => {
            return Ok(());
        }
        Ok(_) if folder => fs::remove_file(target)?,
        Ok(_) => fs::remove_dir(target)?,
        Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    if folder {
        DirBuilder::new().mode(0o750).create(target)
    } else {
        OpenOptions::new().write(true).create_new(true).mode(0o640).open(target).map(drop)
    }
}

#[cfg(test)]
mod tests;
