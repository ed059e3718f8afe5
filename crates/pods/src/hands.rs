//! Carries the actions of plans out. Each call is one operation; dropping it gives the operation up.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crablet_apiserver::{ObjectError, Objects, ServiceView};
use crablet_cri::{CriError, Runtime};
use crablet_host::Files;
use crablet_model::events::Event;
use crablet_model::names::{container_reason, event_reason};
use crablet_model::runtime::{Container, Sandbox};
use crablet_model::{PodRef, api};
use crablet_planner::pod::config::{self, ContainerInputs, EnvObjects, Missing, Placement, Service};
use crablet_planner::pod::status::is_static;
use crablet_planner::pod::{Action, NodeFacts, Outcome, PreparedImage};
use futures_util::FutureExt;
use k8s_openapi::ByteString;
use tokio::task::unconstrained;

use crate::events::EventSink;
use crate::images::{Images, Wanted};
use crate::order::{Kind, Order};
use crate::ports::{PodCgroups, PodVolumes};
use crate::settings::Folders;
use crate::sight::Touched;

const LOG_FOLDER_MODE: u32 = 0o755;
const POD_FOLDER_MODE: u32 = 0o750;
const HOSTS_MODE: u32 = 0o644;
/// Containers of any user write their last words here.
const TERMINATION_FILE_MODE: u32 = 0o666;
const NODE_HOSTS: &str = "/etc/hosts";
const MAX_HOSTS_BYTES: usize = 1 << 20;
const MOST_OF_RESOLV_CONF: usize = 1 << 20;

/// What operations work with. Shared by all workers.
pub struct Hands {
    pub runtime: Arc<dyn Runtime>,
    pub files: Arc<dyn Files>,
    pub images: Arc<Images>,
    pub events: Arc<dyn EventSink>,
    pub folders: Folders,
    /// The node's resolver settings, read anew for each sandbox: other programs change them. `None`: there are none.
    pub resolv_conf: Option<PathBuf>,
    pub volumes: Arc<dyn PodVolumes>,
    pub cgroups: Arc<dyn PodCgroups>,
    pub objects: Arc<dyn Objects>,
}

/// One operation: an action, and what was known when it was decided.
pub(crate) struct Operation {
    pub id: PodRef,
    pub pod: Option<Arc<api::Pod>>,
    pub node: Arc<NodeFacts>,
    pub action: Action,
    /// What the worker knows of the thing that the action works on.
    pub seen: Seen,
    /// Makes the names of files unique: drawn by the worker from its seeded generator.
    pub token: u32,
    pub order: Arc<Order>,
}

/// Saves calls: what is not known is asked for.
pub(crate) enum Seen {
    Nothing,
    /// In which a container starts.
    Sandbox(Box<Sandbox>),
    /// That is to be removed.
    Container(Box<Container>),
    /// The sandbox to be removed was stopped by this agent.
    Stopped,
}

/// How an operation ended, and what in the runtime is no longer as it was seen.
pub(crate) struct Performed {
    pub outcome: Outcome,
    pub touched: Touched,
}

impl Hands {
    pub(crate) async fn perform(&self, op: Operation) -> Performed {
        let mut made = None;
        let outcome = self.outcome(&op, &mut made).await;
        let touched = touched(&op.action, &outcome, made);
        Performed { outcome, touched }
    }

