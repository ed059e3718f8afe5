//! A container that swaps names in its volume for links while the agent binds a part of it. Nothing outside of the volume
//! is ever bound.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crablet_volumes::{LinuxVolumeHost, VolumeHost};

const ROUNDS: usize = 4000;
/// Each round has a target of its own; unmounting many at once is far cheaper than one by one.
const AT_ONCE: usize = 250;

struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let scene = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir_all(scene.volume().join("a/b")).unwrap();
        fs::write(scene.volume().join("a/b/inside"), "inside").unwrap();
        fs::create_dir_all(scene.outside().join("b")).unwrap();
        fs::write(scene.outside().join("b/secret"), "secret").unwrap();
        scene
    }

    fn path(&self) -> PathBuf {
        fs::canonicalize(self.folder.path()).unwrap()
    }

    fn volume(&self) -> PathBuf {
        self.path().join("volume")
    }

    /// What the attacker wants to see.
    fn outside(&self) -> PathBuf {
        self.path().join("outside")
    }

    fn mounts(&self) -> Vec<PathBuf> {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let paths = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
        paths.filter(|path| path.starts_with(self.path())).collect()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for path in self.mounts().iter().rev() {
            let _ = rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

/// Swaps `a` and `a/b` for links that lead out, and back, as fast as it can.
fn attack(volume: &Path, outside: &Path, over: &AtomicBool) -> usize {
    let (name, spare) = (volume.join("a"), volume.join("spare"));
    let (inner, inner_spare) = (volume.join("a/b"), volume.join("a/spare"));
    let link = volume.join("link");
    let inner_link = volume.join("inner-link");
    let mut swaps = 0;
    while !over.load(Ordering::Relaxed) {
        let _ = symlink(outside, &link);
        let _ = fs::rename(&name, &spare);
        let _ = fs::rename(&link, &name);
        thread::yield_now();
        let _ = fs::remove_file(&name);
        let _ = fs::rename(&spare, &name);
        let _ = symlink(outside.join("b"), &inner_link);
        let _ = fs::rename(&inner, &inner_spare);
        let _ = fs::rename(&inner_link, &inner);
        thread::yield_now();
        let _ = fs::remove_file(&inner);
        let _ = fs::rename(&inner_spare, &inner);
        // What the agent has made in a moment without a folder would stop the game.
        if !name.join("b/inside").exists() {
            let _ = fs::remove_dir_all(&name);
            let _ = fs::remove_dir_all(&spare);
            let _ = fs::create_dir_all(&inner);
            let _ = fs::write(inner.join("inside"), "inside");
        }
        swaps += 1;
    }
    swaps
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_outside_of_the_volume_is_ever_bound() {
    let scene = Scene::new();
    let over = Arc::new(AtomicBool::new(false));
    let attacker = {
        let (volume, outside, over) = (scene.volume(), scene.outside(), over.clone());
        thread::spawn(move || attack(&volume, &outside, &over))
    };
    let host = LinuxVolumeHost::default();
    let targets = scene.path().join("targets");
    fs::create_dir(&targets).unwrap();
    let forbidden: Vec<_> = [scene.outside(), scene.outside().join("b"), scene.outside().join("b/secret")]
        .iter()
        .map(|path| fs::metadata(path).unwrap().ino())
        .collect();
    let (bound, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let sub_paths = ["a/b", "a", "a/b/inside", "a/b/secret", "a/b/new"];
    for round in 0..ROUNDS {
        if round % AT_ONCE == 0 {
            let _ = rustix::mount::unmount(&targets, rustix::mount::UnmountFlags::DETACH);
            let flags = rustix::mount::MountFlags::empty();
            rustix::mount::mount("tmpfs", &targets, "tmpfs", flags, c"").unwrap();
        }
        let target = targets.join(round.to_string());
        match host.bind_sub_path(&scene.volume(), sub_paths[round % sub_paths.len()], &target).await {
            Ok(()) => {
                bound.fetch_add(1, Ordering::Relaxed);
                let seen = fs::symlink_metadata(&target).unwrap();
                assert!(!forbidden.contains(&seen.ino()), "round {round}: something outside is bound");
                // The agent makes folders of that name in the volume, too.
                let inner = fs::symlink_metadata(target.join("secret")).map(|found| found.ino());
                assert!(
                    !inner.is_ok_and(|inner| forbidden.contains(&inner)),
                    "round {round}: a secret is seen"
                );
                if !seen.is_dir() {
                    assert_ne!(fs::read_to_string(&target).unwrap(), "secret", "round {round}");
                }
            }
            Err(_) => drop(refused.fetch_add(1, Ordering::Relaxed)),
        }
    }
    over.store(true, Ordering::Relaxed);
    let swaps = attacker.join().unwrap();
    assert!(swaps > 100, "the attacker swapped only {swaps} times");
    assert!(bound.load(Ordering::Relaxed) > 0 && refused.load(Ordering::Relaxed) > 0);
    let left: Vec<_> =
        fs::read_dir(scene.outside()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["b"], "nothing was made outside");
    let inside: Vec<_> = fs::read_dir(scene.outside().join("b")).unwrap().collect();
    assert_eq!(inside.len(), 1, "nothing was made outside: {inside:?}");
}
