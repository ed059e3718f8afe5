use std::future::pending;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use super::Gate;
use super::faults::{self, DiskChaos, FileFault, FileFaultKind, errno};
use super::tree::{Node, RealPath, Tree};
use super::watches::{WatchFaults, Watches};

/// A disk in memory. Clones share it: the agent gets one and dies with it, the test keeps another and sees what is left.
///
/// Errors are those of Linux. Deaths in the middle of a call leave what a real disk would show: a temporary file beside
/// the old content of a file written atomically, a truncated file written in place, a half-removed tree.
#[derive(Clone)]
pub struct FakeFiles {
    disk: Arc<Mutex<Disk>>,
}

pub(super) struct Disk {
    pub tree: Tree,
    pub watches: Watches,
    rules: Vec<FileFault>,
    chaos: DiskChaos,
    gate: Option<Gate>,
    pub rng: fastrand::Rng,
}

impl FakeFiles {
    pub fn new(rng: fastrand::Rng) -> Self {
        let disk = Disk {
            tree: Tree::new(),
            watches: Watches::default(),
            rules: Vec::new(),
            chaos: DiskChaos::default(),
            gate: None,
            rng,
        };
        Self { disk: Arc::new(Mutex::new(disk)) }
    }

    pub(super) fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap()
    }

    pub fn set_gate(&self, gate: Option<Gate>) {
        self.disk().gate = gate;
    }

    pub fn set_chaos(&self, chaos: DiskChaos) {
        self.disk().chaos = chaos;
    }

    pub fn set_watch_faults(&self, faults: WatchFaults) {
        self.disk().watches.faults = faults;
    }

    pub fn add_fault(&self, fault: FileFault) {
        self.disk().rules.push(fault);
    }

    /// From now on the disk is healthy. Watches that were lost stay lost.
    pub fn clear_faults(&self) {
        let mut disk = self.disk();
        disk.rules.clear();
        disk.chaos = DiskChaos::default();
        disk.watches.faults = WatchFaults::default();
    }

    pub fn break_watches(&self) {
        self.disk().watches.break_all();
    }

    pub fn overflow_watches(&self) {
        self.disk().watches.overflow();
    }

    /// Writes a file from outside the agent, with the folders that lead to it. No fault touches it.
    pub fn put(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let node = Node::file(0o644, content.as_ref());
        self.put_node(path.as_ref(), node);
    }

    pub fn put_folder(&self, path: impl AsRef<Path>) {
        self.disk().make_folders(path.as_ref(), 0o755).expect("a test's folder can be made");
    }

    pub fn put_link(&self, link: impl AsRef<Path>, target: impl AsRef<Path>) {
        self.put_node(link.as_ref(), Node::Link(target.as_ref().to_path_buf()));
    }

    /// A fifo, a socket or a device.
    pub fn put_other(&self, path: impl AsRef<Path>) {
        self.put_node(path.as_ref(), Node::Other);
    }

    fn put_node(&self, path: &Path, node: Node) {
        let mut disk = self.disk();
        if let Some(parent) = path.parent() {
            disk.make_folders(parent, 0o755).expect("a test's folder can be made");
        }
        let follow = !matches!(node, Node::Link(_));
        let real = disk.tree.resolve(path, follow).expect("a test's path resolves");
        disk.place(&real, node).expect("a test's file can be put");
    }

    /// Writes a file as an outsider without the powers of a test would: missing folders are not made.
    pub fn try_put(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> io::Result<()> {
        let mut disk = self.disk();
        let real = disk.tree.resolve(path.as_ref(), true)?;
        disk.place(&real, Node::file(0o640, content.as_ref()))
    }

    /// Moves something from outside the agent, as editors do when they save.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        let mut disk = self.disk();
        let from = disk.tree.resolve(from.as_ref(), false)?;
        let to = disk.tree.resolve(to.as_ref(), false)?;
        let node = disk.tree.remove(&from)?.ok_or_else(|| errno(libc::ENOENT))?;
        let Disk { watches, rng, .. } = &mut *disk;
        let cookie = watches.moved_away(&from, rng);
        disk.tree.replace(&to, node)?;
        let Disk { watches, rng, .. } = &mut *disk;
        watches.moved_here(&to, cookie, rng);
        Ok(())
    }

    /// Removes a file or a tree from outside the agent. Says whether something was there.
    pub fn remove(&self, path: impl AsRef<Path>) -> bool {
        let mut disk = self.disk();
        let Ok(real) = disk.tree.resolve(path.as_ref(), false) else { return false };
        matches!(disk.take(&real), Ok(Some(_)))
    }

    /// A file's content as an outsider reads it.
    pub fn content(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        match self.disk().tree.find(path.as_ref(), true) {
            Ok(Node::File { content, .. }) => Some(content.clone()),
            _ => None,
        }
    }

    pub fn mode(&self, path: impl AsRef<Path>) -> Option<u32> {
        match self.disk().tree.find(path.as_ref(), true) {
            Ok(Node::File { mode, .. } | Node::Folder { mode, .. }) => Some(*mode),
            _ => None,
        }
    }

    /// Every path on the disk, sorted: `folder/`, `file`, `link -> target`, `fifo|`.
    pub fn paths(&self) -> Vec<String> {
        self.disk().tree.paths()
    }

    /// The paths below a folder, as [`Self::paths`] prints them.
    pub fn paths_below(&self, folder: impl AsRef<Path>) -> Vec<String> {
        let prefix = format!("{}/", folder.as_ref().display());
        self.paths().into_iter().filter(|path| path.starts_with(&prefix) && *path != prefix).collect()
    }

    /// One step of a call: where the agent may die.
    pub(super) async fn step(&self, call: &'static str) {
        let gate = self.disk().gate.clone();
        if let Some(gate) = gate
            && !gate(call)
        {
            pending::<()>().await;
        }
    }

    /// The first step of every call: `Ok(false)` when the call shall do nothing and claim success.
    pub(super) async fn begin(&self, call: &'static str, path: &Path) -> io::Result<bool> {
        // A real disk is asked on another thread, which always gives others a turn.
        tokio::task::yield_now().await;
        self.step(call).await;
        let fault = {
            let disk = &mut *self.disk();
            faults::choose(&mut disk.rules, &disk.chaos, &mut disk.rng, call, path)
        };
        match fault {
            None => Ok(true),
            Some(FileFaultKind::Errno(code)) => {
                if call == "write_in_place" {
                    // The file was opened and truncated before the disk turned out to be full.
                    let _ = self.disk().truncate(path);
                }
                Err(errno(code))
            }
            Some(FileFaultKind::Slow(time)) => {
                tokio::time::sleep(time).await;
                Ok(true)
            }
            Some(FileFaultKind::Hang) => pending().await,
            Some(FileFaultKind::Forget) => Ok(false),
        }
    }

    /// A call whose effect is a single change of the tree.
    pub(super) async fn simple<T: Default>(
        &self,
        call: &'static str,
        path: &Path,
        effect: impl FnOnce(&mut Disk) -> io::Result<T>,
    ) -> io::Result<T> {
        if !self.begin(call, path).await? {
            return Ok(T::default());
        }
        let result = effect(&mut self.disk());
        self.step(call).await;
        result
    }
}

