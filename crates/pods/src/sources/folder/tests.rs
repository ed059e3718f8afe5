use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crablet_host::LinuxFiles;
use crablet_host::fake::{FileFault, FileFaultKind, WatchFaults};

use super::super::SourceSettings;
use super::super::testing::{FOLDER, Rig, manifest, new_disk, settings, with_image};

const EIO: i32 = 5;
const EMPTY: [&str; 0] = [];

fn file(name: &str) -> String {
    format!("{FOLDER}/{name}.yaml")
}

/// Lets the first updates pass.
async fn started(disk: &crablet_host::fake::FakeFiles) -> Rig {
    let mut rig = Rig::on(disk);
    rig.told().await;
    rig
}

#[tokio::test(start_paused = true)]
async fn a_manifest_is_noticed_within_milliseconds() {
    let disk = new_disk();
    disk.put_folder(FOLDER);
    let mut rig = started(&disk).await;
    disk.put(file("web"), manifest("web"));
    let (line, time) = rig.next().await;
    assert_eq!(line, "File Add web-n1");
    assert!(time <= Duration::from_millis(20), "{time:?}");
    disk.remove(file("web"));
    let (line, time) = rig.next().await;
    assert_eq!(line, "File Remove web-n1");
    assert!(time <= Duration::from_millis(100), "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_there_at_start_is_one_update() {
    let disk = new_disk();
    for name in ["a", "b", "c"] {
        disk.put(file(name), manifest(name));
    }
    let mut rig = Rig::on(&disk);
    assert_eq!(rig.told().await, ["File Add a-n1 b-n1 c-n1", "Submitted Add"]);
}

#[tokio::test(start_paused = true)]
async fn sixty_files_at_once_are_few_updates() {
    let disk = new_disk();
    disk.put_folder(FOLDER);
    let mut rig = started(&disk).await;
    for index in 0..60 {
        disk.put(file(&format!("p{index}")), manifest(&format!("p{index}")));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let lines = rig.told().await;
    assert!(lines.len() <= 2, "{}", lines.len());
    assert_eq!(rig.names().len(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_folder_that_is_never_quiet_is_read_all_the_same() {
    let disk = new_disk();
    disk.put_folder(FOLDER);
    let mut rig = started(&disk).await;
    disk.put(file("web"), manifest("web"));
    for round in 0..200 {
        disk.put(file("noise"), format!("{round}"));
        tokio::time::sleep(Duration::from_millis(3)).await;
        if !rig.told_within(Duration::ZERO).await.is_empty() {
            assert!(round < 150, "{round}");
            return;
        }
    }
    panic!("never told");
}

#[tokio::test(start_paused = true)]
async fn saving_by_rename_does_not_remove_the_pod() {
    let disk = new_disk();
    disk.put(file("web"), manifest("web"));
    let mut rig = started(&disk).await;
    // Unchanged content: nothing at all is told. Changed content is another pod of the same name.
    for (image, expected) in
        [("busybox:1", &EMPTY[..]), ("busybox:2", &["File Remove web-n1", "File Add web-n1"])]
    {
        disk.rename(file("web"), file("web~")).unwrap();
        tokio::time::sleep(Duration::from_millis(40)).await;
        disk.put(file("web"), with_image("web", image));
        disk.remove(file("web~"));
        assert_eq!(rig.told().await, expected, "{image}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_is_deleted_and_put_back_at_once_begins_again() {
    let disk = new_disk();
    disk.put(file("web"), manifest("web"));
    let mut rig = started(&disk).await;
    for _ in 0..2 {
        disk.remove(file("web"));
        disk.put(file("web"), manifest("web"));
        assert_eq!(rig.told().await, ["File Remove web-n1", "File Add web-n1"]);
        disk.put(file("web"), manifest("web"));
        assert_eq!(rig.told().await, EMPTY);
    }
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_is_moved_out_and_back_at_once_begins_again() {
    let disk = new_disk();
    disk.put(file("web"), manifest("web"));
    disk.put_folder("/elsewhere");
    let mut rig = started(&disk).await;
    for away in ["/elsewhere/web", &format!("{FOLDER}/.web")] {
        disk.rename(file("web"), away).unwrap();
        disk.rename(away, file("web")).unwrap();
        assert_eq!(rig.told().await, ["File Remove web-n1", "File Add web-n1"], "{away}");
    }
    // A move inside the folder does not make up for one out of it.
    disk.rename(file("web"), "/elsewhere/web").unwrap();
    disk.rename("/elsewhere/web", file("web")).unwrap();
    disk.rename(file("web"), file("web~")).unwrap();
    disk.rename(file("web~"), file("web")).unwrap();
    assert_eq!(rig.told().await, ["File Remove web-n1", "File Add web-n1"]);
    assert_eq!(rig.told_within(Duration::from_secs(60)).await, EMPTY);
}

#[tokio::test(start_paused = true)]
async fn a_pinned_uid_is_updated_in_place_unless_its_manifest_was_gone() {
    let pinned = |image: &str| {
        let uid = "metadata:\n  uid: 6ea9b0a0-6f7c-4a5e-9a3f-000000000001\n";
        with_image("web", image).replace("metadata:\n", uid)
    };
    let disk = new_disk();
    disk.put(file("web"), pinned("busybox:1"));
    let mut rig = started(&disk).await;
    disk.put(file("web"), pinned("busybox:2"));
    assert_eq!(rig.told().await, ["File Update web-n1"]);
    disk.remove(file("web"));
    disk.put(file("web"), pinned("busybox:3"));
    assert_eq!(rig.told().await, ["File Remove web-n1", "File Add web-n1"]);
    assert_eq!(rig.images(), ["busybox:3"]);
}

#[tokio::test(start_paused = true)]
async fn a_link_whose_target_is_deleted_takes_its_pod_along() {
    let disk = new_disk();
    disk.put("/elsewhere/web", manifest("web"));
    disk.put_link(file("web"), "/elsewhere/web");
    let mut rig = started(&disk).await;
    assert_eq!(rig.names(), ["web-n1"]);
    disk.remove("/elsewhere/web");
    // Nobody watches that place: the next check finds out.
    assert_eq!(rig.told_within(Duration::from_secs(21)).await, ["File Remove web-n1"]);
    disk.put("/elsewhere/web", manifest("web"));
    assert_eq!(rig.told_within(Duration::from_secs(21)).await, ["File Add web-n1"]);
}

#[tokio::test(start_paused = true)]
async fn a_periodic_check_in_the_middle_of_a_save_does_not_remove_the_pod() {
    let disk = new_disk();
    disk.put(file("web"), manifest("web"));
    let mut rig = started(&disk).await;
    disk.set_watch_faults(WatchFaults { lose: 1.0, ..WatchFaults::default() });
    let mut told = Vec::new();
    for _ in 0..2000 {
        disk.remove(file("web"));
        tokio::time::sleep(Duration::from_millis(30)).await;
        disk.put(file("web"), manifest("web"));
        told.extend(rig.told_within(Duration::from_millis(60)).await);
    }
    assert_eq!(told, EMPTY);
}

#[tokio::test(start_paused = true)]
async fn a_bad_edit_keeps_the_pod_and_a_good_one_replaces_it() {
    let disk = new_disk();
    disk.put(file("web"), manifest("web"));
    let mut rig = started(&disk).await;
    disk.put(file("web"), "apiVersion: v1\nkind: [");
    assert_eq!(rig.told_within(Duration::from_secs(100)).await, EMPTY);
    disk.put(file("web"), with_image("web", "busybox:2"));
    assert_eq!(rig.told().await, ["File Remove web-n1", "File Add web-n1"]);
    assert_eq!(rig.images(), ["busybox:2"]);
}

#[tokio::test(start_paused = true)]
async fn a_missing_folder_is_empty_and_is_found_when_it_appears() {
    let disk = new_disk();
    let mut rig = Rig::on(&disk);
    assert_eq!(rig.told().await, ["File Add", "Submitted Add"]);
    disk.put(file("web"), manifest("web"));
    let (line, time) = rig.next().await;
    assert_eq!(line, "File Add web-n1");
    assert!(time <= Duration::from_millis(1100), "{time:?}");
    disk.remove(FOLDER);
    let (line, time) = rig.next().await;
    assert_eq!(line, "File Remove web-n1");
    assert!(time <= Duration::from_millis(100), "{time:?}");
    disk.put(file("web"), manifest("web"));
    let (line, time) = rig.next().await;
    assert_eq!(line, "File Add web-n1");
    assert!(time <= Duration::from_millis(1100), "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn a_single_file_is_a_source_too() {
    let disk = new_disk();
    disk.put(FOLDER, manifest("one"));
    let mut rig = Rig::on(&disk);
    assert_eq!(rig.told().await, ["File Add one-n1", "Submitted Add"]);
    disk.put(FOLDER, manifest("two"));
    let (line, time) = rig.next().await;
    assert_eq!(line, "File Remove one-n1");
    assert!(time <= Duration::from_millis(20), "{time:?}");
    assert_eq!(rig.told().await, ["File Add two-n1"]);
}

#[tokio::test(start_paused = true)]
async fn without_a_watch_the_periodic_check_finds_changes() {
    let disk = new_disk();
    disk.put_folder(FOLDER);
    disk.set_watch_faults(WatchFaults { refuse: true, ..WatchFaults::default() });
    let mut rig = started(&disk).await;
    disk.put(file("web"), manifest("web"));
    let (line, time) = rig.next().await;
    assert_eq!(line, "File Add web-n1");
    assert!(time <= Duration::from_secs(20), "{time:?}");
    // The watch is tried at least every 20 s, and then changes are noticed at once.
    disk.clear_faults();
    rig.told_within(Duration::from_secs(21)).await;
    disk.remove(file("web"));
    assert!(rig.next().await.1 <= Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn a_broken_or_overflowing_watch_loses_nothing() {
    let disk = new_disk();
    disk.put_folder(FOLDER);
    let mut rig = started(&disk).await;
    rig.told_within(Duration::from_secs(5)).await;
    disk.break_watches();
    disk.put(file("a"), manifest("a"));
    assert_eq!(rig.told().await, ["File Add a-n1"]);
    disk.put(file("b"), manifest("b"));
    assert_eq!(rig.told().await, ["File Add b-n1"]);
    disk.set_watch_faults(WatchFaults { lose: 1.0, ..WatchFaults::default() });
    disk.put(file("c"), manifest("c"));
    disk.overflow_watches();
    assert_eq!(rig.told().await, ["File Add c-n1"]);
}

#[tokio::test(start_paused = true)]
async fn at_start_a_failing_disk_is_waited_for() {
    for call in ["kind", "list", "read"] {
        let disk = new_disk();
        disk.put(file("a"), manifest("a"));
        disk.put(file("b"), manifest("b"));
        disk.add_fault(FileFault::on(call, FOLDER, FileFaultKind::Errno(EIO)).times(3));
        let mut rig = Rig::on(&disk);
        let lines = rig.told_within(Duration::from_secs(10)).await;
        assert_eq!(lines, ["File Add a-n1 b-n1", "Submitted Add"], "{call}");
    }
}

#[tokio::test(start_paused = true)]
async fn at_start_one_unreadable_file_does_not_hold_up_the_others_for_ever() {
    let disk = new_disk();
    disk.put(file("a"), manifest("a"));
    disk.put(file("b"), manifest("b"));
    disk.add_fault(FileFault::on("read", "a.yaml", FileFaultKind::Errno(EIO)));
    let mut rig = Rig::on(&disk);
    assert_eq!(rig.told_within(Duration::from_secs(59)).await, ["Submitted Add"]);
    assert_eq!(rig.told_within(Duration::from_secs(3)).await, ["File Add b-n1"]);
    disk.clear_faults();
    assert_eq!(rig.told_within(Duration::from_secs(21)).await, ["File Add a-n1"]);
}

/// The same on a real disk with a real inotify: what the fake promises is what the kernel does.
#[tokio::test]
async fn a_real_folder_behaves_like_the_fake_one() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join("manifests").join(name);
    let settings = SourceSettings {
        folder: Some(path("")),
        submitted_folder: place.path().join("submitted"),
        ..settings()
    };
    let mut rig = Rig::over(Arc::new(LinuxFiles), settings);
    // The order of the two sources is the threads' to decide.
    let mut first = [rig.next().await.0, rig.next().await.0];
    first.sort();
    assert_eq!(first, ["File Add", "Submitted Add"]);

    std::fs::create_dir(path("")).unwrap();
    std::fs::write(path("web.yaml"), manifest("web")).unwrap();
    assert_eq!(rig.next().await.0, "File Add web-n1");

    // The ways in which vim and others save.
    let save_by_backup = |text: &str| {
        std::fs::rename(path("web.yaml"), path("web.yaml~")).unwrap();
        std::fs::write(path("web.yaml"), text).unwrap();
        std::fs::remove_file(path("web.yaml~")).unwrap();
    };
    let save_by_rename = |text: &str| {
        std::fs::write(path(".web.tmp"), text).unwrap();
        std::fs::rename(path(".web.tmp"), path("web.yaml")).unwrap();
    };
    let save_in_place = |text: &str| std::fs::write(path("web.yaml"), text).unwrap();
    let saves: [&dyn Fn(&str); 3] = [&save_by_backup, &save_by_rename, &save_in_place];
    for (round, save) in saves.into_iter().enumerate() {
        let leaves_a_gap = round == 0;
        save(&std::fs::read_to_string(path("web.yaml")).unwrap());
        save("not a pod");
        let told = rig.told_within(Duration::from_millis(100)).await;
        assert!(leaves_a_gap || told.is_empty(), "{told:?}");
        let image = format!("busybox:{}", round + 2);
        save(&with_image("web", &image));
        // Who looks into the gap sees no file: whether anybody does depends on how busy the machine is.
        while rig.images() != [image.as_str()] {
            let (line, _) = rig.next().await;
            assert!(["File Remove web-n1", "File Add web-n1"].contains(&line.as_str()), "{line}");
        }
    }

    // Things that are no manifests beside it, and sixty that are.
    std::fs::create_dir(path("folder")).unwrap();
    std::os::unix::fs::symlink(Path::new("/nowhere"), path("link")).unwrap();
    std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
    for index in 0..60 {
        std::fs::write(path(&format!("p{index}.yaml")), manifest(&format!("p{index}"))).unwrap();
    }
    let mut updates = 0;
    while rig.names().len() < 61 {
        rig.next().await;
        updates += 1;
    }
    assert!(updates < 60, "files that come together are told together, not in {updates} updates");

    std::fs::remove_file(path("web.yaml")).unwrap();
    assert_eq!(rig.next().await.0, "File Remove web-n1");
    std::fs::remove_dir_all(path("")).unwrap();
    while !rig.names().is_empty() {
        rig.next().await;
    }
}