    /// `made` gets the id of a sandbox that was created or of a container that was started.
    async fn outcome(&self, op: &Operation, made: &mut Option<String>) -> Outcome {
        match &op.action {
            Action::CreateSandbox { attempt } => self.create_sandbox(op, *attempt, made).await,
            Action::StopSandbox { id } => {
                op.order.pass(Kind::StopSandbox, self.stop_sandbox(&op.id, id)).await
            }
            Action::RemoveSandbox { id } => self.remove_sandbox(op, id).await,
            Action::EnsureImage { container, image, policy } => {
                let sandbox = op
                    .pod
                    .as_deref()
                    .and_then(|p| config::sandbox_config(p, &op.node, 0, &Placement::default()).ok());
                let sandbox = sandbox.as_ref().map(|(config, _)| config);
                self.images.ensure(Wanted { pod: &op.id, container, image, policy: *policy, sandbox }).await
            }
            Action::StartContainer { container, attempt, sandbox_id, image } => {
                match self.start_container(op, container, *attempt, sandbox_id, image).await {
                    Ok(id) => {
                        *made = Some(id);
                        Outcome::ContainerStarted { container: container.clone() }
                    }
                    Err(refusal) => self.start_failed(&op.id, container, refusal),
                }
            }
            Action::StartCreated { container, id } => match self.start_created(&op.id, container, id).await {
                Ok(()) => {
                    *made = Some(id.clone());
                    Outcome::ContainerStarted { container: container.clone() }
                }
                Err(refusal) => self.start_failed(&op.id, container, refusal),
            },
            Action::StopContainer { container, id, grace, message } => {
                let stop = self.stop_container(&op.id, container, id, *grace, message);
                op.order.pass(Kind::StopContainer, stop).await
            }
            Action::RemoveContainer { container, id } => self.remove_container(op, container, id).await,
            Action::TakeOver => match self.take_over(op).await {
                Ok(()) => Outcome::TakenOver,
                Err(message) => Outcome::TakeOverFailed { message },
            },
            Action::Release => match self.release(&op.id).await {
                Ok(()) => Outcome::Released,
                Err(message) => Outcome::ReleaseFailed { message },
            },
            Action::Cleanup => match self.clean_up(&op.id).await {
                Ok(()) => Outcome::Cleaned,
                Err(message) => Outcome::CleanupFailed { message },
            },
        }
    }

    async fn create_sandbox(&self, op: &Operation, attempt: u32, made: &mut Option<String>) -> Outcome {
        let Some(pod) = op.pod.as_deref() else {
            return Outcome::SandboxFailed { message: "the pod has no specification".to_owned() };
        };
        if let Err(message) = self.make_ready(op, pod).await {
            return Outcome::SandboxFailed { message };
        }
        match self.run_sandbox(op, pod, attempt).await {
            Ok(id) => {
                *made = Some(id);
                Outcome::SandboxCreated
            }
            Err(message) => {
                let text = format!("Failed to create pod sandbox: {message}");
                self.events.emit(Event::warning(&op.id, event_reason::FAILED_CREATE_POD_SANDBOX, text));
                Outcome::SandboxFailed { message }
            }
        }
    }

    /// What a pod needs before its sandbox: its cgroup, its folders, its volumes. Says by itself what goes wrong.
    async fn make_ready(&self, op: &Operation, pod: &api::Pod) -> Result<(), String> {
        if let Err(error) = self.cgroups.ensure(pod).await {
            let text = format!("unable to ensure pod container exists: {error}");
            self.events.emit(Event::warning(&op.id, event_reason::FAILED_CREATE_POD_CONTAINER, text.clone()));
            return Err(text);
        }
        let folder = self.folders.pod(&op.id);
        let of_volumes = ["volumes", "plugins"].map(|name| (folder.join(name), POD_FOLDER_MODE));
        let folders = [(folder, POD_FOLDER_MODE), (self.folders.logs(&op.id), LOG_FOLDER_MODE)];
        for (path, mode) in folders.into_iter().chain(of_volumes) {
            if let Err(error) = self.files.create_folder(&path, mode).await {
                let text = format!("error making pod data directories: {}: {error}", path.display());
                self.events.emit(Event::warning(
                    &op.id,
                    event_reason::FAILED_TO_MAKE_DIRECTORIES,
                    text.clone(),
                ));
                return Err(text);
            }
        }
        self.volumes.set_up(pod).await.map(drop)
    }

    async fn take_over(&self, op: &Operation) -> Result<(), String> {
        let pod = op.pod.as_deref().ok_or("the pod has no specification")?;
        self.cgroups.ensure(pod).await?;
        self.volumes.set_up(pod).await.map(drop)
    }

    async fn run_sandbox(&self, op: &Operation, pod: &api::Pod, attempt: u32) -> Result<String, String> {
        let placement = self.placement(pod).await?;
        let node = self.node_now(&op.node).await?;
        let made = config::sandbox_config(pod, &node, attempt, &placement);
        let (config, events) = made.map_err(|e| e.to_string())?;
        events.into_iter().for_each(|event| self.events.emit(event));
        op.order.pass(Kind::RunSandbox, self.runtime.run_sandbox(&config)).await.map_err(|e| e.message)
    }

