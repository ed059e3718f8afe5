use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::port::PathKind;

const MOST_OF_A_FILE: u64 = 1 << 20;

pub fn kind(path: &Path) -> io::Result<Option<PathKind>> {
    let kind = match fs::metadata(path) {
        Ok(found) => found.file_type(),
        Err(error) if absent(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(match kind {
        kind if kind.is_dir() => PathKind::Folder,
        kind if kind.is_file() => PathKind::File,
        kind if kind.is_socket() => PathKind::Socket,
        kind if kind.is_char_device() => PathKind::CharDevice,
        kind if kind.is_block_device() => PathKind::BlockDevice,
        _ => PathKind::Other,
    }))
}

pub fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if absent(&error) => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

pub fn make_folder(path: &Path, mode: u32, parents: u32) -> io::Result<()> {
    let mut made = fs::create_dir(path);
    if let Err(error) = &made
        && error.kind() == ErrorKind::NotFound
        && let Some(parent) = path.parent()
    {
        make_folder(parent, parents, parents)?;
        made = fs::create_dir(path);
    }
    match made {
        Ok(()) => return fs::set_permissions(path, Permissions::from_mode(mode)),
        // It was there, or somebody who makes one beside it was faster.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let found = fs::symlink_metadata(path)?;
    if !found.is_dir() {
        return Err(ErrorKind::NotADirectory.into());
    }
    // Bits besides the permissions are somebody's choice: the group's, for one.
    match found.permissions().mode() {
        bits if bits & 0o777 != mode & 0o777 => {
            fs::set_permissions(path, Permissions::from_mode(bits & 0o7000 | mode))
        }
        _ => Ok(()),
    }
}

pub fn make_file(path: &Path, mode: u32) -> io::Result<()> {
    let made = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made.map(drop),
    }
}

pub fn remove_folder(path: &Path) -> io::Result<()> {
    match fs::remove_dir(path) {
        Err(error) if absent(&error) => Ok(()),
        removed => removed,
    }
}

pub fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if absent(&error) => Ok(()),
        removed => removed,
    }
}

pub fn put_link(target: &Path, link: &Path) -> io::Result<()> {
    match fs::symlink_metadata(link) {
        Ok(found) if found.is_symlink() => fs::remove_file(link)?,
        Ok(_) => return Err(ErrorKind::AlreadyExists.into()),
        Err(error) if absent(&error) => {}
        Err(error) => return Err(error),
    }
    std::os::unix::fs::symlink(target, link)
}

pub fn read_file(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut content = Vec::new();
    match fs::File::open(path) {
        Err(error) if absent(&error) => return Ok(None),
        file => file?.take(MOST_OF_A_FILE).read_to_end(&mut content)?,
    };
    Ok(Some(content))
}

pub fn write_file(path: &Path, content: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o640).open(path)?.write_all(content)
}

pub fn absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn two_who_make_folders_beside_each_other_do_not_disturb_each_other() {
        let root = tempfile::tempdir().unwrap();
        for round in 0..100 {
            let start = Barrier::new(2);
            let make = |name: &str| {
                start.wait();
                make_folder(&root.path().join(format!("{round}/kept/by/{name}")), 0o700, 0o750)
            };
            let make = &make;
            thread::scope(|scope| {
                let both = ["one", "two"].map(|name| scope.spawn(move || make(name)));
                for made in both {
                    made.join().unwrap().unwrap();
                }
            });
        }
    }
}
