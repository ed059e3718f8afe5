//! The files of a container: its hosts file, where it leaves its last words, the link to its log.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::Path;

use crablet_model::{PodRef, api};
use crablet_planner::pod::config;

use super::{Hands, LOG_FOLDER_MODE, Operation, POD_FOLDER_MODE, StartRefusal, config_error};

const HOSTS_MODE: u32 = 0o644;
/// Containers of any user write their last words here.
const TERMINATION_FILE_MODE: u32 = 0o666;
const NODE_HOSTS: &str = "/etc/hosts";
const MAX_HOSTS_BYTES: usize = 1 << 20;

impl Hands {
    /// A link for log shippers. They can live without one, so a failure is only said.
    pub(super) async fn link_log(&self, pod: &PodRef, name: &str, id: &str, log: &Path) {
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

    pub(super) async fn write_hosts(
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

    pub(super) async fn make_termination_file(
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
        let mut written = self.files.write_in_place(path, content, mode).await;
        // A runtime that came back late to an earlier pod of this UID made folders of what it was to mount.
        if written.as_ref().is_err_and(|e| e.kind() == ErrorKind::IsADirectory) {
            written = self.files.remove_tree(path).await;
            if written.is_ok() {
                written = self.files.write_in_place(path, content, mode).await;
            }
        }
        written.map_err(|e| config_error(&format!("write {}: {e}", path.display())))
    }
}