impl Disk {
    pub(super) fn make_folders(&mut self, path: &Path, mode: u32) -> io::Result<()> {
        for made in self.tree.make_folders(path, mode)? {
            self.watches.changed(&made, &mut self.rng);
        }
        Ok(())
    }

    pub(super) fn place(&mut self, path: &RealPath, node: Node) -> io::Result<()> {
        self.tree.replace(path, node)?;
        self.watches.changed(path, &mut self.rng);
        Ok(())
    }

    pub(super) fn take(&mut self, path: &RealPath) -> io::Result<Option<Node>> {
        let node = self.tree.remove(path)?;
        if node.is_some() {
            self.watches.gone(path, &mut self.rng);
        }
        Ok(node)
    }

    /// Opens a file for writing in place: creates it, or empties it and keeps its mode. Refuses a link in the last
    /// component.
    pub(super) fn truncate(&mut self, path: &Path) -> io::Result<(RealPath, Option<u32>)> {
        let real = self.tree.resolve(path, false)?;
        let mode = match self.tree.get(&real) {
            Some(Node::File { mode, .. }) => Some(*mode),
            Some(Node::Link(_)) => return Err(errno(libc::ELOOP)),
            Some(Node::Folder { .. }) => return Err(errno(libc::EISDIR)),
            Some(Node::Other) => return Err(errno(libc::ENXIO)),
            None => None,
        };
        self.tree.replace(&real, Node::file(mode.unwrap_or(0o600), &[]))?;
        Ok((real, mode))
    }
}
