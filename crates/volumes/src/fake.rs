//! A host in memory, for tests and the simulation: no real disk, thread or clock.
//!
//! | module | what it is |
//! |---|---|
//! | `tree` | folders, files, links and mounts by path |
//!
//! A payload is written in the steps of the real writer, with a place to die between each. What is bound is not
//! mirrored at its target: only the mount table knows of it.

mod tree;

use std::future::pending;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use crablet_host::fake::{FileFault, FileFaultKind, Gate};

use crate::payload::Payload;
use crate::port::{
    GroupChange, MemoryFs, MountFrom, Mounted, PathKind, SubPathError, ToolEnd, Usage, VolumeHost, Walk,
};
use tree::{Node, Tree};

/// As long as the real one waits for a dead disk.
const GIVES_UP_AFTER: Duration = Duration::from_secs(60);

/// Clones share the machine: the agent gets one and dies with it, the test keeps another and sees what is left.
#[derive(Clone, Default)]
pub struct FakeVolumeHost {
    machine: Arc<Mutex<Machine>>,
}

#[derive(Default)]
struct Machine {
    tree: Tree,
    rules: Vec<FileFault>,
    /// How probable it is that a call fails with `EIO`, and the chance that decides.
    chaos: f64,
    rng: Option<fastrand::Rng>,
    gate: Option<Gate>,
    /// What tools answer, by how their command line begins; and what was run.
    answers: Vec<(String, ToolEnd)>,
    ran: Vec<String>,
}

impl FakeVolumeHost {
    pub fn new(rng: fastrand::Rng) -> Self {
        let host = Self::default();
        host.machine().rng = Some(rng);
        host
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(|dead| dead.into_inner())
    }

    pub fn set_gate(&self, gate: Option<Gate>) {
        self.machine().gate = gate;
    }

    /// Any call fails with this probability.
    pub fn set_chaos(&self, chance: f64) {
        self.machine().chaos = chance;
    }

    /// From now on a command line that begins so ends so. The last one that fits counts; others end well.
    pub fn answer(&self, command: &str, code: i32, output: &str) {
        let end = ToolEnd { code, output: output.to_owned() };
        self.machine().answers.push((command.to_owned(), end));
    }

    /// The command lines since the last time.
    pub fn take_commands(&self) -> Vec<String> {
        std::mem::take(&mut self.machine().ran)
    }

    pub fn put_file(&self, path: impl AsRef<Path>, content: &str) {
        self.machine().tree.put(path.as_ref(), Node::file(content.as_bytes(), 0o644, None));
    }

    pub fn add_fault(&self, fault: FileFault) {
        self.machine().rules.push(fault);
    }

    /// From now on the machine is healthy.
    pub fn clear_faults(&self) {
        let mut machine = self.machine();
        machine.rules.clear();
        machine.chaos = 0.0;
    }

    /// The machine starts again: mounts are gone, and what was in memory with them.
    pub fn reboot(&self) {
        let tree = &mut self.machine().tree;
        while let Some(mounted) = tree.mounts.last().map(|mounted| mounted.path.clone()) {
            tree.unmount(&mounted);
        }
    }

    /// Puts something there from outside the agent, with the folders that lead to it.
    pub fn put(&self, path: impl AsRef<Path>, kind: PathKind) {
        let node = match kind {
            PathKind::Folder => Node::folder(0o755),
            PathKind::File => Node::file(b"", 0o644, None),
            other => Node::Special(other),
        };
        self.machine().tree.put(path.as_ref(), node);
    }

    pub fn put_link(&self, path: impl AsRef<Path>, target: impl AsRef<Path>) {
        self.machine().tree.put(path.as_ref(), Node::Link(target.as_ref().to_owned()));
    }

    /// A file's content as a container reads it, through links.
    pub fn content(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let tree = &self.machine().tree;
        match tree.get(&tree.resolve(path.as_ref()).ok()?)? {
            Node::File { content, .. } => Some(content.clone()),
            _ => None,
        }
    }

    /// Mode, owner and group of what a path leads to; `None` where nobody set them.
    pub fn access(&self, path: impl AsRef<Path>) -> Option<(u32, Option<u32>, Option<u32>)> {
        let tree = &self.machine().tree;
        match tree.get(&tree.resolve(path.as_ref()).ok()?)? {
            Node::Folder { mode, group } => Some((*mode, None, *group)),
            Node::File { mode, owner, group, .. } => Some((*mode, *owner, *group)),
            Node::Link(_) | Node::Special(_) => None,
        }
    }

    /// The mount table below a path, in the order of mounting.
    pub fn mounted_below(&self, path: impl AsRef<Path>) -> Vec<Mounted> {
        self.machine().tree.mounts_below(path.as_ref())
    }

