//! Making, growing and removing volumes.

use std::sync::Arc;

use crablet_protos::csi;
use crablet_protos::csi::controller_service_capability::rpc::Type as RpcType;
use crablet_protos::csi::controller_service_capability::{Rpc, Type};
use crablet_protos::csi::validate_volume_capabilities_response::Confirmed;
use serde_json::json;
use tonic::{Request, Response, Status};

use super::{Shared, internal, wanted};

const LARGEST: i64 = 1 << 40;

pub struct Controller(pub Arc<Shared>);

#[tonic::async_trait]
impl csi::controller_server::Controller for Controller {
    async fn create_volume(
        &self,
        request: Request<csi::CreateVolumeRequest>,
    ) -> Result<Response<csi::CreateVolumeResponse>, Status> {
        let request = request.into_inner();
        wanted("name", &request.name)?;
        if request.volume_capabilities.is_empty() {
            return Err(Status::invalid_argument("volume capabilities are missing"));
        }
        let range = request.capacity_range.unwrap_or_default();
        if range.required_bytes > LARGEST {
            return Err(Status::out_of_range("that is too large"));
        }
        let seen = json!({ "name": request.name });
        let shared = &self.0;
        let create = || {
            let volume = shared.store.create(&request.name, range.required_bytes).map_err(internal)?;
            let fits = volume.bytes >= range.required_bytes
                && (range.limit_bytes == 0 || volume.bytes <= range.limit_bytes);
            if !fits {
                return Err(Status::already_exists("there is a volume of that name with another size"));
            }
            Ok(volume)
        };
        let volume = shared.call("CreateVolume", "", seen, create).await?;
        let volume = csi::Volume {
            capacity_bytes: volume.bytes,
            volume_id: volume.id,
            volume_context: request.parameters,
        };
        Ok(Response::new(csi::CreateVolumeResponse { volume: Some(volume) }))
    }

    async fn delete_volume(
        &self,
        request: Request<csi::DeleteVolumeRequest>,
    ) -> Result<Response<csi::DeleteVolumeResponse>, Status> {
        let id = request.into_inner().volume_id;
        wanted("volume id", &id)?;
        let remove = || self.0.store.remove(&id).map_err(internal);
        self.0.call("DeleteVolume", &id, json!({}), remove).await?;
        Ok(Response::new(csi::DeleteVolumeResponse {}))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<csi::ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<csi::ValidateVolumeCapabilitiesResponse>, Status> {
        let request = request.into_inner();
        wanted("volume id", &request.volume_id)?;
        if request.volume_capabilities.is_empty() {
            return Err(Status::invalid_argument("volume capabilities are missing"));
        }
        if self.0.store.find(&request.volume_id).map_err(internal)?.is_none() {
            return Err(Status::not_found("there is no such volume"));
        }
        let confirmed = Confirmed {
            volume_context: request.volume_context,
            volume_capabilities: request.volume_capabilities,
            parameters: request.parameters,
        };
        Ok(Response::new(csi::ValidateVolumeCapabilitiesResponse {
            confirmed: Some(confirmed),
            message: String::new(),
        }))
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<csi::ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<csi::ControllerGetCapabilitiesResponse>, Status> {
        let types = [RpcType::CreateDeleteVolume, RpcType::ExpandVolume];
        let capability = |kind: RpcType| csi::ControllerServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: kind.into() })),
        };
        let capabilities = types.map(capability).to_vec();
        Ok(Response::new(csi::ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn controller_expand_volume(
        &self,
        request: Request<csi::ControllerExpandVolumeRequest>,
    ) -> Result<Response<csi::ControllerExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        wanted("volume id", &request.volume_id)?;
        let Some(range) = request.capacity_range else {
            return Err(Status::invalid_argument("capacity range is missing"));
        };
        let store = &self.0.store;
        let grow = || {
            let found = store.find(&request.volume_id).map_err(internal)?;
            let mut volume = found.ok_or_else(|| Status::not_found("there is no such volume"))?;
            volume.bytes = volume.bytes.max(range.required_bytes);
            store.keep(&volume).map_err(internal)?;
            Ok(volume.bytes)
        };
        let bytes = self.0.call("ControllerExpandVolume", &request.volume_id, json!({}), grow).await?;
        Ok(Response::new(csi::ControllerExpandVolumeResponse {
            capacity_bytes: bytes,
            node_expansion_required: true,
        }))
    }
}
