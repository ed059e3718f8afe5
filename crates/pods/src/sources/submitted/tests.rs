use crablet_host::fake::{FakeFiles, FileFault, FileFaultKind};

use super::super::testing::{KEPT, Rig, manifest, new_disk, with_image};
use super::*;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const EMPTY: [&str; 0] = [];

async fn started(disk: &FakeFiles) -> Rig {
    let mut rig = Rig::on(disk);
    rig.told().await;
    rig
}

async fn put(rig: &Rig, name: &str, text: &str) -> Result<Stored, Refusal> {
    rig.submitted.put(name, text.as_bytes().to_vec()).await
}

fn stored(created: bool) -> Result<Stored, Refusal> {
    Ok(Stored { created, warnings: Vec::new() })
}

#[tokio::test(start_paused = true)]
async fn a_manifest_is_stored_changed_listed_and_deleted() {
    let disk = new_disk();
    let mut rig = started(&disk).await;
    assert_eq!(put(&rig, "web", &manifest("web")).await, stored(true));
    assert_eq!(disk.content(format!("{KEPT}/web")).unwrap(), manifest("web").into_bytes());
    assert_eq!(disk.mode(format!("{KEPT}/web")), Some(0o600));
    assert_eq!(rig.told().await, ["Submitted Add web-n1"]);

    assert_eq!(put(&rig, "web", &with_image("web", "busybox:2")).await, stored(false));
    assert_eq!(rig.told().await, ["Submitted Remove web-n1", "Submitted Add web-n1"]);
    assert_eq!(rig.submitted.get("web").await.unwrap().unwrap(), with_image("web", "busybox:2").into_bytes());
    assert_eq!(rig.submitted.get("nothing").await, Ok(None));
    let listed = rig.submitted.list().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (listed[0].name.as_str(), listed[0].pod.as_ref().map(|pod| &*pod.name)),
        ("web", Some("web-n1"))
    );

    assert_eq!(rig.submitted.delete("web").await, Ok(true));
    assert_eq!(rig.told().await, ["Submitted Remove web-n1"]);
    assert_eq!(rig.submitted.delete("web").await, Ok(false));
    assert_eq!(disk.paths_below(KEPT), EMPTY);
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_changes_nothing() {
    let disk = new_disk();
    let mut rig = started(&disk).await;
    put(&rig, "web", &manifest("web")).await.unwrap();
    rig.told().await;
    let cases = [
        ("web", "a: [".to_owned(), ""),
        ("web", with_image("web", "' busybox'"), "spec.containers[0].image: "),
        (
            "other",
            manifest("web"),
            "metadata.name: pod `default/web-n1` is given by the submitted manifest `web` already",
        ),
        ("", manifest("a"), "a manifest's name has"),
        (".a", manifest("a"), "a manifest's name has"),
        ("../a", manifest("a"), "a manifest's name has"),
    ];
    for (name, text, expected) in cases {
        let Err(Refusal::Invalid(message)) = put(&rig, name, &text).await else {
            panic!("{name}: {text} was taken")
        };
        assert!(message.starts_with(expected), "{message}");
    }
    assert_eq!(rig.told_within(Duration::from_secs(60)).await, EMPTY);
    assert_eq!(disk.paths_below(KEPT), [format!("{KEPT}/web")]);
    assert_eq!(disk.content(format!("{KEPT}/web")).unwrap(), manifest("web").into_bytes());
}

