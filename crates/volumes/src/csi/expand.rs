//! A volume that has grown in the cluster grows on the node: the driver is asked, and the claim says so afterwards.
//!
//! A claim with `allocatedResources` comes of a resize controller that can recover from failures: its status tells whether
//! the node may begin, and is kept up to date. Others are expanded without asking, as upstream (v1.36).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crablet_model::api;
use crablet_model::events::{ClaimEvent, Event, EventKind};
use crablet_model::quantity::Quantity;
use crablet_protos::csi;
use serde_json::{Value, json};
use tonic::Code;
use tracing::{debug, error, info, warn};

use super::Csi;
use super::client::{CallError, Capabilities, DriverClient};
use super::places::MOUNT;
use super::request::{Claim, Wish};
use super::resizing::{self, IN_PROGRESS, PENDING};
use super::rules::{Kind, capability};

const SUCCESSFUL: &str = "FileSystemResizeSuccessful";
const FAILED: &str = "FileSystemResizeFailed";
const MANY_WRITERS: &str = "ReadWriteMany";
/// A controller has done all there is to do.
const NOT_REQUIRED: &str = "volume.kubernetes.io/node-expansion-not-required";

/// Where a volume is.
pub(super) struct At<'a> {
    /// What it is known by on the node.
    pub place: &'a Path,
    /// What the pod sees.
    pub path: &'a Path,
    /// For drivers that stage.
    pub staging: Option<&'a Path>,
}

/// What came of looking at a volume that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grown {
    /// It is as large as it shall be, or will never be.
    Settled,
    /// The cluster has not allowed it yet, which it may any moment.
    NotYet,
}

pub(super) async fn during_mount(
    csi: &Csi,
    wish: &Wish,
    client: &DriverClient,
    abilities: Capabilities,
    at: At<'_>,
) -> Result<(), String> {
    let Some(claim) = &wish.volume.claim else { return Ok(()) };
    let Some(wanted) = amount(claim.capacity.as_deref()) else { return Ok(()) };
    let Some(stated) = amount(claim.stated.as_deref()) else { return Ok(()) };
    csi.uses.grow(at.place, |growth| {
        growth.size.get_or_insert(stated.value());
    });
    if stated.value() >= wanted.value() {
        return Ok(());
    }
    let expansion = Expansion { csi, wish, claim, client, abilities, at };
    let fresh = expansion.fresh_claim().await?;
    if resizing::stated(&fresh).is_none_or(|stated| stated.value() >= wanted.value()) {
        return Ok(());
    }
    expansion.run(fresh, wanted).await.map(drop)
}

/// Of a volume that its pod has already.
pub(super) async fn online(csi: &Arc<Csi>, wish: &Wish, is_block: bool) -> Result<Grown, String> {
    let volume = &wish.volume;
    let Some(claim) = volume.claim.as_ref().filter(|_| !volume.read_only) else { return Ok(Grown::Settled) };
    let Some(wanted) = amount(claim.capacity.as_deref()) else { return Ok(Grown::Settled) };
    let (place, path): (PathBuf, PathBuf) = match is_block {
        true => {
            let device = csi.places.device_publish(&volume.spec_name).join(wish.id.uid.as_str());
            (csi.places.device_staging(&volume.spec_name), device)
        }
        false => {
            let folder = csi.places.pod_volume(&wish.id.uid, &volume.spec_name);
            (csi.places.global_mount(&volume.driver, &volume.handle), folder.join(MOUNT))
        }
    };
    let _alone = csi.uses.lock(&place).await;
    if let Some(stated) = amount(claim.stated.as_deref()) {
        csi.uses.grow(&place, |growth| {
            growth.size.get_or_insert(stated.value());
        });
    }
    let growth = csi.uses.growth(&place);
    if growth.refused || growth.size.is_none_or(|size| size <= 0 || size >= wanted.value()) {
        return Ok(Grown::Settled);
    }
    let client = csi.drivers.client(&volume.driver)?;
    let abilities = client.capabilities().await.map_err(|error| {
        format!("Expander.NodeExpand failed to check if node supports expansion : {error}")
    })?;
    let at = At { place: &place, path: &path, staging: abilities.stage.then_some(&*place) };
    let expansion = Expansion { csi, wish, claim, client: &client, abilities, at };
    let fresh = expansion.fresh_claim().await?;
    expansion.run(fresh, wanted).await
}

