//! Opening files in a folder, and nothing outside it, whatever a name or a symlink says.
//!
//! Upstream's file server follows symlinks wherever they lead. Here a link may lead to another place in the folder, as
//! those in `/var/log/containers` do; who can write into the folder cannot have other files read.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// As many as the kernel follows.
const MOST_LINKS: usize = 40;
/// How often to begin again when the folder changes meanwhile.
const TRIES: usize = 8;

/// A folder to open files in.
pub struct Root {
    folder: OwnedFd,
    /// How absolute links to this folder begin.
    names: Vec<PathBuf>,
}

/// Why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    NotFound,
    Forbidden,
    /// A link or `..` leads out of the folder.
    Outside,
    /// A device, a pipe or a socket.
    NotAFile,
    Failed(Errno),
}

impl From<Errno> for Refusal {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOENT | Errno::NOTDIR => Self::NotFound,
            Errno::ACCESS | Errno::PERM => Self::Forbidden,
            Errno::XDEV => Self::Outside,
            other => Self::Failed(other),
        }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::from(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

impl Root {
    pub fn open(path: &Path) -> Result<Self, Refusal> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(path, flags, Mode::empty())?;
        let mut names = vec![path.to_owned()];
        names.extend(path.canonicalize().ok().filter(|real| real != path));
        Ok(Self { folder, names })
    }

    /// A regular file or a folder, by a name relative to this folder.
    pub fn file(&self, name: &[u8]) -> Result<File, Refusal> {
        let found = self.locate(name)?;
        match FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) {
            FileType::RegularFile | FileType::Directory => {}
            _ => return Err(Refusal::NotAFile),
        }
        // The very file that was looked at, now for reading: a pipe or a device in its place is never opened.
        let again = format!("/proc/self/fd/{}", found.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(File::from(rustix::fs::open(again, flags, Mode::empty())?))
    }

    /// A handle that says only which file it is.
    fn locate(&self, name: &[u8]) -> Result<OwnedFd, Refusal> {
        if name.contains(&0) {
            return Err(Refusal::NotFound);
        }
        let mut tries = 0;
        loop {
            let real = self.resolve(Path::new(OsStr::from_bytes(name)))?;
            // No link is left in it; should one come now, this says so.
            match open_beneath(self.folder.as_fd(), &real) {
                Err(Errno::LOOP | Errno::AGAIN) if tries < TRIES => tries += 1,
                result => return Ok(result?),
            }
        }
    }

    /// The path without links. What it is good for is decided by opening it.
    fn resolve(&self, name: &Path) -> Result<PathBuf, Refusal> {
        let mut pending: VecDeque<OsString> = segments(name);
        let mut real = PathBuf::new();
        let mut links = 0;
        while let Some(segment) = pending.pop_front() {
            if segment == ".." {
                if !real.pop() {
                    return Err(Refusal::Outside);
                }
                continue;
            }
            real.push(&segment);
            let target = match rustix::fs::readlinkat(&self.folder, &real, Vec::new()) {
                Ok(target) => PathBuf::from(OsStr::from_bytes(target.as_bytes())),
                Err(Errno::INVAL) => continue,
                Err(error) => return Err(error.into()),
            };
            links += 1;
            if links > MOST_LINKS {
                return Err(Refusal::Failed(Errno::LOOP));
            }
            real.pop();
            let within = if target.is_absolute() {
                real.clear();
                self.names.iter().find_map(|name| target.strip_prefix(name).ok()).ok_or(Refusal::Outside)?
            } else {
                &target
            };
            for segment in segments(within).into_iter().rev() {
                pending.push_front(segment);
            }
        }
        Ok(real)
    }
}

fn segments(path: &Path) -> VecDeque<OsString> {
    let bytes = path.as_os_str().as_bytes().split(|byte| *byte == b'/');
    bytes
        .filter(|segment| !matches!(*segment, b"" | b"."))
        .map(|segment| OsStr::from_bytes(segment).into())
        .collect()
}

fn open_beneath(folder: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(folder, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_lead_only_to_places_in_the_folder() {
        let outer = tempfile::tempdir().expect("a folder");
        let folder = outer.path().join("log");
        std::fs::create_dir_all(folder.join("pods/a")).expect("folders");
        std::fs::create_dir(folder.join("containers")).expect("a folder");
        std::fs::write(outer.path().join("secret"), "secret").expect("a file");
        std::fs::write(folder.join("pods/a/0.log"), "a log").expect("a file");
        let absolute = folder.join("pods/a/0.log");
        for (name, target) in [
            ("containers/absolute.log", absolute.to_str().expect("UTF-8")),
            ("containers/relative.log", "../pods/a/0.log"),
            ("containers/twice.log", "./relative.log"),
            ("around", "pods/../pods"),
            ("out", "../secret"),
            ("far", "/etc/passwd"),
            ("up", ".."),
            ("magic", "/proc/self/root/etc/passwd"),
            ("prefix", &format!("{}-other/secret", folder.display())),
            ("loop", "loop"),
            ("dangling", "nowhere"),
        ] {
            symlink(target, folder.join(name)).expect("a link");
        }
        rustix::fs::mknodat(rustix::fs::CWD, folder.join("pipe"), FileType::Fifo, Mode::RUSR, 0)
            .expect("a pipe");

        let root = Root::open(&folder).expect("a root");
        let read = |name: &str| {
            let mut text = String::new();
            root.file(name.as_bytes())?.read_to_string(&mut text).map_err(Refusal::from).map(|_| text)
        };
        for name in [
            "pods/a/0.log",
            "./pods//a/../a/0.log",
            "containers/absolute.log",
            "containers/relative.log",
            "containers/twice.log",
            "around/a/0.log",
        ] {
            assert_eq!(read(name), Ok("a log".to_owned()), "{name}");
        }
        for (name, refusal) in [
            ("out", Refusal::Outside),
            ("far", Refusal::Outside),
            ("up/secret", Refusal::Outside),
            ("magic", Refusal::Outside),
            ("prefix", Refusal::Outside),
            ("../secret", Refusal::Outside),
            ("pods/../../secret", Refusal::Outside),
            ("loop", Refusal::Failed(Errno::LOOP)),
            ("dangling", Refusal::NotFound),
            ("pods/a/0.log/more", Refusal::NotFound),
            ("pods/a\0", Refusal::NotFound),
            ("pipe", Refusal::NotAFile),
        ] {
            assert_eq!(read(name), Err(refusal), "{name}");
        }
        assert!(root.file(b"").expect("the folder").metadata().expect("metadata").is_dir());
    }
}
