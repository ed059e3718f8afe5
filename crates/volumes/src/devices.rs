//! Volumes that are mounted once for the node, and from there shown to each pod.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

use crate::port::Mounted;

/// Whoever mounts, shows or takes away such a volume holds its lock: two pods must not do so at once.
#[derive(Default)]
pub(crate) struct Locks {
    locks: Mutex<BTreeMap<PathBuf, Arc<tokio::sync::Mutex<()>>>>,
}

impl Locks {
    pub async fn hold(&self, global: &Path) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
            // Those that nobody holds or waits for are forgotten.
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            locks.entry(global.to_owned()).or_default().clone()
        };
        lock.lock_owned().await
    }
}

/// Which folder of which file system a path is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    device: String,
    root: PathBuf,
}

impl Place {
    /// By the whole mount table. The path must have no links in it.
    pub fn of(path: &Path, table: &[Mounted]) -> Option<Self> {
        let around = table.iter().filter(|mounted| path.starts_with(&mounted.path));
        // Of several in one place the last one is seen.
        let nearest = around.max_by_key(|mounted| mounted.path.as_os_str().len())?;
        let inside = path.strip_prefix(&nearest.path).ok()?;
        let root =
            if inside.as_os_str().is_empty() { nearest.root.clone() } else { nearest.root.join(inside) };
        Some(Self { device: nearest.device.clone(), root })
    }

    pub fn is_seen_at(&self, mounted: &Mounted) -> bool {
        mounted.device == self.device && mounted.root == self.root
    }
}

pub(crate) fn is_mounted(path: &Path, table: &[Mounted]) -> bool {
    table.iter().any(|mounted| mounted.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_views_of_a_folder_are_one_place() {
        let mounted = |path: &str, device: &str, root: &str| Mounted {
            path: path.into(),
            device: device.to_owned(),
            root: root.into(),
            ..Default::default()
        };
        let table =
            [mounted("/", "8:1", "/"), mounted("/mnt/disk", "8:2", "/"), mounted("/pods/a", "8:2", "/data")];
        let place = Place::of(Path::new("/mnt/disk/data"), &table).unwrap();
        let seen: Vec<_> = table.iter().filter(|m| place.is_seen_at(m)).map(|m| m.path.clone()).collect();
        assert_eq!(seen, [Path::new("/pods/a")]);
        assert_eq!(Place::of(Path::new("/pods/a"), &table), Some(place));
    }
}
