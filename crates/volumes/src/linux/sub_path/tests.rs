use std::os::unix::fs::{MetadataExt, symlink};

use super::*;
use crate::linux::folders;

/// A volume and a place for targets, without mounts at its end whatever happened.
struct Pod(tempfile::TempDir);

impl Pod {
    fn new() -> Self {
        let pod = Self(tempfile::tempdir().unwrap());
        folders::make_folder(&pod.root(), 0o2777, 0o755).unwrap();
        pod
    }

    fn path(&self) -> PathBuf {
        fs::canonicalize(self.0.path()).unwrap()
    }

    fn root(&self) -> PathBuf {
        self.path().join("volume")
    }

    fn target(&self) -> PathBuf {
        self.path().join("sub/c/0")
    }

    fn bind(&self, sub_path: &str) -> Result<(), SubPathError> {
        bind(&self.root(), Path::new(sub_path), &self.target())
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        for mounted in mounts::at_or_below(&self.path()).unwrap_or_default().iter().rev() {
            let _ = mounts::unmount(&mounted.path);
        }
    }
}

#[test]
fn a_missing_folder_is_made_with_the_mode_of_the_volume() {
    let pod = Pod::new();
    pod.bind("a/b").unwrap();
    fs::write(pod.root().join("a/b/file"), "x").unwrap();
    assert_eq!(fs::read_to_string(pod.target().join("file")).unwrap(), "x");
    assert_eq!(fs::metadata(pod.root().join("a")).unwrap().mode() & 0o7777, 0o2777);
    // Again is fine, and does not mount twice.
    pod.bind("a/b").unwrap();
    assert_eq!(mounts::at_or_below(&pod.target()).unwrap().len(), 1);
    // Another path in the same place takes over, be it a file.
    pod.bind("a/b/file").unwrap();
    assert_eq!(fs::read_to_string(pod.target()).unwrap(), "x");
}

#[test]
fn a_volume_that_is_not_there_is_told_as_such_and_not_made() {
    let pod = Pod::new();
    fs::remove_dir(pod.root()).unwrap();
    match pod.bind("a").unwrap_err() {
        SubPathError::Root(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
        other => panic!("{other:?}"),
    }
    assert!(!pod.root().exists());
}

#[test]
fn links_that_stay_inside_are_followed() {
    let pod = Pod::new();
    fs::create_dir(pod.root().join("..1")).unwrap();
    fs::write(pod.root().join("..1/key"), "value").unwrap();
    symlink("..1", pod.root().join("..data")).unwrap();
    symlink("..data/key", pod.root().join("key")).unwrap();
    pod.bind("key").unwrap();
    assert_eq!(fs::read_to_string(pod.target()).unwrap(), "value");
}

#[test]
fn links_that_lead_out_are_refused() {
    let pod = Pod::new();
    symlink("/etc", pod.root().join("etc")).unwrap();
    symlink("../../..", pod.root().join("up")).unwrap();
    symlink("/nowhere/at/all", pod.root().join("dangling")).unwrap();
    for sub_path in ["etc", "etc/made-by-us", "up", "dangling", "dangling/x"] {
        assert!(pod.bind(sub_path).is_err(), "{sub_path}");
    }
    assert!(!Path::new("/etc/made-by-us").exists());
    assert!(mounts::at_or_below(&pod.path()).unwrap().is_empty());
}

#[test]
fn a_name_that_is_swapped_for_a_link_meanwhile_is_not_followed() {
    let pod = Pod::new();
    symlink("/etc", pod.root().join("innocent")).unwrap();
    // As if it had been a folder when links were resolved.
    let error = open(&pod.root(), Path::new("innocent")).unwrap_err();
    assert!(error.to_string().contains("unexpected symlink found"), "{error}");
    assert!(open(&pod.root(), Path::new("innocent/passwd")).is_err());
}
