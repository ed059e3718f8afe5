mod as_linux;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::clock::Clock;
use crate::files::{FileKind, Files, FolderEvent};

fn disk() -> FakeFiles {
    FakeFiles::new(fastrand::Rng::with_seed(1))
}

fn path(text: &str) -> &Path {
    Path::new(text)
}

/// A gate that lets `n` steps pass and stops the agent at the next.
fn dies_after(n: u32) -> Gate {
    let steps = Arc::new(AtomicU32::new(0));
    Arc::new(move |_| steps.fetch_add(1, Ordering::SeqCst) < n)
}

/// Starts a call and drops it when it stands still, as a dying agent does.
async fn die_in(call: impl Future<Output = io::Result<()>>) {
    let stands_still = tokio::time::timeout(Duration::from_millis(1), call).await.is_err();
    assert!(stands_still, "the gate did not stop the call");
}

#[tokio::test]
async fn files_folders_and_links_read_as_on_linux() {
    let disk = disk();
    disk.put("/a/file", "hello");
    disk.put_link("/a/link", "file");
    disk.put_link("/a/broken", "/nowhere");
    disk.put_other("/a/fifo");
    disk.put_link("/b", "/a");

    let listed = disk.list(path("/b")).await.unwrap();
    let listed: Vec<_> = listed.into_iter().map(|entry| (entry.name, entry.kind)).collect();
    let entry = |name: &str, kind| (name.to_owned(), kind);
    assert_eq!(
        listed,
        [
            entry("broken", None),
            entry("fifo", Some(FileKind::Other)),
            entry("file", Some(FileKind::File)),
            entry("link", Some(FileKind::File)),
        ]
    );
    assert_eq!(disk.kind(path("/b/link")).await.unwrap(), Some(FileKind::File));
    assert_eq!(disk.kind(path("/a/broken")).await.unwrap(), None);
    assert_eq!(disk.kind(path("/a/file/below")).await.unwrap(), None);
    assert_eq!(disk.read(path("/b/link"), 5).await.unwrap(), b"hello");
    assert_eq!(disk.read(path("/a/file"), 4).await.unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    assert_eq!(disk.read(path("/a"), 4).await.unwrap_err().kind(), io::ErrorKind::IsADirectory);
    assert_eq!(disk.read(path("/a/fifo"), 4).await.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(disk.read(path("/a/none"), 4).await.unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(disk.list(path("/none")).await.unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(disk.read_tail(path("/a/file"), 2).await.unwrap(), b"lo");
    assert!(disk.read_tail(path("/a/link"), 2).await.is_err());
    assert_eq!(disk.read_link(path("/a/link")).await.unwrap(), Some("file".into()));
    assert_eq!(disk.read_link(path("/a/file")).await.unwrap(), None);
    assert_eq!(disk.paths_below("/a"), ["/a/broken -> /nowhere", "/a/fifo|", "/a/file", "/a/link -> file"]);
}

#[tokio::test]
async fn links_in_a_ring_are_an_error_and_not_a_loop() {
    let disk = disk();
    disk.put_link("/a", "/b");
    disk.put_link("/b", "/a");
    assert!(disk.read(path("/a"), 1).await.is_err());
}

#[tokio::test]
async fn writing_makes_folders_keeps_modes_and_refuses_links_in_place() {
    let disk = disk();
    assert!(disk.write_atomic(path("/a/f"), b"x", 0o600).await.is_err());
    disk.create_folder(path("/a/b"), 0o750).await.unwrap();
    disk.create_folder(path("/a/b"), 0o700).await.unwrap();
    assert_eq!(disk.mode("/a/b"), Some(0o750));
    disk.write_atomic(path("/a/f"), b"x", 0o600).await.unwrap();
    assert_eq!((disk.content("/a/f"), disk.mode("/a/f")), (Some(b"x".to_vec()), Some(0o600)));
    disk.link(path("/a/f"), path("/a/l")).await.unwrap();
    assert!(disk.write_in_place(path("/a/l"), b"y", 0o644).await.is_err());
    disk.write_in_place(path("/a/f"), b"y", 0o644).await.unwrap();
    assert_eq!(disk.content("/a/l"), Some(b"y".to_vec()));
    disk.remove_file(path("/a/l")).await.unwrap();
    disk.remove_file(path("/a/l")).await.unwrap();
    assert!(disk.remove_file(path("/a/b")).await.is_err());
    disk.remove_tree(path("/a")).await.unwrap();
    disk.remove_tree(path("/a")).await.unwrap();
    assert_eq!(disk.paths(), Vec::<String>::new());
}

#[tokio::test]
async fn a_listing_shows_which_files_were_written() {
    let disk = disk();
    disk.put("/m/a", "same");
    disk.put("/m/b", "same");
    let stamps =
        async || disk.list(path("/m")).await.unwrap().into_iter().map(|e| e.stamp).collect::<Vec<_>>();
    let before = stamps().await;
    assert_eq!(before, stamps().await);
    disk.put("/m/b", "same");
    let after = stamps().await;
    assert!(after[0] == before[0] && after[1] != before[1]);
}

#[tokio::test]
async fn a_death_in_an_atomic_write_leaves_the_old_file_or_the_new() {
    for (steps, expected) in [(0, "old"), (1, "old"), (2, "new")] {
        let disk = disk();
        disk.put("/f", "old");
        disk.set_gate(Some(dies_after(steps)));
        die_in(disk.write_atomic(path("/f"), b"new", 0o600)).await;
        assert_eq!(disk.content("/f"), Some(expected.as_bytes().to_vec()), "after {steps} steps");
        let leftovers = disk.paths().len() - 1;
        assert_eq!(leftovers, usize::from(steps == 1), "after {steps} steps");
    }
}

#[tokio::test]
async fn a_death_in_a_write_in_place_leaves_an_empty_file() {
    let disk = disk();
    disk.put("/f", "old");
    disk.set_gate(Some(dies_after(1)));
    die_in(disk.write_in_place(path("/f"), b"new", 0o600)).await;
    assert_eq!(disk.content("/f"), Some(Vec::new()));
}

#[tokio::test]
async fn a_death_in_a_removal_leaves_half_a_tree() {
    let disk = disk();
    disk.put("/t/a", "");
    disk.put("/t/b", "");
    disk.set_gate(Some(dies_after(1)));
    die_in(disk.remove_tree(path("/t"))).await;
    assert_eq!(disk.paths(), ["/t/", "/t/b"]);
}

#[tokio::test(start_paused = true)]
async fn watchers_hear_of_changes_until_their_folder_goes() {
    let disk = disk();
    disk.put_folder("/m");
    disk.put("/one", "");
    let mut folder = disk.watch(path("/m")).await.unwrap();
    let mut file = disk.watch(path("/one")).await.unwrap();
    assert_eq!(disk.watch(path("/none")).await.err().unwrap().kind(), io::ErrorKind::NotFound);

    disk.put("/m/pod.yaml", "x");
    disk.rename("/m/pod.yaml", "/m/pod.json").unwrap();
    disk.put("/m/below/other", "x");
    disk.put("/one", "x");
    disk.remove("/m");
    let mut heard = Vec::new();
    while let Some(event) = folder.next().await {
        heard.push(event.unwrap());
    }
    let changed = |name: &str| FolderEvent::Changed(Some(name.to_owned()));
    assert_eq!(
        heard,
        [
            changed("pod.yaml"),
            FolderEvent::MovedAway { name: Some("pod.yaml".to_owned()), cookie: 1 },
            FolderEvent::MovedHere { name: Some("pod.json".to_owned()), cookie: 1 },
            changed("below"),
            FolderEvent::Rescan,
        ]
    );
    assert_eq!(file.next().await.unwrap().unwrap(), FolderEvent::Changed(None));
    disk.break_watches();
    assert!(file.next().await.unwrap().is_err());
    assert!(file.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn watch_faults_lose_double_delay_and_refuse() {
    let disk = disk();
    disk.put_folder("/m");
    let mut events = disk.watch(path("/m")).await.unwrap();
    disk.set_watch_faults(WatchFaults { lose: 1.0, ..WatchFaults::default() });
    disk.put("/m/lost", "");
    disk.set_watch_faults(WatchFaults {
        double: 1.0,
        delay: Duration::from_secs(9),
        ..WatchFaults::default()
    });
    disk.put("/m/twice", "");
    let begun = tokio::time::Instant::now();
    for _ in 0..2 {
        assert_eq!(events.next().await.unwrap().unwrap(), FolderEvent::Changed(Some("twice".to_owned())));
    }
    assert!(begun.elapsed() > Duration::ZERO && begun.elapsed() <= Duration::from_secs(9));
    assert!(events.next().now_or_never().is_none());
    disk.set_watch_faults(WatchFaults { refuse: true, ..WatchFaults::default() });
    assert!(disk.watch(path("/m")).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn rules_break_calls_and_are_spent() {
    let disk = disk();
    let full = FileFaultKind::Errno(libc::ENOSPC);
    disk.add_fault(FileFault::on("write_atomic", "rec", full.clone()).times(1));
    disk.add_fault(FileFault::on("write_atomic", "rec", FileFaultKind::Forget).times(1));
    disk.add_fault(FileFault::on("write_in_place", "", full));
    disk.put("/f", "old");
    let write = || disk.write_atomic(path("/rec"), b"x", 0o600);
    assert_eq!(write().await.unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    write().await.unwrap();
    assert_eq!(disk.content("/rec"), None);
    write().await.unwrap();
    assert_eq!(disk.content("/rec"), Some(b"x".to_vec()));
    assert!(disk.write_in_place(path("/f"), b"new", 0o600).await.is_err());
    assert_eq!(disk.content("/f"), Some(Vec::new()));
    disk.clear_faults();
    disk.add_fault(FileFault::on("read", "", FileFaultKind::Hang));
    assert!(tokio::time::timeout(Duration::from_secs(999), disk.read(path("/f"), 9)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn the_clock_follows_virtual_time_and_jumps_when_told() {
    let base: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let clock = SimClock::starting_at(base);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(clock.now(), base + SignedDuration::from_secs(60));
    clock.clone().jump(SignedDuration::from_secs(-3600));
    assert_eq!(clock.now(), base - SignedDuration::from_secs(3540));
}
