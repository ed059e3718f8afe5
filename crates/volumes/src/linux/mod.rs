//! Volumes on a real machine.
//!
//! | module | what it does |
//! |---|---|
//! | `folders` | looking at paths, making folders and markers |
//! | `payload` | writing files so that readers see whole sets |
//! | `ownership` | giving a tree to a group |
//! | `mounts` | the mount table, tmpfs, huge pages |
//! | `sub_path` | binding a path inside a volume that containers write to |
//! | `tools` | the host's own tools: `mount`, `mkfs`, `iscsiadm` |
//! | `usage` | how full a volume is |
//! | `under_way` | calls that hang, so that nobody hangs beside them |
//!
//! Everything may hang on a dead disk or mount, so nobody waits longer than the deadline. What was begun then goes on;
//! every verb may be called again. Calls about the agent's own disk run on tokio's blocking threads, which are few; those
//! that meet volumes have threads of their own.

mod folders;
mod mounts;
mod ownership;
mod payload;
mod sub_path;
mod tools;
mod under_way;
mod usage;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use crablet_host::{Files, LinuxFiles};

use crate::payload::Payload;
use crate::port::{
    GroupChange, MemoryFs, MountFrom, Mounted, PathKind, SubPathError, ToolEnd, Usage, VolumeHost, Walk,
};
use under_way::UnderWay;

pub use mounts::make_shared;

/// Calls that take a moment where the disk is well.
const SHORT: Duration = Duration::from_secs(60);
/// Removing all files of a volume.
const LONG: Duration = Duration::from_secs(600);
/// A walk over a volume of millions of files takes hours; who waits for it can stop it.
const ENDLESS: Duration = Duration::from_secs(100 * 24 * 3600);

#[derive(Debug)]
pub struct LinuxVolumeHost {
    /// Whether the kernel knows tmpfs that is never swapped out: true until it refuses.
    noswap: Arc<AtomicBool>,
    under_way: UnderWay,
}

impl Default for LinuxVolumeHost {
    fn default() -> Self {
        Self { noswap: Arc::new(AtomicBool::new(true)), under_way: UnderWay::default() }
    }
}

impl LinuxVolumeHost {
    /// For calls that may hang in a mount of somebody's server: not twice in the same place.
    async fn once<T: Send + 'static>(
        &self,
        call: &'static str,
        path: &Path,
        deadline: Duration,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        self.under_way.run(call, path, deadline, work).await
    }
}

/// Stops the walk when nobody waits for it any more.
struct StopsWalk(Arc<Walk>);

impl Drop for StopsWalk {
    fn drop(&mut self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }
}

#[async_trait]
impl VolumeHost for LinuxVolumeHost {
    async fn kind(&self, path: &Path) -> io::Result<Option<PathKind>> {
        let at = path.to_owned();
        self.once("stat", path, SHORT, move || folders::kind(&at)).await
    }

