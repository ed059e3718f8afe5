//! The images that a container needs before it can start: those that it mounts, and its own. And those that nobody needs.

use crablet_model::image::with_default_tag;
use crablet_model::{api, roster};

/// An image that a container needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeededImage<'a> {
    /// As the pod writes it.
    pub name: &'a str,
    /// With the tag that it has if the pod writes none.
    pub tagged: String,
    /// The volume that shows it, where it is not the container's own.
    pub volume: Option<&'a str>,
    pub pull_policy: Option<&'a str>,
}

/// In the order in which they are pulled, which is upstream's: volumes first.
pub fn needed<'a>(pod: Option<&'a api::Pod>, container: &'a api::Container) -> Vec<NeededImage<'a>> {
    let volumes = pod.and_then(|pod| pod.spec.as_ref()).into_iter().flat_map(|spec| &spec.volumes).flatten();
    let mut all: Vec<_> =
        volumes.filter(|volume| mounts(container, &volume.name)).filter_map(of_volume).collect();
    let own = container.image.as_deref().unwrap_or_default();
    all.push(image(own, None, container.image_pull_policy.as_deref()));
    all
}

/// Images of volumes that no container mounts. Upstream makes them ready before it starts anything, so they go with the
/// first container of the pod; what becomes of them changes nothing for anybody.
pub fn unmounted<'a>(spec: &'a api::PodSpec, container: &str) -> Vec<NeededImage<'a>> {
    let first = spec.init_containers.iter().flatten().chain(&spec.containers).next();
    if first.is_none_or(|first| first.name != container) {
        return Vec::new();
    }
    let mounted = |volume: &str| roster::roster(spec).any(|(_, container)| mounts(&container, volume));
    let volumes = spec.volumes.iter().flatten();
    volumes.filter(|volume| !mounted(&volume.name)).filter_map(of_volume).collect()
}

fn mounts(container: &api::Container, volume: &str) -> bool {
    container.volume_mounts.iter().flatten().any(|mount| mount.name == volume)
}

fn of_volume(volume: &api::Volume) -> Option<NeededImage<'_>> {
    let source = volume.image.as_ref()?;
    let name = source.reference.as_deref().unwrap_or_default();
    Some(image(name, Some(&volume.name), source.pull_policy.as_deref()))
}

fn image<'a>(name: &'a str, volume: Option<&'a str>, pull_policy: Option<&'a str>) -> NeededImage<'a> {
    let tagged = with_default_tag(name).unwrap_or_else(|_| name.to_owned());
    NeededImage { name, tagged, volume, pull_policy }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn images_that_nobody_mounts_go_with_the_first_container() {
        let spec: api::PodSpec = serde_json::from_value(json!({
            "volumes": [
                {"name": "used", "image": {"reference": "used:1"}},
                {"name": "unused", "image": {"reference": "r.io/unused", "pullPolicy": "Always"}},
                {"name": "folder", "emptyDir": {}},
            ],
            "initContainers": [{"name": "first"}],
            "containers": [{"name": "main", "volumeMounts": [{"name": "used", "mountPath": "/used"}]}],
        }))
        .expect("a spec");
        let told = unmounted(&spec, "first");
        let [image] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!((&*image.tagged, image.volume), ("r.io/unused:latest", Some("unused")));
        assert_eq!(image.pull_policy, Some("Always"));
        assert!(unmounted(&spec, "main").is_empty());
    }
}
