use crablet_host::fake::{FakeFiles, FileFault, FileFaultKind};
use tokio::time::Instant;

use super::super::testing::{FOLDER, manifest, new_disk, with_image};
use super::*;

const EIO: i32 = 5;

fn shelf(disk: &FakeFiles) -> Shelf {
    Shelf::new(FOLDER.into(), Source::File, "n1".to_owned(), Gates::default(), Arc::new(disk.clone()))
}

/// Looks at everything and says what was said, a mark for the level in front.
async fn said(shelf: &mut Shelf) -> Vec<String> {
    shelf.look(&Dirty::everything()).await;
    shelf.choose();
    shelf
        .take_lines()
        .into_iter()
        .map(|line| match line {
            Line::Info(text) => format!("I {text}"),
            Line::Warning(text) => format!("W {text}"),
        })
        .collect()
}

fn pods(shelf: &mut Shelf) -> Vec<String> {
    let names = shelf.choose();
    names.iter().map(|name| shelf.entries[name].pod.as_ref().unwrap().id.name.to_string()).collect()
}

/// A file beside a good one: exactly one line, that names the file and all of `words`, is said once; the good one is
/// untouched.
async fn check(what: &str, make: impl Fn(&FakeFiles, &str), words: &[&str]) {
    let path = format!("{FOLDER}/bad.yaml");
    let disk = new_disk();
    disk.put(format!("{FOLDER}/good.yaml"), manifest("good"));
    make(&disk, &path);
    let mut shelf = shelf(&disk);
    let lines = said(&mut shelf).await;
    assert_eq!(lines.len(), 1, "{what}: {lines:?}");
    assert!(lines[0].starts_with(&format!("W manifest `{path}` is not used: ")), "{what}: {lines:?}");
    assert!(!lines[0].contains('\n'), "{what}: {lines:?}");
    for word in words {
        assert!(lines[0].contains(word), "{what}: no {word:?} in {lines:?}");
    }
    assert_eq!(pods(&mut shelf), ["good-n1"], "{what}");
    assert_eq!(said(&mut shelf).await, [""; 0], "{what}: said again");
    disk.remove(&path);
    assert_eq!(said(&mut shelf).await, [""; 0], "{what}: said when gone");
    make(&disk, &path);
    assert_eq!(said(&mut shelf).await, lines, "{what}: not said when back");
}

async fn check_text(what: &str, text: &str, words: &[&str]) {
    check(what, |disk, path| disk.put(path, text), words).await;
}

#[tokio::test(start_paused = true)]
async fn bad_input_is_one_line_that_names_file_and_field() {
    check_text("empty", "", &["empty"]).await;
    check_text("not YAML", "a: [", &["line"]).await;
    check_text("not UTF-8 is told by byte", "", &[]).await;
    check("binary", |disk, path| disk.put(path, [0xff, 0xfe, 0]), &["UTF-8"]).await;
    check_text("a README", "just words", &["apiVersion"]).await;
    check_text("another kind", "apiVersion: apps/v1\nkind: Deployment", &["kind", "Deployment"]).await;
    check_text("a wrong type", &with_image("web", "[1]"), &["spec.containers[0].image"]).await;
    check_text("a bad image", &with_image("web", "' busybox'"), &["spec.containers[0].image"]).await;
    check_text("a bad name", &manifest("Web_1"), &["metadata.name"]).await;
    let secret = manifest("web") + "  volumes:\n  - name: v\n    secret: {secretName: s}\n";
    check_text("a reference", &secret, &["spec.volumes[0]"]).await;
    check("huge", |disk, path| disk.put(path, vec![b' '; MAX_MANIFEST_BYTES + 1]), &["larger than 10 MiB"])
        .await;
    check("a folder", |disk, path| disk.put_folder(path), &["is a folder"]).await;
    check("a fifo", |disk, path| disk.put_other(path), &["not a regular file"]).await;
    check("a broken link", |disk, path| disk.put_link(path, "/nowhere"), &["leads nowhere"]).await;
    check("a link to itself", |disk, path| disk.put_link(path, path), &["leads nowhere"]).await;
}

