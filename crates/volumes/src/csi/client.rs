//! Calls to a driver: a new connection for each, as upstream's, because a driver may be replaced at any time.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crablet_protos::csi;
use crablet_protos::csi::node_client::NodeClient;
use crablet_protos::csi::node_service_capability::Type as CapabilityType;
use crablet_protos::csi::node_service_capability::rpc::Type as Rpc;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request, Response, Status};

use crate::figures;

/// For each call, upstream's.
const DEADLINE: Duration = Duration::from_secs(120);

/// A driver that listens somewhere.
#[derive(Clone, Debug)]
pub struct DriverClient {
    name: String,
    endpoint: PathBuf,
}

/// What a driver says of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeInfo {
    pub node_id: String,
    /// Zero where the driver does not say.
    pub max_volumes: i64,
    pub topology: BTreeMap<String, String>,
}

/// What a driver can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    pub stage: bool,
    pub stats: bool,
    pub expand: bool,
    pub condition: bool,
    pub single_node_multi_writer: bool,
    pub mount_group: bool,
}

/// A call that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    pub code: Code,
    pub message: String,
}

impl CallError {
    /// Whether nothing of the call goes on in the driver: upstream's list of codes (v1.36).
    pub fn is_final(&self) -> bool {
        !matches!(
            self.code,
            Code::Cancelled
                | Code::DeadlineExceeded
                | Code::Unavailable
                | Code::ResourceExhausted
                | Code::Aborted
        )
    }

    /// As Go names it.
    fn code_name(&self) -> String {
        match self.code {
            Code::Cancelled => "Canceled".to_owned(),
            other => format!("{other:?}"),
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rpc error: code = {} desc = {}", self.code_name(), self.message)
    }
}

impl DriverClient {
    pub fn new(name: &str, endpoint: PathBuf) -> Self {
        Self { name: name.to_owned(), endpoint }
    }

    pub async fn node_info(&self) -> Result<NodeInfo, CallError> {
        let info = self
            .call("NodeGetInfo", csi::NodeGetInfoRequest {}, async |mut c, r| c.node_get_info(r).await)
            .await?;
        Ok(NodeInfo {
            node_id: info.node_id,
            max_volumes: info.max_volumes_per_node,
            topology: info.accessible_topology.map(|topology| topology.segments).unwrap_or_default(),
        })
    }

    pub async fn capabilities(&self) -> Result<Capabilities, CallError> {
        let request = csi::NodeGetCapabilitiesRequest {};
        let answer = self
            .call("NodeGetCapabilities", request, async |mut c, r| c.node_get_capabilities(r).await)
            .await?;
        let mut all = Capabilities::default();
        for capability in answer.capabilities {
            let Some(CapabilityType::Rpc(rpc)) = capability.r#type else { continue };
            match rpc.r#type() {
                Rpc::StageUnstageVolume => all.stage = true,
                Rpc::GetVolumeStats => all.stats = true,
                Rpc::ExpandVolume => all.expand = true,
                Rpc::VolumeCondition => all.condition = true,
                Rpc::SingleNodeMultiWriter => all.single_node_multi_writer = true,
                Rpc::VolumeMountGroup => all.mount_group = true,
                Rpc::Unknown => {}
            }
        }
        Ok(all)
    }

    pub async fn stage(&self, request: csi::NodeStageVolumeRequest) -> Result<(), CallError> {
        self.call("NodeStageVolume", request, async |mut c, r| c.node_stage_volume(r).await).await.map(drop)
    }

    pub async fn unstage(&self, volume: &str, staging: &Path) -> Result<(), CallError> {
        let request = csi::NodeUnstageVolumeRequest {
            volume_id: volume.to_owned(),
            staging_target_path: staging.display().to_string(),
        };
        self.call("NodeUnstageVolume", request, async |mut c, r| c.node_unstage_volume(r).await)
            .await
            .map(drop)
    }

    pub async fn publish(&self, request: csi::NodePublishVolumeRequest) -> Result<(), CallError> {
        self.call("NodePublishVolume", request, async |mut c, r| c.node_publish_volume(r).await)
            .await
            .map(drop)
    }

    pub async fn unpublish(&self, volume: &str, target: &Path) -> Result<(), CallError> {
        let request = csi::NodeUnpublishVolumeRequest {
            volume_id: volume.to_owned(),
            target_path: target.display().to_string(),
        };
        self.call("NodeUnpublishVolume", request, async |mut c, r| c.node_unpublish_volume(r).await)
            .await
            .map(drop)
    }

    pub async fn stats(
        &self,
        volume: &str,
        path: &Path,
    ) -> Result<csi::NodeGetVolumeStatsResponse, CallError> {
        let request = csi::NodeGetVolumeStatsRequest {
            volume_id: volume.to_owned(),
            volume_path: path.display().to_string(),
            staging_target_path: String::new(),
        };
        self.call("NodeGetVolumeStats", request, async |mut c, r| c.node_get_volume_stats(r).await).await
    }

    pub async fn expand(&self, request: csi::NodeExpandVolumeRequest) -> Result<(), CallError> {
        self.call("NodeExpandVolume", request, async |mut c, r| c.node_expand_volume(r).await).await.map(drop)
    }

    async fn call<Q, R>(
        &self,
        method: &str,
        message: Q,
        send: impl AsyncFnOnce(NodeClient<Channel>, Request<Q>) -> Result<Response<R>, Status>,
    ) -> Result<R, CallError> {
        let path = self.endpoint.clone();
        let connector = tower::service_fn(move |_: Uri| connect(path.clone()));
        // The address is never dialled; gRPC wants a name for the other side, and sockets go by this one.
        let channel = Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector);
        let mut request = Request::new(message);
        // The driver is told too, so that it gives up when we do.
        request.set_timeout(DEADLINE);
        let call = Box::pin(send(NodeClient::new(channel), request));
        let begun = Instant::now();
        let answer = match tokio::time::timeout(DEADLINE, call).await {
            Ok(answer) => answer.map(Response::into_inner).map_err(|status| self.error(&status)),
            Err(_) => Err(too_late()),
        };
        let code = answer.as_ref().err().map_or_else(|| "OK".to_owned(), CallError::code_name);
        figures::call(&self.name, method, &code, begun.elapsed());
        answer
    }

    fn error(&self, status: &Status) -> CallError {
        // The client library gives a cause to what it found itself; a status that the driver sent has none.
        let Some(cause) = status.source() else {
            return CallError { code: status.code(), message: status.message().to_owned() };
        };
        let chain = || std::iter::successors(Some(cause), |cause| (*cause).source());
        if chain().any(|cause| cause.is::<tonic::TimeoutExpired>()) {
            return too_late();
        }
        let root = chain().last().unwrap_or(cause);
        let what = match root.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::NotFound) => "connect: no such file or directory".to_owned(),
            Some(io::ErrorKind::ConnectionRefused) => "connect: connection refused".to_owned(),
            _ => root.to_string(),
        };
        let message = format!(
            "connection error: desc = \"transport: Error while dialing: dial unix {}: {what}\"",
            self.endpoint.display()
        );
        CallError { code: Code::Unavailable, message }
    }
}

async fn connect(path: PathBuf) -> io::Result<TokioIo<UnixStream>> {
    UnixStream::connect(path).await.map(TokioIo::new)
}

/// In Go's words, which end up in events.
fn too_late() -> CallError {
    CallError { code: Code::DeadlineExceeded, message: "context deadline exceeded".to_owned() }
}
