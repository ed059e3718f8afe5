//! The file port over the fake disk, step by step: between two steps the agent may die.

use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;

use super::disk::FakeFiles;
use super::faults::errno;
use super::tree::{Node, RealPath};
use crate::files::{FileKind, Files, FolderEntry, FolderEvents};

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}

fn kind_of(node: &Node) -> FileKind {
    match node {
        Node::Folder { .. } => FileKind::Folder,
        Node::File { .. } => FileKind::File,
        Node::Link(_) | Node::Other => FileKind::Other,
    }
}

fn absent_is_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(e),
    }
}

#[async_trait]
impl Files for FakeFiles {
    async fn kind(&self, path: &Path) -> io::Result<Option<FileKind>> {
        self.simple("kind", path, |disk| absent_is_none(disk.tree.find(path, true).map(kind_of))).await
    }

    async fn list(&self, folder: &Path) -> io::Result<Vec<FolderEntry>> {
        self.simple("list", folder, |disk| {
            let Node::Folder { entries, .. } = disk.tree.find(folder, true)? else {
                return Err(errno(libc::ENOTDIR));
            };
            let entry = |(name, node): (&String, &Node)| {
                let there = match node {
                    Node::Link(_) => disk.tree.find(&folder.join(name), true).ok(),
                    node => Some(node),
                };
                let stamp = there.and_then(|node| match node {
                    Node::File { stamp, .. } => Some(*stamp),
                    _ => None,
                });
                FolderEntry { name: name.clone(), kind: there.map(kind_of), stamp }
            };
            Ok(entries.iter().map(entry).collect())
        })
        .await
    }

    async fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        self.simple("read", path, |disk| match disk.tree.find(path, true)? {
            Node::File { content, .. } if content.len() > limit => Err(io::ErrorKind::FileTooLarge.into()),
            Node::File { content, .. } => Ok(content.clone()),
            Node::Folder { .. } => Err(errno(libc::EISDIR)),
            _ => Err(not_regular()),
        })
        .await
    }

    /// Links are followed as anywhere: nobody makes bad ones on this disk.
    async fn read_inside(&self, root: &Path, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        self.read(&root.join(path.strip_prefix("/").unwrap_or(path)), limit).await
    }

    async fn read_tail(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        self.simple("read_tail", path, |disk| match disk.tree.find(path, false)? {
            Node::File { content, .. } => Ok(content[content.len().saturating_sub(limit)..].to_vec()),
            Node::Link(_) => Err(errno(libc::ELOOP)),
            Node::Folder { .. } => Err(errno(libc::EISDIR)),
            Node::Other => Err(not_regular()),
        })
        .await
    }

    async fn write_atomic(&self, path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
        const CALL: &str = "write_atomic";
        if !self.begin(CALL, path).await? {
            return Ok(());
        }
        let file = || Node::file(mode, content);
        let temporary = {
            let disk = &mut *self.disk();
            let mut temporary = disk.tree.resolve(path, false)?;
            let name = temporary.last_mut().ok_or_else(|| errno(libc::EISDIR))?;
            // Dotted, so that a reader of the folder who lists it in between leaves it alone.
            *name = format!(".crablet-{:08x}.tmp", disk.rng.u32(..));
            disk.tree.replace(&temporary, file())?;
            temporary
        };
        self.step(CALL).await;
        let result = {
            let disk = &mut *self.disk();
            let _ = disk.tree.remove(&temporary);
            // Resolved again: while the agent was between the two steps, an outsider may have moved the folder away.
            disk.tree.resolve(path, false).and_then(|real| disk.place(&real, file()))
        };
        self.step(CALL).await;
        result
    }

    async fn write_in_place(&self, path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
        const CALL: &str = "write_in_place";
        if !self.begin(CALL, path).await? {
            return Ok(());
        }
        self.disk().truncate(path)?;
        self.step(CALL).await;
        let result = {
            let disk = &mut *self.disk();
            disk.tree.resolve(path, false).and_then(|real| disk.place(&real, Node::file(mode, content)))
        };
        self.step(CALL).await;
        result
    }

    async fn create_folder(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.simple("create_folder", path, |disk| disk.make_folders(path, mode)).await
    }

    async fn link(&self, target: &Path, link: &Path) -> io::Result<()> {
        self.simple("link", link, |disk| {
            let real = disk.tree.resolve(link, false)?;
            disk.place(&real, Node::Link(target.to_path_buf()))
        })
        .await
    }

    async fn read_link(&self, link: &Path) -> io::Result<Option<PathBuf>> {
        self.simple("read_link", link, |disk| match absent_is_none(disk.tree.find(link, false))? {
            Some(Node::Link(target)) => Ok(Some(target.clone())),
            _ => Ok(None),
        })
        .await
    }

    async fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.simple("remove_file", path, |disk| {
            let Some(real) = absent_is_none(disk.tree.resolve(path, false))? else { return Ok(()) };
            match disk.tree.get(&real) {
                Some(Node::Folder { .. }) => Err(errno(libc::EISDIR)),
                _ => disk.take(&real).map(drop),
            }
        })
        .await
    }

    async fn remove_tree(&self, path: &Path) -> io::Result<()> {
        const CALL: &str = "remove_tree";
        if !self.begin(CALL, path).await? {
            return Ok(());
        }
        let half = {
            let disk = &mut *self.disk();
            let Some(real) = absent_is_none(disk.tree.resolve(path, false))? else { return Ok(()) };
            match disk.tree.get(&real) {
                Some(Node::Folder { entries, .. }) => {
                    let inside = |name: &String| real.iter().chain([name]).cloned().collect::<RealPath>();
                    entries.keys().take(entries.len().div_ceil(2)).map(inside).collect::<Vec<_>>()
                }
                Some(_) => return Err(errno(libc::ENOTDIR)),
                None => return Ok(()),
            }
        };
        for path in half {
            self.disk().take(&path)?;
        }
        self.step(CALL).await;
        let result = {
            let disk = &mut *self.disk();
            match absent_is_none(disk.tree.resolve(path, false)) {
                Ok(Some(real)) => disk.take(&real).map(drop),
                Ok(None) => Ok(()),
                Err(e) => Err(e),
            }
        };
        self.step(CALL).await;
        result
    }

    async fn watch(&self, path: &Path) -> io::Result<FolderEvents> {
        if !self.begin("watch", path).await? {
            return Ok(Box::pin(futures_util::stream::pending()));
        }
        let events = {
            let disk = &mut *self.disk();
            let real = disk.tree.resolve(path, true)?;
            let is_file = match disk.tree.get(&real) {
                Some(node) => !matches!(node, Node::Folder { .. }),
                None => return Err(errno(libc::ENOENT)),
            };
            disk.watches.add(real, is_file)
        };
        self.step("watch").await;
        events
    }
}
