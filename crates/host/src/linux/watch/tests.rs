use std::fs;
use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::files::Files;
use crate::linux::LinuxFiles;

async fn next_of(events: &mut FolderEvents) -> Option<FolderEvent> {
    let event =
        tokio::time::timeout(Duration::from_secs(5), events.next()).await.expect("an event within 5 s");
    event.map(Result::unwrap)
}

fn changed(name: &str) -> Option<FolderEvent> {
    Some(FolderEvent::Changed(Some(name.into())))
}

fn gone(name: &str) -> Option<FolderEvent> {
    Some(FolderEvent::Gone(Some(name.into())))
}

#[tokio::test]
async fn a_folder_tells_what_is_written_moved_and_deleted_in_it() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    let mut events = LinuxFiles.watch(dir.path()).await.unwrap();
    fs::write(at("a"), "x").unwrap();
    // Created, then written and closed.
    assert_eq!([next_of(&mut events).await, next_of(&mut events).await], [changed("a"), changed("a")]);
    fs::rename(at("a"), at("b")).unwrap();
    let away = next_of(&mut events).await;
    let Some(FolderEvent::MovedAway { name, cookie }) = &away else { panic!("{away:?}") };
    assert_eq!(name.as_deref(), Some("a"));
    let here = FolderEvent::MovedHere { name: Some("b".into()), cookie: *cookie };
    assert_eq!(next_of(&mut events).await, Some(here), "the same cookie");
    fs::remove_file(at("b")).unwrap();
    assert_eq!(next_of(&mut events).await, gone("b"));
}

#[tokio::test]
async fn what_leaves_the_folder_comes_back_with_another_cookie() {
    let dir = TempDir::new().unwrap();
    let (folder, elsewhere) = (dir.path().join("folder"), dir.path().join("elsewhere"));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a"), "x").unwrap();
    let mut events = LinuxFiles.watch(&folder).await.unwrap();
    fs::rename(folder.join("a"), &elsewhere).unwrap();
    fs::rename(&elsewhere, folder.join("a")).unwrap();
    let (first, second) = (next_of(&mut events).await, next_of(&mut events).await);
    let Some(FolderEvent::MovedAway { cookie: away, .. }) = first else { panic!("{first:?}") };
    let Some(FolderEvent::MovedHere { cookie: here, .. }) = second else { panic!("{second:?}") };
    assert_ne!(away, here);
}

#[tokio::test]
async fn the_stream_ends_with_the_folder() {
    let dir = TempDir::new().unwrap();
    for end in
        [|path: &Path| fs::remove_dir(path), |path: &Path| fs::rename(path, path.with_extension("old"))]
    {
        let folder = dir.path().join("folder");
        fs::create_dir(&folder).unwrap();
        let mut events = LinuxFiles.watch(&folder).await.unwrap();
        end(&folder).unwrap();
        assert_eq!(next_of(&mut events).await, Some(FolderEvent::Rescan));
        assert_eq!(next_of(&mut events).await, None);
    }
}

#[tokio::test]
async fn a_file_tells_that_it_was_written_and_ends_when_it_is_replaced() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("pod.yaml");
    fs::write(&file, "1").unwrap();
    let mut events = LinuxFiles.watch(&file).await.unwrap();
    fs::write(&file, "2").unwrap();
    assert_eq!(next_of(&mut events).await, Some(FolderEvent::Changed(None)));

    // Somebody keeps the old one open: it is replaced without being gone.
    let _open = fs::File::open(&file).unwrap();
    fs::write(dir.path().join("new"), "3").unwrap();
    fs::rename(dir.path().join("new"), &file).unwrap();
    assert_eq!(next_of(&mut events).await, Some(FolderEvent::Rescan));
    assert_eq!(next_of(&mut events).await, None);
}

#[tokio::test]
async fn what_is_not_there_cannot_be_watched() {
    let dir = TempDir::new().unwrap();
    let error = LinuxFiles.watch(&dir.path().join("nothing")).await.err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}
