//! Volumes on a real machine.
//!
//! | module | what it does |
//! |---|---|
//! | `folders` | looking at paths, making folders and markers |
//! | `payload` | writing files so that readers see whole sets |
//! | `ownership` | giving a tree to a group |
//! | `mounts` | the mount table, tmpfs, huge pages |
//! | `sub_path` | binding a path inside a volume that containers write to |
//!
//! Everything may hang on a dead disk or mount, so it runs on tokio's blocking threads, and nobody waits longer than the
//! deadline. What was begun then goes on; every verb may be called again.

mod folders;
mod mounts;
mod ownership;
mod payload;
mod sub_path;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use async_trait::async_trait;
use crablet_host::{Files, LinuxFiles};

use crate::payload::Payload;
use crate::port::{MemoryFs, Mounted, PathKind, SubPathError, VolumeHost};

/// Calls that take a moment where the disk is well.
const SHORT: Duration = Duration::from_secs(60);
/// Calls that visit every file of a volume.
const LONG: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub struct LinuxVolumeHost {
    /// Whether the kernel knows tmpfs that is never swapped out: true until it refuses.
    noswap: Arc<AtomicBool>,
}

impl Default for LinuxVolumeHost {
    fn default() -> Self {
        Self { noswap: Arc::new(AtomicBool::new(true)) }
    }
}

#[async_trait]
impl VolumeHost for LinuxVolumeHost {
    async fn kind(&self, path: &Path) -> io::Result<Option<PathKind>> {
        let path = path.to_owned();
        blocking(SHORT, move || folders::kind(&path)).await
    }

    async fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        let folder = folder.to_owned();
        blocking(SHORT, move || folders::names(&folder)).await
    }

    async fn make_folder(&self, path: &Path, mode: u32, parents: u32) -> io::Result<()> {
        let path = path.to_owned();
        blocking(SHORT, move || folders::make_folder(&path, mode, parents)).await
    }

    async fn make_file(&self, path: &Path, mode: u32) -> io::Result<()> {
        let path = path.to_owned();
        blocking(SHORT, move || folders::make_file(&path, mode)).await
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

    async fn set_group(&self, folder: &Path, group: u32, read_only: bool) -> io::Result<()> {
        let folder = folder.to_owned();
        blocking(LONG, move || ownership::set_group(&folder, group, read_only)).await
    }

    async fn mounts(&self, path: &Path) -> io::Result<Vec<Mounted>> {
        let path = path.to_owned();
        blocking(SHORT, move || mounts::at_or_below(&path)).await
    }

    async fn mount(&self, fs: &MemoryFs, target: &Path) -> io::Result<()> {
        let (fs, target, noswap) = (fs.clone(), target.to_owned(), self.noswap.clone());
        blocking(SHORT, move || mounts::mount(&fs, &target, &noswap)).await
    }

    async fn unmount(&self, target: &Path) -> io::Result<()> {
        let target = target.to_owned();
        blocking(SHORT, move || mounts::unmount(&target)).await
    }

    async fn bind_sub_path(&self, root: &Path, sub_path: &str, target: &Path) -> Result<(), SubPathError> {
        let (root, sub_path, target) = (root.to_owned(), PathBuf::from(sub_path), target.to_owned());
        let work = move || Ok(sub_path::bind(&root, &sub_path, &target));
        blocking(SHORT, work).await.unwrap_or_else(|error| Err(SubPathError::Prepare(error)))
    }

    async fn remove_tree(&self, path: &Path) -> io::Result<()> {
        let removed = tokio::time::timeout(LONG, LinuxFiles.remove_tree(path)).await;
        removed.unwrap_or_else(|_| Err(too_late(LONG)))
    }

    async fn remove_folder(&self, path: &Path) -> io::Result<()> {
        let path = path.to_owned();
        blocking(SHORT, move || folders::remove_folder(&path)).await
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
