//! Staging and publishing volumes by bind mounts.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use crablet_protos::csi;
use crablet_protos::csi::node_service_capability::rpc::Type as RpcType;
use crablet_protos::csi::node_service_capability::{Rpc, Type};
use crablet_protos::csi::volume_capability::AccessType;
use crablet_protos::csi::volume_capability::access_mode::Mode;
use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};
use serde_json::{Value, json};
use tonic::{Request, Response, Status};

use super::super::store::Volume;
use super::{Shared, internal, wanted};
use crate::mounts;

const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";

pub struct Node(pub Arc<Shared>);

impl Node {
    fn has(&self, capability: &str) -> bool {
        self.0.options.capabilities.iter().any(|there| there == capability)
    }

    fn found(&self, id: &str) -> Result<Volume, Status> {
        let found = self.0.store.find(id).map_err(internal)?;
        found.ok_or_else(|| Status::not_found(format!("there is no volume {id}")))
    }

    fn stage(&self, request: &csi::NodeStageVolumeRequest) -> Result<(), Status> {
        let volume = self.found(&request.volume_id)?;
        let place = Path::new(&request.staging_target_path);
        let done = match is_block(request.volume_capability.as_ref()) {
            true => self.0.store.device(&volume).map(drop),
            false => fs::create_dir_all(place)
                .map_err(Into::into)
                .and_then(|()| bind(&self.0.store.content(&volume.id), place, false)),
        };
        done.map_err(internal)
    }

    fn unstage(&self, request: &csi::NodeUnstageVolumeRequest) -> Result<(), Status> {
        let undone = unbind(Path::new(&request.staging_target_path));
        undone.and_then(|()| self.0.store.let_go_of_device(&request.volume_id)).map_err(internal)
    }

    fn publish(&self, request: &csi::NodePublishVolumeRequest) -> Result<(), Status> {
        let id = &request.volume_id;
        if request.volume_context.get(EPHEMERAL).is_some_and(|value| value == "true") {
            self.0.store.create_as(id, id, 0, true).map_err(internal)?;
        }
        let mut volume = self.found(id)?;
        let target = Path::new(&request.target_path);
        if volume.single_target.as_deref().is_some_and(|there| there != target && is_mounted(there)) {
            return Err(Status::failed_precondition(format!("volume {id} is in use by a single writer")));
        }
        if has_single_writer(request.volume_capability.as_ref()) {
            volume.single_target = Some(target.to_owned());
            self.0.store.keep(&volume).map_err(internal)?;
        }
        if is_block(request.volume_capability.as_ref()) {
            let device = self.0.store.device(&volume).map_err(internal)?;
            let made = fs::File::options().create(true).append(true).open(target);
            made.context("cannot make the target").map_err(internal)?;
            return bind(&device, target, request.readonly).map_err(internal);
        }
        let content = self.0.store.content(id);
        let staged = Path::new(&request.staging_target_path);
        let source = if request.staging_target_path.is_empty() { &content } else { staged };
        if self.has("stage") && !request.staging_target_path.is_empty() && !is_mounted(staged) {
            return Err(Status::failed_precondition(format!("volume {id} is not staged")));
        }
        fs::create_dir_all(target).context("cannot make the target").map_err(internal)?;
        bind(source, target, request.readonly).map_err(internal)
    }

    fn unpublish(&self, request: &csi::NodeUnpublishVolumeRequest) -> Result<(), Status> {
        let target = Path::new(&request.target_path);
        unbind(target).map_err(internal)?;
        let removed = match fs::symlink_metadata(target) {
            Ok(about) if about.is_dir() => fs::remove_dir(target),
            Ok(_) => fs::remove_file(target),
            Err(_) => Ok(()),
        };
        removed.context("cannot remove the target").map_err(internal)?;
        let store = &self.0.store;
        match store.find(&request.volume_id).map_err(internal)? {
            Some(volume) if volume.ephemeral => store.remove(&volume.id).map_err(internal),
            _ => Ok(()),
        }
    }

    fn expand(&self, request: &csi::NodeExpandVolumeRequest) -> Result<i64, Status> {
        let mut volume = self.found(&request.volume_id)?;
        if !Path::new(&request.volume_path).exists() {
            return Err(Status::not_found("there is nothing at the volume's path"));
        }
        let bytes = request.capacity_range.map_or(0, |range| range.required_bytes).max(volume.bytes);
        (volume.bytes, volume.node_bytes) = (bytes, bytes);
        self.0.store.keep(&volume).map_err(internal)?;
        Ok(bytes)
    }

