//! Work that takes unusually long: a server, a disk or a driver gives no answer. The pod's events say for what it waits and
//! since when. Upstream says nothing until the call fails, which some never do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crablet_model::api;
use jiff::Timestamp;

/// Longer than a healthy mount takes.
const UNUSUAL: Duration = Duration::from_secs(10);

/// When the work was tried first, and whether somebody knows. Told once, however often it is tried.
#[derive(Clone, Debug)]
pub(crate) struct Slow {
    since: Timestamp,
    told: Arc<AtomicBool>,
}

impl Slow {
    pub fn since(since: Timestamp) -> Self {
        Self { since, told: Arc::default() }
    }

    pub fn so_far(&self, now: Timestamp) -> Duration {
        Duration::try_from(now.duration_since(self.since)).unwrap_or_default()
    }

    /// Somebody else tells how far the work has come.
    pub fn is_told_elsewhere(&self) {
        self.told.store(true, Ordering::Relaxed);
    }

    /// The work's own result, and a word about it if it takes long.
    pub async fn watch<T>(
        &self,
        mut work: impl Future<Output = T> + Unpin,
        tell: impl FnOnce(Timestamp),
    ) -> T {
        // The work is only looked at, and goes on afterwards.
        if let Ok(done) = tokio::time::timeout(UNUSUAL, &mut work).await {
            return done;
        }
        if !self.told.swap(true, Ordering::Relaxed) {
            tell(self.since);
        }
        work.await
    }
}

pub(crate) fn text_of_set_up(volume: &api::Volume, since: Timestamp) -> String {
    format!(
        "MountVolume.SetUp for volume {:?} is taking longer than expected: waiting for {} since {since:.0}",
        volume.name,
        source_of(volume)
    )
}

pub(crate) fn text_of_teardown(volume: &str, since: Timestamp) -> String {
    format!(
        "UnmountVolume.TearDown for volume {volume:?} is taking longer than expected: waiting since {since:.0}"
    )
}

/// Who is waited for.
fn source_of(volume: &api::Volume) -> String {
    if let Some(source) = &volume.host_path {
        return format!("the host's path {:?}", source.path);
    }
    if let Some(source) = &volume.csi {
        return format!("CSI driver {:?}", source.driver);
    }
    if let Some(source) = &volume.nfs {
        return format!("server {:?}", format!("{}:{}", source.server, source.path));
    }
    if let Some(source) = &volume.persistent_volume_claim {
        return format!("the volume of claim {:?}", source.claim_name);
    }
    if volume.ephemeral.is_some() {
        return "the volume of its claim".to_owned();
    }
    "the node".to_owned()
}
