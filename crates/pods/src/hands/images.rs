//! Images that a container needs: those that it mounts, which the runtime has to have first, and its own.

use std::collections::BTreeMap;

use crablet_model::names::container_reason;
use crablet_model::{api, roster};
use crablet_planner::pod::config::{self, Placement};
use crablet_planner::pod::images::{NeededImage, needed};
use crablet_planner::pod::{Outcome, PullPolicy};

use super::{Hands, Operation, StartRefusal};
use crate::images::Wanted;

impl Hands {
    /// Makes them ready one after the other, as upstream does. Those of volumes are pulled, and waited for after
    /// failures, as the container's own is.
    pub(super) async fn ensure_images(&self, op: &Operation, container: &str) -> Outcome {
        let pod = op.pod.as_deref();
        let spec = pod.and_then(|pod| pod.spec.as_ref());
        let found = spec.and_then(|spec| roster::find(spec, container));
        let sandbox = pod.and_then(|p| config::sandbox_config(p, &op.node, 0, &Placement::default()).ok());
        let mut outcome = None;
        for image in found.iter().flat_map(|(_, spec)| needed(pod, spec)) {
            let wanted = Wanted {
                pod: &op.id,
                spec: pod,
                container,
                role: op.role(container),
                of_volume: image.volume.is_some(),
                // Events and records have the name that the pod writes, the back-off the whole one.
                image: image.name,
                policy: policy(image.pull_policy),
                sandbox: sandbox.as_ref().map(|(config, _)| config),
            };
            let mut ensured = self.images.ensure(wanted).await;
            if let Outcome::ImageReady { image: named, .. } | Outcome::ImageFailed { image: named, .. } =
                &mut ensured
            {
                *named = image.tagged;
            }
            let failed = matches!(ensured, Outcome::ImageFailed { .. });
            outcome = Some(ensured);
            if failed {
                break;
            }
        }
        outcome.unwrap_or_else(|| Outcome::ImageFailed {
            container: container.to_owned(),
            image: String::new(),
            reason: container_reason::INVALID_IMAGE_NAME.to_owned(),
            message: "the pod's specification does not name it".to_owned(),
            pulled: false,
        })
    }

    /// What the runtime calls the images that the container mounts, by the names of the volumes. They were made ready a
    /// moment ago.
    pub(super) async fn image_volumes(
        &self,
        op: &Operation,
        container: &api::Container,
    ) -> Result<BTreeMap<String, String>, StartRefusal> {
        let mut found = BTreeMap::new();
        for NeededImage { name, tagged, volume, .. } in needed(op.pod.as_deref(), container) {
            let Some(volume) = volume else { continue };
            let refused = |why: String| StartRefusal {
                reason: container_reason::IMAGE_INSPECT_ERROR,
                message: format!("Failed to inspect image {name:?}: {why}"),
            };
            let present = self.runtime.image_status(&tagged).await;
            let present = present.map_err(|error| refused(error.to_string()))?;
            let present = present.ok_or_else(|| refused("it is gone again".to_owned()))?;
            found.insert(volume.to_owned(), present.id);
        }
        Ok(found)
    }
}

fn policy(written: Option<&str>) -> PullPolicy {
    match written {
        Some("Always") => PullPolicy::Always,
        Some("Never") => PullPolicy::Never,
        _ => PullPolicy::IfNotPresent,
    }
}
