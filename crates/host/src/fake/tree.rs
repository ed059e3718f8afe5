use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Component, Path, PathBuf};

use super::faults::errno;

/// As many links as Linux follows before it gives up.
const MAX_LINKS: usize = 40;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Folder {
        mode: u32,
        entries: BTreeMap<String, Node>,
    },
    /// The stamp is another after each write.
    File {
        mode: u32,
        content: Vec<u8>,
        stamp: u64,
    },
    Link(PathBuf),
    /// A fifo, a socket, a device.
    Other,
}

impl Node {
    /// Stamped when it is put in place.
    pub fn file(mode: u32, content: &[u8]) -> Self {
        Self::File { mode, content: content.to_vec(), stamp: 0 }
    }

    pub fn empty_folder(mode: u32) -> Self {
        Self::Folder { mode, entries: BTreeMap::new() }
    }
}

/// A path without links in it, as its components below the root.
pub(super) type RealPath = Vec<String>;

pub(super) struct Tree {
    root: Node,
    writes: u64,
}

impl Tree {
    pub fn new() -> Self {
        Self { root: Node::empty_folder(0o755), writes: 0 }
    }

    /// Resolves links in every component but the last, and there too with `follow_last`. The last component may be
    /// absent; what leads to it must be there.
    pub fn resolve(&self, path: &Path, follow_last: bool) -> io::Result<RealPath> {
        let mut todo = components(path);
        let mut done = RealPath::with_capacity(todo.len());
        let mut here = &self.root;
        let mut links = 0;
        while let Some(part) = todo.pop_front() {
            if part == ".." {
                done.pop();
                here = self.get(&done).expect("what was walked is there");
                continue;
            }
            let Node::Folder { entries, .. } = here else { return Err(errno(libc::ENOTDIR)) };
            let next = entries.get(&part);
            let is_last = todo.is_empty();
            match next {
                Some(Node::Link(target)) if !is_last || follow_last => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(errno(libc::ELOOP));
                    }
                    if target.is_absolute() {
                        done.clear();
                    }
                    here = self.get(&done).expect("what was walked is there");
                    for part in components(target).into_iter().rev() {
                        todo.push_front(part);
                    }
                }
                Some(node) => {
                    here = node;
                    done.push(part);
                }
                None if is_last => done.push(part),
                None => return Err(errno(libc::ENOENT)),
            }
        }
        Ok(done)
    }

    pub fn get(&self, path: &[String]) -> Option<&Node> {
        let mut node = &self.root;
        for part in path {
            let Node::Folder { entries, .. } = node else { return None };
            node = entries.get(part)?;
        }
        Some(node)
    }

    /// What is at a path, links followed; `NotFound` when nothing is.
    pub fn find(&self, path: &Path, follow_last: bool) -> io::Result<&Node> {
        let real = self.resolve(path, follow_last)?;
        self.get(&real).ok_or_else(|| errno(libc::ENOENT))
    }

    fn parent_entries(&mut self, path: &[String]) -> io::Result<(&mut BTreeMap<String, Node>, String)> {
        let (name, parents) = path.split_last().ok_or_else(|| errno(libc::EISDIR))?;
        let mut node = &mut self.root;
        for part in parents {
            let Node::Folder { entries, .. } = node else { return Err(errno(libc::ENOTDIR)) };
            node = entries.get_mut(part).ok_or_else(|| errno(libc::ENOENT))?;
        }
        match node {
            Node::Folder { entries, .. } => Ok((entries, name.clone())),
            _ => Err(errno(libc::ENOTDIR)),
        }
    }

    /// Puts a file or a link in place, over another file or link but never over a folder.
    pub fn replace(&mut self, path: &[String], mut node: Node) -> io::Result<()> {
        self.writes += 1;
        if let Node::File { stamp, .. } = &mut node {
            *stamp = self.writes;
        }
        let (entries, name) = self.parent_entries(path)?;
        if matches!(entries.get(&name), Some(Node::Folder { .. })) {
            return Err(errno(libc::EISDIR));
        }
        entries.insert(name, node);
        Ok(())
    }

    /// Makes a folder and those above it that are missing. Says which paths are new.
    pub fn make_folders(&mut self, path: &Path, mode: u32) -> io::Result<Vec<RealPath>> {
        let mut made = Vec::new();
        let mut so_far = PathBuf::from("/");
        for part in components(path) {
            so_far.push(part);
            let unfollowed = self.resolve(&so_far, false)?;
            let is_link = matches!(self.get(&unfollowed), Some(Node::Link(_)));
            if is_link && self.find(&so_far, true).is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
                // The link's own name is taken, so nothing can be made there, and nothing is made where it leads.
                return Err(errno(libc::ENOTDIR));
            }
            let real = if is_link { self.resolve(&so_far, true)? } else { unfollowed };
            match self.get(&real) {
                Some(Node::Folder { .. }) => {}
                Some(_) => return Err(errno(libc::ENOTDIR)),
                None => {
                    self.replace(&real, Node::empty_folder(mode))?;
                    made.push(real);
                }
            }
        }
        Ok(made)
    }

    /// Takes out whatever is there, with what is below it.
    pub fn remove(&mut self, path: &[String]) -> io::Result<Option<Node>> {
        let (entries, name) = self.parent_entries(path)?;
        Ok(entries.remove(&name))
    }

    /// Every path, sorted, with a mark for its kind: `folder/`, `file`, `link -> target`, `other|`.
    pub fn paths(&self) -> Vec<String> {
        let mut all = Vec::new();
        walk(&self.root, "", &mut all);
        all
    }
}

fn walk(node: &Node, path: &str, all: &mut Vec<String>) {
    match node {
        Node::Folder { entries, .. } => {
            if !path.is_empty() {
                all.push(format!("{path}/"));
            }
            for (name, node) in entries {
                walk(node, &format!("{path}/{name}"), all);
            }
        }
        Node::File { .. } => all.push(path.to_owned()),
        Node::Link(target) => all.push(format!("{path} -> {}", target.display())),
        Node::Other => all.push(format!("{path}|")),
    }
}

fn components(path: &Path) -> VecDeque<String> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(part) => Some(part.to_string_lossy().into_owned()),
            Component::ParentDir => Some("..".to_owned()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect()
}
