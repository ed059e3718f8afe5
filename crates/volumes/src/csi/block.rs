//! Block volumes: staged once, published for each pod as a device file. Who calls binds and links it for the pod.

use std::path::PathBuf;
use std::sync::Arc;

use crablet_model::PodUid;
use crablet_protos::csi;

use super::data::{self, Found, VolumeData};
use super::places::attachment_name;
use super::request::Wish;
use super::rules::{Kind, capability};
use super::{Csi, Failure, context, expand, uses};
use crate::port::told;

pub(super) const SET_UP_DEVICE: &str = "MapVolume.SetUpDevice";
const WAIT_FOR_ATTACH: &str = "MapVolume.WaitForAttach";
const MAP_POD_DEVICE: &str = "MapVolume.MapPodDevice";
const EXPAND: &str = "MapVolume.MarkVolumeAsMounted failed while expanding volume";

/// A device that its pod can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Where the driver has put it.
    pub device: PathBuf,
    /// The folder with a bind mount of it per pod.
    pub global_map: PathBuf,
}

pub(super) async fn map(csi: &Arc<Csi>, wish: &Wish) -> Result<Mapped, Failure> {
    let volume = &wish.volume;
    let step = |step: &'static str| move |message: String| Failure { step, message };
    let spec = csi.objects.driver(&volume.driver).await.map_err(step(SET_UP_DEVICE))?;
    let spec = spec.as_deref();
    let publish_context = csi.attachment(volume, spec).await.map_err(step(WAIT_FOR_ATTACH))?;
    let client = csi
        .client(volume, "blockMapper.SetUpDevice failed to get CSI client")
        .map_err(step(SET_UP_DEVICE))?;
    csi.uses.load(&*csi.host, &csi.places).await.map_err(step(SET_UP_DEVICE))?;
    let staging = csi.places.device_staging(&volume.spec_name);
    let _alone = csi.uses.lock(&staging).await;
    let abilities = client.capabilities().await.map_err(|error| step(SET_UP_DEVICE)(error.to_string()))?;
    remember(csi, wish).await.map_err(step(SET_UP_DEVICE))?;

    if abilities.stage && !csi.uses.is_staged(&staging) {
        let secrets = match &volume.stage_secret {
            Some(secret) => csi.secret(secret, "NodeStageSecretRef").await.map_err(step(SET_UP_DEVICE))?,
            None => Default::default(),
        };
        make_folder(csi, &staging).await.map_err(step(SET_UP_DEVICE))?;
        csi.uses.hold(&staging, &volume.driver, &volume.handle);
        let request = csi::NodeStageVolumeRequest {
            volume_id: volume.handle.clone(),
            publish_context: publish_context.clone(),
            staging_target_path: staging.display().to_string(),
            volume_capability: Some(capability(volume, abilities, Kind::Block)),
            secrets,
            volume_context: volume.attributes.clone(),
        };
        if let Err(error) = client.stage(request).await {
            if error.is_final() && !csi.uses.is_used(&staging) {
                match clean_up(csi, &volume.spec_name).await {
                    Ok(()) => csi.uses.let_go(&staging),
                    Err(left) => tracing::warn!(left, "Left over"),
                }
            } else if !csi.uses.is_used(&staging) {
                // Nobody knows how far it came; if nobody tries again, it is taken back.
                let data = data_of(csi, wish);
                csi.unstaging.add_block(&data, &volume.spec_name, &staging);
            }
            return Err(step(SET_UP_DEVICE)(error.to_string()));
        }
        csi.uses.set_staged(&staging, true);
    }

    csi.uses.add(&staging, &wish.id.uid);
    let secrets = match &volume.publish_secret {
        Some(secret) => csi.secret(secret, "NodePublishSecretRef").await.map_err(step(MAP_POD_DEVICE))?,
        None => Default::default(),
    };
    let publish = csi.places.device_publish(&volume.spec_name);
    make_folder(csi, &publish).await.map_err(step(MAP_POD_DEVICE))?;
    let device = publish.join(wish.id.uid.as_str());
    let mut attributes = volume.attributes.clone();
    attributes.extend(context::pod_info(spec, wish));
    let request = csi::NodePublishVolumeRequest {
        volume_id: volume.handle.clone(),
        publish_context,
        staging_target_path: staging.display().to_string(),
        target_path: device.display().to_string(),
        volume_capability: Some(capability(volume, abilities, Kind::Block)),
        readonly: volume.read_only,
        secrets,
        volume_context: attributes,
    };
    client.publish(request).await.map_err(|error| step(MAP_POD_DEVICE)(error.to_string()))?;
    let at = expand::At { place: &staging, path: &device, staging: abilities.stage.then_some(&*staging) };
    expand::during_mount(csi, wish, &client, abilities, at).await.map_err(step(EXPAND))?;
    Ok(Mapped { device, global_map: csi.places.device_map(&volume.spec_name) })
}

