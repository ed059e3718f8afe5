//! Calls that reach into running containers.

use std::time::Duration;

use crablet_protos::cri as wire;

use super::{CriClient, set};
use crate::port::{CommandOutput, Result, Streams};

/// The file is written by another program under the runtime, which has to notice its own deadline first.
const CHECKPOINT_MARGIN: Duration = Duration::from_secs(10);

impl CriClient {
    pub(super) async fn run_command(
        &self,
        id: &str,
        command: &[String],
        timeout: Option<Duration>,
    ) -> Result<CommandOutput> {
        // The runtime counts whole seconds, and takes 0 for "no limit".
        let seconds = timeout.map_or(0, |t| t.as_secs().max(1));
        let request = wire::ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: command.to_vec(),
            timeout: i64::try_from(seconds).unwrap_or(i64::MAX),
        };
        // The runtime kills the command at its deadline and then answers: it gets the time of a usual call for that.
        let deadline = timeout.map(|t| t.saturating_add(self.timeouts.request));
        let reply = self
            .connection
            .call(deadline, request, |mut to, q| async move { to.runtime.exec_sync(q).await })
            .await?;
        Ok(CommandOutput { stdout: reply.stdout, stderr: reply.stderr, exit_code: reply.exit_code })
    }

    pub(super) async fn exec_address(
        &self,
        id: &str,
        command: &[String],
        streams: Streams,
    ) -> Result<String> {
        let request = wire::ExecRequest {
            container_id: id.to_owned(),
            cmd: command.to_vec(),
            tty: streams.tty,
            stdin: streams.stdin,
            stdout: streams.stdout,
            stderr: streams.stderr,
        };
        let reply = self
            .connection
            .call(self.usual(), request, |mut to, q| async move { to.runtime.exec(q).await })
            .await?;
        set(reply.url, || "URL".to_owned())
    }

    pub(super) async fn attach_address(&self, id: &str, streams: Streams) -> Result<String> {
        let request = wire::AttachRequest {
            container_id: id.to_owned(),
            stdin: streams.stdin,
            tty: streams.tty,
            stdout: streams.stdout,
            stderr: streams.stderr,
        };
        let reply = self
            .connection
            .call(self.usual(), request, |mut to, q| async move { to.runtime.attach(q).await })
            .await?;
        set(reply.url, || "URL".to_owned())
    }

    pub(super) async fn forward_address(&self, sandbox_id: &str, ports: &[u16]) -> Result<String> {
        let request = wire::PortForwardRequest {
            pod_sandbox_id: sandbox_id.to_owned(),
            port: ports.iter().copied().map(i32::from).collect(),
        };
        let reply = self
            .connection
            .call(self.usual(), request, |mut to, q| async move { to.runtime.port_forward(q).await })
            .await?;
        set(reply.url, || "URL".to_owned())
    }

    pub(super) async fn write_checkpoint(&self, id: &str, location: &str, timeout: i64) -> Result<()> {
        let request = wire::CheckpointContainerRequest {
            container_id: id.to_owned(),
            location: location.to_owned(),
            timeout,
        };
        let asked = u64::try_from(timeout).ok().filter(|t| *t > 0).map(Duration::from_secs);
        let deadline = match asked {
            Some(asked) => asked.saturating_add(CHECKPOINT_MARGIN),
            None => self.timeouts.request,
        };
        self.connection
            .call(
                Some(deadline),
                request,
                |mut to, q| async move { to.runtime.checkpoint_container(q).await },
            )
            .await
            .map(drop)
    }
}
