//! Volumes that another machine serves.

use super::super::error::{Problems, quoted};
use crate::api::{FCVolumeSource, ISCSIVolumeSource, NFSVolumeSource, Volume};

const LUNS: std::ops::RangeInclusive<i32> = 0..=255;

pub(super) fn check(path: &str, volume: &Volume, problems: &mut Problems) {
    if let Some(source) = volume.nfs.as_ref() {
        check_nfs(&format!("{path}.nfs"), source, problems);
    }
    if let Some(source) = volume.iscsi.as_ref() {
        check_iscsi(&format!("{path}.iscsi"), source, problems);
    }
    if let Some(source) = volume.fc.as_ref() {
        check_fc(&format!("{path}.fc"), source, problems);
    }
}

fn required(path: String, text: &str, problems: &mut Problems) {
    if text.is_empty() {
        problems.add(path, "required");
    }
}

fn check_lun(path: String, lun: i32, problems: &mut Problems) {
    if !LUNS.contains(&lun) {
        problems.add(path, format!("{lun} is not between {} and {}", LUNS.start(), LUNS.end()));
    }
}

fn check_nfs(path: &str, source: &NFSVolumeSource, problems: &mut Problems) {
    required(format!("{path}.server"), &source.server, problems);
    required(format!("{path}.path"), &source.path, problems);
    if !source.path.is_empty() && !source.path.starts_with('/') {
        problems.add(format!("{path}.path"), format!("{} must be an absolute path", quoted(&source.path)));
    }
}

fn check_iscsi(path: &str, source: &ISCSIVolumeSource, problems: &mut Problems) {
    required(format!("{path}.targetPortal"), &source.target_portal, problems);
    required(format!("{path}.iqn"), &source.iqn, problems);
    let known = ["iqn", "eui", "naa"].iter().any(|kind| source.iqn.starts_with(kind));
    if !source.iqn.is_empty() && !known {
        problems.add(format!("{path}.iqn"), "must be valid format starting with iqn, eui, or naa");
    }
    check_lun(format!("{path}.lun"), source.lun, problems);
    let chap = source.chap_auth_discovery == Some(true) || source.chap_auth_session == Some(true);
    if chap && source.secret_ref.is_none() {
        problems.add(format!("{path}.secretRef"), "required with CHAP authentication");
    }
}

fn check_fc(path: &str, source: &FCVolumeSource, problems: &mut Problems) {
    let names = source.target_wwns.as_ref().is_some_and(|names| !names.is_empty());
    let ids = source.wwids.as_ref().is_some_and(|ids| !ids.is_empty());
    match (names, ids) {
        (false, false) => problems
            .add(format!("{path}.targetWWNs"), "must specify either targetWWNs or wwids, but not both"),
        (true, true) => problems
            .add(format!("{path}.targetWWNs"), "targetWWNs and wwids can not be specified simultaneously"),
        (true, false) => match source.lun {
            None => problems.add(format!("{path}.lun"), "lun is required if targetWWNs is specified"),
            Some(lun) => check_lun(format!("{path}.lun"), lun, problems),
        },
        (false, true) => {}
    }
}
