//! Reaching into the containers that run on this node.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use crablet_cri::{CriError, ErrorKind, Runtime, Streams};
use crablet_host::Clock;
use crablet_model::runtime::{ListedState, SandboxState};
use crablet_model::{PodUid, api, roster};
use crablet_pods::view::View;
use crablet_server::{ContainerName, Containers, KnownPod, Refusal};
use serde_json::json;

pub struct ReachedContainers {
    pub view: Arc<View>,
    pub runtime: Arc<dyn Runtime>,
    pub clock: Arc<dyn Clock>,
    /// `<root-dir>/checkpoints`
    pub checkpoints: PathBuf,
}

#[async_trait]
impl Containers for ReachedContainers {
    fn pod(&self, namespace: &str, name: &str) -> Option<KnownPod> {
        let pod = self.spec(namespace, name)?;
        let spec = pod.spec.unwrap_or_default();
        Some(KnownPod {
            uid: pod.metadata.uid.unwrap_or_default(),
            containers: roster::roster(&spec).map(|(_, container)| container.name.clone()).collect(),
        })
    }

    async fn exec(
        &self,
        name: &ContainerName,
        command: &[String],
        streams: Streams,
    ) -> Result<String, Refusal> {
        let id = self.running(name).await?.ok_or_else(|| not_found(&name.container))?;
        self.runtime.exec(&id, command, streams).await.map_err(refused)
    }

    async fn attach(&self, name: &ContainerName, streams: Streams) -> Result<String, Refusal> {
        let full_name = format!("{}_{}", name.pod, name.namespace);
        let missing =
            || Refusal::Failed(format!("container {} not found in pod {full_name}", name.container));
        let id = self.running(name).await?.ok_or_else(missing)?;
        let pod = self.spec(&name.namespace, &name.pod);
        let meant = |pod: &api::Pod| name.uid.is_none() || pod.metadata.uid == name.uid;
        let pod = pod.filter(meant).ok_or_else(|| Refusal::Failed(format!("pod {full_name} not found")))?;
        let tty = has_terminal(&pod, &name.container).ok_or_else(missing)?;
        let streams = Streams { tty, stderr: streams.stderr && !tty, ..streams };
        self.runtime.attach(&id, streams).await.map_err(refused)
    }

    async fn port_forward(&self, namespace: &str, pod: &str, ports: &[u16]) -> Result<String, Refusal> {
        let gone = || Refusal::Failed(format!("pod not found ({:?})", format!("{pod}_{namespace}")));
        let uid = self.uid(namespace, pod).ok_or_else(gone)?;
        let mut sandboxes = self.runtime.list_sandboxes(Some(&uid)).await.map_err(refused)?;
        sandboxes.sort_by(|a, b| b.created_at.cmp(&a.created_at).then_with(|| a.id.cmp(&b.id)));
        let lives = sandboxes.iter().any(|s| s.state == SandboxState::Ready);
        let newest = sandboxes.first().filter(|_| lives).ok_or_else(gone)?;
        self.runtime.port_forward(&newest.id, ports).await.map_err(refused)
    }

    async fn run(&self, name: &ContainerName, command: &[String]) -> Result<Bytes, Refusal> {
        let id = self.running(name).await?.ok_or_else(|| not_found(&name.container))?;
        let output = self.runtime.exec_sync(&id, command, None).await.map_err(refused)?;
        if output.exit_code != 0 {
            let (command, stderr) = (command.join(" "), String::from_utf8_lossy(&output.stderr));
            return Err(Refusal::Failed(format!(
                "command '{command}' exited with {}: {stderr}",
                output.exit_code
            )));
        }
        let mut both = output.stdout;
        both.extend_from_slice(&output.stderr);
        Ok(both.into())
    }

    async fn checkpoint(&self, name: &ContainerName, timeout_seconds: i64) -> Result<String, Refusal> {
        let missing = || Refusal::Failed(format!("container {} not found", name.container));
        let id = self.running(name).await?.ok_or_else(missing)?;
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.checkpoints);
        made.map_err(|e| Refusal::Failed(format!("cannot make {}: {e}", self.checkpoints.display())))?;
        let now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ");
        let file = format!("checkpoint-{}_{}-{}-{now}.tar", name.pod, name.namespace, name.container);
        let path = self.checkpoints.join(file).to_string_lossy().into_owned();
        self.runtime.checkpoint(&id, &path, timeout_seconds).await.map_err(refused)?;
        Ok(path)
    }

    async fn running_pods_json(&self) -> Result<Bytes, Refusal> {
        let mut pods = BTreeMap::new();
        for sandbox in self.runtime.list_sandboxes(None).await.map_err(refused)? {
            if sandbox.state == SandboxState::Ready {
                pods.insert(sandbox.uid, (sandbox.namespace, sandbox.name, Vec::new()));
            }
        }
        for listed in self.runtime.list_containers(None).await.map_err(refused)? {
            if listed.state != ListedState::Running {
                continue;
            }
            let image = match self.runtime.container_status(&listed.id).await {
                Ok(container) => container.image_ref,
                // It ended a moment ago.
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(refused(error)),
            };
            let empty = || (listed.pod_namespace.clone(), listed.pod_name.clone(), Vec::new());
            let (_, _, containers) = pods.entry(listed.uid.clone()).or_insert_with(empty);
            containers.push(json!({"name": listed.name, "image": image, "resources": {}}));
        }
        let items: Vec<_> = pods
            .into_iter()
            .map(|(uid, (namespace, name, containers))| {
                let metadata = json!({"name": name, "namespace": namespace, "uid": uid.to_string()});
                let containers = if containers.is_empty() { json!(null) } else { json!(containers) };
                json!({"metadata": metadata, "spec": {"containers": containers}, "status": {}})
            })
            .collect();
        let items = if items.is_empty() { json!(null) } else { json!(items) };
        let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items});
        Ok(format!("{list}\n").into())
    }
}

impl ReachedContainers {
    fn spec(&self, namespace: &str, name: &str) -> Option<api::Pod> {
        let shown = self.view.find(namespace, name)?;
        serde_json::from_slice(&shown.pod).ok()
    }

    fn uid(&self, namespace: &str, name: &str) -> Option<PodUid> {
        let uid = self.spec(namespace, name)?.metadata.uid?;
        Some(PodUid::new(uid))
    }

    /// The id of the instance that runs now. As upstream, a path's UID is not looked at where the name is known.
    async fn running(&self, name: &ContainerName) -> Result<Option<String>, Refusal> {
        let Some(uid) = self.uid(&name.namespace, &name.pod) else { return Ok(None) };
        let listed = self.runtime.list_containers(Some(&uid)).await.map_err(refused)?;
        let mut running =
            listed.into_iter().filter(|c| c.name == name.container && c.state == ListedState::Running);
        Ok(running.next().map(|c| c.id))
    }
}

/// `None`: the pod has no such container.
fn has_terminal(pod: &api::Pod, container: &str) -> Option<bool> {
    let (_, container) = roster::find(pod.spec.as_ref()?, container)?;
    Some(container.tty.unwrap_or(false))
}

fn not_found(container: &str) -> Refusal {
    Refusal::Failed(format!("container not found ({container:?})"))
}

/// With the code in front, as upstream passes a runtime's errors on.
fn refused(error: CriError) -> Refusal {
    let told = error.with_code();
    match error.kind {
        ErrorKind::NotFound => Refusal::NotFound(told),
        ErrorKind::Exhausted => Refusal::Exhausted(told),
        _ => Refusal::Failed(told),
    }
}
