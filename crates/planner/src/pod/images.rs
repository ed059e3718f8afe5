//! The images that a container needs before it can start: those that it mounts, and its own.

use crablet_model::api;
use crablet_model::image::with_default_tag;

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
    let mounted = |name: &str| container.volume_mounts.iter().flatten().any(|mount| mount.name == name);
    let mut all: Vec<_> = volumes
        .filter(|volume| mounted(&volume.name))
        .filter_map(|volume| {
            let source = volume.image.as_ref()?;
            let name = source.reference.as_deref().unwrap_or_default();
            Some(image(name, Some(&volume.name), source.pull_policy.as_deref()))
        })
        .collect();
    let own = container.image.as_deref().unwrap_or_default();
    all.push(image(own, None, container.image_pull_policy.as_deref()));
    all
}

fn image<'a>(name: &'a str, volume: Option<&'a str>, pull_policy: Option<&'a str>) -> NeededImage<'a> {
    let tagged = with_default_tag(name).unwrap_or_else(|_| name.to_owned());
    NeededImage { name, tagged, volume, pull_policy }
}
