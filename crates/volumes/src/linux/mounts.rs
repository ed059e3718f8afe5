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
        source: unescaped(fields.get(dash + 2)?).to_string_lossy().into_owned(),
        device: text(2)?,
        root: unescaped(fields.get(3)?),
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
    unmount_with(target, UnmountFlags::NOFOLLOW)
}

/// For what hangs on a server that is gone: nobody can use it any more, so it goes at once, and what is left of it when
/// its last user does.
pub fn unmount_by_force(target: &Path) -> io::Result<()> {
    unmount_with(target, UnmountFlags::NOFOLLOW | UnmountFlags::FORCE)
        .or_else(|_| unmount_with(target, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH))
}

fn unmount_with(target: &Path, flags: UnmountFlags) -> io::Result<()> {
    match rustix::mount::unmount(target, flags) {
        // Not a mount point, or not there.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT | Errno::NOTDIR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub fn bind(source: &Path, target: &Path, options: &[String]) -> io::Result<()> {
    let flags = options.iter().try_fold(MountFlags::empty(), |flags, option| Ok(flags | flag(option)?));
    let flags = flags.map_err(|option: String| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("a bind mount knows no option `{option}`"))
    })?;
    if at_or_below(target)?.iter().any(|mounted| mounted.path == target) {
        return Ok(());
    }
    // Not recursively, as upstream: what is mounted inside of it stays out.
    rustix::mount::mount_bind(source, target)?;
    if !flags.is_empty()
        && let Err(error) = rustix::mount::mount_remount(target, MountFlags::BIND | flags, "")
    {
        let _ = unmount(target);
        return Err(error.into());
    }
    Ok(())
}

fn flag(option: &str) -> Result<MountFlags, String> {
    Ok(match option {
        "ro" => MountFlags::RDONLY,
        "noexec" => MountFlags::NOEXEC,
        "nosuid" => MountFlags::NOSUID,
        "nodev" => MountFlags::NODEV,
        "noatime" => MountFlags::NOATIME,
        "nodiratime" => MountFlags::NODIRATIME,
        "relatime" => MountFlags::RELATIME,
        "rw" | "exec" | "suid" | "dev" | "atime" | "defaults" | "bind" | "_netdev" => MountFlags::empty(),
        other => return Err(other.to_owned()),
    })
}

/// Mounts below the folder show in containers that see it, and theirs in it, as those of upstream's root folder do. Before
/// anything is mounted there: later it would hide what is.
pub fn make_shared(folder: &Path) -> io::Result<()> {
    if !at_or_below(folder)?.is_empty() {
        return Ok(());
    }
    let table = fs::read("/proc/self/mountinfo")?;
    // The deepest mount that the folder lies in; of several in one place, the last one.
    let holds = |line: &&[u8]| {
        let place = line.split(|byte| *byte == b' ').nth(4).map(unescaped);
        place.filter(|place| folder.starts_with(place)).map(|place| place.as_os_str().len())
    };
    let line = table.split(|byte| *byte == b'\n').filter(|line| holds(line).is_some()).max_by_key(holds);
    let is_shared = line.is_some_and(|line| {
        let options = line.split(|byte| *byte == b' ').skip(6).take_while(|field| *field != b"-");
        options.into_iter().any(|field| field.starts_with(b"shared:"))
    });
    if is_shared {
        return Ok(());
    }
    rustix::mount::mount_bind_recursive(folder, folder)?;
    let flags = rustix::mount::MountPropagationFlags::SHARED | rustix::mount::MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change(folder, flags)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_table_is_read_with_blanks_and_optional_fields() {
        let line = b"36 35 98:0 / /a\\040b/c rw,noatime shared:1 master:2 - tmpfs tmpfs rw,size=4k";
        let mounted = parse(line).unwrap();
        assert_eq!(mounted.path, Path::new("/a b/c"));
        assert_eq!((mounted.device.as_str(), mounted.source.as_str()), ("98:0", "tmpfs"));
        assert_eq!((mounted.fs_type.as_str(), mounted.options.as_str()), ("tmpfs", "rw,size=4k"));
        assert_eq!(parse(b""), None);
    }
}
