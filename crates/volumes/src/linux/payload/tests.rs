use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

fn payload(files: &[(&str, &str)]) -> Payload {
    let mut payload = Payload::default();
    for (path, content) in files {
        let file = PayloadFile { content: content.as_bytes().to_vec(), mode: 0o640, owner: None };
        payload.add(path, file).unwrap();
    }
    payload
}

fn shown(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with(".."))
        .collect();
    names.sort();
    names
}

fn hidden(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap().filter_map(Result::ok);
    entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"..")).count()
}

#[test]
fn an_update_replaces_adds_and_removes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assert!(write(folder, &payload(&[("a", "1"), ("dir/b", "2"), ("dir/c", "3")]), "..1", None).unwrap());
    assert_eq!(shown(folder), ["a", "dir"]);
    assert_eq!(fs::read_link(folder.join("dir")).unwrap(), Path::new("..data/dir"));
    assert_eq!(fs::metadata(folder.join("a")).unwrap().mode() & 0o7777, 0o640);
    assert_eq!(fs::metadata(folder.join("..1")).unwrap().mode() & 0o7777, 0o755);

    // Files in the way of nobody, such as mount points of other volumes, stay.
    fs::create_dir(folder.join("nested")).unwrap();
    assert!(write(folder, &payload(&[("dir/c", "4"), ("new", "5")]), "..2", None).unwrap());
    assert_eq!(shown(folder), ["dir", "nested", "new"]);
    assert_eq!(fs::read_to_string(folder.join("dir/c")).unwrap(), "4");
    assert!(!folder.join("dir/b").exists());
    assert_eq!(hidden(folder), 2, "the old folder is gone");
}

#[test]
fn a_file_in_the_place_of_a_nested_volume_gives_way_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for place in ["certs/tls", "conf.d"] {
        fs::create_dir_all(folder.join(place)).unwrap();
    }
    let files = |text: &str| payload(&[("certs/ca.pem", text), ("conf.d", text), ("x", text)]);
    for (round, text) in ["1", "2"].into_iter().enumerate() {
        assert!(write(folder, &files(text), &format!("..{round}"), None).unwrap());
        assert_eq!(fs::read_to_string(folder.join("x")).unwrap(), text);
        assert_eq!(hidden(folder), 2, "the old folder is gone");
    }
    assert_eq!(shown(folder), ["certs", "conf.d", "x"]);
    for place in ["certs/tls", "conf.d"] {
        assert!(fs::symlink_metadata(folder.join(place)).unwrap().is_dir(), "{place}");
    }
    assert!(!folder.join("certs/ca.pem").exists());
}

#[test]
fn equal_content_is_left_alone_and_missing_links_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let files = payload(&[("a", "1"), ("b", "2")]);
    write(folder, &files, "..1", None).unwrap();
    fs::remove_file(folder.join("b")).unwrap();
    assert!(!write(folder, &files, "..2", None).unwrap());
    assert_eq!(fs::read_link(folder.join("..data")).unwrap(), Path::new("..1"));
    assert_eq!(shown(folder), ["a", "b"]);
    // A key that only goes away is a change.
    assert!(write(folder, &payload(&[("a", "1")]), "..2", None).unwrap());
    assert_eq!(shown(folder), ["a"]);
    // So is everything.
    assert!(write(folder, &payload(&[]), "..3", None).unwrap());
    assert_eq!(shown(folder), [""; 0]);
}

#[test]
fn a_death_in_the_middle_is_mended_by_the_next_write() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(folder, &payload(&[("a", "1")]), "..1", None).unwrap();
    // Died before the swap: a half-written folder and a link that was never renamed.
    fs::create_dir(folder.join("..2")).unwrap();
    symlink("..2", folder.join("..data_tmp")).unwrap();
    assert!(write(folder, &payload(&[("a", "3")]), "..3", None).unwrap());
    assert_eq!(fs::read_to_string(folder.join("a")).unwrap(), "3");
    assert_eq!(hidden(folder), 2);
    // Died after it: the folder that `..data` names is not whole.
    fs::remove_dir_all(folder.join("..3")).unwrap();
    assert!(write(folder, &payload(&[("a", "4")]), "..4", None).unwrap());
    assert_eq!(fs::read_to_string(folder.join("a")).unwrap(), "4");
}

#[test]
fn a_data_link_that_leads_out_of_the_volume_is_not_followed() {
    let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(outside.path().join("precious"), "x").unwrap();
    symlink(outside.path(), folder.path().join("..data")).unwrap();
    assert!(write(folder.path(), &payload(&[("a", "1")]), "..1", None).unwrap());
    assert!(outside.path().join("precious").exists());
    assert_eq!(fs::read_to_string(folder.path().join("a")).unwrap(), "1");
}

#[test]
fn a_reader_always_sees_a_whole_set() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let set = |round: u32| {
        let text = round.to_string().repeat(2000);
        payload(&[("a", text.as_str()), ("b", text.as_str())])
    };
    write(&path, &set(0), "..0", None).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut whole = 0_u32;
            while !stop.load(Ordering::Relaxed) || whole == 0 {
                // As a careful reader does: through one and the same folder.
                let Ok(data) = fs::canonicalize(path.join("..data")) else { continue };
                let (Ok(a), Ok(b)) = (fs::read(data.join("a")), fs::read(data.join("b"))) else { continue };
                assert_eq!(a, b);
                assert!(a.len() >= 2000);
                whole += 1;
            }
            whole
        });
        for round in 1..200 {
            write(&path, &set(round), &format!("..{round}"), None).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
}

#[test]
fn the_group_gets_to_read_and_the_owner_of_a_file_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut files = payload(&[("dir/a", "1")]);
    let token = PayloadFile { content: b"t".to_vec(), mode: 0o600, owner: Some(1234) };
    files.add("token", token).unwrap();
    write(folder, &files, "..1", Some(4321)).unwrap();
    let seen = |path: &str| {
        let found = fs::metadata(folder.join(path)).unwrap();
        (found.mode() & 0o7777, found.uid(), found.gid())
    };
    assert_eq!(seen("token"), (0o640, 1234, 4321));
    assert_eq!(seen("dir/a"), (0o640, 0, 4321));
    assert_eq!(seen("dir").0, 0o2755);
    assert_eq!(seen(".").2, 4321);
}
