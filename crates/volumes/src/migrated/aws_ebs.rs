//! `awsElasticBlockStore`

use crablet_model::api;

use super::{Translation, topology};

const DRIVER: &str = "ebs.csi.aws.com";
const ZONE: &str = "topology.ebs.csi.aws.com/zone";

pub fn translated(
    volume: &mut api::PersistentVolume,
    disk: api::AWSElasticBlockStoreVolumeSource,
) -> Translation {
    let volume_handle = handle(&disk.volume_id)
        .map_err(|why| format!("failed to translate Kubernetes ID to EBS Volume ID {why}"))?;
    topology::of_zone(volume, ZONE);
    let partition = disk.partition.unwrap_or(0).to_string();
    Ok(api::CSIPersistentVolumeSource {
        driver: DRIVER.to_owned(),
        volume_handle,
        read_only: disk.read_only,
        fs_type: disk.fs_type,
        volume_attributes: Some([("partition".to_owned(), partition)].into()),
        ..Default::default()
    })
}

/// `vol-1` as it is, and `vol-1` of `aws://zone/vol-1` and `aws:///vol-1`.
fn handle(id: &str) -> Result<String, String> {
    let Some(url) = id.strip_prefix("aws://") else { return Ok(id.to_owned()) };
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let path = url.split_once('/').map_or("", |(_zone, path)| path).trim_matches('/');
    // Upstream would undo escapes, which no id has.
    let is_id = path.starts_with("vol-") && !path.contains(['/', '%']);
    is_id.then(|| path.to_owned()).ok_or_else(|| format!("Invalid format for AWS volume ({id})"))
}
