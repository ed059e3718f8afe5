//! What containers ask for at their begin and before their end.
//!
//! Neither kind of hook is cut off by a time of its own: who waits for it decides how long. As upstream, any answer to an
//! HTTP hook is a good one, and what a hook printed never goes into an event, since it may hold a secret.

use std::time::Duration;

use crablet_cri::{CriError, Runtime};
use crablet_model::events::Event;
use crablet_model::names::{annotation, event_reason};
use crablet_model::{api, roster};
use tokio::time::{Instant, sleep, timeout};

use crate::events::EventSink;
use crate::handlers::http::{self, HttpAsk, Purpose};
use crate::hands::Operation;
use crate::order::Kind;

/// Upstream never gives a container less.
const MINIMUM_GRACE: Duration = Duration::from_secs(2);
/// A hook that outlives its container's grace goes on, and is forgotten after this long.
const AFTER_THE_GRACE: Duration = Duration::from_secs(120);
/// What a command printed is repeated in the status as far as this.
const MOST_OF_OUTPUT: usize = 8 << 10;

/// What hooks work with: one operation of one pod.
pub(crate) struct Hooks<'a> {
    pub runtime: &'a dyn Runtime,
    pub events: &'a dyn EventSink,
    pub op: &'a Operation,
}

impl Hooks<'_> {
    /// Runs what the container wants to have run at its begin. If that fails, the container is stopped; the error says
    /// what the status tells.
    pub(crate) async fn post_start(&self, container: &api::Container, id: &str) -> Result<(), String> {
        let Some(hook) = container.lifecycle.as_ref().and_then(|l| l.post_start.as_ref()) else {
            return Ok(());
        };
        let Err(message) = self.run_hook(container, id, hook).await else { return Ok(()) };
        self.log_failure(
            &container.name,
            id,
            "the hook after the start of a container failed: it is stopped",
        );
        self.warn(&container.name, event_reason::FAILED_POST_START_HOOK, "PostStartHook failed");
        self.stop_after_failed_hook(container, id).await;
        Err(message)
    }

    /// Runs what the container wants to have run before it is stopped. A failure is told, and changes nothing.
    ///
    /// The container is stopped when `limit` is over, whoever still waits here: a hook that takes longer is not cut off.
    pub(crate) async fn pre_stop(&self, container: &str, id: &str, limit: Duration) {
        let spec = self.op.pod.as_deref().and_then(|pod| pod.spec.as_ref());
        let container = match spec.and_then(|spec| roster::find(spec, container)) {
            Some((_, container)) => container.into_owned(),
            None => self.remembered(container, id).await,
        };
        let _ = timeout(limit.saturating_add(AFTER_THE_GRACE), self.run_pre_stop(&container, id)).await;
    }

    async fn run_pre_stop(&self, container: &api::Container, id: &str) {
        let Some(hook) = pre_stop_of(container) else { return };
        if self.run_hook(container, id, hook).await.is_err() {
            self.log_failure(&container.name, id, "the hook before the end of a container failed");
            self.warn(&container.name, event_reason::FAILED_PRE_STOP_HOOK, "PreStopHook failed");
        }
    }

    /// As much of a container as its hook needs, from what was written on it when it was created: the pod's specification
    /// is gone.
    async fn remembered(&self, name: &str, id: &str) -> api::Container {
        let found = self.runtime.container_status(id).await;
        let annotations = found.map(|container| container.annotations).unwrap_or_default();
        let text = |key: &str| annotations.get(key).map(String::as_str).unwrap_or_default();
        let pre_stop = serde_json::from_str(text(annotation::CONTAINER_PRE_STOP_HANDLER)).ok();
        api::Container {
            name: name.to_owned(),
            ports: serde_json::from_str(text(annotation::CONTAINER_PORTS)).ok(),
            lifecycle: Some(api::Lifecycle { pre_stop, ..api::Lifecycle::default() }),
            ..api::Container::default()
        }
    }

    /// The usual end of a container, all of it here: to the worker the container has not started yet.
    async fn stop_after_failed_hook(&self, container: &api::Container, id: &str) {
        self.tell(&container.name, event_reason::KILLING, event_reason::FAILED_POST_START_HOOK);
        let grace = own_grace(self.op.pod.as_deref());
        let since = Instant::now();
        // Lives until the container is stopped: it is not cut off where it takes longer than the grace.
        let mut hook = std::pin::pin!(self.run_pre_stop(container, id));
        if !grace.is_zero() {
            let _ = timeout(grace, &mut hook).await;
        }
        let passed = Duration::from_secs(since.elapsed().as_secs());
        let left = grace.saturating_sub(passed).max(MINIMUM_GRACE);
        let stopped = self.op.order.pass(Kind::StopContainer, self.runtime.stop_container(id, left)).await;
        if let Err(error) = stopped
            && !error.is_not_found()
        {
            tracing::error!(
                %error, pod = self.op.id.object_ref(), podUID = %self.op.id.uid, containerName = container.name, containerID = id,
                "a container whose hook failed could not be stopped"
            );
        }
    }

    async fn run_hook(
        &self,
        container: &api::Container,
        id: &str,
        hook: &api::LifecycleHandler,
    ) -> Result<(), String> {
        let whose = format!("for Container {:?} in Pod \"{}\"", container.name, self.op.id);
        if let Some(exec) = &hook.exec {
            let command = exec.command.clone().unwrap_or_default();
            return self.run_command(id, &command).await.map_err(|(error, output)| {
                let command = command.join(" ");
                format!(
                    "Exec lifecycle hook ([{command}]) {whose} failed - error: {error}, message: {output:?}"
                )
            });
        }
        if let Some(get) = &hook.http_get {
            return self.ask(container, get).await.map_err(|error| {
                let path = get.path.as_deref().unwrap_or_default();
                format!("HTTP lifecycle hook ({path}) {whose} failed - error: {error}")
            });
        }
        if let Some(pause) = &hook.sleep {
            sleep(Duration::from_secs(pause.seconds.max(0).unsigned_abs())).await;
            return Ok(());
        }
        Err("Cannot run handler: invalid handler: it names neither exec nor httpGet nor sleep".to_owned())
    }

    /// The error, and what the command printed.
    async fn run_command(&self, id: &str, command: &[String]) -> Result<(), (String, String)> {
        let run = self.runtime.exec_sync(id, command, None).await;
        let output = run.map_err(|error| (in_grpc_words(&error), String::new()))?;
        if output.exit_code == 0 {
            return Ok(());
        }
        let stderr = beginning(&output.stderr);
        let error = format!("command '{}' exited with {}: {stderr}", command.join(" "), output.exit_code);
        let printed = [output.stdout, output.stderr].concat();
        Err((error, beginning(&printed)))
    }

    async fn ask(&self, container: &api::Container, get: &api::HTTPGetAction) -> Result<(), String> {
        let host = match get.host.as_deref().filter(|host| !host.is_empty()) {
            Some(host) => host.to_owned(),
            None => self.pod_address().await?,
        };
        let ask = HttpAsk::of(get, container, &host, Purpose::Lifecycle)?;
        let Err(error) = http::call(&ask).await else { return Ok(()) };
        if !error.plain_http_answer || http::call(&ask.over_plain_http()).await.is_err() {
            return Err(error.message);
        }
        let at = ask.host_and_port();
        let text =
            format!("request to HTTPS lifecycle hook {at} got HTTP response, retry with HTTP succeeded");
        self.events.emit(Event::warning(&self.op.id, event_reason::LIFECYCLE_HTTP_FALLBACK, text));
        Ok(())
    }

    /// The address that the runtime gave the newest sandbox. As upstream, one in the host's network has none.
    async fn pod_address(&self) -> Result<String, String> {
        let failed = |error: CriError| {
            format!("unable to get pod status, event handlers may be invalid: {}", in_grpc_words(&error))
        };
        let sandboxes = self.runtime.list_sandboxes(Some(&self.op.id.uid)).await.map_err(failed)?;
        let newest = sandboxes.into_iter().max_by_key(|s| (s.attempt, s.created_at));
        let newest = newest.ok_or("failed to find networking container: the pod has no sandbox")?;
        let sandbox = self.runtime.sandbox_status(&newest.id).await.map_err(failed)?;
        let address = sandbox.ips.first().filter(|_| !sandbox.host_network).map(ToString::to_string);
        address.ok_or_else(|| {
            format!("failed to find networking container: sandbox {} has no address", newest.id)
        })
    }

    /// Without the hook's own words: they may hold a secret.
    fn log_failure(&self, container: &str, id: &str, what: &str) {
        tracing::warn!(
            pod = self.op.id.object_ref(), podUID = %self.op.id.uid, containerName = container, containerID = id,
            "{what}"
        );
    }

    fn tell(&self, container: &str, reason: &'static str, message: &str) {
        self.events.emit(Event::normal(&self.op.id, reason, message).on(self.op.role(container), container));
    }

    fn warn(&self, container: &str, reason: &'static str, message: &str) {
        self.events.emit(Event::warning(&self.op.id, reason, message).on(self.op.role(container), container));
    }
}

fn pre_stop_of(container: &api::Container) -> Option<&api::LifecycleHandler> {
    container.lifecycle.as_ref()?.pre_stop.as_ref()
}

/// What a container has for its end where the pod itself goes on.
fn own_grace(pod: Option<&api::Pod>) -> Duration {
    let deletion = pod.and_then(|pod| pod.metadata.deletion_grace_period_seconds);
    let usual = pod.and_then(|pod| pod.spec.as_ref()?.termination_grace_period_seconds);
    let seconds = deletion.or(usual);
    seconds.map_or(MINIMUM_GRACE, |seconds| Duration::from_secs(seconds.max(0).unsigned_abs()))
}

fn beginning(output: &[u8]) -> String {
    String::from_utf8_lossy(&output[..output.len().min(MOST_OF_OUTPUT)]).into_owned()
}

/// As upstream passes a runtime's errors on.
pub(crate) fn in_grpc_words(error: &CriError) -> String {
    error.with_code()
}

#[cfg(test)]
mod tests;
