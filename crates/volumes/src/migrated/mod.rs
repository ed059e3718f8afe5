//! Persistent volumes of the time when Kubernetes itself knew the disks of clouds. Each is a volume of the
//! CSI driver that came after, and is taken for one before anything else is done with it.
//!
//! Pure, a file per driver: the volume in, the same volume in the words of its driver out. The rules equal
//! those of upstream's v1.36, since the controllers that attach the disks go by them too. What only the way
//! back or storage classes need is absent, and so are disks that a pod names itself.

mod aws_ebs;
mod azure_disk;
mod azure_file;
mod cinder;
mod gce_pd;
mod portworx;
#[cfg(test)]
mod tests;
mod topology;
mod vsphere;

use crablet_model::api;

/// What a driver makes of a volume of old, or why it cannot.
type Translation = Result<api::CSIPersistentVolumeSource, String>;

/// The volume as its driver knows it; any other as it is.
pub(crate) fn translated(mut volume: api::PersistentVolume) -> Result<api::PersistentVolume, String> {
    let csi = taken(&mut volume).transpose();
    let csi = csi.map_err(|why| format!("failed to translate in-tree pv to CSI: {why}"))?;
    if let (Some(csi), Some(spec)) = (csi, volume.spec.as_mut()) {
        spec.csi = Some(csi);
    }
    Ok(volume)
}

/// Takes the source of old away, if there is one, and says what it is to its driver.
fn taken(volume: &mut api::PersistentVolume) -> Option<Translation> {
    let spec = volume.spec.as_mut()?;
    if let Some(disk) = spec.aws_elastic_block_store.take() {
        return Some(aws_ebs::translated(volume, disk));
    }
    if let Some(disk) = spec.gce_persistent_disk.take() {
        return Some(gce_pd::translated(volume, disk));
    }
    if let Some(disk) = spec.azure_disk.take() {
        return Some(azure_disk::translated(disk));
    }
    if let Some(share) = spec.azure_file.take() {
        return Some(azure_file::translated(volume, share));
    }
    if let Some(disk) = spec.cinder.take() {
        return Some(cinder::translated(volume, disk));
    }
    if let Some(disk) = spec.vsphere_volume.take() {
        return Some(vsphere::translated(volume, disk));
    }
    spec.portworx_volume.take().map(|disk| Ok(portworx::translated(volume, disk)))
}

fn annotation<'a>(volume: &'a api::PersistentVolume, name: &str) -> Option<&'a str> {
    volume.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}
