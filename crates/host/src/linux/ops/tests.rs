use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use rustix::fs::{CWD, mkfifoat};
use tempfile::TempDir;

use super::*;

/// A folder with one of everything: `file`, `folder`, `fifo`, `socket`, `link` (to `file`), `broken`.
fn one_of_everything() -> TempDir {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("file"), "content").unwrap();
    fs::create_dir(at("folder")).unwrap();
    mkfifoat(CWD, at("fifo"), Mode::from_raw_mode(0o600)).unwrap();
    drop(UnixListener::bind(at("socket")).unwrap());
    symlink(at("file"), at("link")).unwrap();
    symlink(at("nothing"), at("broken")).unwrap();
    dir
}

fn mode_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn names(folder: &Path) -> Vec<String> {
    list(folder).unwrap().into_iter().map(|entry| entry.name).collect()
}

const KINDS: [(&str, Option<FileKind>); 6] = [
    ("broken", None),
    ("fifo", Some(FileKind::Other)),
    ("file", Some(FileKind::File)),
    ("folder", Some(FileKind::Folder)),
    ("link", Some(FileKind::File)),
    ("socket", Some(FileKind::Other)),
];

#[test]
fn kinds_follow_links() {
    let dir = one_of_everything();
    for (name, expected) in KINDS {
        assert_eq!(kind(&dir.path().join(name)).unwrap(), expected, "{name}");
    }
    assert_eq!(kind(&dir.path().join("nothing")).unwrap(), None);
    assert_eq!(kind(&dir.path().join("file/below")).unwrap(), None);
}

#[test]
fn a_listing_is_sorted_and_knows_kinds() {
    let dir = one_of_everything();
    let expected: Vec<_> = KINDS.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect();
    let listed = list(dir.path()).unwrap();
    assert_eq!(listed.iter().map(|e| (e.name.clone(), e.kind)).collect::<Vec<_>>(), expected);
    assert_eq!(list(&dir.path().join("nothing")).unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_stamp_changes_with_the_file_and_only_then() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, "one").unwrap();
    let stamp = || list(dir.path()).unwrap()[0].stamp.unwrap();
    let first = stamp();
    assert_eq!(stamp(), first);
    std::fs::write(&path, "other").unwrap();
    assert_ne!(stamp(), first);
}

#[test]
fn only_regular_files_are_read_and_nothing_is_waited_for() {
    let dir = one_of_everything();
    for (name, expected) in [
        ("file", Ok("content")),
        ("link", Ok("content")),
        ("folder", Err(io::ErrorKind::IsADirectory)),
        ("fifo", Err(io::ErrorKind::InvalidInput)),
        ("socket", Err(io::ErrorKind::InvalidInput)),
        ("broken", Err(io::ErrorKind::NotFound)),
        ("nothing", Err(io::ErrorKind::NotFound)),
    ] {
        let got = read(&dir.path().join(name), 100).map_err(|error| error.kind());
        assert_eq!(got, expected.map(|text| text.as_bytes().to_vec()), "{name}");
    }
    assert!(read(Path::new("/dev/zero"), 100).is_err());
}

