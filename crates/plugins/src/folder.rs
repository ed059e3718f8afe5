//! Which sockets there are below a folder.
//!
//! Every change wakes a look at the whole: it holds a handful of sockets, and a look misses nothing.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crablet_host::changes::Changes;

/// A folder deeper than this was made to harm.
const DEEPEST: usize = 16;
const MODE: u32 = 0o750;

/// Which socket it is: one that is made anew under the same name is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
    born: Option<SystemTime>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub sockets: BTreeMap<PathBuf, Identity>,
    folders: Vec<PathBuf>,
}

/// Looks, and stands ready to tell of the next change; `None` where the kernel has no watches left.
pub async fn look(root: &Path) -> io::Result<(Seen, Option<Changes>)> {
    let root = root.to_owned();
    let looked = tokio::task::spawn_blocking(move || {
        fs::DirBuilder::new().recursive(true).mode(MODE).create(&root)?;
        let mut folders = seen_in(&root)?.folders;
        // Watches stand before the look that counts. A folder that came meanwhile needs one too.
        loop {
            let changes = Changes::of(folders.clone());
            let seen = seen_in(&root)?;
            if seen.folders == folders {
                return Ok((seen, changes.ok()));
            }
            folders = seen.folders;
        }
    });
    looked.await.map_err(io::Error::other)?
}

fn seen_in(root: &Path) -> io::Result<Seen> {
    let mut seen = Seen::default();
    let mut open = vec![(root.to_owned(), 0)];
    while let Some((folder, depth)) = open.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            // It went away meanwhile.
            Err(_) if depth > 0 => continue,
            Err(error) => return Err(error),
        };
        seen.folders.push(folder);
        for entry in entries.flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let Ok(about) = entry.metadata() else { continue };
            if about.is_dir() && depth < DEEPEST {
                open.push((entry.path(), depth + 1));
            } else if about.file_type().is_socket() {
                let identity =
                    Identity { device: about.dev(), inode: about.ino(), born: about.created().ok() };
                seen.sockets.insert(entry.path(), identity);
            }
        }
    }
    seen.folders.sort();
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn sockets_are_found_at_any_depth_and_hidden_ones_are_not() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::create_dir_all(dir.path().join(".hidden")).unwrap();
        fs::write(dir.path().join("file.sock"), "").unwrap();
        let _listeners: Vec<_> = ["x.sock", "a/b/y.sock", ".z.sock", ".hidden/w.sock"]
            .iter()
            .map(|name| UnixListener::bind(dir.path().join(name)).unwrap())
            .collect();
        let seen = seen_in(dir.path()).unwrap();
        let names: Vec<_> = seen.sockets.keys().map(|path| path.strip_prefix(dir.path()).unwrap()).collect();
        assert_eq!(names, [Path::new("a/b/y.sock"), Path::new("x.sock")]);
        assert_eq!(seen.folders.len(), 3);
    }

    #[test]
    fn a_socket_made_anew_is_another_but_new_permissions_do_not_make_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let first = seen_in(dir.path()).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(seen_in(dir.path()).unwrap(), first);
        drop(listener);
        fs::remove_file(&path).unwrap();
        let _listener = UnixListener::bind(&path).unwrap();
        assert_ne!(seen_in(dir.path()).unwrap(), first);
    }
}
