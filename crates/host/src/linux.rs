//! Files on a real disk.
//!
//! | module | what it holds |
//! |---|---|
//! | `ops` | one small blocking function per verb of [`Files`] |
//! | `tree` | removing a folder that containers could write into |
//! | `watch` | inotify as a stream |
//!
//! A disk may hang, so every verb runs on tokio's blocking threads. Dropping a verb's future stops the waiting, not the
//! work: what was begun on the disk is finished there.

mod ops;
mod tree;
mod watch;

use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;

use crate::files::{FileKind, Files, FolderEntry, FolderEvents};

#[derive(Clone, Copy, Debug, Default)]
pub struct LinuxFiles;

#[async_trait]
impl Files for LinuxFiles {
    async fn kind(&self, path: &Path) -> io::Result<Option<FileKind>> {
        with_path(path, ops::kind).await
    }

    async fn list(&self, folder: &Path) -> io::Result<Vec<FolderEntry>> {
        with_path(folder, ops::list).await
    }

    async fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        with_path(path, move |path| ops::read(path, limit)).await
    }

    async fn read_inside(&self, root: &Path, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        let path = path.to_owned();
        with_path(root, move |root| ops::read_inside(root, &path, limit)).await
    }

    async fn read_tail(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        with_path(path, move |path| ops::read_tail(path, limit)).await
    }

    async fn write_atomic(&self, path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
        let content = content.to_vec();
        with_path(path, move |path| ops::write_atomic(path, &content, mode)).await
    }

    async fn write_in_place(&self, path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
        let content = content.to_vec();
        with_path(path, move |path| ops::write_in_place(path, &content, mode)).await
    }

    async fn create_folder(&self, path: &Path, mode: u32) -> io::Result<()> {
        with_path(path, move |path| ops::create_folder(path, mode)).await
    }

    async fn link(&self, target: &Path, link: &Path) -> io::Result<()> {
        let target = target.to_owned();
        with_path(link, move |link| ops::link(&target, link)).await
    }

    async fn read_link(&self, link: &Path) -> io::Result<Option<PathBuf>> {
        with_path(link, ops::read_link).await
    }

    async fn remove_file(&self, path: &Path) -> io::Result<()> {
        with_path(path, ops::remove_file).await
    }

    async fn remove_tree(&self, path: &Path) -> io::Result<()> {
        with_path(path, tree::remove).await
    }

    async fn watch(&self, path: &Path) -> io::Result<FolderEvents> {
        let inotify = with_path(path, watch::start).await?;
        watch::stream(inotify)
    }
}

async fn with_path<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let path = path.to_owned();
    match tokio::task::spawn_blocking(move || work(&path)).await {
        Ok(result) => result,
        Err(panic_or_shutdown) => Err(io::Error::other(panic_or_shutdown)),
    }
}
