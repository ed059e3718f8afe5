//! The mount table, and file systems in memory.

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::StatVfsMountFlags;
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
    let asked = options.iter().fold(MountFlags::empty(), |flags, option| flags | flag(option));
    if at_or_below(target)?.iter().any(|mounted| mounted.path == target) {
        return Ok(());
    }
    // The flags are set as a whole: without the source's own, the bind would allow more than the source does.
    let flags = if asked.is_empty() { asked } else { asked | flags_of(source)? };
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

/// What a bind of the path inherits, but for `relatime`: that is what the kernel does where nothing is said.
fn flags_of(path: &Path) -> io::Result<MountFlags> {
    let found = rustix::fs::statvfs(path)?.f_flag;
    let known = [
        (StatVfsMountFlags::RDONLY, MountFlags::RDONLY),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
    ];
    let set = known.into_iter().filter(|(flag, _)| found.contains(*flag));
    Ok(set.fold(MountFlags::empty(), |flags, (_, flag)| flags | flag))
}

/// Options of a file system say nothing to a bind; the kernel passes over them.
fn flag(option: &str) -> MountFlags {
    match option {
        "ro" => MountFlags::RDONLY,
        "noexec" => MountFlags::NOEXEC,
        "nosuid" => MountFlags::NOSUID,
        "nodev" => MountFlags::NODEV,
        "noatime" => MountFlags::NOATIME,
        "nodiratime" => MountFlags::NODIRATIME,
        "relatime" => MountFlags::RELATIME,
        "strictatime" => MountFlags::STRICTATIME,
        "nosymfollow" => MountFlags::NOSYMFOLLOW,
        _ => MountFlags::empty(),
    }
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

    /// A folder without mounts in it at its end, whatever happened.
    struct Room(tempfile::TempDir);

    impl Room {
        fn folder(&self, name: &str) -> PathBuf {
            let folder = fs::canonicalize(self.0.path()).unwrap().join(name);
            fs::create_dir_all(&folder).unwrap();
            folder
        }
    }

    impl Drop for Room {
        fn drop(&mut self) {
            let mounted = fs::canonicalize(self.0.path()).and_then(|path| at_or_below(&path));
            for mounted in mounted.unwrap_or_default().iter().rev() {
                let _ = unmount(&mounted.path);
            }
        }
    }

    #[test]
    fn a_bind_allows_no_more_than_its_source_and_passes_over_options_of_file_systems() {
        let room = Room(tempfile::tempdir().unwrap());
        let source = room.folder("source");
        let strict = MountFlags::NOEXEC | MountFlags::NOSUID;
        rustix::mount::mount("tmpfs", &source, "tmpfs", strict, c"").unwrap();
        let inherited = StatVfsMountFlags::NOEXEC | StatVfsMountFlags::NOSUID;
        let cases: [(&[&str], StatVfsMountFlags); 4] = [
            (&[], inherited),
            (&["discard", "data=ordered", ""], inherited),
            (&["noatime", "discard"], inherited | StatVfsMountFlags::NOATIME),
            (&["ro", "exec"], inherited | StatVfsMountFlags::RDONLY),
        ];
        let asked_for = inherited | StatVfsMountFlags::NOATIME | StatVfsMountFlags::RDONLY;
        for (index, (options, expected)) in cases.into_iter().enumerate() {
            let target = room.folder(&format!("target{index}"));
            let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
            bind(&source, &target, &options).unwrap();
            let found = rustix::fs::statvfs(&target).unwrap().f_flag;
            assert_eq!(found & asked_for, expected, "{options:?}");
        }
    }
}
