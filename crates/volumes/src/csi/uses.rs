//! Which pods use which staged volume, who is at work on it, and how far it has grown.
//!
//! The disk knows who uses what and what is staged; it is read once, at the first question, and followed from then on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crablet_model::PodUid;
use tokio::sync::{OnceCell, OwnedMutexGuard, watch};

use super::data::{self, Found, Lifecycle, VolumeData};
use super::places::{GLOBAL_MOUNT, Places, unique_name};
use crate::port::{VolumeHost, told};

#[derive(Default)]
pub struct Uses {
    loaded: OnceCell<()>,
    known: Mutex<Known>,
    /// The unique names of volumes that a driver has staged here, or may have: the cluster must not detach them.
    held: watch::Sender<Arc<BTreeSet<String>>>,
}

/// How large a volume is on this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    /// Bytes, as far as is known.
    pub size: Option<i64>,
    /// The driver does not expand it while it is used: it is not asked again before the volume was let go of.
    pub refused: bool,
    /// The driver has failed for good once.
    pub failed: bool,
}

/// All by the staging path.
#[derive(Default)]
struct Known {
    pods: BTreeMap<PathBuf, BTreeSet<PodUid>>,
    /// Staged by this life of the agent.
    staged: BTreeSet<PathBuf>,
    /// Unique names of what a driver has, or may have.
    held: BTreeMap<PathBuf, String>,
    growth: BTreeMap<PathBuf, Growth>,
    /// The drivers of volumes that pods have, by the pod and the volume's name on disk.
    drivers: BTreeMap<(PodUid, String), String>,
    /// Held by whoever stages, publishes and the like, so that a volume is worked on by one at a time.
    locks: BTreeMap<PathBuf, Weak<tokio::sync::Mutex<()>>>,
}

impl Uses {
    pub async fn load(&self, host: &dyn VolumeHost, places: &Places) -> Result<(), String> {
        let load = async || {
            let mut pods = BTreeMap::new();
            mounted(host, places, &mut pods).await?;
            mapped(host, places, &mut pods).await?;
            let staged = on_disk(host, places).await?;
            {
                let mut known = self.known();
                for (place, users) in pods {
                    known.pods.entry(place).or_default().extend(users);
                }
                known.held.extend(staged);
            }
            self.tell_held();
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
            known.growth.remove(place);
        }
        none
    }

    /// What drivers have, or may have: before it is known, nothing.
    pub fn held(&self) -> watch::Receiver<Arc<BTreeSet<String>>> {
        self.held.subscribe()
    }

    /// The driver is about to be asked for the volume.
    pub fn hold(&self, place: &Path, driver: &str, handle: &str) {
        self.known().held.insert(place.to_owned(), unique_name(driver, handle));
        self.tell_held();
    }

    /// The driver has nothing of the volume any more.
    pub fn let_go(&self, place: &Path) {
        self.known().held.remove(place);
        self.tell_held();
    }

    fn tell_held(&self) {
        // Read while nobody else tells, or an older set could be told last.
        self.held.send_if_modified(|told| {
            let all: BTreeSet<String> = self.known().held.values().cloned().collect();
            let is_new = **told != all;
            if is_new {
                *told = Arc::new(all);
            }
            is_new
        });
    }

    /// The pod has a volume of this driver, or `None`, has it no more.
    pub fn set_driver(&self, uid: &PodUid, name: &str, driver: Option<&str>) {
        let key = (uid.clone(), name.to_owned());
        let mut known = self.known();
        match driver {
            Some(driver) => known.drivers.insert(key, driver.to_owned()),
            None => known.drivers.remove(&key),
        };
    }

    pub fn driver(&self, uid: &PodUid, name: &str) -> Option<String> {
        self.known().drivers.get(&(uid.clone(), name.to_owned())).cloned()
    }

    pub fn growth(&self, place: &Path) -> Growth {
        self.known().growth.get(place).copied().unwrap_or_default()
    }

    pub fn grow(&self, place: &Path, change: impl FnOnce(&mut Growth)) {
        change(self.known().growth.entry(place.to_owned()).or_default());
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

/// What was staged, by this life of the agent or an earlier one, with its unique names.
async fn on_disk(host: &dyn VolumeHost, places: &Places) -> Result<BTreeMap<PathBuf, String>, String> {
    let name = |data: &VolumeData| unique_name(&data.driver, &data.handle);
    let mut all = BTreeMap::new();
    for driver in names(host, &places.plugin()).await? {
        let staged = places.staged(&driver);
        if staged == places.devices() {
            continue;
        }
        for volume in names(host, &staged).await? {
            let folder = staged.join(volume);
            if let Found::Data(data) = data::read(host, &folder).await? {
                all.insert(folder.join(GLOBAL_MOUNT), name(&data));
            }
        }
    }
    for volume in device_names(host, places).await? {
        if let Found::Data(data) = data::read(host, &places.device_data(&volume)).await? {
            all.insert(places.device_staging(&volume), name(&data));
        }
    }
    Ok(all)
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
