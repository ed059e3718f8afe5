use std::time::Duration;

use super::testing::{FOLDER, KEPT, Rig, manifest, new_disk, settings};
use super::*;

#[tokio::test(start_paused = true)]
async fn sources_are_configured_by_what_is_set() {
    let disk = new_disk();
    assert_eq!(Rig::on(&disk).configured, [Source::File, Source::Submitted]);
    let settings = SourceSettings { folder: None, url: Some("http://m/".to_owned()), ..settings() };
    assert_eq!(Rig::with(&disk, settings).configured, [Source::Url, Source::Submitted]);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_tasks_ends_everything() {
    let disk = new_disk();
    let mut rig = Rig::on(&disk);
    rig.told().await;
    rig.tasks = JoinSet::new();
    tokio::task::yield_now().await;
    assert_eq!(rig.submitted.list().await, Err(Refusal::Storage("the agent is shutting down".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_restart_states_the_same_pods() {
    let disk = new_disk();
    disk.put(format!("{FOLDER}/web.yaml"), manifest("web"));
    let mut rig = Rig::on(&disk);
    rig.told().await;
    rig.submitted.put("job", manifest("job").into_bytes()).await.unwrap();
    rig.told().await;
    let before: Vec<_> = rig.pods.keys().cloned().collect();
    assert_eq!(before.len(), 2);
    drop(rig);
    let mut rig = Rig::on(&disk);
    rig.told().await;
    assert_eq!(rig.pods.keys().cloned().collect::<Vec<_>>(), before);
}

#[tokio::test(start_paused = true)]
async fn seen_and_source_are_annotated() {
    let disk = new_disk();
    disk.put(format!("{FOLDER}/web.yaml"), manifest("web"));
    disk.put(format!("{KEPT}/job"), manifest("job"));
    let mut rig = Rig::on(&disk);
    rig.told().await;
    for (source, expected) in [(Source::File, "file"), (Source::Submitted, "http")] {
        let (_, pod) = rig.pods.iter().find(|((of, _), _)| *of == source).unwrap();
        let pod: crablet_model::api::Pod = serde_json::from_slice(&pod.json).unwrap();
        let annotations = pod.metadata.annotations.unwrap();
        assert_eq!(annotations[names::annotation::CONFIG_SOURCE], expected);
        assert!(annotations[names::annotation::CONFIG_SEEN].starts_with("1970-01-01T00:00:00.0"));
    }
}

/// Whatever is done to the folder and however badly the watch works, in the end the pods are those of the files.
#[tokio::test(start_paused = true)]
async fn any_history_of_the_folder_ends_in_its_pods() {
    for seed in 0..200 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let disk = new_disk();
        let mut rig = Rig::on(&disk);
        disk.set_watch_faults(crablet_host::fake::WatchFaults {
            lose: 0.2,
            double: 0.2,
            delay: Duration::from_millis(30),
            refuse: rng.bool(),
        });
        for _ in 0..rng.usize(1..40) {
            let name = rng.choice(["a", "b", "c"]).unwrap();
            let path = format!("{FOLDER}/{name}");
            match rng.u8(0..10) {
                0 => drop(disk.remove(&path)),
                1 => drop(disk.remove(FOLDER)),
                2 => disk.break_watches(),
                3 => drop(disk.rename(&path, format!("{FOLDER}/d"))),
                4 => drop(disk.try_put(&path, "nonsense")),
                5 => disk.clear_faults(),
                _ => drop(disk.try_put(&path, manifest(name)).or_else(|_| {
                    disk.put_folder(FOLDER);
                    disk.try_put(&path, manifest(name))
                })),
            }
            rig.told_within(Duration::from_millis(rng.u64(0..50) * rng.u64(0..100))).await;
        }
        // What is bad may or may not keep an earlier pod; good files must be there, absent ones must not.
        rig.told_within(Duration::from_secs(60)).await;
        let content = |name: &str| disk.content(format!("{FOLDER}/{name}"));
        for name in ["a", "b", "c"] {
            let is_there = rig.names().contains(&format!("{name}-n1"));
            let texts: Vec<_> = ["a", "b", "c", "d"].into_iter().filter_map(content).collect();
            let is_good = texts.contains(&manifest(name).into_bytes());
            let may_be_kept = texts.iter().any(|text| text == b"nonsense");
            assert!(
                is_there == is_good || (is_there && may_be_kept),
                "seed {seed}: {name}, {:?}",
                rig.names()
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_pace_holds_from_the_moment_it_is_given() {
    let disk = new_disk();
    disk.put_folder(FOLDER);
    let settings = SourceSettings {
        url: Some("http://m/".to_owned()),
        folder_check: Duration::from_secs(3000),
        url_check: Duration::from_secs(3000),
        ..settings()
    };
    let mut rig = Rig::with(&disk, settings);
    rig.told().await;
    // The watch is deaf: only the check can find the file.
    disk.set_watch_faults(crablet_host::fake::WatchFaults { lose: 1.0, ..Default::default() });
    disk.put(format!("{FOLDER}/web.yaml"), manifest("web"));
    assert_eq!(rig.told_within(Duration::from_secs(1000)).await, Vec::<String>::new());
    let asked = rig.web.asked.lock().unwrap().len();

    rig.control.set_checks(Duration::from_secs(10), Duration::from_secs(10));
    assert_eq!(rig.told_within(Duration::from_secs(30)).await, ["File Add web-n1"]);
    assert!(rig.web.asked.lock().unwrap().len() > asked);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_used_is_known_until_it_is_mended() {
    let disk = new_disk();
    disk.put(format!("{FOLDER}/web.yaml"), "kind: Nonsense");
    let mut rig = Rig::on(&disk);
    rig.told().await;
    let problems = rig.control.problems();
    assert!(matches!(&problems[..], [one] if one.contains("web.yaml` is not used")), "{problems:?}");
    disk.put(format!("{FOLDER}/web.yaml"), manifest("web"));
    rig.told().await;
    assert_eq!(rig.control.problems(), Vec::<String>::new());
}
