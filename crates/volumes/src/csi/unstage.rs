//! The task that unstages what no pod uses any more. A pod's end does not wait for it.
//!
//! A volume is unstaged when its last pod lets go of it, and tried again after failures, as upstream backs off. When a
//! driver registers, its volumes that an earlier life of the agent has left staged are found on disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::data::{self, Found, VolumeData};
use super::places::GLOBAL_MOUNT;
use super::request::Wanted;
use super::{Csi, block, unmount, uses};
use crate::figures;

const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(122);

/// What shall be unstaged, by its place.
#[derive(Default)]
pub(super) struct Unstaging {
    waiting: Mutex<BTreeMap<PathBuf, Task>>,
    notify: Notify,
}

#[derive(Clone, Debug)]
struct Task {
    driver: String,
    handle: String,
    kind: Kind,
    failures: u32,
    /// `None` while it is tried.
    at: Option<Instant>,
    /// It was asked for once more meanwhile: the try may have found a pod that has gone since.
    again: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Mount,
    /// The persistent volume's name.
    Block(String),
}

impl Unstaging {
    pub fn add_mount(&self, volume: &Wanted, place: &Path) {
        self.add(&volume.driver, &volume.handle, Kind::Mount, place);
    }

    pub fn add_mount_of(&self, data: &VolumeData, place: &Path) {
        self.add(&data.driver, &data.handle, Kind::Mount, place);
    }

    pub fn add_block(&self, data: &VolumeData, spec_name: &str, place: &Path) {
        self.add(&data.driver, &data.handle, Kind::Block(spec_name.to_owned()), place);
    }

    fn add(&self, driver: &str, handle: &str, kind: Kind, place: &Path) {
        let (driver, handle) = (driver.to_owned(), handle.to_owned());
        let task = Task { driver, handle, kind, failures: 0, at: Some(Instant::now()), again: false };
        self.waiting().entry(place.to_owned()).and_modify(|there| there.again = true).or_insert(task);
        self.notify.notify_one();
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Task>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it is time for; it counts as being tried from now on.
    fn due(&self) -> Vec<(PathBuf, Task)> {
        let now = Instant::now();
        let mut waiting = self.waiting();
        let due = waiting.iter_mut().filter(|(_, task)| task.at.is_some_and(|at| at <= now));
        due.map(|(place, task)| {
            (task.at, task.again) = (None, false);
            (place.clone(), task.clone())
        })
        .collect()
    }

    fn next_time(&self) -> Option<Instant> {
        self.waiting().values().filter_map(|task| task.at).min()
    }

    fn done(&self, place: &Path, result: Result<(), String>) {
        let mut waiting = self.waiting();
        let Some(task) = waiting.get_mut(place) else { return };
        match result {
            Ok(()) if task.again => task.at = Some(Instant::now()),
            Ok(()) => drop(waiting.remove(place)),
            Err(error) => {
                let wait = FIRST_RETRY.saturating_mul(1 << task.failures.min(16)).min(LAST_RETRY);
                task.failures += 1;
                task.at = Some(Instant::now() + wait);
                warn!(place = %place.display(), driver = task.driver, error, "UnmountDevice failed, will try again");
            }
        }
    }

    /// A driver has come: whatever waits for one is tried at once.
    fn try_all(&self) {
        for task in self.waiting().values_mut().filter(|task| task.at.is_some()) {
            task.at = Some(Instant::now());
        }
    }
}

type Try = Pin<Box<dyn Future<Output = (PathBuf, Result<(), String>)> + Send>>;

pub(super) async fn run(csi: Arc<Csi>) {
    let mut drivers = csi.drivers.changes();
    let mut running: FuturesUnordered<Try> = FuturesUnordered::new();
    let mut swept = Vec::new();
    loop {
        for (place, task) in csi.unstaging.due() {
            let csi = csi.clone();
            running.push(Box::pin(async move {
                let result = unstage(&csi, &place, &task).await;
                (place, result)
            }));
        }
        let next = csi.unstaging.next_time();
        // Every arm may be dropped: a notification and a watch keep what they have not given out.
        tokio::select! {
            biased;
            Some((place, result)) = running.next() => csi.unstaging.done(&place, result),
            Ok(()) = drivers.changed() => {
                csi.unstaging.try_all();
                sweep_new(&csi, &mut swept).await;
            }
            () = csi.unstaging.notify.notified() => {}
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
        }
    }
}

/// Looks once for what an earlier life has left of each driver that is here.
async fn sweep_new(csi: &Arc<Csi>, swept: &mut Vec<String>) {
    for driver in csi.drivers.names() {
        if swept.contains(&driver) {
            continue;
        }
        match sweep(csi, &driver).await {
            Ok(()) => swept.push(driver),
            Err(error) => warn!(driver, error, "Failed to look for volumes that nobody uses"),
        }
    }
}

async fn sweep(csi: &Arc<Csi>, driver: &str) -> Result<(), String> {
    let host = &*csi.host;
    csi.uses.load(host, &csi.places).await?;
    let staged = csi.places.staged(driver);
    for name in uses::names(host, &staged).await? {
        let folder = staged.join(name);
        let place = folder.join(GLOBAL_MOUNT);
        let found = data::read(host, &folder).await?;
        if let Found::Data(data) = found
            && !csi.uses.is_used(&place)
        {
            info!(volume = data.handle, driver, "Found a staged volume that nobody uses");
            csi.unstaging.add_mount_of(&data, &place);
        }
    }
    for name in uses::device_names(host, &csi.places).await? {
        let place = csi.places.device_staging(&name);
        let found = data::read(host, &csi.places.device_data(&name)).await?;
        if let Found::Data(data) = found
            && data.driver == driver
            && !csi.uses.is_used(&place)
        {
            info!(volume = data.handle, driver, "Found a staged device that nobody uses");
            csi.unstaging.add_block(&data, &name, &place);
        }
    }
    Ok(())
}

async fn unstage(csi: &Arc<Csi>, place: &Path, task: &Task) -> Result<(), String> {
    let _alone = csi.uses.lock(place).await;
    if csi.uses.is_used(place) {
        return Ok(());
    }
    let begun = Instant::now();
    let (name, done) = match &task.kind {
        Kind::Mount => ("unmount_device", unmount_device(csi, place, task).await),
        Kind::Block(name) => ("unmap_device", block::tear_down(csi, &task.driver, &task.handle, name).await),
    };
    figures::operation(&super::plugin_of(&task.driver), name, done.is_ok(), begun.elapsed());
    done?;
    csi.uses.set_staged(place, false);
    csi.uses.let_go(place);
    Ok(())
}

async fn unmount_device(csi: &Csi, place: &Path, task: &Task) -> Result<(), String> {
    let beside = place.parent().unwrap_or(place);
    let failed = |error: String| format!("kubernetes.io/csi: attacher.UnmountDevice failed: {error}");
    if matches!(data::read(&*csi.host, beside).await?, Found::Data(_)) {
        let client = csi.drivers.client(&task.driver).map_err(failed)?;
        let abilities = client.capabilities().await.map_err(|error| failed(error.to_string()))?;
        if abilities.stage {
            let done = client.unstage(&task.handle, place).await;
            done.map_err(|error| failed(error.to_string()))?;
        }
    }
    unmount::remove(csi, beside, GLOBAL_MOUNT).await
}