    /// The node with its resolver settings of this moment.
    async fn node_now(&self, node: &NodeFacts) -> Result<NodeFacts, String> {
        let resolv_conf = match &self.resolv_conf {
            Some(path) => {
                let text = self.files.read(path, MOST_OF_RESOLV_CONF).await.map_err(|error| {
                    let why = error.to_string();
                    let why = why.split(" (os error").next().unwrap_or_default().to_lowercase();
                    format!("open {}: {why}", path.display())
                })?;
                config::parse_resolv_conf(&String::from_utf8_lossy(&text))
            }
            None => config::ResolvConf::default(),
        };
        Ok(NodeFacts { resolv_conf, ..node.clone() })
    }

    async fn placement(&self, pod: &api::Pod) -> Result<Placement, String> {
        let class = pod.spec.as_ref().and_then(|s| s.runtime_class_name.as_deref());
        let runtime_handler = match class.filter(|class| !class.is_empty()) {
            Some(class) => self.objects.runtime_handler(class).await.map_err(|e| e.to_string())?,
            None => String::new(),
        };
        Ok(Placement { cgroup_parent: self.cgroups.parent(pod).await?, runtime_handler })
    }

    async fn stop_sandbox(&self, pod: &PodRef, id: &str) -> Outcome {
        match gone_is_fine(self.runtime.stop_sandbox(id).await) {
            Ok(()) => Outcome::SandboxStopped { id: id.to_owned() },
            Err(error) => self.teardown_failed(pod, id, &error),
        }
    }

    /// Stops first: a sandbox that died by itself may still hold its network.
    async fn remove_sandbox(&self, op: &Operation, id: &str) -> Outcome {
        let stopped = match op.seen {
            Seen::Stopped => Ok(()),
            _ => gone_is_fine(self.runtime.stop_sandbox(id).await),
        };
        let removed = match stopped {
            Ok(()) => gone_is_fine(self.runtime.remove_sandbox(id).await),
            Err(error) => Err(error),
        };
        match removed {
            Ok(()) => Outcome::SandboxRemoved,
            Err(error) => self.teardown_failed(&op.id, id, &error),
        }
    }

    async fn start_container(
        &self,
        op: &Operation,
        name: &str,
        attempt: u32,
        sandbox_id: &str,
        image: &PreparedImage,
    ) -> Result<String, StartRefusal> {
        let pod = op.pod.as_deref().ok_or_else(|| config_error("the pod has no specification"))?;
        let spec = pod.spec.as_ref().and_then(|s| s.containers.iter().find(|c| c.name == name));
        let container = spec.ok_or_else(|| config_error("the pod's specification does not name it"))?;
        let sandbox = match &op.seen {
            Seen::Sandbox(sandbox) => (**sandbox).clone(),
            _ => self.runtime.sandbox_status(sandbox_id).await.map_err(|e| config_error(&e.message))?,
        };
        let placement = self.placement(pod).await.map_err(|e| config_error(&e))?;
        let node = self.node_now(&op.node).await.map_err(|e| config_error(&e))?;
        let (sandbox_config, _) = config::sandbox_config(pod, &node, sandbox.attempt, &placement)
            .map_err(|e| config_error(&e.to_string()))?;
        let pod_ips = if sandbox.host_network { op.node.host_ips.clone() } else { sandbox.ips };

        let etc_hosts = self.write_hosts(op, pod, &pod_ips, sandbox.host_network).await?;
        let termination_file = self.make_termination_file(op, container).await?;
        let volumes = self.volumes.set_up(pod).await.map_err(|e| config_error(&e))?;
        let objects = self.env_objects(pod, container).await?;
        let mut inputs = ContainerInputs {
            objects: &objects,
            volumes: &volumes,
            sub_paths: &BTreeMap::new(),
            pod,
            container,
            attempt,
            image,
            node: &op.node,
            pod_ips: &pod_ips,
            etc_hosts: etc_hosts.as_deref(),
            termination_file: termination_file.as_deref(),
        };
        let sub_paths = self.sub_paths(&op.id, &inputs).await?;
        inputs.sub_paths = &sub_paths;
        let config = config::container_config(&inputs).map_err(|e| config_error(&e.to_string()))?;
        let log_folder = self.folders.container_log(&op.id, name);
        let made = self.files.create_folder(&log_folder, LOG_FOLDER_MODE).await;
        made.map_err(|e| config_error(&format!("create {}: {e}", log_folder.display())))?;

        let start = async {
            let created = self.runtime.create_container(sandbox_id, &config, &sandbox_config).await;
            let id = created.map_err(|e| StartRefusal {
                reason: container_reason::CREATE_CONTAINER_ERROR,
                message: e.message,
            })?;
            self.tell(&op.id, name, event_reason::CREATED, "Container created");
            self.start_instance(&op.id, name, &id).await.map(|()| id)
        };
        let id = op.order.pass(Kind::StartContainer, start).await?;
        let log = Path::new(&sandbox_config.log_directory).join(&config.log_path);
        self.link_log(&op.id, name, &id, &log).await;
        Ok(id)
    }