#[tokio::test(start_paused = true)]
async fn warnings_go_to_the_submitter() {
    let disk = new_disk();
    let rig = started(&disk).await;
    let answer = put(&rig, "web", &(manifest("web") + "  colour: red\n")).await.unwrap();
    assert_eq!(answer.warnings, ["spec.colour: unknown field, ignored"]);
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_is_told_and_the_old_manifest_stays() {
    let disk = new_disk();
    let mut rig = started(&disk).await;
    put(&rig, "web", &manifest("web")).await.unwrap();
    rig.told().await;
    disk.add_fault(FileFault::on("write_atomic", KEPT, FileFaultKind::Errno(ENOSPC)));
    let Err(Refusal::Storage(message)) = put(&rig, "web", &with_image("web", "busybox:2")).await else {
        panic!()
    };
    assert!(message.starts_with("cannot store manifest `web`: "), "{message}");
    disk.add_fault(FileFault::on("remove_file", KEPT, FileFaultKind::Errno(EIO)));
    let Err(Refusal::Storage(message)) = rig.submitted.delete("web").await else { panic!() };
    assert!(message.starts_with("cannot delete manifest `web`: "), "{message}");
    assert_eq!(rig.told().await, EMPTY);
    assert_eq!(rig.images(), ["busybox:1"]);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_disk_is_told_and_a_late_write_is_noticed() {
    let disk = new_disk();
    let mut rig = started(&disk).await;
    let slow = FileFaultKind::Slow(DISK_PATIENCE + Duration::from_secs(1));
    disk.add_fault(FileFault::on("write_atomic", "late", slow).times(1));
    assert!(matches!(put(&rig, "late", &manifest("late")).await, Err(Refusal::Storage(_))));
    // The next change waits for it and sees what it did.
    assert_eq!(put(&rig, "web", &manifest("web")).await, stored(true));
    rig.told().await;
    assert_eq!(rig.names(), ["late-n1", "web-n1"]);
}

#[tokio::test(start_paused = true)]
async fn at_start_nothing_is_stated_or_changed_before_everything_is_read() {
    let disk = new_disk();
    disk.put(format!("{KEPT}/a"), manifest("a"));
    disk.put(format!("{KEPT}/b"), manifest("b"));
    disk.add_fault(FileFault::on("read", "submitted/a", FileFaultKind::Errno(EIO)).times(2));
    let mut rig = Rig::on(&disk);
    assert_eq!(rig.told_within(Duration::from_millis(500)).await, ["File Add"]);
    let refused = put(&rig, "c", &manifest("c")).await;
    assert!(matches!(&refused, Err(Refusal::Storage(why)) if why.contains("not loaded yet")), "{refused:?}");
    assert_eq!(rig.told_within(Duration::from_secs(5)).await, ["Submitted Add a-n1 b-n1"]);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_went_bad_on_disk_is_listed_with_its_problem() {
    let disk = new_disk();
    disk.put(format!("{KEPT}/a"), "nonsense");
    let rig = started(&disk).await;
    let listed = rig.submitted.list().await.unwrap();
    assert_eq!((listed.len(), listed[0].pod.is_none(), listed[0].problem.is_some()), (1, true, true));
    assert_eq!(put(&rig, "a", &manifest("a")).await, stored(false));
    assert_eq!(rig.submitted.list().await.unwrap()[0].problem, None);
}

/// The agent dies at each step of a put: afterwards the manifest is wholly there or not at all.
#[tokio::test(start_paused = true)]
async fn a_death_during_a_put_leaves_the_old_manifest_or_the_new_one() {
    for steps in 0..12 {
        let disk = new_disk();
        let mut rig = started(&disk).await;
        put(&rig, "web", &manifest("web")).await.unwrap();
        rig.told().await;
        let left = std::sync::atomic::AtomicI32::new(steps);
        disk.set_gate(Some(Arc::new(move |_: &'static str| {
            left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) > 0
        })));
        let _ = timeout(Duration::from_secs(1), put(&rig, "web", &with_image("web", "busybox:2"))).await;
        let told = rig.told().await;
        let died_with = rig.images();
        drop(rig);
        disk.set_gate(None);
        let rig = {
            let mut rig = Rig::on(&disk);
            rig.told().await;
            rig
        };
        let images = rig.images();
        assert!(images == ["busybox:1"] || images == ["busybox:2"], "{steps}: {images:?}");
        // On disk before it is acted on.
        assert!(told.is_empty() || images == died_with, "{steps}: {told:?} {images:?}");
    }
}
