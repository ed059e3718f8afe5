//! The verbs of [`Files`](crate::Files), blocking.

use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::files::{FileKind, FolderEntry};

pub fn kind(path: &Path) -> io::Result<Option<FileKind>> {
    match rustix::fs::stat(path) {
        Ok(stat) => Ok(Some(kind_of(&stat))),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A name that is not UTF-8 is listed with replacement characters; opening it then says that it does not exist, which
/// is how its owner learns of it.
pub fn list(folder: &Path) -> io::Result<Vec<FolderEntry>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut dir = Dir::new(rustix::fs::open(folder, flags, Mode::empty())?)?;
    let mut entries = Vec::new();
    while let Some(entry) = dir.read() {
        let entry = entry?;
        let name = entry.file_name();
        if is_dot(name) {
            continue;
        }
        if let Some((kind, stamp)) = look_at_entry(dir.fd()?, name) {
            entries.push(FolderEntry { name: name.to_string_lossy().into_owned(), kind, stamp });
        }
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// The outer `None` means that the entry went away since it was listed, an inner one that its link leads nowhere.
fn look_at_entry(folder: BorrowedFd<'_>, name: &CStr) -> Option<(Option<FileKind>, Option<u64>)> {
    if let Ok(stat) = rustix::fs::statat(folder, name, AtFlags::empty()) {
        return Some((Some(kind_of(&stat)), Some(stamp_of(&stat))));
    }
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok().map(|_| (None, None))
}

/// Of everything that a write, a rename or a new file changes.
fn stamp_of(stat: &Stat) -> u64 {
    let mut hasher = DefaultHasher::new();
    (stat.st_dev, stat.st_ino, stat.st_size).hash(&mut hasher);
    (stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec).hash(&mut hasher);
    hasher.finish()
}

pub fn read(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    // Looked at before it is opened, because opening a device can already do something; looked at again afterwards,
    // because the name may mean something else by then.
    require_regular(&rustix::fs::stat(path)?)?;
    let (file, size) = open_to_read(path, OFlags::empty())?;
    all_of(file, size, limit)
}

fn all_of(file: File, size: u64, limit: usize) -> io::Result<Vec<u8>> {
    if size > limit as u64 {
        return Err(too_large(limit));
    }
    let mut content = Vec::with_capacity(size as usize);
    // One byte more than allowed, so that a file that grew meanwhile is noticed.
    file.take(limit as u64 + 1).read_to_end(&mut content)?;
    if content.len() > limit { Err(too_large(limit)) } else { Ok(content) }
}

pub fn read_inside(root: &Path, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let folder = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
    let root = rustix::fs::open(root, folder, Mode::empty())?;
    let open = |flags: OFlags| {
        rustix::fs::openat2(&root, path, flags | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::IN_ROOT)
    };
    // Looked at before it is opened to be read, as in `read`.
    require_regular(&rustix::fs::fstat(open(OFlags::PATH)?)?)?;
    let file = open(OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
    let stat = rustix::fs::fstat(&file)?;
    require_regular(&stat)?;
    all_of(File::from(file), u64::try_from(stat.st_size).unwrap_or(0), limit)
}

pub fn read_tail(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let (mut file, size) = open_to_read(path, OFlags::NOFOLLOW)?;
    let limit = limit as u64;
    file.seek(SeekFrom::Start(size.saturating_sub(limit)))?;
    let mut content = Vec::with_capacity(size.min(limit) as usize);
    file.take(limit).read_to_end(&mut content)?;
    Ok(content)
}

pub fn write_atomic(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let folder = folder_of(path);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let (temporary, file) =
        in_new_place(folder, |temporary| rustix::fs::open(temporary, flags, Mode::from_raw_mode(mode)))?;
    let mut file = File::from(file);
    let written = (|| {
        // The process's umask is not meant to decide here.
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        file.write_all(content)?;
        file.sync_all()?;
        rustix::fs::rename(&temporary, path)?;
        // Until the folder is on disk too, a power cut brings the old file back.
        File::open(folder)?.sync_all()
    })();
    if written.is_err() {
        let _ = rustix::fs::unlink(&temporary);
    }
    written
}

pub fn write_in_place(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    // O_NONBLOCK keeps a fifo in the file's place from being waited for. Truncating waits until it is known what was
    // opened.
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(path, flags, Mode::from_raw_mode(mode))?);
    require_regular(&rustix::fs::fstat(&file)?)?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
    file.set_len(0)?;
    file.write_all(content)
}

/// Makes missing parents too. A folder that already exists keeps its mode.
pub fn create_folder(path: &Path, mode: u32) -> io::Result<()> {
    let mode = Mode::from_raw_mode(mode);
    match rustix::fs::mkdir(path, mode) {
        Err(Errno::NOENT) => match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => {
                create_folder(parent, mode.as_raw_mode())?;
                // Somebody else may have made it meanwhile.
                if let Err(error) = rustix::fs::mkdir(path, mode) {
                    return if error == Errno::EXIST { existing_folder(path) } else { Err(error.into()) };
                }
            }
            _ => return Err(Errno::NOENT.into()),
        },
        Err(Errno::EXIST) => return existing_folder(path),
        made => made?,
    }
    // The process's umask is not meant to decide here.
    Ok(rustix::fs::chmod(path, mode)?)
}

fn existing_folder(path: &Path) -> io::Result<()> {
    match kind(path)? {
        Some(FileKind::Folder) => Ok(()),
        _ => Err(io::ErrorKind::NotADirectory.into()),
    }
}

/// A link that is not there yet is made in its place: an agent that is killed leaves it whole or not at all, and nothing
/// under another name.
pub fn link(target: &Path, link: &Path) -> io::Result<()> {
    match rustix::fs::symlink(target, link) {
        Err(Errno::EXIST) if read_link(link)?.as_deref() == Some(target) => return Ok(()),
        Err(Errno::EXIST) => {}
        made => return Ok(made?),
    }
    let (temporary, ()) = in_new_place(folder_of(link), |temporary| rustix::fs::symlink(target, temporary))?;
    rustix::fs::rename(&temporary, link).map_err(|error| {
        let _ = rustix::fs::unlink(&temporary);
        error.into()
    })
}

pub fn read_link(link: &Path) -> io::Result<Option<PathBuf>> {
    match rustix::fs::readlink(link, Vec::new()) {
        Ok(target) => Ok(Some(PathBuf::from(OsString::from_vec(target.into_bytes())))),
        // EINVAL is the kernel's word for "not a symlink".
        Err(Errno::NOENT | Errno::NOTDIR | Errno::INVAL) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub fn remove_file(path: &Path) -> io::Result<()> {
    match rustix::fs::unlink(path) {
        Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub fn is_dot(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

fn open_to_read(path: &Path, extra: OFlags) -> io::Result<(File, u64)> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | extra;
    let fd = rustix::fs::open(path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&fd)?;
    require_regular(&stat)?;
    Ok((File::from(fd), u64::try_from(stat.st_size).unwrap_or(0)))
}

fn kind_of(stat: &Stat) -> FileKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Folder,
        _ => FileKind::Other,
    }
}

fn require_regular(stat: &Stat) -> io::Result<()> {
    match kind_of(stat) {
        FileKind::File => Ok(()),
        FileKind::Folder => Err(io::ErrorKind::IsADirectory.into()),
        FileKind::Other => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

fn too_large(limit: usize) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {limit} bytes"))
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Calls `make` with fresh names in `folder` until one was free. The names begin with a dot: those who read a manifest
/// folder pass over such files.
fn in_new_place<T>(folder: &Path, make: impl Fn(&Path) -> rustix::io::Result<T>) -> io::Result<(PathBuf, T)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!(".crablet-{}-{number}.tmp", std::process::id());
        let path = folder.join(OsStr::from_bytes(name.as_bytes()));
        match make(&path) {
            // Left over by an earlier life that had the same process id.
            Err(Errno::EXIST) => continue,
            made => return Ok((path, made?)),
        }
    }
}

#[cfg(test)]
mod tests;