    async fn sub_paths(
        &self,
        id: &PodRef,
        inputs: &ContainerInputs<'_>,
    ) -> Result<BTreeMap<usize, String>, StartRefusal> {
        let mut found = BTreeMap::new();
        for wanted in config::sub_paths(inputs).map_err(|e| config_error(&e.to_string()))? {
            let container = &inputs.container.name;
            let made = self.volumes.sub_path(id, container, &wanted).await;
            let path = made.map_err(|error| {
                tracing::warn!(
                    error, volume = wanted.volume, subPath = wanted.path, pod = id.object_ref(), podUID = %id.uid,
                    "cannot make a part of a volume ready"
                );
                let volume = &wanted.volume;
                config_error(&format!(
                    "failed to prepare subPath for volumeMount {volume:?} of container {container:?}"
                ))
            })?;
            found.insert(wanted.index, path);
        }
        Ok(found)
    }

    /// What the container's environment takes from the cluster.
    async fn env_objects(
        &self,
        pod: &api::Pod,
        container: &api::Container,
    ) -> Result<EnvObjects, StartRefusal> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let wanted = config::env_references(container);
        let mut objects = EnvObjects::default();
        for name in wanted.config_maps {
            let found = self.objects.config_map(namespace, &name).await;
            let data = found.map(|map| map.data.clone().unwrap_or_default()).map_err(missing);
            objects.config_maps.insert(name, data);
        }
        for name in wanted.secrets {
            let found = self.objects.secret(namespace, &name).await;
            let text =
                |(key, bytes): (&String, &ByteString)| (key.clone(), String::from_utf8(bytes.0.clone()).ok());
            let data = found.map(|secret| secret.data.iter().flatten().map(text).collect()).map_err(missing);
            objects.secrets.insert(name, data);
        }
        let links = pod.spec.as_ref().and_then(|s| s.enable_service_links).unwrap_or(true);
        let services = self.objects.services(namespace);
        let services = match is_static(pod) {
            // As upstream, a static pod does not wait for the API server: it is told of the services that are known.
            true => unconstrained(services).now_or_never().and_then(Result::ok).unwrap_or_default(),
            false => services.await.map_err(|e| config_error(&e.to_string()))?,
        };
        let told: Vec<Service> = services
            .into_iter()
            .filter(|s| links && &*s.namespace == namespace || is_master(s))
            .map(|s| Service {
                name: s.name.to_string(),
                cluster_ip: s.cluster_ip,
                ports: s.ports.into_iter().map(|p| (p.name, p.protocol, p.port)).collect(),
            })
            .collect();
        objects.services = config::service_env(&told);
        Ok(objects)
    }

    async fn start_instance(&self, pod: &PodRef, name: &str, id: &str) -> Result<(), StartRefusal> {
        self.runtime.start_container(id).await.map_err(|e| StartRefusal {
            reason: container_reason::RUN_CONTAINER_ERROR,
            // Ids mean nothing to the reader of an event, and differ with every try.
            message: e.message.replace(id, name),
        })?;
        self.tell(pod, name, event_reason::STARTED, "Container started");
        Ok(())
    }

    /// Starts what an earlier life of the agent created: where its log lies, the runtime knows.
    async fn start_created(&self, pod: &PodRef, name: &str, id: &str) -> Result<(), StartRefusal> {
        self.start_instance(pod, name, id).await?;
        if let Ok(container) = self.runtime.container_status(id).await {
            self.link_log(pod, name, id, Path::new(&container.log_path)).await;
        }
        Ok(())
    }

    /// A link for log shippers. They can live without one, so a failure is only said.
    async fn link_log(&self, pod: &PodRef, name: &str, id: &str, log: &Path) {
        let link = self.folders.container_logs.join(config::log_link_name(pod, name, id));
        let made = match self.files.create_folder(&self.folders.container_logs, LOG_FOLDER_MODE).await {
            Ok(()) => self.files.link(log, &link).await,
            Err(error) => Err(error),
        };
        if let Err(error) = made {
            tracing::warn!(
                link = %link.display(), %error, pod = pod.object_ref(), podUID = %pod.uid, containerName = name,
                "could not link a container's log"
            );
        }
    }

    async fn write_hosts(
        &self,
        op: &Operation,
        pod: &api::Pod,
        pod_ips: &[IpAddr],
        host_network: bool,
    ) -> Result<Option<String>, StartRefusal> {
        if pod_ips.is_empty() && !host_network {
            return Ok(None);
        }
        let node_hosts = match host_network {
            true => Some(self.node_hosts().await?),
            false => None,
        };
        let text = config::hosts_file(pod, pod_ips, &op.node, node_hosts.as_deref())
            .map_err(|e| config_error(&e.to_string()))?;
        let path = self.folders.pod(&op.id).join("etc-hosts");
        self.write(&path, text.as_bytes(), HOSTS_MODE).await?;
        Ok(Some(path.to_string_lossy().into_owned()))
    }

    /// A pod in the host's network sees the host's names. Without them it does not start: it would not find its peers.
    async fn node_hosts(&self) -> Result<String, StartRefusal> {
        let bytes = self.files.read(Path::new(NODE_HOSTS), MAX_HOSTS_BYTES).await;
        let bytes = bytes.map_err(|e| config_error(&format!("cannot read {NODE_HOSTS}: {e}")))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    async fn make_termination_file(
        &self,
        op: &Operation,
        container: &api::Container,
    ) -> Result<Option<String>, StartRefusal> {
        if container.termination_message_path.as_deref().unwrap_or_default().is_empty() {
            return Ok(None);
        }
        let folder = self.folders.pod(&op.id).join("containers").join(&container.name);
        let made = self.files.create_folder(&folder, POD_FOLDER_MODE).await;
        made.map_err(|e| config_error(&format!("create {}: {e}", folder.display())))?;
        let path = folder.join(format!("{:08x}", op.token));
        self.write(&path, b"", TERMINATION_FILE_MODE).await?;
        Ok(Some(path.to_string_lossy().into_owned()))
    }

    async fn write(&self, path: &Path, content: &[u8], mode: u32) -> Result<(), StartRefusal> {
        let written = self.files.write_in_place(path, content, mode).await;
        written.map_err(|e| config_error(&format!("write {}: {e}", path.display())))
    }

    fn start_failed(&self, pod: &PodRef, container: &str, refusal: StartRefusal) -> Outcome {
        let text = format!("Error: {}", refusal.message);
        self.events.emit(Event::warning(pod, event_reason::FAILED, text).on_container(container));
        let StartRefusal { reason, message } = refusal;
        Outcome::StartFailed { container: container.to_owned(), reason, message }
    }

    async fn stop_container(
        &self,
        pod: &PodRef,
        container: &str,
        id: &str,
        grace: Duration,
        message: &str,
    ) -> Outcome {
        self.tell(pod, container, event_reason::KILLING, message);
        match gone_is_fine(self.runtime.stop_container(id, grace).await) {
            Ok(()) => Outcome::ContainerStopped { id: id.to_owned() },
            Err(error) => self.teardown_failed(pod, id, &error),
        }
    }

    /// Logs and links first: once the runtime has forgotten the container, nobody knows what they belong to.
    async fn remove_container(&self, op: &Operation, name: &str, id: &str) -> Outcome {
        let pod = &op.id;
        let container = match &op.seen {
            Seen::Container(container) => Some((**container).clone()),
            _ => self.runtime.container_status(id).await.ok(),
        };
        if let Some(container) = container {
            self.remove_logs(pod, name, container.restart_count).await;
            if let Some(path) = container.termination_file
                && Folders::is_below(Path::new(&path), &self.folders.pod(pod))
            {
                self.remove_file(Path::new(&path)).await;
            }
        }
        self.remove_file(&self.folders.container_logs.join(config::log_link_name(pod, name, id))).await;
        match gone_is_fine(self.runtime.remove_container(id).await) {
            Ok(()) => Outcome::ContainerRemoved { id: id.to_owned() },
            Err(error) => self.teardown_failed(pod, id, &error),
        }
    }

    /// `<n>.log` and what rotation made of it.
    async fn remove_logs(&self, pod: &PodRef, container: &str, attempt: u32) {
        let folder = self.folders.container_log(pod, container);
        let log = format!("{attempt}.log");
        let entries = match self.files.list(&folder).await {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => {
                let folder = folder.display();
                tracing::warn!(%folder, %error, "could not look for the logs of a removed container; they stay until the pod goes");
                return;
            }
        };
        for entry in entries {
            let rotated =
                entry.name.strip_prefix(&log).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
            if rotated {
                self.remove_file(&folder.join(&entry.name)).await;
            }
        }
    }

    async fn remove_file(&self, path: &Path) {
        if let Err(error) = self.files.remove_file(path).await {
            tracing::warn!(path = %path.display(), %error, "could not remove a file of a removed container");
        }
    }

    /// Volumes before the cgroup: a process that is left over may keep a volume busy, and is killed with the cgroup the
    /// next time.
    async fn release(&self, pod: &PodRef) -> Result<(), String> {
        let unmounted = self.volumes.tear_down(pod).await;
        let removed = self.cgroups.remove(&pod.uid).await;
        unmounted.and(removed)
    }

    async fn clean_up(&self, pod: &PodRef) -> Result<(), String> {
        self.release(pod).await?;
        self.remove_folders(pod).await.map_err(|error| error.to_string())
    }

    /// The pod's links, logs and folder, the record last: until then a restarted agent finds the rest by it.
    async fn remove_folders(&self, pod: &PodRef) -> std::io::Result<()> {
        let logs = self.folders.logs(pod);
        let prefix = format!("{}_{}_", pod.name, pod.namespace);
        let links = match self.files.list(&self.folders.container_logs).await {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            listed => listed?,
        };
        for entry in links.iter().filter(|e| e.name.starts_with(&prefix)) {
            let link = self.folders.container_logs.join(&entry.name);
            if self.files.read_link(&link).await?.is_some_and(|target| target.starts_with(&logs)) {
                self.files.remove_file(&link).await?;
            }
        }
        self.files.remove_tree(&logs).await?;
        self.files.remove_tree(&self.folders.pod(pod)).await
    }

    fn teardown_failed(&self, pod: &PodRef, id: &str, error: &CriError) -> Outcome {
        let text = format!("error killing pod: {error}");
        self.events.emit(Event::warning(pod, event_reason::FAILED_KILL_POD, text));
        Outcome::TeardownFailed { id: id.to_owned(), message: error.message.clone() }
    }

    fn tell(&self, pod: &PodRef, container: &str, reason: &'static str, message: &str) {
        self.events.emit(Event::normal(pod, reason, message).on_container(container));
    }
}

