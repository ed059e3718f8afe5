//! A volume that has grown in the cluster grows on the node: the driver is asked, and the claim says so afterwards.
//!
//! A claim with `allocatedResources` comes of a resize controller that can recover from failures: its status tells whether
//! the node may begin, and is kept up to date. Others are expanded without asking, as upstream (v1.36).

use std::path::Path;

use crablet_model::api;
use crablet_model::events::Event;
use crablet_model::quantity::Quantity;
use crablet_protos::csi;
use serde_json::{Value, json};
use tonic::Code;
use tracing::{error, info, warn};

use super::Csi;
use super::client::{CallError, Capabilities, DriverClient};
use super::request::{Claim, Wish};
use super::rules::{Kind, capability};

const SUCCESSFUL: &str = "FileSystemResizeSuccessful";
const FAILED: &str = "FileSystemResizeFailed";
const PENDING: &str = "NodeResizePending";
const IN_PROGRESS: &str = "NodeResizeInProgress";
const INFEASIBLE: &str = "NodeResizeInfeasible";
/// Conditions of a claim that tell of a resize; a finished one takes them away.
const RESIZE_CONDITIONS: [&str; 5] =
    ["FileSystemResizePending", "Resizing", "ControllerResizeError", "NodeResizeError", "ModifyVolumeError"];

pub(super) async fn during_mount(
    csi: &Csi,
    wish: &Wish,
    client: &DriverClient,
    abilities: Capabilities,
    path: &Path,
    staging: Option<&Path>,
) -> Result<(), String> {
    let Some(claim) = &wish.volume.claim else { return Ok(()) };
    let Some(wanted) = amount(claim.capacity.as_deref()) else { return Ok(()) };
    if amount(claim.stated.as_deref()).is_none_or(|stated| stated.value() >= wanted.value()) {
        return Ok(());
    }
    let fresh = csi.objects.claim(&claim.namespace, &claim.name).await;
    let fresh = fresh.map_err(|error| format!("mountVolume.NodeExpandVolume get PVC failed : {error}"))?;
    let status = fresh.status.clone().unwrap_or_default();
    let stated = status.capacity.as_ref().and_then(|all| amount(Some(&all.get("storage")?.0)));
    if stated.is_none_or(|stated| stated.value() >= wanted.value()) {
        return Ok(());
    }
    let growth = Growth { csi, wish, claim, client, abilities, path, staging };
    if wish.volume.read_only {
        growth.tell(FAILED, "failed", "requested read-only file system");
        return Ok(());
    }
    let resize = status.allocated_resource_statuses.as_ref().and_then(|all| all.get("storage"));
    let allocated = status.allocated_resources.as_ref();
    if resize.is_none() && allocated.is_none() {
        return growth.without_asking(&fresh, wanted).await;
    }
    let size = allocated.and_then(|all| amount(Some(&all.get("storage")?.0))).unwrap_or(wanted);
    match resize.map(String::as_str) {
        Some(PENDING | IN_PROGRESS) => growth.as_the_claim_allows(fresh, size).await,
        _ => Ok(()),
    }
}

fn amount(text: Option<&str>) -> Option<Quantity> {
    Quantity::parse(text?).ok()
}

struct Growth<'a> {
    csi: &'a Csi,
    wish: &'a Wish,
    claim: &'a Claim,
    client: &'a DriverClient,
    abilities: Capabilities,
    path: &'a Path,
    staging: Option<&'a Path>,
}

