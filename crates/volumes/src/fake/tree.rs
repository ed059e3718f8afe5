use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::payload::Payload;
use crate::port::{Mounted, PathKind};

const MAX_LINKS: usize = 40;
const DATA: &str = "..data";

#[derive(Clone, Debug)]
pub enum Node {
    Folder { mode: u32, group: Option<u32> },
    File { content: Vec<u8>, mode: u32, group: Option<u32>, owner: Option<u32> },
    Link(PathBuf),
    Special(PathKind),
}

impl Node {
    pub fn folder(mode: u32) -> Self {
        Self::Folder { mode, group: None }
    }

    pub fn file(content: &[u8], mode: u32, owner: Option<u32>) -> Self {
        Self::File { content: content.to_vec(), mode, group: None, owner }
    }
}

/// Everything by its full path. What is in memory lies below its mount point and goes with the mount.
#[derive(Default)]
pub struct Tree {
    nodes: BTreeMap<PathBuf, Node>,
    /// In the order of mounting.
    pub mounts: Vec<Mounted>,
}

impl Tree {
    pub fn get(&self, path: &Path) -> Option<&Node> {
        self.nodes.get(path)
    }

    pub fn put(&mut self, path: &Path, node: Node) {
        for parent in path.ancestors().skip(1) {
            self.nodes.entry(parent.to_owned()).or_insert(Node::folder(0o755));
        }
        self.nodes.insert(path.to_owned(), node);
    }

