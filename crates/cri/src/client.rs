//! The gRPC client: CRI v1 over a unix socket.
//!
//! | module | what it holds |
//! |---|---|
//! | `connection` | the socket, deadlines, and what a failed call means |
//! | `requests` | from `crablet_model::runtime` to the wire |
//! | `replies` | from the wire to `crablet_model::runtime`; whatever a runtime sends, nothing panics |
//! | `signals` | the names of signals |
//! | `events` | the event stream |
//! | `reach` | what reaches into running containers |
//! | [`preflight`] | how the runtime is set up, which `crablet check` asks, and who looks for its cgroup driver |
//! | `homes` | which sandbox a container lives in, which CRI tells only in listings |
//!
//! The connection is made by the first call and made again by the call after it broke. Between calls there is no
//! keep-alive and no timer: an idle client costs nothing.

mod connection;
mod events;
mod homes;
pub mod preflight;
mod reach;
mod replies;
mod requests;
mod signals;

use std::time::Duration;

use async_trait::async_trait;
use crablet_model::PodUid;
use crablet_model::runtime::{
    Container, ContainerConfig, ContainerListing, ContainerUpdate, Image, Incoming, LinuxResources,
    ListedImage, RuntimeStatus, RuntimeVersion, Sandbox, SandboxConfig,
};
use crablet_protos::{content, cri as wire};
use tonic::Request;
use tonic::metadata::MetadataValue;

use crate::port::{CommandOutput, CriError, ErrorKind, EventStream, RegistryAuth, Result, Runtime, Streams};
pub use connection::KeepOpen;
use connection::{Connection, Services};
use homes::Homes;

/// What upstream's kubelet sends in its version call, and the only answer that it accepts.
const VERSION_OF_VERSION_CALL: &str = "0.1.0";

/// containerd keeps what CRI pulls apart from what others pull.
const CONTAINERD_NAMESPACE: &str = "containerd-namespace";
const NAMESPACE_OF_CRI: &str = "k8s.io";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For each call, with upstream's exceptions: a sandbox may take twice as long to start, stopping a container adds
    /// its grace, and a pull takes as long as it takes.
    pub request: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { request: Duration::from_secs(120) }
    }
}

pub struct CriClient {
    connection: Connection,
    timeouts: Timeouts,
    homes: Homes,
}

impl CriClient {
    /// Takes `unix:///path` or `/path`. Does not connect yet, but must be called inside a tokio runtime.
    pub fn new(endpoint: &str, timeouts: Timeouts, keep: Option<KeepOpen>) -> Result<Self> {
        Ok(Self { connection: Connection::new(endpoint, keep)?, timeouts, homes: Homes::default() })
    }

    fn usual(&self) -> Option<Duration> {
        Some(self.timeouts.request)
    }

    async fn list(&self, filter: wire::ContainerFilter) -> Result<Vec<wire::Container>> {
        let request = wire::ListContainersRequest { filter: Some(filter) };
        let reply = self
            .connection
            .call(self.usual(), request, |mut to, q| async move { to.runtime.list_containers(q).await })
            .await?;
        Ok(reply.containers)
    }

    /// A container's status does not say which sandbox it is in. Usually a listing told just before; else ask for one.
    async fn home_of(&self, id: &str) -> Result<String> {
        if let Some(sandbox) = self.homes.get(id) {
            return Ok(sandbox);
        }
        let found = self.list(wire::ContainerFilter { id: id.to_owned(), ..Default::default() }).await?;
        match found.into_iter().find(|container| container.id == id) {
            Some(container) => {
                self.homes.remember(id, &container.pod_sandbox_id);
                Ok(container.pod_sandbox_id)
            }
            None => Err(CriError::new(ErrorKind::NotFound, format!("container {id:?}: not found"))),
        }
    }
}

#[async_trait]
impl Runtime for CriClient {
    async fn version(&self) -> Result<RuntimeVersion> {
        let request = wire::VersionRequest { version: VERSION_OF_VERSION_CALL.to_owned() };
        let reply = self
            .connection
            .call(self.usual(), request, |mut to, q| async move { to.runtime.version(q).await })
            .await?;
        if reply.version != VERSION_OF_VERSION_CALL {
            return Err(CriError::new(ErrorKind::Refused, "runtime api version is not supported"));
        }
        Ok(replies::version(reply))
    }

    async fn status(&self) -> Result<RuntimeStatus> {
        let request = wire::StatusRequest { verbose: false };
        let reply = self
            .connection
            .call(self.usual(), request, |mut to, q| async move { to.runtime.status(q).await })
            .await?;
        Ok(replies::status(reply))
    }

    async fn events(&self) -> Result<EventStream> {
        events::subscribe(&self.connection, self.version()).await
    }

