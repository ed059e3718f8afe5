//! Which pods use which staged volume, and who is at work on it.
//!
//! The disk knows who uses what; it is read once, at the first question, and followed from then on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crablet_model::PodUid;
use tokio::sync::{OnceCell, OwnedMutexGuard};

use super::data::{self, Found, Lifecycle};
use super::places::Places;
use crate::port::{VolumeHost, told};

#[derive(Default)]
pub struct Uses {
    loaded: OnceCell<()>,
    known: Mutex<Known>,
}

/// All by the staging path.
#[derive(Default)]
struct Known {
    pods: BTreeMap<PathBuf, BTreeSet<PodUid>>,
    /// Staged by this life of the agent.
    staged: BTreeSet<PathBuf>,
    /// Held by whoever stages, publishes and the like, so that a volume is worked on by one at a time.
    locks: BTreeMap<PathBuf, Weak<tokio::sync::Mutex<()>>>,
}

impl Uses {
    pub async fn load(&self, host: &dyn VolumeHost, places: &Places) -> Result<(), String> {
        let load = async || {
            let mut pods = BTreeMap::new();
            mounted(host, places, &mut pods).await?;
            mapped(host, places, &mut pods).await?;
            let mut known = self.known();
            for (place, users) in pods {
                known.pods.entry(place).or_default().extend(users);
            }
            Ok(())
        };
        self.loaded.get_or_try_init(load).await.map(drop)
    }

    /// Waits until nobody else works on the volume.
    pub async fn lock(&self, place: &Path) -> OwnedMutexGuard<()> {
        let lock = {
            let mut known = self.known();
            known.locks.retain(|_, lock| lock.strong_count() > 0);
            let there = known.locks.get(place).and_then(Weak::upgrade);
            there.unwrap_or_else(|| {
                let new = Arc::new(tokio::sync::Mutex::new(()));
                known.locks.insert(place.to_owned(), Arc::downgrade(&new));
                new
            })
        };
        lock.lock_owned().await
    }

    pub fn add(&self, place: &Path, uid: &PodUid) {
        self.known().pods.entry(place.to_owned()).or_default().insert(uid.clone());
    }

    /// Says whether nobody uses it any more.
    pub fn remove(&self, place: &Path, uid: &PodUid) -> bool {
        let mut known = self.known();
        let Some(users) = known.pods.get_mut(place) else { return true };
        users.remove(uid);
        let none = users.is_empty();
        if none {
            known.pods.remove(place);
        }
        none
    }

    pub fn is_used(&self, place: &Path) -> bool {
        self.known().pods.contains_key(place)
    }

    pub fn is_only_user(&self, place: &Path, uid: &PodUid) -> bool {
        self.known().pods.get(place).is_none_or(|users| users.iter().all(|user| user == uid))
    }

    pub fn is_staged(&self, place: &Path) -> bool {
        self.known().staged.contains(place)
    }

    pub fn set_staged(&self, place: &Path, staged: bool) {
        let mut known = self.known();
        match staged {
            true => known.staged.insert(place.to_owned()),
            false => known.staged.remove(place),
        };
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Users = BTreeMap<PathBuf, BTreeSet<PodUid>>;

async fn mounted(host: &dyn VolumeHost, places: &Places, pods: &mut Users) -> Result<(), String> {
    for uid in names(host, &places.pods()).await? {
        let uid = PodUid::new(&uid);
        for volume in names(host, &places.pod_volumes(&uid)).await? {
            let folder = places.pod_volumes(&uid).join(volume);
            let Found::Data(data) = data::read(host, &folder).await? else { continue };
            if data.lifecycle != Some(Lifecycle::Ephemeral) {
                let place = places.global_mount(&data.driver, &data.handle);
                pods.entry(place).or_default().insert(uid.clone());
            }
        }
    }
    Ok(())
}

async fn mapped(host: &dyn VolumeHost, places: &Places, pods: &mut Users) -> Result<(), String> {
    for volume in device_names(host, places).await? {
        for folder in [places.device_publish(&volume), places.device_map(&volume)] {
            let users = names(host, &folder).await?;
            if !users.is_empty() {
                let place = pods.entry(places.device_staging(&volume)).or_default();
                place.extend(users.iter().map(PodUid::new));
            }
        }
    }
    Ok(())
}

/// The block volumes that something is known of.
pub async fn device_names(host: &dyn VolumeHost, places: &Places) -> Result<BTreeSet<String>, String> {
    let mut all: BTreeSet<String> = names(host, &places.devices()).await?.into_iter().collect();
    all.remove("staging");
    all.remove("publish");
    all.extend(names(host, &places.devices().join("publish")).await?);
    Ok(all)
}

pub async fn names(host: &dyn VolumeHost, folder: &Path) -> Result<Vec<String>, String> {
    host.names(folder).await.map_err(|error| told("open", folder, &error))
}
