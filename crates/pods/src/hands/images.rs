//! Images that a container needs: those that it mounts, which the runtime has to have first, and its own.

use std::collections::BTreeMap;

use crablet_model::names::container_reason;
use crablet_model::runtime::SandboxConfig;
use crablet_model::{api, roster};
use crablet_planner::pod::config;
use crablet_planner::pod::images::{NeededImage, needed, unmounted};
use crablet_planner::pod::{Outcome, PullPolicy};

use super::{Hands, Operation, Seen, StartRefusal, config_error, start_refusal};
use crate::images::Wanted;

impl Hands {
    /// Makes them ready one after the other, as upstream does. Those of volumes are pulled, and waited for after
    /// failures, as the container's own is. `held` are only looked for.
    pub(super) async fn ensure_images(&self, op: &Operation, container: &str, held: &[String]) -> Outcome {
        let known = op.pod.as_deref().and_then(|pod| Some((pod, pod.spec.as_ref()?)));
        let found = known.and_then(|(pod, spec)| Some((pod, spec, roster::find(spec, container)?.1)));
        let Some((pod, spec, own)) = found else { return not_named(container) };
        let sandbox = match self.sandbox_of(op, pod).await {
            Ok(sandbox) => sandbox,
            // Said in the words of the start, which would come to the same.
            Err(why) => return self.start_failed(op, container, config_error(&why)),
        };
        // Who only looks for what is held tries none of the others again.
        for image in unmounted(spec, container).into_iter().filter(|_| held.is_empty()) {
            self.images.try_ensure(wanted(op, pod, container, &image, &sandbox)).await;
        }
        let mut outcome = None;
        for image in needed(Some(pod), &own) {
            let may_pull = !held.contains(&image.tagged);
            let wanted = Wanted { may_pull, ..wanted(op, pod, container, &image, &sandbox) };
            let mut ensured = self.images.ensure(wanted).await;
            if let Outcome::ImageReady { image: named, .. } | Outcome::ImageFailed { image: named, .. } =
                &mut ensured
            {
                *named = image.tagged;
            }
            let is_ready = matches!(ensured, Outcome::ImageReady { .. });
            outcome = Some(ensured);
            if !is_ready {
                break;
            }
        }
        outcome.unwrap_or_else(|| not_named(container))
    }

    /// The sandbox that the images are for, as it was created: runtimes choose how to pull by it. Groups that claims
    /// bring with them are left out, since volumes would have to be looked at once more to know them.
    async fn sandbox_of(&self, op: &Operation, pod: &api::Pod) -> Result<SandboxConfig, String> {
        let attempt = match &op.seen {
            Seen::Sandbox(sandbox) => sandbox.attempt,
            _ => 0,
        };
        let placement = self.placement(op, pod, &BTreeMap::new()).await?;
        let node = self.node_now(&op.node).await?;
        let made = config::sandbox_config(pod, &node, attempt, &placement);
        made.map(|(config, _)| config).map_err(|error| error.to_string())
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
            let refused = |why: String| {
                let message = format!("Failed to inspect image {name:?}: {why}");
                start_refusal(container_reason::IMAGE_INSPECT_ERROR, message)
            };
            let present = self.runtime.image_status(&tagged, None).await;
            let present = present.map_err(|error| refused(error.to_string()))?;
            let present = present.ok_or_else(|| refused("it is gone again".to_owned()))?;
            found.insert(volume.to_owned(), present.id);
        }
        Ok(found)
    }
}

fn wanted<'a>(
    op: &'a Operation,
    pod: &'a api::Pod,
    container: &'a str,
    image: &NeededImage<'a>,
    sandbox: &'a SandboxConfig,
) -> Wanted<'a> {
    Wanted {
        pod: &op.id,
        spec: Some(pod),
        container,
        role: op.role(container),
        of_volume: image.volume.is_some(),
        // Events and records have the name that the pod writes, the back-off the whole one.
        image: image.name,
        policy: policy(image.pull_policy),
        may_pull: true,
        sandbox: Some(sandbox),
    }
}

fn not_named(container: &str) -> Outcome {
    Outcome::ImageFailed {
        container: container.to_owned(),
        image: String::new(),
        reason: container_reason::INVALID_IMAGE_NAME.to_owned(),
        message: "the pod's specification does not name it".to_owned(),
        pulled: false,
    }
}

fn policy(written: Option<&str>) -> PullPolicy {
    match written {
        Some("Always") => PullPolicy::Always,
        Some("Never") => PullPolicy::Never,
        _ => PullPolicy::IfNotPresent,
    }
}