#[tokio::test(start_paused = true)]
async fn unknown_fields_are_told_once_per_content_and_the_pod_runs() {
    let disk = new_disk();
    let text = manifest("web") + "  colour: red\n";
    disk.put(format!("{FOLDER}/web.yaml"), &text);
    let mut shelf = shelf(&disk);
    let expected = format!("W manifest `{FOLDER}/web.yaml`: spec.colour: unknown field, ignored");
    assert_eq!(said(&mut shelf).await, [expected.as_str()]);
    assert_eq!(said(&mut shelf).await, [""; 0]);
    assert_eq!(pods(&mut shelf), ["web-n1"]);
    disk.put(format!("{FOLDER}/web.yaml"), text + "\n");
    assert_eq!(said(&mut shelf).await, [expected]);
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_goes_bad_keeps_its_pod_until_it_is_good_or_gone() {
    let disk = new_disk();
    let path = format!("{FOLDER}/web.yaml");
    disk.put(&path, manifest("web"));
    let mut shelf = shelf(&disk);
    assert_eq!(said(&mut shelf).await, [""; 0]);

    disk.put(&path, "apiVersion: v1");
    let lines = said(&mut shelf).await;
    assert_eq!(lines.len(), 1);
    assert!(lines[0].contains("`kind`") || lines[0].contains("kind:"), "{lines:?}");
    assert!(lines[0].ends_with("; pod `default/web-n1` goes on with the last good version"), "{lines:?}");
    assert_eq!(pods(&mut shelf), ["web-n1"]);

    disk.remove(&path);
    disk.put_folder(&path);
    assert_eq!(said(&mut shelf).await.len(), 1);
    assert_eq!(pods(&mut shelf), ["web-n1"]);

    disk.remove(&path);
    disk.put(&path, manifest("web"));
    assert_eq!(said(&mut shelf).await, [format!("I manifest `{path}` is good now")]);

    disk.remove(&path);
    said(&mut shelf).await;
    assert_eq!(shelf.doubtful().len(), 1, "not believed at first");
    assert_eq!(pods(&mut shelf), ["web-n1"]);
    said(&mut shelf).await;
    assert_eq!(pods(&mut shelf), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_link_to_nowhere_is_believed_when_seen_twice_and_a_failing_disk_is_not() {
    let disk = new_disk();
    let path = format!("{FOLDER}/web.yaml");
    disk.put("/elsewhere", manifest("web"));
    disk.put_link(&path, "/elsewhere");
    let mut shelf = shelf(&disk);
    assert_eq!(said(&mut shelf).await, [""; 0]);
    disk.remove("/elsewhere");
    disk.add_fault(FileFault::on("kind", "web.yaml", FileFaultKind::Errno(EIO)));
    for _ in 0..3 {
        said(&mut shelf).await;
        assert_eq!(pods(&mut shelf), ["web-n1"]);
    }
    disk.clear_faults();
    assert_eq!(said(&mut shelf).await, [""; 0]);
    assert_eq!(pods(&mut shelf), ["web-n1"]);
    let expected = format!("W manifest `{path}` is not used: it is a link that leads nowhere");
    assert_eq!(said(&mut shelf).await, [expected]);
    assert_eq!(pods(&mut shelf), [""; 0]);
    assert_eq!(said(&mut shelf).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_gate_lets_manifests_name_objects_of_the_api() {
    let disk = new_disk();
    let secret = manifest("web") + "  volumes:\n  - name: v\n    secret: {secretName: s}\n";
    disk.put(format!("{FOLDER}/web.yaml"), secret);
    let gates = Gates { may_refer: true, ..Gates::default() };
    let files = Arc::new(disk.clone());
    let mut shelf = Shelf::new(FOLDER.into(), Source::File, "n1".to_owned(), gates, files);
    assert_eq!(said(&mut shelf).await, [""; 0]);
    assert_eq!(pods(&mut shelf), ["web-n1"]);
}

#[tokio::test(start_paused = true)]
async fn of_two_files_with_the_same_pod_the_later_counts() {
    let disk = new_disk();
    disk.put(format!("{FOLDER}/a.yaml"), with_image("web", "busybox:1"));
    disk.put(format!("{FOLDER}/b.yaml"), with_image("web", "busybox:2"));
    let mut shelf = shelf(&disk);
    let expected = format!(
        "W manifest `{FOLDER}/a.yaml` is ignored: `{FOLDER}/b.yaml`, which comes later by name, \
         gives pod `default/web-n1` too"
    );
    assert_eq!(said(&mut shelf).await, [expected]);
    assert_eq!(shelf.choose(), ["b.yaml"]);
    assert_eq!(said(&mut shelf).await, [""; 0]);
    disk.remove(format!("{FOLDER}/b.yaml"));
    said(&mut shelf).await;
    said(&mut shelf).await;
    assert_eq!(shelf.choose(), ["a.yaml"]);
}

#[tokio::test(start_paused = true)]
async fn a_folder_that_cannot_be_read_keeps_what_was_there() {
    let disk = new_disk();
    disk.put(format!("{FOLDER}/web.yaml"), manifest("web"));
    let mut shelf = shelf(&disk);
    said(&mut shelf).await;
    disk.add_fault(FileFault::on("list", FOLDER, FileFaultKind::Errno(EIO)));
    let lines = said(&mut shelf).await;
    assert_eq!(lines.len(), 1);
    assert!(lines[0].starts_with(&format!("W cannot list the manifests in `{FOLDER}`: ")), "{lines:?}");
    assert!(!shelf.is_readable());
    assert_eq!(said(&mut shelf).await, [""; 0]);
    assert_eq!(pods(&mut shelf), ["web-n1"]);
    disk.clear_faults();
    assert_eq!(said(&mut shelf).await, [format!("I `{FOLDER}` can be read now")]);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_file_costs_one_deadline_and_is_not_begun_again() {
    let disk = new_disk();
    disk.put(format!("{FOLDER}/a.yaml"), manifest("a"));
    disk.put(format!("{FOLDER}/b.yaml"), manifest("b"));
    // Only the first read hangs: a second one would not.
    disk.add_fault(FileFault::on("read", "a.yaml", FileFaultKind::Hang).times(1));
    let mut shelf = shelf(&disk);
    for looks in 1..=2_u32 {
        let start = Instant::now();
        let lines = said(&mut shelf).await;
        assert_eq!(start.elapsed(), super::super::deadline::DISK_PATIENCE);
        assert_eq!(lines.len(), usize::from(looks == 1), "{lines:?}");
        assert_eq!(pods(&mut shelf), ["b-n1"]);
        assert_eq!(shelf.unread().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_path_may_be_a_manifest_or_nothing() {
    let disk = new_disk();
    let mut shelf = shelf(&disk);
    assert_eq!(said(&mut shelf).await, [format!("I `{FOLDER}` does not exist yet: no manifests")]);
    assert!(shelf.is_readable());
    disk.put(FOLDER, manifest("single"));
    said(&mut shelf).await;
    assert_eq!(pods(&mut shelf), ["single-n1"]);
    disk.remove(FOLDER);
    disk.put(format!("{FOLDER}/a.yaml"), manifest("a"));
    disk.put(format!("{FOLDER}/.hidden.yaml"), manifest("hidden"));
    said(&mut shelf).await;
    said(&mut shelf).await;
    assert_eq!(pods(&mut shelf), ["a-n1"]);
    disk.remove(FOLDER);
    disk.put_other(FOLDER);
    assert_eq!(
        said(&mut shelf).await,
        [format!("W `{FOLDER}` is neither a folder nor a file: no manifests are read from it")]
    );
}

/// The path is part of a pod's UID.
#[test]
fn paths_are_spelled_as_upstream_spells_them() {
    for (written, spelled) in [
        ("/etc/manifests/a.yaml", "/etc/manifests/a.yaml"),
        ("/etc//manifests/./b/../a.yaml", "/etc/manifests/a.yaml"),
        ("/../etc/a.yaml", "/etc/a.yaml"),
        ("../etc/a.yaml", "../etc/a.yaml"),
        ("./etc/a.yaml", "etc/a.yaml"),
    ] {
        assert_eq!(cleaned(Path::new(written)), Path::new(spelled), "{written}");
    }
}
