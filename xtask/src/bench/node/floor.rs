//! The floor: a bare CRI client that makes the calls which no kubelet can do without, and does nothing else.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use crablet_protos::cri::runtime_service_client::RuntimeServiceClient;
use crablet_protos::cri::{
    ContainerConfig, ContainerMetadata, CreateContainerRequest, ImageSpec, LinuxPodSandboxConfig,
    LinuxSandboxSecurityContext, ListPodSandboxRequest, NamespaceMode, NamespaceOption, PodSandboxConfig,
    PodSandboxMetadata, RemoveContainerRequest, RemovePodSandboxRequest, RunPodSandboxRequest,
    StartContainerRequest, StopContainerRequest, StopPodSandboxRequest,
};
use crablet_testbed::cluster::Cluster;
use crablet_testbed::images;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use super::crowd;

/// No call takes that long, however busy the machine is.
const DEADLINE: Duration = Duration::from_secs(600);
const GRACE_SECONDS: i64 = 30;

#[derive(Debug, Clone, Copy)]
pub struct Floor {
    /// Until all containers have started.
    pub up: Duration,
    /// Until all containers and sandboxes have stopped: from then on a pod may be gone.
    pub stopped: Duration,
    /// What it takes to remove them after that.
    pub removed: Duration,
}

#[derive(Clone)]
pub struct Bare {
    runtime: RuntimeServiceClient<Channel>,
    logs: String,
    cgroup_parent: String,
}

impl Bare {
    /// Inside a tokio runtime.
    pub fn new(cluster: &Cluster) -> Bare {
        let socket = cluster.containerd().scratch().socket();
        let connector = tower::service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        let channel = Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector);
        Bare {
            runtime: RuntimeServiceClient::new(channel),
            logs: cluster.dir().join("floor-logs").to_string_lossy().into_owned(),
            cgroup_parent: format!("{}/floor", cluster.network().cgroup_root()),
        }
    }

    pub async fn measure(&self, pods: usize) -> Result<Floor> {
        let started = Instant::now();
        let this = self.clone();
        let made = crowd::each(0..pods, move |number| this.clone().start(number)).await;
        let made = made.context("a bare CRI client cannot start the pods")?;
        let up = started.elapsed();
        let started = Instant::now();
        let this = self.clone();
        crowd::each(made.clone(), move |pod| this.clone().stop(pod)).await?;
        let stopped = started.elapsed();
        let started = Instant::now();
        let this = self.clone();
        crowd::each(made, move |pod| this.clone().remove(pod)).await?;
        Ok(Floor { up, stopped, removed: started.elapsed() })
    }

    /// Removes what a kubelet left, so that the next one begins with nothing; says how much it was.
    pub async fn sweep(&self) -> Result<usize> {
        let list = self.runtime.clone().list_pod_sandbox(request(ListPodSandboxRequest::default())).await?;
        let ids: Vec<String> = list.into_inner().items.into_iter().map(|item| item.id).collect();
        let this = self.clone();
        let gone = crowd::each(ids, move |id| {
            let mut runtime = this.runtime.clone();
            async move {
                runtime
                    .stop_pod_sandbox(request(StopPodSandboxRequest { pod_sandbox_id: id.clone() }))
                    .await?;
                runtime.remove_pod_sandbox(request(RemovePodSandboxRequest { pod_sandbox_id: id })).await?;
                Ok(())
            }
        });
        Ok(gone.await?.len())
    }

    async fn start(mut self, number: usize) -> Result<(String, String)> {
        let config = self.sandbox(number);
        let ask = RunPodSandboxRequest { config: Some(config.clone()), ..Default::default() };
        let sandbox = self.runtime.run_pod_sandbox(request(ask)).await?.into_inner().pod_sandbox_id;
        let container = ContainerConfig {
            metadata: Some(ContainerMetadata { name: "pause".into(), attempt: 0 }),
            image: Some(ImageSpec { image: images::PAUSE.into(), ..Default::default() }),
            log_path: "pause/0.log".into(),
            ..Default::default()
        };
        let ask = CreateContainerRequest {
            pod_sandbox_id: sandbox.clone(),
            config: Some(container),
            sandbox_config: Some(config),
        };
        let id = self.runtime.create_container(request(ask)).await?.into_inner().container_id;
        self.runtime.start_container(request(StartContainerRequest { container_id: id.clone() })).await?;
        Ok((sandbox, id))
    }

    async fn stop(mut self, (sandbox, container): (String, String)) -> Result<()> {
        let ask = StopContainerRequest { container_id: container, timeout: GRACE_SECONDS };
        self.runtime.stop_container(request(ask)).await?;
        self.runtime.stop_pod_sandbox(request(StopPodSandboxRequest { pod_sandbox_id: sandbox })).await?;
        Ok(())
    }

    async fn remove(mut self, (sandbox, container): (String, String)) -> Result<()> {
        self.runtime.remove_container(request(RemoveContainerRequest { container_id: container })).await?;
        self.runtime.remove_pod_sandbox(request(RemovePodSandboxRequest { pod_sandbox_id: sandbox })).await?;
        Ok(())
    }

    fn sandbox(&self, number: usize) -> PodSandboxConfig {
        let name = format!("floor-{number}");
        let namespaces = NamespaceOption { pid: NamespaceMode::Container.into(), ..Default::default() };
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: name.clone(),
                uid: name.clone(),
                namespace: "default".into(),
                attempt: 0,
            }),
            hostname: name.clone(),
            log_directory: format!("{}/{name}", self.logs),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: self.cgroup_parent.clone(),
                security_context: Some(LinuxSandboxSecurityContext {
                    namespace_options: Some(namespaces),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }
    }
}

fn request<Q>(message: Q) -> tonic::Request<Q> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(DEADLINE);
    request
}
