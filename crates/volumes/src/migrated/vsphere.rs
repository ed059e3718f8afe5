//! `vsphereVolume`

use crablet_model::api;

use super::{Translation, topology};

const DRIVER: &str = "csi.vsphere.vmware.com";
const ZONE: &str = "topology.csi.vmware.com/zone";
const REGION: &str = "topology.csi.vmware.com/region";

pub fn translated(
    volume: &mut api::PersistentVolume,
    disk: api::VsphereVirtualDiskVolumeSource,
) -> Translation {
    topology::of_zone_and_region(volume, ZONE, REGION);
    let policy = disk.storage_policy_name.filter(|name| !name.is_empty());
    let attributes = policy.map(|name| ("storagepolicyname".to_owned(), name));
    Ok(api::CSIPersistentVolumeSource {
        driver: DRIVER.to_owned(),
        volume_handle: disk.volume_path,
        fs_type: disk.fs_type,
        volume_attributes: Some(attributes.into_iter().collect()),
        ..Default::default()
    })
}
