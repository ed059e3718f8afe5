//! The file port.

use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use futures_util::stream::BoxStream;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    File,
    Folder,
    /// A fifo, a socket, a device: never opened.
    Other,
}

/// An entry of a folder. `kind` follows symlinks; a broken link has `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderEntry {
    pub name: String,
    pub kind: Option<FileKind>,
    /// Differs when the file has changed since: made of its inode, size and times. `None` where that cannot be told.
    pub stamp: Option<u64>,
}

/// What changed in a watched folder or file, as inotify tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FolderEvent {
    /// Created, written and closed, or its attributes changed. The name, not the path; `None` when the watched path is
    /// itself a file.
    Changed(Option<String>),
    /// Deleted.
    Gone(Option<String>),
    /// Moved out of the folder; or to another name in it, as editors do it that save by renaming: then a
    /// [`MovedHere`](Self::MovedHere) with the same cookie follows.
    MovedAway { name: Option<String>, cookie: u32 },
    /// Moved to this name, from elsewhere or from another name in the folder.
    MovedHere { name: Option<String>, cookie: u32 },
    /// Events were lost or the watched path itself went away: list again, and watch anew when the stream ends.
    Rescan,
}

/// Ends when the watched path is gone.
pub type FolderEvents = BoxStream<'static, io::Result<FolderEvent>>;

/// What Crablet does with files. Every method may block on a disk, so the real one leaves tokio's threads to do it.
#[async_trait]
pub trait Files: Send + Sync + 'static {
    /// Follows symlinks. `Ok(None)` when nothing is there.
    async fn kind(&self, path: &Path) -> io::Result<Option<FileKind>>;
    /// Entries sorted by name. `NotFound` when the folder does not exist.
    async fn list(&self, folder: &Path) -> io::Result<Vec<FolderEntry>>;
    /// Reads a regular file of at most `limit` bytes, following symlinks. Anything but a regular file is refused
    /// without blocking (a fifo is never waited for); a longer file gives [`io::ErrorKind::FileTooLarge`].
    async fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>>;
    /// As [`read`](Self::read), of a file below `root` that others may have made: no link and no `..` leads out of
    /// `root`, which stands for `/` while the path is walked.
    async fn read_inside(&self, root: &Path, path: &Path, limit: usize) -> io::Result<Vec<u8>>;
    /// The last `limit` bytes of a regular file that the agent itself made. Refuses symlinks in the last component.
    async fn read_tail(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>>;
    /// Writes a file so that a reader, or the next life of the agent, sees all of it or the old one.
    async fn write_atomic(&self, path: &Path, content: &[u8], mode: u32) -> io::Result<()>;
    /// Writes in place, creating or truncating: for files that are bind-mounted into containers. Refuses symlinks in
    /// the last component.
    async fn write_in_place(&self, path: &Path, content: &[u8], mode: u32) -> io::Result<()>;
    async fn create_folder(&self, path: &Path, mode: u32) -> io::Result<()>;
    /// Creates or replaces a symlink.
    async fn link(&self, target: &Path, link: &Path) -> io::Result<()>;
    /// Where a symlink points, `None` when there is no symlink.
    async fn read_link(&self, link: &Path) -> io::Result<Option<PathBuf>>;
    /// Removes a file or a symlink; absent is fine.
    async fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes a folder and what is below it, without following symlinks and without crossing into another mount;
    /// absent is fine.
    async fn remove_tree(&self, path: &Path) -> io::Result<()>;
    async fn watch(&self, path: &Path) -> io::Result<FolderEvents>;
}