    async fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        let folder = folder.to_owned();
        blocking(SHORT, move || folders::names(&folder)).await
    }

    async fn make_folder(&self, path: &Path, mode: u32, parents: u32) -> io::Result<()> {
        let at = path.to_owned();
        self.once("mkdir", path, SHORT, move || folders::make_folder(&at, mode, parents)).await
    }

    async fn make_file(&self, path: &Path, mode: u32) -> io::Result<()> {
        let at = path.to_owned();
        self.once("open", path, SHORT, move || folders::make_file(&at, mode)).await
    }

    async fn write_payload(
        &self,
        folder: &Path,
        payload: Arc<Payload>,
        name: &str,
        group: Option<u32>,
    ) -> io::Result<bool> {
        let (folder, name) = (folder.to_owned(), name.to_owned());
        blocking(SHORT, move || payload::write(&folder, &payload, &name, group)).await
    }

    async fn set_group(&self, folder: &Path, change: GroupChange, walk: Arc<Walk>) -> io::Result<()> {
        let (path, at_work) = (folder.to_owned(), walk.clone());
        let _stops = StopsWalk(walk);
        let work = move || ownership::set_group(&path, change, &at_work);
        self.once("set_group", folder, ENDLESS, work).await
    }

    async fn group_of(&self, folder: &Path) -> io::Result<u32> {
        let path = folder.to_owned();
        self.once("group_of", folder, SHORT, move || ownership::group_of(&path)).await
    }

    async fn mounts(&self, path: &Path) -> io::Result<Vec<Mounted>> {
        let path = path.to_owned();
        blocking(SHORT, move || mounts::at_or_below(&path)).await
    }

    async fn mount(&self, fs: &MemoryFs, target: &Path) -> io::Result<()> {
        let (fs, path, noswap) = (fs.clone(), target.to_owned(), self.noswap.clone());
        self.once("mount", target, SHORT, move || mounts::mount(&fs, &path, &noswap)).await
    }

    async fn mount_from(&self, wish: &MountFrom, target: &Path) -> Result<(), String> {
        tools::mount(wish, target).await
    }

    async fn bind(&self, source: &Path, target: &Path, options: &[String]) -> io::Result<()> {
        let (source, path, options) = (source.to_owned(), target.to_owned(), options.to_vec());
        self.once("bind", target, SHORT, move || mounts::bind(&source, &path, &options)).await
    }

    async fn unmount(&self, target: &Path, forced: bool) -> io::Result<()> {
        let path = target.to_owned();
        let error = match self.once("unmount", target, SHORT, move || mounts::unmount(&path)).await {
            Err(error) if forced => error,
            done => return done,
        };
        tracing::warn!(path = %target.display(), %error, "Cannot unmount: now by force");
        let path = target.to_owned();
        self.once("force", target, SHORT, move || mounts::unmount_by_force(&path)).await
    }

    async fn bind_sub_path(&self, root: &Path, sub_path: &str, target: &Path) -> Result<(), SubPathError> {
        let (root, sub_path, path) = (root.to_owned(), PathBuf::from(sub_path), target.to_owned());
        let work = move || Ok(sub_path::bind(&root, &sub_path, &path));
        let bound = self.once("bind_sub_path", target, SHORT, work).await;
        bound.unwrap_or_else(|error| Err(SubPathError::Prepare(error)))
    }

    async fn remove_tree(&self, path: &Path) -> io::Result<()> {
        let removed = tokio::time::timeout(LONG, LinuxFiles.remove_tree(path)).await;
        match removed.unwrap_or_else(|_| Err(too_late(LONG))) {
            // A link is all that there is to remove.
            Err(_) if std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) => {
                self.remove_file(path).await
            }
            removed => removed,
        }
    }

    async fn remove_folder(&self, path: &Path) -> io::Result<()> {
        let at = path.to_owned();
        self.once("rmdir", path, SHORT, move || folders::remove_folder(&at)).await
    }

    async fn remove_file(&self, path: &Path) -> io::Result<()> {
        let path = path.to_owned();
        blocking(SHORT, move || folders::remove_file(&path)).await
    }

    async fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        let at = path.to_owned();
        self.once("lstat", path, SHORT, move || std::fs::canonicalize(at)).await
    }

    async fn put_link(&self, target: &Path, link: &Path) -> io::Result<()> {
        let (target, link) = (target.to_owned(), link.to_owned());
        blocking(SHORT, move || folders::put_link(&target, &link)).await
    }

    async fn read_file(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        let path = path.to_owned();
        blocking(SHORT, move || folders::read_file(&path)).await
    }

    async fn write_file(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let (path, content) = (path.to_owned(), content.to_owned());
        blocking(SHORT, move || folders::write_file(&path, &content)).await
    }

    async fn run(&self, program: &str, args: &[&str], limit: Duration) -> io::Result<ToolEnd> {
        tools::run(program, args, limit).await
    }

    async fn usage_of_file_system(&self, path: &Path) -> io::Result<Usage> {
        let at = path.to_owned();
        self.once("usage", path, SHORT, move || usage::of_file_system(&at)).await
    }

    async fn usage_of_folder(&self, path: &Path) -> io::Result<Usage> {
        let at = path.to_owned();
        self.once("usage", path, LONG, move || usage::of_folder(&at)).await
    }
}

async fn blocking<T: Send + 'static>(
    deadline: Duration,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    match tokio::time::timeout(deadline, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(result)) => result,
        Ok(Err(panic_or_shutdown)) => Err(io::Error::other(panic_or_shutdown)),
        Err(_) => Err(too_late(deadline)),
    }
}

fn too_late(deadline: Duration) -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        format!("the disk gave no answer within {} s", deadline.as_secs()),
    )
}