    /// Everything at or below a path, sorted: `folder/`, `file`, `link -> target`.
    pub fn paths_below(&self, path: impl AsRef<Path>) -> Vec<String> {
        self.machine().tree.paths_below(path.as_ref())
    }

    /// A place to die.
    async fn step(&self, call: &'static str) {
        let gate = self.machine().gate.clone();
        if let Some(gate) = gate
            && !gate(call)
        {
            pending::<()>().await;
        }
    }

    /// A call that is one change of the tree.
    async fn call<T: Default>(
        &self,
        call: &'static str,
        path: &Path,
        effect: impl FnOnce(&mut Tree) -> io::Result<T>,
    ) -> io::Result<T> {
        if !self.begin(call, path).await? {
            return Ok(T::default());
        }
        let result = effect(&mut self.machine().tree);
        self.step(call).await;
        result
    }

    /// `Ok(false)` when the call shall claim success and do nothing.
    async fn begin(&self, call: &'static str, path: &Path) -> io::Result<bool> {
        // The real one asks another thread, which gives others a turn.
        tokio::task::yield_now().await;
        self.step(call).await;
        let fault = self.machine().fault(call, path);
        match fault {
            None => Ok(true),
            Some(FileFaultKind::Errno(code)) => Err(io::Error::from_raw_os_error(code)),
            Some(FileFaultKind::Slow(time)) => {
                tokio::time::sleep(time).await;
                Ok(true)
            }
            // The real one gives up waiting as well.
            Some(FileFaultKind::Hang) => {
                tokio::time::sleep(GIVES_UP_AFTER).await;
                Err(io::ErrorKind::TimedOut.into())
            }
            Some(FileFaultKind::Forget) => Ok(false),
        }
    }
}

impl Machine {
    fn fault(&mut self, call: &str, path: &Path) -> Option<FileFaultKind> {
        let path = path.to_string_lossy();
        let hits = |rule: &&mut FileFault| {
            rule.call.is_none_or(|name| name == call)
                && rule.times != Some(0)
                && path.contains(&rule.path_contains)
        };
        if let Some(rule) = self.rules.iter_mut().find(hits) {
            rule.times = rule.times.map(|times| times - 1);
            return Some(rule.kind.clone());
        }
        let failing = self.chaos > 0.0 && self.rng.as_mut().is_some_and(|rng| rng.f64() < self.chaos);
        failing.then(|| FileFaultKind::Errno(rustix::io::Errno::IO.raw_os_error()))
    }
}

#[async_trait]
impl VolumeHost for FakeVolumeHost {
    async fn kind(&self, path: &Path) -> io::Result<Option<PathKind>> {
        self.call("kind", path, |tree| tree.kind(path)).await
    }

