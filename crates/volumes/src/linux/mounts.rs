//! The mount table, and file systems in memory.

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::port::{MemoryFs, Mounted};

pub fn at_or_below(path: &Path) -> io::Result<Vec<Mounted>> {
    let table = fs::read("/proc/self/mountinfo")?;
    // A full node has a thousand lines, of which few are asked for.
    let lines = table.split(|byte| *byte == b'\n').filter(|line| is_at_or_below(line, path));
    Ok(lines.filter_map(parse).collect())
}

fn is_at_or_below(line: &[u8], path: &Path) -> bool {
    let Some(field) = line.split(|byte| *byte == b' ').nth(4) else { return false };
    match field.contains(&b'\\') {
        true => unescaped(field).starts_with(path),
        false => Path::new(OsStr::from_bytes(field)).starts_with(path),
    }
}

/// `36 35 98:0 /root /mount/point rw,noatime shared:1 - ext3 /dev/root rw,errors=continue`
fn parse(line: &[u8]) -> Option<Mounted> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    // Optional fields end with a dash.
    let dash = fields.iter().skip(6).position(|field| *field == b"-")? + 6;
    let text = |index: usize| Some(String::from_utf8_lossy(fields.get(index)?).into_owned());
    Some(Mounted {
        path: unescaped(fields.get(4)?),
        fs_type: text(dash + 1)?,
        options: text(dash + 3).unwrap_or_default(),
    })
}

/// Blanks and such are written as a backslash and three octal digits.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let digits = (first == b'\\').then(|| tail.get(..3)).flatten();
        let code = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &tail[3..] } else { tail };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

pub fn mount(fs: &MemoryFs, target: &Path, noswap: &AtomicBool) -> io::Result<()> {
    match fs {
        MemoryFs::Tmpfs { size } => {
            if noswap.load(Ordering::Relaxed) {
                match mount_with("tmpfs", "tmpfs", target, tmpfs_options(*size, true)) {
                    // An old kernel, or a user namespace.
                    Err(Errno::INVAL) => {}
                    mounted => return Ok(mounted?),
                }
                mount_with("tmpfs", "tmpfs", target, tmpfs_options(*size, false))?;
                noswap.store(false, Ordering::Relaxed);
                return Ok(());
            }
            Ok(mount_with("tmpfs", "tmpfs", target, tmpfs_options(*size, false))?)
        }
        MemoryFs::HugePages { page_size } => {
            Ok(mount_with("nodev", "hugetlbfs", target, format!("pagesize={page_size}"))?)
        }
    }
}

fn tmpfs_options(size: i64, noswap: bool) -> String {
    let size = (size > 0).then(|| format!("size={size}"));
    let noswap = noswap.then(|| "noswap".to_owned());
    [size, noswap].into_iter().flatten().collect::<Vec<_>>().join(",")
}

fn mount_with(source: &str, fs_type: &str, target: &Path, options: String) -> rustix::io::Result<()> {
    let options = CString::new(options).map_err(|_| Errno::INVAL)?;
    rustix::mount::mount(source, target, fs_type, MountFlags::empty(), options.as_c_str())
}

pub fn unmount(target: &Path) -> io::Result<()> {
    match rustix::mount::unmount(target, UnmountFlags::NOFOLLOW) {
        // Not a mount point, or not there.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT | Errno::NOTDIR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_table_is_read_with_blanks_and_optional_fields() {
        let line = b"36 35 98:0 / /a\\040b/c rw,noatime shared:1 master:2 - tmpfs tmpfs rw,size=4k";
        let mounted = parse(line).unwrap();
        assert_eq!(mounted.path, Path::new("/a b/c"));
        assert_eq!((mounted.fs_type.as_str(), mounted.options.as_str()), ("tmpfs", "rw,size=4k"));
        assert_eq!(parse(b""), None);
    }
}
