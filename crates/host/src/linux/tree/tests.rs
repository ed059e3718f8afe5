use std::fs;
use std::os::unix::fs::symlink;

use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_change, unmount};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use tempfile::TempDir;

use super::*;

#[test]
fn everything_below_goes_and_what_links_name_stays() {
    let dir = TempDir::new().unwrap();
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("precious"), "").unwrap();

    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    fs::write(tree.join("a/file"), "").unwrap();
    symlink(&outside, tree.join("a/b/link")).unwrap();
    symlink("nowhere", tree.join("broken")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, tree.join("fifo"), Mode::from_raw_mode(0o600)).unwrap();

    remove(&tree).unwrap();
    assert!(!tree.exists());
    assert!(outside.join("precious").exists());
}

#[test]
fn absent_is_fine_and_anything_but_a_folder_is_refused() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    fs::create_dir(dir.path().join("folder")).unwrap();
    symlink("folder", dir.path().join("link")).unwrap();

    remove(&dir.path().join("nothing")).unwrap();
    remove(&dir.path().join("nothing/below")).unwrap();
    remove(&dir.path().join("file/below")).unwrap();
    for refused in ["file", "link", "folder/.."] {
        assert!(remove(&dir.path().join(refused)).is_err(), "{refused}");
    }
    assert!(remove(Path::new("/")).is_err());
    assert!(dir.path().join("folder").exists());
}

#[test]
fn more_files_than_a_batch_holds() {
    let dir = TempDir::new().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for number in 0..BATCH * 2 + 3 {
        fs::write(tree.join(number.to_string()), "").unwrap();
    }
    remove(&tree).unwrap();
    assert!(!tree.exists());
}

#[test]
fn deeper_than_handles_or_a_path_would_allow() {
    let dir = TempDir::new().unwrap();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut folder = rustix::fs::open(dir.path(), flags, Mode::empty()).unwrap();
    for name in std::iter::once("tree").chain(std::iter::repeat_n("down", 1200)) {
        rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o700)).unwrap();
        rustix::fs::mkdirat(&folder, "sibling", Mode::from_raw_mode(0o700)).unwrap();
        folder = rustix::fs::openat(&folder, name, flags, Mode::empty()).unwrap();
    }
    remove(&dir.path().join("tree")).unwrap();
    assert!(!dir.path().join("tree").exists());
}

/// Mounts are made in a mount namespace of the test's own thread. Without the right to make one, nothing is tested.
fn in_own_mount_namespace(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        #[allow(unsafe_code)]
        // SAFETY: the thread shares its file table with the others as before; only its mounts and folder are its own.
        if unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.is_err() {
            eprintln!("not tested: no right to make a mount namespace");
            return;
        }
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        test();
    });
    thread.join().unwrap();
}

#[test]
fn a_folder_that_is_bind_mounted_from_the_same_disk_is_not_emptied() {
    in_own_mount_namespace(|| {
        let dir = TempDir::new().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("volume")).unwrap();
        fs::write(at("volume/precious"), "").unwrap();
        fs::create_dir_all(at("tree/mounted")).unwrap();
        mount_bind(at("volume"), at("tree/mounted")).unwrap();

        for path in ["tree", "tree/mounted"] {
            let error = remove(&at(path)).unwrap_err().to_string();
            assert!(error.contains("tree/mounted") && error.contains("is a mount point"), "{error}");
        }
        assert!(at("volume/precious").exists());
        unmount(at("tree/mounted"), UnmountFlags::empty()).unwrap();
    });
}

#[test]
fn a_file_that_is_a_mount_point_is_named() {
    in_own_mount_namespace(|| {
        let dir = TempDir::new().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("tree")).unwrap();
        fs::write(at("source"), "precious").unwrap();
        fs::write(at("tree/file"), "").unwrap();
        mount_bind(at("source"), at("tree/file")).unwrap();

        let error = remove(&at("tree")).unwrap_err().to_string();
        assert!(error.contains("tree/file") && error.contains("is a mount point"), "{error}");
        assert_eq!(fs::read(at("source")).unwrap(), b"precious");
        unmount(at("tree/file"), UnmountFlags::empty()).unwrap();
    });
}

#[test]
fn the_mount_id_is_found_among_the_other_lines() {
    assert_eq!(mount_id("pos:\t0\nflags:\t02100000\nmnt_id:\t31\nino:\t2\n"), Some(31));
    assert_eq!(mount_id("pos:\t0\n"), None);
}
