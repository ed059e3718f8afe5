//! `azureDisk`

use std::collections::BTreeMap;

use crablet_model::api;

use super::Translation;

const DRIVER: &str = "disk.csi.azure.com";
const MANAGED: &str = "Managed";

/// Terms and labels stay as they are: the driver's own is not asked for.
pub fn translated(disk: api::AzureDiskVolumeSource) -> Translation {
    if let Some(kind) = disk.kind.filter(|kind| !kind.eq_ignore_ascii_case(MANAGED)) {
        return Err(format!("kind({kind}) is not supported in csi migration"));
    }
    let mut attributes = BTreeMap::from([("kind".to_owned(), MANAGED.to_owned())]);
    attributes.extend(disk.caching_mode.map(|mode| ("cachingmode".to_owned(), mode)));
    attributes.extend(disk.fs_type.clone().map(|fs_type| ("fstype".to_owned(), fs_type)));
    Ok(api::CSIPersistentVolumeSource {
        driver: DRIVER.to_owned(),
        volume_handle: disk.disk_uri,
        read_only: disk.read_only,
        fs_type: disk.fs_type,
        volume_attributes: Some(attributes),
        ..Default::default()
    })
}