fn amount(text: Option<&str>) -> Option<Quantity> {
    Quantity::parse(text?).ok()
}

struct Expansion<'a> {
    csi: &'a Csi,
    wish: &'a Wish,
    claim: &'a Claim,
    client: &'a DriverClient,
    abilities: Capabilities,
    at: At<'a>,
}

impl Expansion<'_> {
    async fn fresh_claim(&self) -> Result<api::PersistentVolumeClaim, String> {
        let fresh = self.csi.objects.claim(&self.claim.namespace, &self.claim.name).await;
        fresh.map_err(|error| format!("mountVolume.NodeExpandVolume get PVC failed : {error}"))
    }

    async fn run(&self, fresh: api::PersistentVolumeClaim, wanted: Quantity) -> Result<Grown, String> {
        if self.wish.volume.read_only {
            self.tell(&fresh, FAILED, "failed", "requested read-only file system");
            return Ok(Grown::Settled);
        }
        match resizing::allocated(&fresh) {
            Some(size) => self.as_the_claim_allows(fresh, size.unwrap_or(wanted)).await,
            None => self.without_asking(&fresh, wanted).await,
        }
    }

    /// For a resize controller that knows nothing of recovery.
    async fn without_asking(
        &self,
        claim: &api::PersistentVolumeClaim,
        size: Quantity,
    ) -> Result<Grown, String> {
        if !self.abilities.expand {
            return Ok(self.is_now(size));
        }
        match self.ask_driver(size).await? {
            Err(error) if error.code == Code::FailedPrecondition => {
                self.refused(&error);
                return Ok(Grown::Settled);
            }
            Err(error) => return Err(failed(&error)),
            Ok(()) => self.tell_success(claim),
        }
        if resizing::stated(claim).is_none_or(|stated| stated.value() < size.value()) {
            self.patch(claim, &resizing::finished(claim, size), true).await.map_err(|error| {
                format!("mountVolume.NodeExpandVolume update PVC status failed : {error}")
            })?;
        }
        Ok(self.is_now(size))
    }

    async fn as_the_claim_allows(
        &self,
        claim: api::PersistentVolumeClaim,
        size: Quantity,
    ) -> Result<Grown, String> {
        let status = resizing::status(&claim);
        // Another node may have grown it already, and told.
        let told_already =
            status.is_none() && resizing::stated(&claim).is_some_and(|stated| stated.value() >= size.value());
        let here_too = told_already
            && resizing::has_mode(&claim, MANY_WRITERS)
            && !claim.metadata.annotations.iter().flatten().any(|(name, _)| name == NOT_REQUIRED);
        if !here_too {
            match status {
                Some(PENDING | IN_PROGRESS) => {}
                None if told_already => return Ok(self.is_now(size)),
                _ => {
                    debug!(volume = self.wish.volume.spec_name, status, "The volume may not be expanded yet");
                    return Ok(Grown::NotYet);
                }
            }
        }
        let claim = match status {
            _ if told_already => claim,
            Some(IN_PROGRESS) => claim,
            _ => self.patch(&claim, &resizing::begun(), true).await?,
        };
        if !self.abilities.expand {
            let driver = &self.wish.volume.driver;
            return match told_already {
                true => Ok(self.is_now(size)),
                false => Err(format!("NodeExpand is not supported by the CSI driver {driver}")),
            };
        }
        if let Err(error) = self.ask_driver(size).await? {
            return self.not_expanded(&claim, size, &error).await;
        }
        self.tell_success(&claim);
        if !told_already {
            self.patch(&claim, &resizing::finished(&claim, size), true)
                .await
                .map_err(|error| format!("mountVolume.NodeExpandVolume update pvc status failed: {error}"))?;
        }
        Ok(self.is_now(size))
    }

    /// The claim tells why it does not grow; one that never can is not tried again.
    async fn not_expanded(
        &self,
        claim: &api::PersistentVolumeClaim,
        size: Quantity,
        error: &CallError,
    ) -> Result<Grown, String> {
        if error.is_final() {
            // Somebody wants another size meanwhile: only the controller can sort that out.
            let outdated = self.csi.uses.growth(self.at.place).failed
                && resizing::requested(claim).is_some_and(|wanted| wanted.value() != size.value());
            self.csi.uses.grow(self.at.place, |growth| growth.failed = true);
            let infeasible = matches!(error.code, Code::InvalidArgument | Code::OutOfRange | Code::NotFound);
            let now = self.csi.clock.now();
            let patch = resizing::failed(claim, infeasible || outdated, &told(error), now);
            if let Some(patch) = patch
                && let Err(error) = self.patch(claim, &patch, false).await
            {
                warn!(claim = self.claim.name, error, "Failed to mark node expansion as failed");
            }
        }
        match error.code {
            // The driver cannot do it while the volume is used: that does not keep the pod from it.
            Code::FailedPrecondition => {
                self.refused(error);
                Ok(Grown::Settled)
            }
            _ => Err(told(error)),
        }
    }

    async fn ask_driver(&self, size: Quantity) -> Result<Result<(), CallError>, String> {
        let volume = &self.wish.volume;
        let secrets = match &volume.expand_secret {
            Some(secret) => self.csi.secret(secret, "NodeExpandSecretRef").await?,
            None => Default::default(),
        };
        let is_device = self.at.path.starts_with(self.csi.places.devices());
        let kind = if is_device { Kind::Block } else { Kind::Mount { group: None } };
        let request = csi::NodeExpandVolumeRequest {
            volume_id: volume.handle.clone(),
            volume_path: self.at.path.display().to_string(),
            capacity_range: Some(csi::CapacityRange { required_bytes: size.value(), limit_bytes: 0 }),
            staging_target_path: self.at.staging.map(|path| path.display().to_string()).unwrap_or_default(),
            volume_capability: Some(capability(volume, self.abilities, kind)),
            secrets,
        };
        info!(volume = volume.spec_name, size = size.value(), "Asking the driver to expand the volume");
        Ok(self.client.expand(request).await)
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

    fn is_now(&self, size: Quantity) -> Grown {
        self.csi.uses.grow(self.at.place, |growth| growth.size = Some(size.value()));
        Grown::Settled
    }

    fn refused(&self, error: &CallError) {
        error!(volume = self.wish.volume.spec_name, %error, "MountVolume.NodeExpandVolume failed");
        self.csi.uses.grow(self.at.place, |growth| growth.refused = true);
    }

    fn tell_success(&self, claim: &api::PersistentVolumeClaim) {
        self.tell(claim, SUCCESSFUL, "succeeded", &self.csi.node_name);
    }

    /// On the pod and on the claim.
    fn tell(&self, claim: &api::PersistentVolumeClaim, reason: &'static str, how: &str, what: &str) {
        let volume = &self.wish.volume.spec_name;
        let message = format!("MountVolume.NodeExpandVolume {how} for volume {volume:?} {what}");
        let kind = if reason == SUCCESSFUL { EventKind::Normal } else { EventKind::Warning };
        self.csi.events.emit(Event { kind, ..Event::normal(&self.wish.id, reason, message.clone()) });
        self.csi.events.emit_claim(ClaimEvent {
            kind,
            reason,
            message,
            namespace: self.claim.namespace.clone(),
            name: self.claim.name.clone(),
            uid: claim.metadata.uid.clone().unwrap_or_default(),
        });
    }
}

fn failed(error: &CallError) -> String {
    format!("Expander.NodeExpand failed to expand the volume : {error}")
}

/// As the claim and the event have it: what can never succeed is told a little differently.
fn told(error: &CallError) -> String {
    match error.code {
        Code::InvalidArgument | Code::OutOfRange | Code::NotFound => {
            format!("Expander.NodeExpand failed to expand the volume {error}")
        }
        _ => failed(error),
    }
}