    /// Follows links, relative and absolute ones, also the last.
    pub fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        let mut todo: Vec<_> = path.iter().rev().map(|part| part.to_owned()).collect();
        let mut done = PathBuf::new();
        let mut links = 0;
        while let Some(part) = todo.pop() {
            if part == ".." {
                done.pop();
                continue;
            }
            let next = done.join(&part);
            if let Some(Node::Link(target)) = self.nodes.get(&next) {
                links += 1;
                if links > MAX_LINKS {
                    return Err(io::Error::from_raw_os_error(rustix::io::Errno::LOOP.raw_os_error()));
                }
                todo.extend(target.iter().rev().map(|part| part.to_owned()));
            } else {
                // An absolute target starts from the root, because joining it does.
                done = next;
            }
        }
        Ok(done)
    }

    pub fn kind(&self, path: &Path) -> io::Result<Option<PathKind>> {
        Ok(self.nodes.get(&self.resolve(path)?).map(|node| match node {
            Node::Folder { .. } => PathKind::Folder,
            Node::File { .. } => PathKind::File,
            Node::Special(kind) => *kind,
            Node::Link(_) => PathKind::Other,
        }))
    }

    pub fn names(&self, folder: &Path) -> Vec<String> {
        let inside = self.below(folder).filter(|path| path.parent() == Some(folder));
        inside.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect()
    }

    fn below<'a>(&'a self, folder: &'a Path) -> impl Iterator<Item = &'a PathBuf> {
        let from_here = self.nodes.range(folder.to_owned()..).map(|(path, _)| path);
        from_here.take_while(move |path| path.starts_with(folder)).filter(move |path| *path != folder)
    }

    pub fn make_folder(&mut self, path: &Path, mode: u32, parents: u32) -> io::Result<()> {
        for parent in path.ancestors().skip(1) {
            self.nodes.entry(parent.to_owned()).or_insert(Node::folder(parents));
        }
        match self.nodes.entry(path.to_owned()).or_insert(Node::folder(mode)) {
            Node::Folder { mode: found, .. } => *found = *found & 0o7000 | mode,
            _ => return Err(io::ErrorKind::NotADirectory.into()),
        }
        Ok(())
    }

    pub fn make_file(&mut self, path: &Path, mode: u32) -> io::Result<()> {
        let parent = path.parent().and_then(|parent| self.nodes.get(parent));
        if !matches!(parent, Some(Node::Folder { .. })) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.nodes.entry(path.to_owned()).or_insert(Node::file(b"", mode, None));
        Ok(())
    }

    pub fn set_group(&mut self, folder: &Path, to: u32, read_only: bool) -> io::Result<()> {
        let bits = if read_only { 0o440 } else { 0o660 };
        for (_, node) in
            self.nodes.range_mut(folder.to_owned()..).take_while(|(path, _)| path.starts_with(folder))
        {
            match node {
                Node::Folder { mode, group } => (*mode, *group) = (*mode | bits | 0o2110, Some(to)),
                Node::File { mode, group, .. } => (*mode, *group) = (*mode | bits, Some(to)),
                Node::Link(_) | Node::Special(_) => {}
            }
        }
        Ok(())
    }

    /// The whole table begins with the disk that everything lies on.
    pub fn mounts_below(&self, path: &Path) -> Vec<Mounted> {
        let disk = Mounted {
            path: "/".into(),
            root: "/".into(),
            device: "disk".to_owned(),
            fs_type: "ext4".to_owned(),
            ..Default::default()
        };
        let whole = (path == Path::new("/")).then_some(disk);
        let below = self.mounts.iter().filter(|mounted| mounted.path.starts_with(path)).cloned();
        whole.into_iter().chain(below).collect()
    }

    /// The group of what a path leads to.
    pub fn group(&self, path: &Path) -> Option<u32> {
        match self.nodes.get(&self.resolve(path).ok()?)? {
            Node::Folder { group, .. } | Node::File { group, .. } => *group,
            Node::Link(_) | Node::Special(_) => None,
        }
    }

    pub fn mount(&mut self, target: &Path, mounted: Mounted) -> io::Result<()> {
        if !self.nodes.contains_key(target) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.mounts.push(Mounted { path: target.to_owned(), ..mounted });
        Ok(())
    }

    /// Of a part of a volume: another one in the same place goes first.
    pub fn bind(&mut self, source: &Path, target: &Path) -> io::Result<()> {
        let options = source.display().to_string();
        if let Some(mounted) = self.mounts.iter().find(|mounted| mounted.path == target) {
            if mounted.options == options {
                return Ok(());
            }
            self.unmount(target);
        }
        self.put(target, Node::folder(0o750));
        self.mount(target, Mounted { fs_type: "bind".to_owned(), options, ..self.place(source) })
    }

    /// Of a whole volume. The options show after the source.
    pub fn bind_whole(&mut self, source: &Path, target: &Path, options: &[String]) -> io::Result<()> {
        if self.kind(source)?.is_none() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let shown = [&[source.display().to_string()], options].concat().join(",");
        if self.mounts.iter().any(|mounted| mounted.path == target) {
            return Ok(());
        }
        self.mount(target, Mounted { fs_type: "bind".to_owned(), options: shown, ..self.place(source) })
    }

    /// What is bound to the path, or the path itself.
    pub fn behind(&self, path: &Path) -> PathBuf {
        let bound =
            self.mounts.iter().rev().find(|mounted| mounted.path == path && mounted.fs_type == "bind");
        let source = bound.and_then(|mounted| mounted.options.split(',').next());
        source.map_or_else(|| path.to_owned(), PathBuf::from)
    }

    /// Which file system a path is in, and where in it.
    fn place(&self, path: &Path) -> Mounted {
        let around = self.mounts.iter().filter(|mounted| path.starts_with(&mounted.path));
        let Some(nearest) = around.max_by_key(|mounted| mounted.path.as_os_str().len()) else {
            return Mounted { device: "disk".to_owned(), root: path.to_owned(), ..Default::default() };
        };
        let inside = path.strip_prefix(&nearest.path).unwrap_or(path);
        let root =
            if inside.as_os_str().is_empty() { nearest.root.clone() } else { nearest.root.join(inside) };
        Mounted { device: nearest.device.clone(), root, source: nearest.source.clone(), ..Default::default() }
    }

    pub fn unmount(&mut self, target: &Path) {
        let Some(index) = self.mounts.iter().rposition(|mounted| mounted.path == target) else { return };
        if self.mounts.remove(index).fs_type != "bind" {
            self.nodes.retain(|path, _| path == target || !path.starts_with(target));
        }
    }

    pub fn remove(&mut self, path: &Path) -> io::Result<()> {
        if let Some(mounted) = self.mounts.iter().find(|mounted| mounted.path.starts_with(path)) {
            let text = format!("`{}` is a mount point: not removed", mounted.path.display());
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
        }
        self.nodes.retain(|found, _| !found.starts_with(path));
        Ok(())
    }

    pub fn holds(&self, folder: &Path, payload: &Payload) -> bool {
        let Some(Node::Link(current)) = self.nodes.get(&folder.join(DATA)) else { return false };
        let current = folder.join(current);
        let files = self.below(&current).filter(|path| matches!(self.nodes[*path], Node::File { .. }));
        let wanted = payload.files().all(|(path, file)| match self.nodes.get(&current.join(path)) {
            Some(Node::File { content, .. }) => *content == file.content,
            _ => false,
        });
        wanted && files.count() == payload.len()
    }

    pub fn put_payload(
        &mut self,
        folder: &Path,
        payload: &Payload,
        name: &str,
        group: Option<u32>,
    ) -> io::Result<()> {
        if !matches!(self.nodes.get(folder), Some(Node::Folder { .. })) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let new = folder.join(name);
        self.put(&new, Node::folder(0o755));
        for (path, file) in payload.files() {
            self.put(&new.join(path), Node::file(&file.content, file.mode, file.owner));
        }
        group.map_or(Ok(()), |group| self.set_group(folder, group, true))
    }

    pub fn show_payload(&mut self, folder: &Path, payload: &Payload) {
        for name in payload.visible().keys() {
            let link = Node::Link(Path::new(DATA).join(name));
            self.nodes.entry(folder.join(name)).or_insert(link);
        }
    }

    /// Removes links to what is no longer there, and all folders of files but this one.
    pub fn clean_up_payload(&mut self, folder: &Path, payload: &Payload, keep: &str) {
        let shown = payload.visible();
        for name in self.names(folder) {
            let path = folder.join(&name);
            let stale = match &self.nodes[&path] {
                Node::Link(target) => {
                    *target == Path::new(DATA).join(&name) && !shown.contains_key(name.as_str())
                }
                Node::Folder { .. } => name.starts_with("..") && name != keep,
                _ => false,
            };
            if stale {
                self.nodes.retain(|found, _| !found.starts_with(&path));
            }
        }
    }

    pub fn paths_below(&self, path: &Path) -> Vec<String> {
        let all = self.nodes.iter().filter(|(found, _)| found.starts_with(path));
        let text = |(path, node): (&PathBuf, &Node)| match node {
            Node::Folder { .. } => format!("{}/", path.display()),
            Node::Link(target) => format!("{} -> {}", path.display(), target.display()),
            Node::File { .. } | Node::Special(_) => path.display().to_string(),
        };
        all.map(text).collect()
    }
}
