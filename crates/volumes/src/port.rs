//! What volumes need of the machine.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use crablet_model::events::Event;

use crate::payload::Payload;

/// Who is told that a volume cannot be had.
pub trait VolumeEvents: Send + Sync + 'static {
    fn emit(&self, event: Event);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    Folder,
    File,
    Socket,
    CharDevice,
    BlockDevice,
    /// A fifo, for one.
    Other,
}

/// A file system that lives in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryFs {
    /// Size in bytes; the kernel decides where it is zero. Never swapped out where the kernel can promise that.
    Tmpfs { size: i64 },
    /// The page size as a quantity: `2Mi`.
    HugePages { page_size: String },
}

/// A line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    pub path: PathBuf,
    pub fs_type: String,
    /// The file system's own options, with commas.
    pub options: String,
}

/// Which step of a sub path failed. Users are told only that; the rest is for the log.
#[derive(Debug)]
pub enum SubPathError {
    /// The folder was missing and could not be made.
    Create(io::Error),
    /// It leads out of the volume, or could not be mounted.
    Prepare(io::Error),
}

/// The file system and the mount table. Containers write into some of these folders: no verb follows a symlink below a
/// folder that it changes, except where it says so. Every verb may be called again after a failure, and none takes longer
/// than ten minutes, be the disk dead.
#[async_trait]
pub trait VolumeHost: Send + Sync + 'static {
    /// Follows symlinks. `Ok(None)` when nothing is there.
    async fn kind(&self, path: &Path) -> io::Result<Option<PathKind>>;

    /// The sorted names in a folder; none when it is absent.
    async fn names(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// Makes a folder whose permissions are `mode` afterwards, whatever the umask; missing parents get `parents`.
    async fn make_folder(&self, path: &Path, mode: u32, parents: u32) -> io::Result<()>;

    /// Makes an empty file unless something is there.
    async fn make_file(&self, path: &Path, mode: u32) -> io::Result<()>;

    /// Makes the folder hold exactly these files, so that a reader sees all of the old or all of the new ones. The new
    /// ones go to a folder of this name in it. `group` gets access to everything. Says whether something changed: equal
    /// content is left alone.
    async fn write_payload(
        &self,
        folder: &Path,
        payload: Arc<Payload>,
        name: &str,
        group: Option<u32>,
    ) -> io::Result<bool>;

    /// Gives everything in the folder, and last the folder itself, to the group.
    async fn set_group(&self, folder: &Path, group: u32, read_only: bool) -> io::Result<()>;

    /// What is mounted at the path or below it, in the order of mounting.
    async fn mounts(&self, path: &Path) -> io::Result<Vec<Mounted>>;

    async fn mount(&self, fs: &MemoryFs, target: &Path) -> io::Result<()>;

    /// Takes away the topmost mount of the path; none is fine.
    async fn unmount(&self, target: &Path) -> io::Result<()>;

    /// Binds a folder or file below a volume's root to a target outside of it. Makes the folder, with the mode of the
    /// root, if nothing is there. Symlinks are followed inside the root and refused where they lead out of it.
    async fn bind_sub_path(&self, root: &Path, sub_path: &str, target: &Path) -> Result<(), SubPathError>;

    /// Without following symlinks and without crossing into another mount; absent is fine.
    async fn remove_tree(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty folder; absent is fine.
    async fn remove_folder(&self, path: &Path) -> io::Result<()>;
}

/// `mkdir /a/b: permission denied`: as upstream's messages tell of system calls.
pub(crate) fn told(call: &str, path: &Path, error: &io::Error) -> String {
    format!("{call} {}: {}", path.display(), reason(error))
}

pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    // System call errors begin in lower case in upstream's messages. Other texts are left as they are.
    match (error.raw_os_error(), text.chars().next()) {
        (Some(_), Some(first)) => first.to_lowercase().collect::<String>() + &text[first.len_utf8()..],
        _ => text.to_owned(),
    }
}