    fn stats(
        &self,
        request: &csi::NodeGetVolumeStatsRequest,
    ) -> Result<csi::NodeGetVolumeStatsResponse, Status> {
        let volume = self.found(&request.volume_id)?;
        let path = Path::new(&request.volume_path);
        if !is_mounted(path) {
            return Err(Status::not_found(format!("the volume is not at {}", path.display())));
        }
        let files = fs::read_dir(self.0.store.content(&volume.id)).map_err(|error| internal(error.into()))?;
        let sizes: Vec<i64> =
            files.flatten().map(|file| file.metadata().map_or(0, |m| m.len() as i64)).collect();
        let (used, count) = (sizes.iter().sum::<i64>(), sizes.len() as i64);
        let usage = |unit: csi::volume_usage::Unit, total: i64, used: i64| csi::VolumeUsage {
            available: total - used,
            total,
            used,
            unit: unit.into(),
        };
        let sick = self.0.store.sickness(&volume.id);
        Ok(csi::NodeGetVolumeStatsResponse {
            usage: vec![
                usage(csi::volume_usage::Unit::Bytes, volume.node_bytes, used),
                usage(csi::volume_usage::Unit::Inodes, 1000, count),
            ],
            volume_condition: self.has("condition").then(|| csi::VolumeCondition {
                abnormal: sick.is_some(),
                message: sick.unwrap_or_else(|| "all is well".to_owned()),
            }),
        })
    }
}

