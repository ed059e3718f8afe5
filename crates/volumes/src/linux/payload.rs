//! Files that change all at once.
//!
//! ```text
//!   ..data  -> ..2026_01_31_12_00_00.1234567890     swapped by a rename
//!   key     -> ..data/key
//!   folder  -> ..data/folder                        only first elements are linked
//! ```
//!
//! A death at any step leaves the old or the new files in sight; what is left over goes with the next write.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, fchown, lchown, symlink};
use std::path::{Component, Path, PathBuf};

use super::ownership;
use crate::payload::{Payload, PayloadFile};
use crate::port::{GroupChange, Walk};

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";

pub fn write(folder: &Path, payload: &Payload, name: &str, group: Option<u32>) -> io::Result<bool> {
    let current = current(folder)?;
    let equal = match &current {
        Some(current) => holds(&folder.join(current), payload)?,
        None => false,
    };
    if !equal {
        let swapped = make(folder, payload, name, group).and_then(|()| swap(folder, name));
        if swapped.is_err() {
            let _ = fs::remove_dir_all(folder.join(name));
        }
        swapped?;
    }
    let shown = payload.visible();
    for (entry, owner) in &shown {
        show(folder, entry, *owner)?;
    }
    if !equal {
        clean_up(folder, name, &shown.keys().copied().collect())?;
    }
    Ok(!equal)
}

/// The folder that `..data` names. A link that is not the writer's own counts as none.
fn current(folder: &Path) -> io::Result<Option<PathBuf>> {
    match fs::read_link(folder.join(DATA)) {
        Ok(target) => {
            let mut parts = target.components();
            let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
            Ok(plain.then_some(target))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the folder holds exactly these contents. Modes and owners are not compared, as upstream does not.
fn holds(folder: &Path, payload: &Payload) -> io::Result<bool> {
    let mut left = payload.len();
    let mut folders = vec![PathBuf::new()];
    while let Some(inner) = folders.pop() {
        let entries = match fs::read_dir(folder.join(&inner)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let path = inner.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push(path);
                continue;
            }
            let wanted = path.to_str().and_then(|path| payload.get(path));
            let Some(wanted) = wanted.filter(|_| entry.file_type().is_ok_and(|kind| kind.is_file())) else {
                return Ok(false);
            };
            if entry.metadata()?.len() != wanted.content.len() as u64
                || fs::read(entry.path())? != wanted.content
            {
                return Ok(false);
            }
            left -= 1;
        }
    }
    Ok(left == 0)
}

fn make(folder: &Path, payload: &Payload, name: &str, group: Option<u32>) -> io::Result<()> {
    let new = folder.join(name);
    fs::create_dir(&new)?;
    fs::set_permissions(&new, Permissions::from_mode(0o755))?;
    for (path, file) in payload.files() {
        let path = new.join(path);
        if let Some(parent) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
        }
        write_file(&path, file)?;
    }
    match group {
        // Over the whole volume: links and mount points of other volumes lie beside the new folder.
        Some(group) => {
            let change = GroupChange { group, read_only: true, only_on_mismatch: false };
            ownership::set_group(folder, change, &Walk::default())
        }
        None => Ok(()),
    }
}

fn write_file(path: &Path, file: &PayloadFile) -> io::Result<()> {
    let mut made = OpenOptions::new().write(true).create_new(true).mode(file.mode & 0o700).open(path)?;
    made.write_all(&file.content)?;
    if file.owner.is_some() {
        fchown(&made, file.owner, None)?;
    }
    // The umask is not meant to decide here.
    made.set_permissions(Permissions::from_mode(file.mode))
}

fn swap(folder: &Path, name: &str) -> io::Result<()> {
    let new_link = folder.join(NEW_DATA);
    // Left over by a death between the two steps.
    match fs::remove_file(&new_link) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    symlink(name, &new_link)?;
    fs::rename(&new_link, folder.join(DATA))
}

fn show(folder: &Path, entry: &str, owner: Option<u32>) -> io::Result<()> {
    let link = folder.join(entry);
    match fs::symlink_metadata(&link) {
        // The link, or the place of a volume that is mounted in this one and hides the file, as upstream.
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    symlink(Path::new(DATA).join(entry), &link)?;
    if owner.is_some() { lchown(&link, owner, None) } else { Ok(()) }
}

/// Removes links to what is no longer there, and all folders of files but the new one.
fn clean_up(folder: &Path, name: &str, shown: &BTreeSet<&str>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (own, kind) = (entry.file_name(), entry.file_type()?);
        if kind.is_symlink() {
            let ours = fs::read_link(entry.path()).is_ok_and(|target| target == Path::new(DATA).join(&own));
            if ours && !own.to_str().is_some_and(|own| shown.contains(own)) {
                fs::remove_file(entry.path())?;
            }
        } else if kind.is_dir() && own.as_encoded_bytes().starts_with(b"..") && own != OsStr::new(name) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