    async fn list_sandboxes(&self, uid: Option<&PodUid>) -> Result<Vec<Sandbox>> {
        let filter =
            wire::PodSandboxFilter { label_selector: requests::uid_selector(uid), ..Default::default() };
        let request = wire::ListPodSandboxRequest { filter: Some(filter) };
        let reply = self
            .connection
            .call(self.usual(), request, |mut to, q| async move { to.runtime.list_pod_sandbox(q).await })
            .await?;
        Ok(reply.items.into_iter().map(replies::listed_sandbox).collect())
    }

    async fn list_containers(&self, uid: Option<&PodUid>) -> Result<Vec<ContainerListing>> {
        let filter =
            wire::ContainerFilter { label_selector: requests::uid_selector(uid), ..Default::default() };
        let containers = self.list(filter).await?;
        let homes = containers.iter().map(|c| (c.id.as_str(), c.pod_sandbox_id.as_str()));
        if uid.is_none() {
            self.homes.replace(homes)
        } else {
            self.homes.remember_all(homes)
        }
        Ok(containers.into_iter().map(replies::listed_container).collect())
    }

    async fn sandbox_status(&self, id: &str) -> Result<Sandbox> {
        let request = wire::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: false };
        let reply = self
            .connection
            .call(self.usual(), request, |mut to, q| async move { to.runtime.pod_sandbox_status(q).await })
            .await?;
        reply.status.map(replies::sandbox).ok_or_else(|| not_set(format!("status of sandbox {id:?}")))
    }

    async fn container_status(&self, id: &str) -> Result<Container> {
        let request = wire::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        let reply = self
            .connection
            .call(self.usual(), request, |mut to, q| async move { to.runtime.container_status(q).await })
            .await?;
        let status = reply.status.ok_or_else(|| not_set(format!("status of container {id:?}")))?;
        Ok(replies::container(status, self.home_of(id).await?))
    }

    async fn run_sandbox(&self, config: &SandboxConfig) -> Result<String> {
        let request = wire::RunPodSandboxRequest {
            config: Some(requests::sandbox(config)),
            runtime_handler: config.runtime_handler.clone(),
        };
        let deadline = self.timeouts.request.saturating_mul(2);
        let reply = self
            .connection
            .call_to_its_end(
                deadline,
                request,
                |mut to, q| async move { to.runtime.run_pod_sandbox(q).await },
            )
            .await?;
        set(reply.pod_sandbox_id, || format!("PodSandboxId of sandbox {:?}", config.name))
    }

    async fn stop_sandbox(&self, id: &str) -> Result<()> {
        let request = wire::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        self.connection
            .call_to_its_end(self.timeouts.request, request, |mut to, q| async move {
                to.runtime.stop_pod_sandbox(q).await
            })
            .await
            .map(drop)
    }

    async fn remove_sandbox(&self, id: &str) -> Result<()> {
        let request = wire::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        self.connection
            .call_to_its_end(self.timeouts.request, request, |mut to, q| async move {
                to.runtime.remove_pod_sandbox(q).await
            })
            .await
            .map(drop)
    }

    async fn create_container(
        &self,
        sandbox_id: &str,
        config: &ContainerConfig,
        sandbox: &SandboxConfig,
    ) -> Result<String> {
        let request = wire::CreateContainerRequest {
            pod_sandbox_id: sandbox_id.to_owned(),
            config: Some(requests::container(config, sandbox)),
            sandbox_config: Some(requests::sandbox(sandbox)),
        };
        let reply = self
            .connection
            .call_to_its_end(self.timeouts.request, request, |mut to, q| async move {
                to.runtime.create_container(q).await
            })
            .await?;
        let id = set(reply.container_id, || format!("ContainerId of container {:?}", config.name))?;
        self.homes.remember(&id, sandbox_id);
        Ok(id)
    }

    async fn start_container(&self, id: &str) -> Result<()> {
        let request = wire::StartContainerRequest { container_id: id.to_owned() };
        self.connection
            .call_to_its_end(self.timeouts.request, request, |mut to, q| async move {
                to.runtime.start_container(q).await
            })
            .await
            .map(drop)
    }

    async fn stop_container(&self, id: &str, grace: Duration) -> Result<()> {
        let timeout = i64::try_from(grace.as_secs()).unwrap_or(i64::MAX);
        let request = wire::StopContainerRequest { container_id: id.to_owned(), timeout };
        let deadline = self.timeouts.request.saturating_add(grace);
        self.connection
            .call_to_its_end(deadline, request, |mut to, q| async move { to.runtime.stop_container(q).await })
            .await
            .map(drop)
    }

    async fn remove_container(&self, id: &str) -> Result<()> {
        let request = wire::RemoveContainerRequest { container_id: id.to_owned() };
        self.connection
            .call_to_its_end(self.timeouts.request, request, |mut to, q| async move {
                to.runtime.remove_container(q).await
            })
            .await?;
        self.homes.forget(id);
        Ok(())
    }

    async fn update_container(&self, id: &str, update: &ContainerUpdate) -> Result<()> {
        let request = requests::container_update(id, update);
        self.connection
            .call_to_its_end(self.timeouts.request, request, |mut to, q| async move {
                to.runtime.update_container_resources(q).await
            })
            .await
            .map(drop)
    }

    async fn update_sandbox(
        &self,
        id: &str,
        overhead: &LinuxResources,
        resources: &LinuxResources,
    ) -> Result<()> {
        let request = requests::sandbox_update(id, overhead, resources);
        self.connection
            .call_to_its_end(self.timeouts.request, request, |mut to, q| async move {
                to.runtime.update_pod_sandbox_resources(q).await
            })
            .await
            .map(drop)
    }

    async fn memory_usage(&self, id: &str) -> Result<Option<u64>> {
        let request = wire::ContainerStatsRequest { container_id: id.to_owned() };
        let reply = self
            .connection
            .call(self.usual(), request, |mut to, q| async move { to.runtime.container_stats(q).await })
            .await?;
        Ok(replies::memory_usage(reply))
    }

    async fn image_status(&self, image: &str, sandbox: Option<&SandboxConfig>) -> Result<Option<Image>> {
        let request = requests::image_status(image, sandbox);
        let reply = self
            .connection
            .call(self.usual(), request, |mut to, q| async move { to.images.image_status(q).await })
            .await?;
        match reply.image {
            None => Ok(None),
            Some(found) if found.id.is_empty() => Err(not_set(format!("id of image {image:?}"))),
            Some(found) => Ok(Some(replies::image(found))),
        }
    }

    async fn list_images(&self) -> Result<Vec<ListedImage>> {
        let request = wire::ListImagesRequest { filter: None };
        let reply = self
            .connection
            .call(self.usual(), request, |mut to, q| async move { to.images.list_images(q).await })
            .await?;
        Ok(reply.images.into_iter().map(replies::listed_image).collect())
    }

    async fn incoming(&self) -> Result<Option<Vec<Incoming>>> {
        let request = content::ListStatusesRequest { filters: Vec::new() };
        let ask = |mut to: Services, mut q: Request<_>| async move {
            q.metadata_mut().insert(CONTAINERD_NAMESPACE, MetadataValue::from_static(NAMESPACE_OF_CRI));
            to.content.list_statuses(q).await
        };
        match self.connection.call(self.usual(), request, ask).await {
            Ok(reply) => Ok(Some(reply.statuses.into_iter().map(replies::incoming).collect())),
            // Another runtime than containerd.
            Err(error) if error.kind == ErrorKind::Unimplemented => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn set_pod_cidr(&self, cidr: &str) -> Result<()> {
        let network = wire::NetworkConfig { pod_cidr: cidr.to_owned() };
        let config = wire::RuntimeConfig { network_config: Some(network) };
        let request = wire::UpdateRuntimeConfigRequest { runtime_config: Some(config) };
        self.connection
            .call(self.usual(), request, |mut to, q| async move { to.runtime.update_runtime_config(q).await })
            .await
            .map(drop)
    }

    async fn pull_image(
        &self,
        image: &str,
        auth: Option<&RegistryAuth>,
        sandbox: Option<&SandboxConfig>,
    ) -> Result<String> {
        let request = requests::pull(image, auth, sandbox);
        let reply = self
            .connection
            .call(None, request, |mut to, q| async move { to.images.pull_image(q).await })
            .await?;
        set(reply.image_ref, || format!("imageRef of image {image:?}"))
    }

    async fn exec_sync(
        &self,
        id: &str,
        command: &[String],
        timeout: Option<Duration>,
    ) -> Result<CommandOutput> {
        self.run_command(id, command, timeout).await
    }

    async fn exec(&self, id: &str, command: &[String], streams: Streams) -> Result<String> {
        self.exec_address(id, command, streams).await
    }

    async fn attach(&self, id: &str, streams: Streams) -> Result<String> {
        self.attach_address(id, streams).await
    }

    async fn port_forward(&self, sandbox_id: &str, ports: &[u16]) -> Result<String> {
        self.forward_address(sandbox_id, ports).await
    }

    async fn checkpoint(&self, id: &str, location: &str, timeout: i64) -> Result<()> {
        self.write_checkpoint(id, location, timeout).await
    }
}

/// A runtime that answers without the one thing that was asked for has refused, whatever it says.
fn set(value: String, what: impl FnOnce() -> String) -> Result<String> {
    if value.is_empty() { Err(not_set(what())) } else { Ok(value) }
}

fn not_set(what: String) -> CriError {
    CriError { code: None, ..CriError::new(ErrorKind::Refused, format!("{what} is not set")) }
}