impl Growth<'_> {
    /// For a resize controller that knows nothing of recovery.
    async fn without_asking(&self, claim: &api::PersistentVolumeClaim, size: Quantity) -> Result<(), String> {
        if !self.abilities.expand {
            return Ok(());
        }
        match self.ask_driver(size).await? {
            Err(error) if error.code == Code::FailedPrecondition => {
                error!(volume = self.wish.volume.spec_name, %error, "MountVolume.NodeExpandVolume failed");
                return Ok(());
            }
            Err(error) => return Err(format!("Expander.NodeExpand failed to expand the volume : {error}")),
            Ok(()) => {}
        }
        self.tell_success();
        let finished = self.patch(claim, &finished(claim, size), true).await;
        finished
            .map(drop)
            .map_err(|error| format!("mountVolume.NodeExpandVolume update PVC status failed : {error}"))
    }

    async fn as_the_claim_allows(
        &self,
        claim: api::PersistentVolumeClaim,
        size: Quantity,
    ) -> Result<(), String> {
        let claim = match resize_status(&claim) {
            Some(IN_PROGRESS) => claim,
            _ => {
                let begun = json!({ "status": { "allocatedResourceStatuses": { "storage": IN_PROGRESS } } });
                self.patch(&claim, &begun, true).await?
            }
        };
        if !self.abilities.expand {
            let driver = &self.wish.volume.driver;
            return Err(format!("NodeExpand is not supported by the CSI driver {driver}"));
        }
        match self.ask_driver(size).await? {
            Ok(()) => {
                self.tell_success();
                let done = self.patch(&claim, &finished(&claim, size), true).await;
                done.map(drop).map_err(|error| {
                    format!("mountVolume.NodeExpandVolume update pvc status failed: {error}")
                })
            }
            Err(error) => {
                if error.is_final() {
                    self.note_failure(&claim, &error).await;
                }
                match error.code {
                    // The driver cannot do it while the volume is used: that does not keep the pod from it.
                    Code::FailedPrecondition => Ok(()),
                    _ => Err(format!("Expander.NodeExpand failed to expand the volume : {error}")),
                }
            }
        }
    }

    async fn ask_driver(&self, size: Quantity) -> Result<Result<(), CallError>, String> {
        let volume = &self.wish.volume;
        let secrets = match &volume.expand_secret {
            Some(secret) => self.csi.secret(secret, "NodeExpandSecretRef").await?,
            None => Default::default(),
        };
        let kind = if self.path.starts_with(self.csi.places.devices()) {
            Kind::Block
        } else {
            Kind::Mount { group: None }
        };
        let request = csi::NodeExpandVolumeRequest {
            volume_id: volume.handle.clone(),
            volume_path: self.path.display().to_string(),
            capacity_range: Some(csi::CapacityRange { required_bytes: size.value(), limit_bytes: 0 }),
            staging_target_path: self.staging.map(|path| path.display().to_string()).unwrap_or_default(),
            volume_capability: Some(capability(volume, self.abilities, kind)),
            secrets,
        };
        info!(volume = volume.spec_name, size = size.value(), "Asking the driver to expand the volume");
        Ok(self.client.expand(request).await)
    }

    /// The claim tells why it does not grow; one that never can is not tried again.
    async fn note_failure(&self, claim: &api::PersistentVolumeClaim, error: &CallError) {
        let infeasible = matches!(error.code, Code::InvalidArgument | Code::OutOfRange | Code::NotFound);
        let mut conditions = kept_conditions(claim, |_| true);
        conditions.retain(|condition| condition["type"] != "NodeResizeError");
        conditions.push(json!({
            "type": "NodeResizeError",
            "status": "True",
            "lastTransitionTime": self.csi.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "message": format!("failed to expand pvc with {error}"),
        }));
        let mut status = json!({ "conditions": conditions });
        if infeasible {
            status["allocatedResourceStatuses"] = json!({ "storage": INFEASIBLE });
        }
        if let Err(error) = self.patch(claim, &json!({ "status": status }), false).await {
            warn!(claim = self.claim.name, error, "Failed to mark node expansion as failed");
        }
    }

    async fn patch(
        &self,
        claim: &api::PersistentVolumeClaim,
        patch: &Value,
        unless_changed: bool,
    ) -> Result<api::PersistentVolumeClaim, String> {
        let mut patch = patch.clone();
        if unless_changed {
            patch["metadata"] = json!({ "resourceVersion": claim.metadata.resource_version });
        }
        let Claim { namespace, name, .. } = self.claim;
        let patched = self.csi.objects.patch_claim_status(namespace, name, patch).await;
        patched.map_err(|error| format!("patchPVCStatus failed to patch PVC {name:?}: {error}"))
    }

    fn tell_success(&self) {
        self.tell(SUCCESSFUL, "succeeded", &self.csi.node_name);
    }

    fn tell(&self, reason: &'static str, how: &str, what: &str) {
        let volume = &self.wish.volume.spec_name;
        let text = format!("MountVolume.NodeExpandVolume {how} for volume {volume:?} {what}");
        let event = match reason {
            SUCCESSFUL => Event::normal(&self.wish.id, reason, text),
            _ => Event::warning(&self.wish.id, reason, text),
        };
        self.csi.events.emit(event);
    }
}

fn resize_status(claim: &api::PersistentVolumeClaim) -> Option<&str> {
    let statuses = claim.status.as_ref()?.allocated_resource_statuses.as_ref()?;
    statuses.get("storage").map(String::as_str)
}

/// The claim has its new size, and nothing of the resize is left in it.
fn finished(claim: &api::PersistentVolumeClaim, size: Quantity) -> Value {
    let mut conditions = kept_conditions(claim, |kind| !RESIZE_CONDITIONS.contains(&kind));
    let gone = claim.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let gone = gone.filter(|condition| RESIZE_CONDITIONS.contains(&&*condition.type_));
    conditions.extend(gone.map(|condition| json!({ "$patch": "delete", "type": condition.type_ })));
    json!({ "status": {
        "capacity": { "storage": size.to_string() },
        "allocatedResourceStatuses": { "storage": null },
        "conditions": conditions,
    } })
}

fn kept_conditions(claim: &api::PersistentVolumeClaim, keep: impl Fn(&str) -> bool) -> Vec<Value> {
    let all = claim.status.iter().flat_map(|status| status.conditions.iter().flatten());
    all.filter(|condition| keep(&condition.type_))
        .filter_map(|condition| serde_json::to_value(condition).ok())
        .collect()
}
