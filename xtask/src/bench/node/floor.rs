//! The floor: a bare CRI client that makes the calls which no kubelet can do without, and does nothing else.
//!
//! The messages ask for what kubelets ask for ([`messages`]): a sandbox under the runtime's seccomp profile in a cgroup of
//! its own, a container with masked paths and three mounts. Without those the runtime would have a quarter less to do.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use crablet_protos::cri::runtime_service_client::RuntimeServiceClient;
use crablet_protos::cri::{
    CreateContainerRequest, ListPodSandboxRequest, RemoveContainerRequest, RemovePodSandboxRequest,
    RunPodSandboxRequest, StartContainerRequest, StopContainerRequest, StopPodSandboxRequest,
};
use crablet_testbed::cluster::Cluster;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use self::messages::Messages;
use super::crowd;
use super::machine::Busy;

mod messages;

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
    /// Seconds of CPU of the whole machine until all had started, and while all were stopped.
    pub machine_up: f64,
    pub machine_stopped: f64,
}

#[derive(Clone)]
pub struct Bare {
    runtime: RuntimeServiceClient<Channel>,
    messages: Messages,
    at_once: usize,
}

impl Bare {
    /// Inside a tokio runtime.
    pub fn new(cluster: &Cluster, at_once: usize) -> Bare {
        let socket = cluster.containerd().scratch().socket();
        let connector = tower::service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        let channel = Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector);
        Bare { runtime: RuntimeServiceClient::new(channel), messages: Messages::new(cluster), at_once }
    }

    pub async fn measure(&self, pods: usize) -> Result<Floor> {
        (0..pods).try_for_each(|number| self.messages.prepare(number))?;
        let (busy, started) = (Busy::now(), Instant::now());
        let this = self.clone();
        let made = crowd::each(self.at_once, 0..pods, move |number| this.clone().start(number)).await;
        let made = made.context("a bare CRI client cannot start the pods")?;
        let (up, machine_up) = (started.elapsed(), busy.seconds());
        let (busy, started) = (Busy::now(), Instant::now());
        let this = self.clone();
        crowd::each(self.at_once, made.clone(), move |pod| this.clone().stop(pod)).await?;
        let (stopped, machine_stopped) = (started.elapsed(), busy.seconds());
        let started = Instant::now();
        let this = self.clone();
        crowd::each(self.at_once, made, move |pod| this.clone().remove(pod)).await?;
        Ok(Floor { up, stopped, removed: started.elapsed(), machine_up, machine_stopped })
    }

    /// Removes what a kubelet left, so that the next one begins with nothing; says how much it was.
    pub async fn sweep(&self) -> Result<usize> {
        let list = self.runtime.clone().list_pod_sandbox(request(ListPodSandboxRequest::default())).await?;
        let ids: Vec<String> = list.into_inner().items.into_iter().map(|item| item.id).collect();
        let this = self.clone();
        let gone = crowd::each(crowd::IN_FLIGHT, ids, move |id| {
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
        let config = self.messages.sandbox(number);
        let ask = RunPodSandboxRequest { config: Some(config.clone()), ..Default::default() };
        let sandbox = self.runtime.run_pod_sandbox(request(ask)).await?.into_inner().pod_sandbox_id;
        let ask = CreateContainerRequest {
            pod_sandbox_id: sandbox.clone(),
            config: Some(self.messages.container(number)),
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
}

fn request<Q>(message: Q) -> tonic::Request<Q> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(DEADLINE);
    request
}
