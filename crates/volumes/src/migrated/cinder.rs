//! `cinder`

use std::collections::BTreeMap;

use crablet_model::api;

use super::{Translation, topology};

const DRIVER: &str = "cinder.csi.openstack.org";
const ZONE: &str = "topology.cinder.csi.openstack.org/zone";

pub fn translated(
    volume: &mut api::PersistentVolume,
    disk: api::CinderPersistentVolumeSource,
) -> Translation {
    topology::of_zone(volume, ZONE);
    Ok(api::CSIPersistentVolumeSource {
        driver: DRIVER.to_owned(),
        volume_handle: disk.volume_id,
        read_only: disk.read_only,
        fs_type: disk.fs_type,
        volume_attributes: Some(BTreeMap::new()),
        ..Default::default()
    })
}
