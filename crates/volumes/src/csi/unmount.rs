//! The way out of a pod.

use std::path::Path;
use std::sync::Arc;

use crablet_model::PodUid;

use super::Csi;
use super::data::{self, Found, Lifecycle, VolumeData};
use super::places::MOUNT;
use crate::port::told;

pub(super) async fn tear_down(csi: &Arc<Csi>, uid: &PodUid, spec_name: &str) -> Result<(), String> {
    let folder = csi.places.pod_volume(uid, spec_name);
    let data = match data::read(&*csi.host, &folder).await? {
        Found::Data(data) => data,
        // The driver was not asked for anything yet.
        Found::Nothing | Found::Broken(_) => return remove(csi, &folder, MOUNT).await,
    };
    csi.uses.load(&*csi.host, &csi.places).await?;
    let target = folder.join(MOUNT);
    let place = match data.lifecycle {
        Some(Lifecycle::Ephemeral) => target.clone(),
        _ => csi.places.global_mount(&data.driver, &data.handle),
    };
    let _alone = csi.uses.lock(&place).await;
    unpublish(csi, &data, &target).await?;
    remove(csi, &folder, MOUNT).await.map_err(|error| {
        format!(
            "kubernetes.io/csi: Unmounter.TearDownAt failed to clean mount dir [{}]: {error}",
            target.display()
        )
    })?;
    if data.lifecycle != Some(Lifecycle::Ephemeral) && csi.uses.remove(&place, uid) {
        csi.unstaging.add_mount_of(&data, &place);
    }
    Ok(())
}

async fn unpublish(csi: &Csi, data: &VolumeData, target: &Path) -> Result<(), String> {
    let client = csi.drivers.client(&data.driver).map_err(|error| {
        format!("kubernetes.io/csi: Unmounter.TearDownAt failed to get CSI client: {error}")
    })?;
    let done = client.unpublish(&data.handle, target).await;
    done.map_err(|error| format!("kubernetes.io/csi: Unmounter.TearDownAt failed: {error}"))
}

/// Removes the place of a mount, the file about it and the folder around both, but never what is still mounted.
pub(super) async fn remove(csi: &Csi, folder: &Path, mount: &str) -> Result<(), String> {
    let target = folder.join(mount);
    let mounts = csi.host.mounts(&target).await.map_err(|error| told("read mounts of", &target, &error))?;
    if !mounts.is_empty() {
        return Err(format!("{} is still mounted", target.display()));
    }
    csi.host.remove_folder(&target).await.map_err(|error| told("remove", &target, &error))?;
    data::remove(&*csi.host, folder).await?;
    csi.host.remove_folder(folder).await.map_err(|error| told("remove", folder, &error))
}
