//! What volumes need of the machine.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use async_trait::async_trait;
use crablet_model::events::{ClaimEvent, Event};

use crate::payload::Payload;

/// Who is told that a volume cannot be had, or that it has grown.
pub trait VolumeEvents: Send + Sync + 'static {
    fn emit(&self, event: Event);

    /// About the claim that a volume belongs to.
    fn emit_claim(&self, event: ClaimEvent);
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounted {
    pub path: PathBuf,
    pub fs_type: String,
    /// The file system's own options, with commas.
    pub options: String,
    /// What the file system lies on: `/dev/sda1`, `server:/export`.
    pub source: String,
    /// Which file system it is, `8:1`, and which folder of it is seen here. Equal for two views of the same.
    pub device: String,
    pub root: PathBuf,
}

/// A file system of a device or of another machine, mounted by the host's own tool, which knows all kinds and options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountFrom {
    pub source: String,
    pub fs_type: String,
    pub options: Vec<String>,
    /// Serves its files from a process of its own, which has to outlive the agent.
    pub outlives_us: bool,
}

/// A tool of the host that was run to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolEnd {
    pub code: i32,
    /// Standard output, and after it what was said on standard error.
    pub output: String,
}

impl ToolEnd {
    pub fn is_success(&self) -> bool {
        self.code == 0
    }
}

/// How files get to belong to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupChange {
    pub group: u32,
    /// The group may only read.
    pub read_only: bool,
    /// Nothing is done where the volume's own folder is right already.
    pub only_on_mismatch: bool,
}

/// A walk over all files of a volume, as others see it. Whoever drops the walk stops it.
#[derive(Debug, Default)]
pub struct Walk {
    pub files: AtomicU64,
    pub stopped: AtomicBool,
}

/// How full a file system, or a folder, is. Bytes and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub capacity: u64,
    pub available: u64,
    pub used: u64,
    pub inodes: u64,
    pub inodes_free: u64,
    pub inodes_used: u64,
}

/// Which step of a sub path failed. Of most, users are told only that; the rest is for the log.
#[derive(Debug)]
pub enum SubPathError {
    /// The volume itself cannot be looked at. Users are told that.
    Root(io::Error),
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

    /// Gives everything in the folder, and last the folder itself, to the group. Takes as long as it takes; dropping the
    /// call, or `walk.stopped`, ends it between two files.
    async fn set_group(&self, folder: &Path, change: GroupChange, walk: Arc<Walk>) -> io::Result<()>;

    /// The group that a folder belongs to.
    async fn group_of(&self, folder: &Path) -> io::Result<u32>;

    /// What is mounted at the path or below it, in the order of mounting.
    async fn mounts(&self, path: &Path) -> io::Result<Vec<Mounted>>;

    async fn mount(&self, fs: &MemoryFs, target: &Path) -> io::Result<()>;

    /// With the host's own tool. The error is what upstream says of it.
    async fn mount_from(&self, wish: &MountFrom, target: &Path) -> Result<(), String>;

    /// Shows a folder, file or device in another place. `options` are those of a mount, `ro` for one;
    /// those of a file system are passed over, and what the source forbids stays forbidden. What is mounted there
    /// already is left alone.
    async fn bind(&self, source: &Path, target: &Path, options: &[String]) -> io::Result<()>;

    /// Takes away the topmost mount of the path; none is fine. One that hangs on a dead server is forced after a minute
    /// if `forced`.
    async fn unmount(&self, target: &Path, forced: bool) -> io::Result<()>;

    /// Binds a folder or file below a volume's root to a target outside of it. Makes the folder, with the mode of the
    /// root, if nothing is there. Symlinks are followed inside the root and refused where they lead out of it.
    async fn bind_sub_path(&self, root: &Path, sub_path: &str, target: &Path) -> Result<(), SubPathError>;

    /// Without following symlinks and without crossing into another mount; absent is fine.
    async fn remove_tree(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty folder; absent is fine.
    async fn remove_folder(&self, path: &Path) -> io::Result<()>;

    /// Removes a file or link; absent is fine.
    async fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Where a path leads, all links followed.
    async fn real_path(&self, path: &Path) -> io::Result<PathBuf>;

    /// Makes a link, in the place of another one.
    async fn put_link(&self, target: &Path, link: &Path) -> io::Result<()>;

    /// A small file as a whole; `None` when absent.
    async fn read_file(&self, path: &Path) -> io::Result<Option<Vec<u8>>>;

    /// Writes into a file that is there, or makes it.
    async fn write_file(&self, path: &Path, content: &[u8]) -> io::Result<()>;

    /// Runs a tool of the host. It is killed when it takes longer, or when the call is dropped.
    async fn run(&self, program: &str, args: &[&str], limit: Duration) -> io::Result<ToolEnd>;

    /// How full the file system of the path is.
    async fn usage_of_file_system(&self, path: &Path) -> io::Result<Usage>;

    /// What the files of a folder take, without what is mounted in it: `used` and `inodes_used`. The rest is that of
    /// its file system.
    async fn usage_of_folder(&self, path: &Path) -> io::Result<Usage>;
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