/// What an operation has changed in the runtime, by how it ended.
fn touched(action: &Action, outcome: &Outcome, made: Option<String>) -> Touched {
    match (action, outcome) {
        (Action::CreateSandbox { .. }, Outcome::SandboxCreated) => {
            made.map_or(Touched::Unknown, Touched::Sandbox)
        }
        (_, Outcome::ContainerStarted { .. }) => made.map_or(Touched::Unknown, Touched::Container),
        (Action::StopSandbox { id }, Outcome::SandboxStopped { .. }) => Touched::Sandbox(id.clone()),
        (Action::StopContainer { id, .. }, Outcome::ContainerStopped { .. }) => {
            Touched::Container(id.clone())
        }
        (Action::RemoveSandbox { id }, Outcome::SandboxRemoved) => Touched::SandboxGone(id.clone()),
        (_, Outcome::ContainerRemoved { id }) => Touched::ContainerGone(id.clone()),
        (Action::EnsureImage { .. } | Action::TakeOver | Action::Release | Action::Cleanup, _) => {
            Touched::Nothing
        }
        _ => Touched::Unknown,
    }
}

struct StartRefusal {
    reason: &'static str,
    message: String,
}

/// The service by which pods find the API server; every pod is told of it.
fn is_master(service: &ServiceView) -> bool {
    &*service.namespace == "default" && &*service.name == "kubernetes"
}

fn missing(error: ObjectError) -> Missing {
    match error {
        ObjectError::NotFound(text) => Missing::NotThere(text),
        ObjectError::Unavailable(text) => Missing::Unknown(text),
    }
}

fn config_error(message: &str) -> StartRefusal {
    StartRefusal { reason: container_reason::CREATE_CONTAINER_CONFIG_ERROR, message: message.to_owned() }
}

/// What is asked to go and is not there has gone.
fn gone_is_fine(result: Result<(), CriError>) -> Result<(), CriError> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}