#[test]
fn a_file_may_be_as_long_as_the_limit_and_no_longer() {
    let dir = one_of_everything();
    let file = dir.path().join("file");
    assert_eq!(read(&file, 7).unwrap(), b"content");
    assert_eq!(read(&file, 6).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    // Says that it is empty, and is not.
    assert!(read(Path::new("/proc/self/status"), 1 << 20).unwrap().len() > 100);
    assert_eq!(read(Path::new("/proc/self/status"), 100).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
}

#[test]
fn no_link_leads_out_of_the_folder_that_is_read_in() {
    let dir = one_of_everything();
    fs::write(dir.path().join("secret"), "secret").unwrap();
    let root = dir.path().join("folder");
    let at = |name: &str| root.join(name);
    fs::create_dir(at("deep")).unwrap();
    fs::write(at("deep/own"), "own").unwrap();
    symlink("deep/own", at("near")).unwrap();
    symlink("/deep/own", at("from-the-top")).unwrap();
    symlink("../secret", at("up")).unwrap();
    symlink(dir.path().join("secret"), at("away")).unwrap();
    mkfifoat(CWD, at("fifo"), Mode::from_raw_mode(0o600)).unwrap();
    let read = |path: &str| read_inside(&root, Path::new(path), 10);
    for path in ["deep/own", "/deep/own", "near", "from-the-top", "deep/../near"] {
        assert_eq!(read(path).unwrap(), b"own", "{path}");
    }
    for path in ["up", "away", "../secret", "none", "fifo", "deep"] {
        assert!(read(path).is_err(), "{path}");
    }
    assert_eq!(read_inside(&root, Path::new("near"), 2).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
}

#[test]
fn a_tail_is_the_end_of_a_file_and_not_of_what_a_link_names() {
    let dir = one_of_everything();
    let at = |name: &str| dir.path().join(name);
    assert_eq!(read_tail(&at("file"), 4).unwrap(), b"tent");
    assert_eq!(read_tail(&at("file"), 100).unwrap(), b"content");
    assert_eq!(read_tail(&at("file"), 0).unwrap(), b"");
    for refused in ["link", "broken", "fifo", "folder"] {
        assert!(read_tail(&at(refused), 4).is_err(), "{refused}");
    }
}

#[test]
fn an_atomic_write_replaces_the_file_and_leaves_nothing_else() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("state");
    write_atomic(&path, b"one", 0o640).unwrap();
    write_atomic(&path, b"two", 0o666).unwrap();
    assert_eq!((fs::read(&path).unwrap(), mode_of(&path)), (b"two".to_vec(), 0o666));
    assert_eq!(names(dir.path()), ["state"]);
}

#[test]
fn an_atomic_write_replaces_a_link_and_not_its_target() {
    let dir = one_of_everything();
    write_atomic(&dir.path().join("link"), b"new", 0o600).unwrap();
    assert_eq!(fs::read(dir.path().join("file")).unwrap(), b"content");
    assert_eq!(fs::read(dir.path().join("link")).unwrap(), b"new");
}

#[test]
fn an_atomic_write_that_fails_cleans_up() {
    let dir = one_of_everything();
    let before = names(dir.path());
    assert!(write_atomic(&dir.path().join("folder"), b"x", 0o600).is_err());
    assert_eq!(names(dir.path()), before);
    assert!(write_atomic(&dir.path().join("nothing/state"), b"x", 0o600).is_err());
}

#[test]
fn a_write_in_place_keeps_the_inode() {
    use std::os::unix::fs::MetadataExt;
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("etc-hosts");
    write_in_place(&path, b"a longer text", 0o644).unwrap();
    let inode = fs::metadata(&path).unwrap().ino();
    write_in_place(&path, b"short", 0o666).unwrap();
    assert_eq!((fs::read(&path).unwrap(), mode_of(&path)), (b"short".to_vec(), 0o666));
    assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
}

#[test]
fn a_write_in_place_goes_through_no_link_and_into_no_fifo() {
    let dir = one_of_everything();
    for refused in ["link", "broken", "fifo", "folder", "socket"] {
        assert!(write_in_place(&dir.path().join(refused), b"x", 0o600).is_err(), "{refused}");
    }
    assert_eq!(fs::read(dir.path().join("file")).unwrap(), b"content");
    assert!(!dir.path().join("nothing").exists());
    assert!(fs::symlink_metadata(dir.path().join("fifo")).unwrap().file_type().is_fifo());
}

#[test]
fn folders_are_made_with_their_parents_and_kept_when_there() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a/b/c");
    create_folder(&path, 0o777).unwrap();
    assert_eq!([mode_of(&path), mode_of(&dir.path().join("a"))], [0o777, 0o777]);
    create_folder(&path, 0o700).unwrap();
    assert_eq!(mode_of(&path), 0o777);

    fs::write(dir.path().join("file"), "").unwrap();
    assert_eq!(
        create_folder(&dir.path().join("file"), 0o700).unwrap_err().kind(),
        io::ErrorKind::NotADirectory
    );
    assert!(create_folder(&dir.path().join("file/below"), 0o700).is_err());
}

#[test]
fn links_are_made_replaced_and_read() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("file"), "").unwrap();
    assert_eq!(read_link(&at("link")).unwrap(), None);
    link(Path::new("one"), &at("link")).unwrap();
    link(Path::new("two"), &at("link")).unwrap();
    assert_eq!(read_link(&at("link")).unwrap(), Some(PathBuf::from("two")));
    assert_eq!(read_link(&at("file")).unwrap(), None);
    assert_eq!(names(dir.path()), ["file", "link"]);
}

#[test]
fn removing_a_file_that_is_not_there_is_fine() {
    let dir = one_of_everything();
    for name in ["file", "link", "fifo", "nothing", "nothing/below"] {
        remove_file(&dir.path().join(name)).unwrap();
    }
    assert!(remove_file(&dir.path().join("folder")).is_err());
    assert_eq!(names(dir.path()), ["broken", "folder", "socket"]);
}
