//! `azureFile`

use crablet_model::api;

use super::{Translation, annotation};

const DRIVER: &str = "file.csi.azure.com";
const RESOURCE_GROUP: &str = "kubernetes.io/azure-file-resource-group";

pub fn translated(
    volume: &api::PersistentVolume,
    share: api::AzureFilePersistentVolumeSource,
) -> Translation {
    let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let namespace = share.secret_namespace.or_else(|| claim?.namespace.clone()).unwrap_or_default();
    if namespace.is_empty() {
        return Err("could not find a secret namespace in PersistentVolumeSource or ClaimRef".to_owned());
    }
    let group = annotation(volume, RESOURCE_GROUP).unwrap_or_default();
    let account = account(&share.secret_name);
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let volume_handle = format!("{group}#{account}#{}#{name}#{namespace}", share.share_name);
    let secret = api::SecretReference { name: Some(share.secret_name), namespace: Some(namespace) };
    Ok(api::CSIPersistentVolumeSource {
        driver: DRIVER.to_owned(),
        volume_handle,
        read_only: share.read_only,
        volume_attributes: Some([("sharename".to_owned(), share.share_name)].into()),
        node_stage_secret_ref: Some(secret),
        ..Default::default()
    })
}

/// `x` of `azure-storage-account-x-secret`, else the name as it is.
fn account(secret: &str) -> &str {
    let inner = secret.split_once("azure-storage-account-").and_then(|(_, rest)| rest.rsplit_once("-secret"));
    inner.map(|(account, _)| account).filter(|account| !account.is_empty()).unwrap_or(secret)
}
