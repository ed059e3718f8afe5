//! Images that are volumes: the runtime mounts them, but has to have them first.

use std::collections::BTreeMap;

use crablet_model::api;
use crablet_model::names::container_reason;
use crablet_model::runtime::SandboxConfig;
use crablet_planner::pod::{Outcome, PullPolicy};

use super::{Hands, Operation, StartRefusal};
use crate::images::Wanted;

/// Reasons for which an image is not ready.
const REASONS: [&str; 7] = [
    container_reason::ERR_IMAGE_PULL,
    container_reason::IMAGE_PULL_BACK_OFF,
    container_reason::ERR_IMAGE_NEVER_PULL,
    container_reason::INVALID_IMAGE_NAME,
    container_reason::IMAGE_INSPECT_ERROR,
    container_reason::REGISTRY_UNAVAILABLE,
    container_reason::SIGNATURE_VALIDATION_FAILED,
];

impl Hands {
    /// What the runtime calls the images that the container mounts, by the names of the volumes.
    pub(super) async fn image_volumes(
        &self,
        op: &Operation,
        container: &api::Container,
        sandbox: &SandboxConfig,
    ) -> Result<BTreeMap<String, String>, StartRefusal> {
        let spec = op.pod.as_deref().and_then(|pod| pod.spec.as_ref());
        let mut found = BTreeMap::new();
        for volume in spec.into_iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let mounts = || container.volume_mounts.iter().flatten();
            let Some(source) = volume.image.as_ref().filter(|_| mounts().any(|m| m.name == volume.name))
            else {
                continue;
            };
            let wanted = Wanted {
                pod: &op.id,
                spec: op.pod.as_deref(),
                container: &container.name,
                role: op.role(&container.name),
                image: source.reference.as_deref().unwrap_or_default(),
                policy: policy(source),
                sandbox: Some(sandbox),
            };
            match self.images.ensure(wanted).await {
                Outcome::ImageReady { prepared, .. } => found.insert(volume.name.clone(), prepared.image_ref),
                Outcome::ImageFailed { reason, message, .. } => {
                    let known = REASONS.into_iter().find(|known| *known == reason);
                    let reason = known.unwrap_or(container_reason::ERR_IMAGE_PULL);
                    return Err(StartRefusal { reason, message });
                }
                _ => None,
            };
        }
        Ok(found)
    }
}

fn policy(source: &api::ImageVolumeSource) -> PullPolicy {
    match source.pull_policy.as_deref() {
        Some("Always") => PullPolicy::Always,
        Some("Never") => PullPolicy::Never,
        _ => PullPolicy::IfNotPresent,
    }
}