fn data_of(csi: &Csi, wish: &Wish) -> VolumeData {
    let volume = &wish.volume;
    VolumeData {
        attachment_id: Some(attachment_name(&volume.handle, &volume.driver, &csi.node_name)),
        driver: volume.driver.clone(),
        node: Some(csi.node_name.clone()),
        // A device has no files to label.
        context: None,
        spec_name: Some(volume.spec_name.clone()),
        handle: volume.handle.clone(),
        lifecycle: None,
    }
}

async fn remember(csi: &Csi, wish: &Wish) -> Result<(), String> {
    let name = &wish.volume.spec_name;
    let folder = csi.places.device_data(name);
    make_folder(csi, &folder).await?;
    data::write(&*csi.host, &folder, &data_of(csi, wish)).await
}

async fn make_folder(csi: &Csi, folder: &std::path::Path) -> Result<(), String> {
    csi.host.make_folder(folder, 0o750, 0o750).await.map_err(|error| told("mkdir", folder, &error))
}

pub(super) async fn unmap(csi: &Arc<Csi>, uid: &PodUid, spec_name: &str) -> Result<(), String> {
    let Found::Data(data) = data::read(&*csi.host, &csi.places.device_data(spec_name)).await? else {
        // The driver was not asked for anything yet.
        return Ok(());
    };
    csi.uses.load(&*csi.host, &csi.places).await?;
    let staging = csi.places.device_staging(spec_name);
    let _alone = csi.uses.lock(&staging).await;
    let client = csi.drivers.client(&data.driver).map_err(|error| {
        format!("kubernetes.io/csi: blockMapper.UnmapPodDevice failed to get CSI client: {error}")
    })?;
    let device = csi.places.device_publish(spec_name).join(uid.as_str());
    let done = client.unpublish(&data.handle, &device).await;
    done.map_err(|error| format!("kubernetes.io/csi: blockMapper.unpublishVolumeForBlock failed: {error}"))?;
    // A driver removes it; one that forgets must not keep the volume in use.
    csi.host.remove_file(&device).await.map_err(|error| told("remove", &device, &error))?;
    if csi.uses.remove(&staging, uid) {
        csi.unstaging.add_block(&data, spec_name, &staging);
    }
    Ok(())
}

pub(super) async fn mapped(csi: &Csi, uid: &PodUid) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for name in uses::device_names(&*csi.host, &csi.places).await? {
        for folder in [csi.places.device_publish(&name), csi.places.device_map(&name)] {
            if uses::names(&*csi.host, &folder).await?.iter().any(|user| user == uid.as_str()) {
                found.push(name.clone());
                break;
            }
        }
    }
    Ok(found)
}

/// No pod uses the device any more.
pub(super) async fn tear_down(csi: &Csi, driver: &str, handle: &str, spec_name: &str) -> Result<(), String> {
    let staging = csi.places.device_staging(spec_name);
    let there = csi.host.kind(&staging).await.map_err(|error| told("stat", &staging, &error))?.is_some();
    if there {
        let failed =
            |error: String| format!("kubernetes.io/csi: blockMapper.unstageVolumeForBlock failed: {error}");
        let client = csi.drivers.client(driver).map_err(failed)?;
        let abilities = client.capabilities().await.map_err(|error| failed(error.to_string()))?;
        if abilities.stage {
            client.unstage(handle, &staging).await.map_err(|error| failed(error.to_string()))?;
            csi.host.remove_tree(&staging).await.map_err(|error| told("remove", &staging, &error))?;
        }
    }
    clean_up(csi, spec_name).await
}

/// The empty folders around a device that is gone.
async fn clean_up(csi: &Csi, spec_name: &str) -> Result<(), String> {
    let folders = [csi.places.device_publish(spec_name), csi.places.device_staging(spec_name)];
    for folder in folders.into_iter().chain([csi.places.device_map(spec_name)]) {
        csi.host.remove_folder(&folder).await.map_err(|error| told("remove", &folder, &error))?;
    }
    // Nothing is mounted in it: its `dev` was empty.
    let whole = csi.places.device(spec_name);
    csi.host.remove_tree(&whole).await.map_err(|error| told("remove", &whole, &error))
}
