//! Volumes that are mounted inside another: their mount points have to be in it before it becomes read-only.

use std::collections::BTreeSet;

use crablet_model::api;

use crate::payload::clean;
use crate::pod;

/// Folders to make in the volume, relative to it. Only the first level: what is nested deeper lies in another volume.
pub fn mount_points(spec: &api::PodSpec, volume: &str) -> Result<BTreeSet<String>, String> {
    let mut found = BTreeSet::new();
    for container in pod::containers(spec) {
        let mut all: Vec<_> = container.mounts.iter().map(|m| clean(&m.mount_path)).collect();
        all.sort();
        for mine in container.mounts.iter().filter(|m| m.name == volume).map(|m| clean(&m.mount_path)) {
            if mine.starts_with("../") {
                return Err(format!("invalid container mount point {mine}"));
            }
            let mut outer: Vec<String> = Vec::new();
            for inside in all.iter().filter_map(|path| path.strip_prefix(&format!("{mine}/"))) {
                let escapes = inside.split('/').any(|part| part == "..");
                if !escapes && !outer.iter().any(|folder| inside.starts_with(folder)) {
                    outer.push(format!("{inside}/"));
                    found.insert(inside.to_owned());
                }
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_level_is_made() {
        let mount = |name: &str, path: &str| api::VolumeMount {
            name: name.to_owned(),
            mount_path: path.to_owned(),
            ..Default::default()
        };
        let paths = ["/dir/nested", "/dir/nested-vol", "/dir/nested/double", "/dir/nested2", "/directory/no"];
        let mut mounts: Vec<_> = paths.iter().map(|path| mount("other", path)).collect();
        mounts.push(mount("mine", "/dir/"));
        let container = api::Container { volume_mounts: Some(mounts), ..Default::default() };
        let spec = api::PodSpec { containers: vec![container], ..Default::default() };
        let made = mount_points(&spec, "mine").unwrap();
        assert_eq!(made.into_iter().collect::<Vec<_>>(), ["nested", "nested-vol", "nested2"]);
    }
}
