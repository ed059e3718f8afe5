//! The fake disk is trusted only as far as it does what a real one does.

use std::io;
use std::path::{Path, PathBuf};

use super::FakeFiles;
use crate::files::{FileKind, Files, FolderEntry};
use crate::linux::LinuxFiles;

/// One random call, its answer as text: a value, or the kind of the error.
async fn call(files: &dyn Files, root: &Path, rng: &mut fastrand::Rng) -> String {
    let mut path = root.to_path_buf();
    for _ in 0..rng.usize(1..=3) {
        path.push(["a", "b", "c"][rng.usize(0..3)]);
    }
    let mode = [0o600, 0o755][rng.usize(0..2)];
    let content = vec![b'x'; rng.usize(0..6)];
    let target = [PathBuf::from("b"), PathBuf::from("../c"), root.join("a/b")][rng.usize(0..3)].clone();
    let verb = rng.u8(0..11);
    let answer = match verb {
        0 => text(files.kind(&path).await),
        1 => text(files.list(&path).await.map(names_and_kinds)),
        2 => text(files.read(&path, 4).await),
        3 => text(files.read_tail(&path, 4).await),
        4 => text(files.write_atomic(&path, &content, mode).await),
        5 => text(files.write_in_place(&path, &content, mode).await),
        6 | 7 => text(files.create_folder(&path, mode).await),
        8 => text(files.link(&target, &path).await),
        9 => text(files.remove_file(&path).await),
        // Rarely, or there is never much to look at.
        _ if rng.u8(0..4) == 0 => text(files.remove_tree(&path).await),
        _ => text(files.read_link(&path).await),
    };
    format!("call {verb} on {}: {answer}", path.display())
}

/// Stamps are compared with earlier ones only.
fn names_and_kinds(entries: Vec<FolderEntry>) -> Vec<(String, Option<FileKind>)> {
    entries.into_iter().map(|entry| (entry.name, entry.kind)).collect()
}

fn text<T: std::fmt::Debug>(result: io::Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(e) => format!("{:?}", e.kind()),
    }
}

#[tokio::test]
async fn the_fake_answers_as_linux_does() {
    for seed in 0..100 {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let fake = FakeFiles::new(fastrand::Rng::with_seed(seed));
        fake.put_folder(&root);
        let (mut left, mut right) = (fastrand::Rng::with_seed(seed), fastrand::Rng::with_seed(seed));
        for number in 0..100 {
            let real = call(&LinuxFiles, &root, &mut left).await;
            let faked = call(&fake, &root, &mut right).await;
            assert_eq!(real, faked, "call {number} of seed {seed}");
        }
    }
}
