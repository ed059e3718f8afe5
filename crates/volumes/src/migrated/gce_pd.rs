//! `gcePersistentDisk`

use std::collections::BTreeSet;

use crablet_model::api;

use super::{Translation, topology};

const DRIVER: &str = "pd.csi.storage.gke.io";
const ZONE: &str = "topology.gke.io/zone";
/// The driver fills it in by what it knows of the node.
const UNSPECIFIED: &str = "UNSPECIFIED";

pub fn translated(
    volume: &mut api::PersistentVolume,
    disk: api::GCEPersistentDiskVolumeSource,
) -> Translation {
    let volume_handle = handle(volume, &disk.pd_name)?;
    topology::of_zone(volume, ZONE);
    if let Some(spec) = volume.spec.as_mut() {
        spec.access_modes = spec.access_modes.take().map(|modes| vec![access_mode(&modes).to_owned()]);
    }
    let partition = disk.partition.filter(|number| *number != 0);
    let partition = partition.map(|number| number.to_string()).unwrap_or_default();
    Ok(api::CSIPersistentVolumeSource {
        driver: DRIVER.to_owned(),
        volume_handle,
        read_only: disk.read_only,
        fs_type: disk.fs_type,
        volume_attributes: Some([("partition".to_owned(), partition)].into()),
        ..Default::default()
    })
}

/// The disk of a zone, or of the region where its label names several zones.
fn handle(volume: &api::PersistentVolume, disk: &str) -> Result<String, String> {
    let label = |name: &str| topology::label(volume, name).filter(|zones| !zones.is_empty());
    // The other way round than for the terms, as upstream has it.
    let zones = label(topology::BETA_ZONE).or_else(|| label(topology::ZONE)).unwrap_or(UNSPECIFIED);
    let zones: Vec<&str> = zones.split(topology::BETWEEN_ZONES).collect();
    let place = match zones[..] {
        [zone] => format!("zones/{zone}"),
        _ => {
            let region = region(&zones).map_err(|why| format!("failed to get region from zones: {why}"))?;
            format!("regions/{region}")
        }
    };
    Ok(format!("projects/{UNSPECIFIED}/{place}/disks/{disk}"))
}

/// `us-east1` of `us-east1-b` and `us-east1-c`.
fn region(zones: &[&str]) -> Result<String, String> {
    let mut regions = BTreeSet::new();
    for zone in zones {
        let parts: Vec<&str> = zone.split('-').collect();
        let [locale, region, _] = parts[..] else {
            return Err(format!(
                "zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
            ));
        };
        regions.insert(format!("{locale}-{region}"));
    }
    match regions.first() {
        Some(region) if regions.len() == 1 => Ok(region.clone()),
        _ => {
            // As Go prints a set.
            let all: Vec<String> = regions.iter().map(|region| format!("{region}:{{}}")).collect();
            Err(format!("multiple or no regions gotten from zones, got: map[{}]", all.join(" ")))
        }
    }
}

/// Nobody looked at the modes of old, and a disk was for one node. The driver refuses what it cannot do.
fn access_mode(modes: &[String]) -> &'static str {
    let has = |mode: &str| modes.iter().any(|own| own == mode);
    match has("ReadOnlyMany") && !has("ReadWriteOnce") && !has("ReadWriteMany") {
        true => "ReadOnlyMany",
        false => "ReadWriteOnce",
    }
}
