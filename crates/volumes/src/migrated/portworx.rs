//! `portworxVolume`

use std::collections::BTreeMap;

use crablet_model::api;

use super::annotation;

const DRIVER: &str = "pxd.portworx.com";
const SECRET_NAME: &str = "openstorage.io/auth-secret-name";
const SECRET_NAMESPACE: &str = "openstorage.io/auth-secret-namespace";

pub fn translated(
    volume: &api::PersistentVolume,
    disk: api::PortworxVolumeSource,
) -> api::CSIPersistentVolumeSource {
    let secret = secret(volume);
    api::CSIPersistentVolumeSource {
        driver: DRIVER.to_owned(),
        volume_handle: disk.volume_id,
        fs_type: disk.fs_type,
        volume_attributes: Some(BTreeMap::new()),
        controller_publish_secret_ref: secret.clone(),
        node_stage_secret_ref: secret.clone(),
        node_publish_secret_ref: secret.clone(),
        controller_expand_secret_ref: secret.clone(),
        node_expand_secret_ref: secret,
        ..Default::default()
    }
}

/// One for all calls, if both annotations are there.
fn secret(volume: &api::PersistentVolume) -> Option<api::SecretReference> {
    let name = annotation(volume, SECRET_NAME)?;
    let namespace = annotation(volume, SECRET_NAMESPACE)?;
    Some(api::SecretReference { name: Some(name.to_owned()), namespace: Some(namespace.to_owned()) })
}