    async fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.call("names", folder, |tree| Ok(tree.names(folder))).await
    }

    async fn make_folder(&self, path: &Path, mode: u32, parents: u32) -> io::Result<()> {
        self.call("make_folder", path, |tree| tree.make_folder(path, mode, parents)).await
    }

    async fn make_file(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.call("make_file", path, |tree| tree.make_file(path, mode)).await
    }

    async fn write_payload(
        &self,
        folder: &Path,
        payload: Arc<Payload>,
        name: &str,
        group: Option<u32>,
    ) -> io::Result<bool> {
        const CALL: &str = "write_payload";
        if !self.begin(CALL, folder).await? {
            return Ok(true);
        }
        if self.machine().tree.holds(folder, &payload) {
            self.machine().tree.show_payload(folder, &payload);
            return Ok(false);
        }
        self.machine().tree.put_payload(folder, &payload, name, group)?;
        self.step(CALL).await;
        self.machine().tree.put(&folder.join("..data"), Node::Link(name.into()));
        self.step(CALL).await;
        self.machine().tree.show_payload(folder, &payload);
        self.step(CALL).await;
        self.machine().tree.clean_up_payload(folder, &payload, name);
        self.step(CALL).await;
        Ok(true)
    }

    async fn set_group(&self, folder: &Path, change: GroupChange, walk: Arc<Walk>) -> io::Result<()> {
        let GroupChange { group, read_only, only_on_mismatch } = change;
        self.call("set_group", folder, |tree| {
            if only_on_mismatch && tree.group(folder) == Some(group) {
                return Ok(());
            }
            walk.files.fetch_add(1, Ordering::Relaxed);
            tree.set_group(folder, group, read_only)
        })
        .await
    }

    async fn group_of(&self, folder: &Path) -> io::Result<u32> {
        self.call("group_of", folder, |tree| Ok(tree.group(folder).unwrap_or_default())).await
    }

    async fn mounts(&self, path: &Path) -> io::Result<Vec<Mounted>> {
        self.call("mounts", path, |tree| Ok(tree.mounts_below(path))).await
    }

    async fn mount(&self, fs: &MemoryFs, target: &Path) -> io::Result<()> {
        let (fs_type, options) = match fs {
            MemoryFs::Tmpfs { size } => ("tmpfs", format!("size={size}")),
            MemoryFs::HugePages { page_size } => ("hugetlbfs", format!("pagesize={page_size}")),
        };
        let mounted = Mounted { fs_type: fs_type.to_owned(), options, ..Default::default() };
        self.call("mount", target, |tree| tree.mount(target, mounted)).await
    }

    async fn mount_from(&self, wish: &MountFrom, target: &Path) -> Result<(), String> {
        let mounted = Mounted {
            fs_type: wish.fs_type.clone(),
            options: wish.options.join(","),
            source: wish.source.clone(),
            device: wish.source.clone(),
            root: "/".into(),
            ..Default::default()
        };
        let done = self.call("mount_from", target, |tree| tree.mount(target, mounted)).await;
        done.map_err(|error| format!("mount failed: {}", crate::port::reason(&error)))
    }

    async fn bind(&self, source: &Path, target: &Path, options: &[String]) -> io::Result<()> {
        self.call("bind", target, |tree| tree.bind_whole(source, target, options)).await
    }

    async fn unmount(&self, target: &Path, _: bool) -> io::Result<()> {
        self.call("unmount", target, |tree| {
            tree.unmount(target);
            Ok(())
        })
        .await
    }

    async fn bind_sub_path(&self, root: &Path, sub_path: &str, target: &Path) -> Result<(), SubPathError> {
        let bound = self.call("bind_sub_path", target, |tree| {
            let root = &tree.behind(root);
            let full = root.join(sub_path);
            if tree.kind(&full)?.is_none() {
                tree.make_folder(&full, 0o777, 0o777)?;
            }
            let real = tree.resolve(&full)?;
            if !real.starts_with(tree.resolve(root)?) {
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, "not within the volume"));
            }
            tree.bind(&real, target)
        });
        bound.await.map_err(SubPathError::Prepare)
    }

    async fn remove_tree(&self, path: &Path) -> io::Result<()> {
        self.call("remove_tree", path, |tree| tree.remove(path)).await
    }

    async fn remove_folder(&self, path: &Path) -> io::Result<()> {
        self.call("remove_folder", path, |tree| match tree.names(path).is_empty() {
            true => tree.remove(path),
            false => Err(io::ErrorKind::DirectoryNotEmpty.into()),
        })
        .await
    }

    async fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.call("remove_file", path, |tree| tree.remove(path)).await
    }

    async fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        self.call("real_path", path, |tree| {
            let real = tree.resolve(path)?;
            tree.get(&real).map(|_| real).ok_or_else(|| io::ErrorKind::NotFound.into())
        })
        .await
    }

    async fn put_link(&self, target: &Path, link: &Path) -> io::Result<()> {
        self.call("put_link", link, |tree| {
            tree.put(link, Node::Link(target.to_owned()));
            Ok(())
        })
        .await
    }

    async fn read_file(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        self.call("read_file", path, |tree| {
            Ok(match tree.get(&tree.resolve(path)?) {
                Some(Node::File { content, .. }) => Some(content.clone()),
                _ => None,
            })
        })
        .await
    }

    async fn write_file(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.call("write_file", path, |tree| {
            tree.put(path, Node::file(content, 0o640, None));
            Ok(())
        })
        .await
    }

    async fn run(&self, program: &str, args: &[&str], _: Duration) -> io::Result<ToolEnd> {
        let command = [&[program], args].concat().join(" ");
        if !self.begin("run", Path::new(&command)).await? {
            return Ok(ToolEnd::default());
        }
        let end = {
            let mut machine = self.machine();
            let fits = machine.answers.iter().rev().find(|(start, _)| command.starts_with(start.as_str()));
            let end = fits.map(|(_, end)| end.clone()).unwrap_or_default();
            machine.ran.push(command);
            end
        };
        self.step("run").await;
        Ok(end)
    }

    async fn usage_of_file_system(&self, path: &Path) -> io::Result<Usage> {
        let whole =
            Usage { capacity: 100, available: 60, used: 40, inodes: 10, inodes_free: 6, inodes_used: 4 };
        self.call("usage", path, |_| Ok(whole)).await
    }

    async fn usage_of_folder(&self, path: &Path) -> io::Result<Usage> {
        let folder =
            Usage { capacity: 100, available: 60, used: 5, inodes: 10, inodes_free: 6, inodes_used: 1 };
        self.call("usage", path, |_| Ok(folder)).await
    }
}
