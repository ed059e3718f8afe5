//! Which pods have which persistent volume. Some volumes are for one pod at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crablet_model::PodUid;

use crate::csi::data::{self, Found, Lifecycle, VolumeData};
use crate::layout::PodLayout;
use crate::plugins::local;
use crate::port::told;
use crate::teardown::CSI;
use crate::volumes::Context;

#[derive(Default)]
pub(crate) struct Tenants {
    pods: Mutex<BTreeMap<String, BTreeSet<PodUid>>>,
}

impl Tenants {
    /// Whether the pod may have the volume; then it has it.
    pub fn enter(&self, volume: &str, pod: &PodUid, alone: bool) -> bool {
        let mut pods = self.pods();
        let tenants = pods.entry(volume.to_owned()).or_default();
        if alone && tenants.iter().any(|tenant| tenant != pod) {
            return false;
        }
        tenants.insert(pod.clone());
        true
    }

    pub fn leave(&self, pod: &PodUid) {
        self.pods().retain(|_, tenants| {
            tenants.remove(pod);
            !tenants.is_empty()
        });
    }

    fn pods(&self) -> MutexGuard<'_, BTreeMap<String, BTreeSet<PodUid>>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the volume lies in the folder of another pod. One that ran before this life of the agent began may
/// not have entered yet; as with upstream, what is left on disk counts until it is taken down.
pub(crate) async fn lies_elsewhere(ctx: &Context, volume: &str, pod: &PodUid) -> Result<bool, String> {
    for uid in names(ctx, &ctx.root_dir.join("pods")).await? {
        if uid != pod.as_str() && lies_in(ctx, volume, &PodUid::new(uid)).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The volumes of other plugins are for any number of pods, or have the names that they have in their pods.
async fn lies_in(ctx: &Context, volume: &str, pod: &PodUid) -> Result<bool, String> {
    let layout = PodLayout::new(&ctx.root_dir, pod);
    for plugin in [CSI, local::FOLDER] {
        for base in [layout.volumes(), layout.devices()] {
            // The volume itself is not looked at: it may hang.
            let found = names(ctx, &base.join(plugin)).await?;
            if found.iter().any(|name| name == volume) {
                return Ok(plugin != CSI || !is_inline(ctx, &layout.volume(CSI, volume)).await?);
            }
        }
    }
    Ok(false)
}

/// A volume of a driver that comes and goes with its pod also has the name that it has there.
async fn is_inline(ctx: &Context, folder: &Path) -> Result<bool, String> {
    let found = data::read(&*ctx.host, folder).await?;
    Ok(matches!(found, Found::Data(VolumeData { lifecycle: Some(Lifecycle::Ephemeral), .. })))
}

async fn names(ctx: &Context, folder: &Path) -> Result<Vec<String>, String> {
    ctx.host.names(folder).await.map_err(|error| told("open", folder, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_for_one_pod_waits_until_the_first_has_left() {
        let tenants = Tenants::default();
        let (a, b) = (PodUid::new("a"), PodUid::new("b"));
        assert!(tenants.enter("v", &a, true));
        assert!(tenants.enter("v", &a, true), "it is its own");
        assert!(!tenants.enter("v", &b, true));
        assert!(tenants.enter("shared", &b, false) && tenants.enter("shared", &a, false));
        tenants.leave(&a);
        assert!(tenants.enter("v", &b, true));
    }
}