#[tonic::async_trait]
impl csi::node_server::Node for Node {
    async fn node_stage_volume(
        &self,
        request: Request<csi::NodeStageVolumeRequest>,
    ) -> Result<Response<csi::NodeStageVolumeResponse>, Status> {
        let request = request.into_inner();
        wanted("volume id", &request.volume_id)?;
        wanted("staging target path", &request.staging_target_path)?;
        capability_wanted(request.volume_capability.as_ref())?;
        let seen = json!({
            "path": request.staging_target_path,
            "publishContext": request.publish_context,
            "context": shown(&request.volume_context),
            "secrets": request.secrets.keys().collect::<Vec<_>>(),
            "capability": capability(request.volume_capability.as_ref()),
        });
        self.0.call("NodeStageVolume", &request.volume_id, seen, || self.stage(&request)).await?;
        Ok(Response::new(csi::NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<csi::NodeUnstageVolumeRequest>,
    ) -> Result<Response<csi::NodeUnstageVolumeResponse>, Status> {
        let request = request.into_inner();
        wanted("volume id", &request.volume_id)?;
        wanted("staging target path", &request.staging_target_path)?;
        let seen = json!({ "path": request.staging_target_path });
        self.0.call("NodeUnstageVolume", &request.volume_id, seen, || self.unstage(&request)).await?;
        Ok(Response::new(csi::NodeUnstageVolumeResponse {}))
    }

    async fn node_publish_volume(
        &self,
        request: Request<csi::NodePublishVolumeRequest>,
    ) -> Result<Response<csi::NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        wanted("volume id", &request.volume_id)?;
        wanted("target path", &request.target_path)?;
        capability_wanted(request.volume_capability.as_ref())?;
        let seen = json!({
            "path": request.target_path,
            "staging": request.staging_target_path,
            "readOnly": request.readonly,
            "context": shown(&request.volume_context),
            "secrets": request.secrets.keys().collect::<Vec<_>>(),
            "capability": capability(request.volume_capability.as_ref()),
        });
        self.0.call("NodePublishVolume", &request.volume_id, seen, || self.publish(&request)).await?;
        Ok(Response::new(csi::NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<csi::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<csi::NodeUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        wanted("volume id", &request.volume_id)?;
        wanted("target path", &request.target_path)?;
        let seen = json!({ "path": request.target_path });
        self.0.call("NodeUnpublishVolume", &request.volume_id, seen, || self.unpublish(&request)).await?;
        Ok(Response::new(csi::NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<csi::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<csi::NodeGetVolumeStatsResponse>, Status> {
        let request = request.into_inner();
        wanted("volume id", &request.volume_id)?;
        wanted("volume path", &request.volume_path)?;
        let seen = json!({ "path": request.volume_path });
        let stats =
            self.0.call("NodeGetVolumeStats", &request.volume_id, seen, || self.stats(&request)).await?;
        Ok(Response::new(stats))
    }

    async fn node_expand_volume(
        &self,
        request: Request<csi::NodeExpandVolumeRequest>,
    ) -> Result<Response<csi::NodeExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        wanted("volume id", &request.volume_id)?;
        wanted("volume path", &request.volume_path)?;
        let bytes = request.capacity_range.map(|range| range.required_bytes);
        let seen =
            json!({ "path": request.volume_path, "staging": request.staging_target_path, "bytes": bytes });
        let expand = || self.expand(&request);
        let capacity_bytes = self.0.call("NodeExpandVolume", &request.volume_id, seen, expand).await?;
        Ok(Response::new(csi::NodeExpandVolumeResponse { capacity_bytes }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<csi::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<csi::NodeGetCapabilitiesResponse>, Status> {
        let all = [
            ("stage", RpcType::StageUnstageVolume),
            ("stats", RpcType::GetVolumeStats),
            ("expand", RpcType::ExpandVolume),
            ("condition", RpcType::VolumeCondition),
            ("single-writers", RpcType::SingleNodeMultiWriter),
            ("mount-group", RpcType::VolumeMountGroup),
        ];
        let has = all.into_iter().filter(|(name, _)| self.has(name));
        let capabilities = has
            .map(|(_, kind)| csi::NodeServiceCapability {
                r#type: Some(Type::Rpc(Rpc { r#type: kind.into() })),
            })
            .collect();
        let answer = || Ok(Response::new(csi::NodeGetCapabilitiesResponse { capabilities }));
        self.0.call("NodeGetCapabilities", "", json!({}), answer).await
    }

    async fn node_get_info(
        &self,
        _: Request<csi::NodeGetInfoRequest>,
    ) -> Result<Response<csi::NodeGetInfoResponse>, Status> {
        let options = &self.0.options;
        let place = options.topology.as_deref().and_then(|place| place.split_once('='));
        let answer = csi::NodeGetInfoResponse {
            node_id: options.node_id.clone(),
            max_volumes_per_node: options.max_volumes,
            accessible_topology: place
                .map(|(key, value)| csi::Topology { segments: [(key.to_owned(), value.to_owned())].into() }),
        };
        self.0.call("NodeGetInfo", "", json!({}), || Ok(Response::new(answer))).await
    }
}

fn capability_wanted(capability: Option<&csi::VolumeCapability>) -> Result<(), Status> {
    match capability {
        Some(_) => Ok(()),
        None => Err(Status::invalid_argument("volume capability is missing")),
    }
}

fn has_single_writer(capability: Option<&csi::VolumeCapability>) -> bool {
    let mode = capability.and_then(|there| there.access_mode.as_ref()).map(|mode| mode.mode());
    mode == Some(Mode::SingleNodeSingleWriter)
}

fn is_block(capability: Option<&csi::VolumeCapability>) -> bool {
    matches!(capability.and_then(|there| there.access_type.as_ref()), Some(AccessType::Block(_)))
}

/// For the journal.
fn capability(capability: Option<&csi::VolumeCapability>) -> Value {
    let Some(capability) = capability else { return Value::Null };
    let mode = capability.access_mode.map(|mode| mode.mode().as_str_name());
    match &capability.access_type {
        Some(AccessType::Mount(mount)) => json!({
            "mode": mode, "fsType": mount.fs_type, "flags": mount.mount_flags, "group": mount.volume_mount_group,
        }),
        Some(AccessType::Block(_)) => json!({ "mode": mode, "block": true }),
        None => json!({ "mode": mode }),
    }
}

/// Tokens are named and not shown.
fn shown(context: &BTreeMap<String, String>) -> BTreeMap<&str, &str> {
    let hide = |key: &str| key.ends_with(".tokens");
    context.iter().map(|(key, value)| (&**key, if hide(key) { "hidden" } else { &**value })).collect()
}

fn is_mounted(path: &Path) -> bool {
    mounts::below(path).iter().any(|mount| mount.point == path)
}

fn bind(source: &Path, target: &Path, read_only: bool) -> Result<()> {
    if is_mounted(target) {
        return Ok(());
    }
    mount_bind(source, target).with_context(|| format!("cannot bind `{}`", target.display()))?;
    if read_only {
        mount_remount(target, MountFlags::BIND | MountFlags::RDONLY, c"")?;
    }
    Ok(())
}

fn unbind(target: &Path) -> Result<()> {
    while is_mounted(target) {
        unmount(target, UnmountFlags::NOFOLLOW)
            .with_context(|| format!("cannot unmount `{}`", target.display()))?;
    }
    Ok(())
}
