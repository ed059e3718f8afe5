//! A file system in memory, and the command line as one text.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use crablet_config::{Command, Environment, Files, FolderEntry, UsageError};

pub struct Tree(pub BTreeMap<PathBuf, Vec<u8>>);

impl Files for &Tree {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.0.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<FolderEntry>> {
        let mut entries: BTreeMap<OsString, bool> = BTreeMap::new();
        for path in self.0.keys() {
            let Ok(rest) = path.strip_prefix(folder) else { continue };
            let mut parts = rest.components();
            if let Some(first) = parts.next() {
                entries.insert(first.as_os_str().to_owned(), parts.next().is_some());
            }
        }
        if entries.is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(entries.into_iter().map(|(name, is_folder)| FolderEntry { name, is_folder }).collect())
    }

    fn absolute(&self, path: &Path) -> PathBuf {
        Path::new("/cwd").join(path)
    }
}

pub fn parse(args: &str, files: &Tree) -> Result<Command, UsageError> {
    let env = Environment { hostname: "Node1\n".to_owned() };
    crablet_config::parse(args.split_whitespace().map(OsString::from), &env, files)
}
