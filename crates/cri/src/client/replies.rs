//! From the wire to `crablet_model::runtime`.
//!
//! A runtime may send anything: numbers that no enum has, times before 1970, no metadata. What is missing becomes empty,
//! what is unknown becomes the harmless variant, as upstream does it.

use std::net::IpAddr;

use crablet_model::PodUid;
use crablet_model::names::{annotation, label};
use crablet_model::paths::clean_from_root;
use crablet_model::runtime::{
    Container, ContainerListing, ContainerState, ContainerUser, Exit, Image, Incoming, LinuxResources,
    ListedImage, ListedState, Map, RuntimeHandler, RuntimeStatus, RuntimeVersion, Sandbox, SandboxState,
};
use crablet_protos::{content, cri as wire};
use jiff::Timestamp;

use super::signals;

const RUNTIME_READY: &str = "RuntimeReady";
const NETWORK_READY: &str = "NetworkReady";

pub fn version(reply: wire::VersionResponse) -> RuntimeVersion {
    RuntimeVersion {
        runtime_name: reply.runtime_name,
        runtime_version: reply.runtime_version,
        api_version: reply.runtime_api_version,
    }
}

pub fn status(reply: wire::StatusResponse) -> RuntimeStatus {
    let conditions = reply.status.unwrap_or_default().conditions;
    let [problem, network_problem] = [RUNTIME_READY, NETWORK_READY].map(|name| judge(&conditions, name));
    RuntimeStatus {
        problem,
        network_problem,
        handlers: reply.runtime_handlers.into_iter().map(handler).collect(),
        supplemental_groups_policy: reply.features.map(|features| features.supplemental_groups_policy),
    }
}

pub fn handler(handler: wire::RuntimeHandler) -> RuntimeHandler {
    let features = handler.features.unwrap_or_default();
    RuntimeHandler {
        name: handler.name,
        user_namespaces: features.user_namespaces,
        recursive_read_only_mounts: features.recursive_read_only_mounts,
    }
}

pub fn listed_image(image: wire::Image) -> ListedImage {
    ListedImage { id: image.id, tags: image.repo_tags, digests: image.repo_digests, size: image.size }
}

/// Worded as upstream prints a condition: node conditions and events show it.
fn judge(conditions: &[wire::RuntimeCondition], name: &str) -> Option<String> {
    match conditions.iter().find(|condition| condition.r#type == name) {
        Some(condition) if condition.status => None,
        Some(condition) => {
            Some(format!("{name}=false reason:{} message:{}", condition.reason, condition.message))
        }
        None => Some(format!("{name} is not reported")),
    }
}

pub fn listed_sandbox(sandbox: wire::PodSandbox) -> Sandbox {
    let uid = PodUid::new(pod_uid(sandbox.metadata.as_ref(), &sandbox.labels));
    let metadata = sandbox.metadata.unwrap_or_default();
    Sandbox {
        id: sandbox.id,
        uid,
        name: metadata.name,
        namespace: metadata.namespace,
        attempt: metadata.attempt,
        state: sandbox_state(sandbox.state),
        created_at: time(sandbox.created_at),
        ips: Vec::new(),
        host_network: false,
    }
}

pub fn sandbox(status: wire::PodSandboxStatus) -> Sandbox {
    let uid = PodUid::new(pod_uid(status.metadata.as_ref(), &status.labels));
    let metadata = status.metadata.unwrap_or_default();
    let options = status.linux.and_then(|linux| linux.namespaces).and_then(|namespaces| namespaces.options);
    Sandbox {
        id: status.id,
        uid,
        name: metadata.name,
        namespace: metadata.namespace,
        attempt: metadata.attempt,
        state: sandbox_state(status.state),
        created_at: time(status.created_at),
        ips: status.network.and_then(|network| addresses(&network)).unwrap_or_default(),
        host_network: options.is_some_and(|options| options.network == wire::NamespaceMode::Node as i32),
    }
}

/// One address that cannot be read makes all of them untrustworthy, as upstream has it.
fn addresses(network: &wire::PodSandboxNetworkStatus) -> Option<Vec<IpAddr>> {
    let primary = Some(&network.ip).filter(|ip| !ip.is_empty());
    let additional = network.additional_ips.iter().map(|additional| &additional.ip);
    primary.into_iter().chain(additional).map(|ip| ip.parse().ok()).collect()
}

pub fn listed_container(container: wire::Container) -> ContainerListing {
    let from_label = |name| text(&container.labels, name).to_owned();
    ContainerListing {
        uid: PodUid::new(text(&container.labels, label::POD_UID)),
        pod_name: from_label(label::POD_NAME),
        pod_namespace: from_label(label::POD_NAMESPACE),
        name: from_label(label::CONTAINER_NAME),
        state: match wire::ContainerState::try_from(container.state) {
            Ok(wire::ContainerState::ContainerCreated) => ListedState::Created,
            Ok(wire::ContainerState::ContainerRunning) => ListedState::Running,
            Ok(wire::ContainerState::ContainerExited) => ListedState::Exited,
            Ok(wire::ContainerState::ContainerUnknown) | Err(_) => ListedState::Unknown,
        },
        created_at: time(container.created_at),
        id: container.id,
        sandbox_id: container.pod_sandbox_id,
    }
}

pub fn container(status: wire::ContainerStatus, sandbox_id: String) -> Container {
    let hash = text(&status.annotations, annotation::CONTAINER_HASH).to_owned();
    let restarts = text(&status.annotations, annotation::CONTAINER_RESTART_COUNT);
    Container {
        stop_signal: signals::name(status.stop_signal),
        sandbox_id,
        uid: PodUid::new(text(&status.labels, label::POD_UID)),
        name: text(&status.labels, label::CONTAINER_NAME).to_owned(),
        restart_count: restarts.parse().unwrap_or(0),
        hash,
        created_at: time(status.created_at),
        termination_file: termination_file(&status),
        state: container_state(&status),
        image: status.image.unwrap_or_default().image,
        image_ref: if status.image_ref.is_empty() { status.image_id } else { status.image_ref },
        id: status.id,
        annotations: status.annotations,
        log_path: status.log_path,
        user: status.user.and_then(|user| user.linux).map(user),
        resources: status.resources.and_then(|all| all.linux).as_ref().map(resources),
    }
}

fn resources(numbers: &wire::LinuxContainerResources) -> LinuxResources {
    LinuxResources {
        cpu_shares: numbers.cpu_shares,
        cpu_quota: numbers.cpu_quota,
        cpu_period: numbers.cpu_period,
        memory_limit: numbers.memory_limit_in_bytes,
        oom_score_adj: numbers.oom_score_adj,
        oom_group: numbers.unified.get("memory.oom.group").is_some_and(|value| value == "1"),
    }
}

pub fn memory_usage(reply: wire::ContainerStatsResponse) -> Option<u64> {
    reply.stats?.memory?.usage_bytes.map(|bytes| bytes.value)
}

fn container_state(status: &wire::ContainerStatus) -> ContainerState {
    match wire::ContainerState::try_from(status.state) {
        Ok(wire::ContainerState::ContainerCreated) => ContainerState::Created,
        Ok(wire::ContainerState::ContainerRunning) => {
            ContainerState::Running { started_at: time(status.started_at) }
        }
        Ok(wire::ContainerState::ContainerExited) => ContainerState::Exited(Exit {
            code: status.exit_code,
            reason: status.reason.clone(),
            message: status.message.clone(),
            // Zero: it never started.
            started_at: Some(status.started_at).filter(|nanoseconds| *nanoseconds != 0).map(time),
            finished_at: time(status.finished_at),
        }),
        Ok(wire::ContainerState::ContainerUnknown) | Err(_) => ContainerState::Unknown,
    }
}

fn termination_file(status: &wire::ContainerStatus) -> Option<String> {
    let path = status.annotations.get(annotation::CONTAINER_TERMINATION_MESSAGE_PATH)?;
    // The pod's words for it; it was mounted at the clean path.
    let inside = Some(path).filter(|path| !path.is_empty()).map(|path| clean_from_root(path))?;
    let mount = status.mounts.iter().find(|mount| mount.container_path == inside)?;
    Some(mount.host_path.clone()).filter(|host_path| !host_path.is_empty())
}

fn user(user: wire::LinuxContainerUser) -> ContainerUser {
    ContainerUser { uid: user.uid, gid: user.gid, supplemental_groups: user.supplemental_groups }
}

pub fn image(image: wire::Image) -> Image {
    Image { id: image.id, size: image.size, uid: image.uid.map(|uid| uid.value), username: image.username }
}

/// Metadata is the authority; the label helps with a runtime that lost it.
pub fn pod_uid<'a>(metadata: Option<&'a wire::PodSandboxMetadata>, labels: &'a Map) -> &'a str {
    match metadata {
        Some(metadata) if !metadata.uid.is_empty() => &metadata.uid,
        _ => text(labels, label::POD_UID),
    }
}

fn sandbox_state(number: i32) -> SandboxState {
    match wire::PodSandboxState::try_from(number) {
        Ok(wire::PodSandboxState::SandboxReady) => SandboxState::Ready,
        Ok(wire::PodSandboxState::SandboxNotready) | Err(_) => SandboxState::NotReady,
    }
}

pub fn incoming(status: content::Status) -> Incoming {
    let bytes = |number: i64| u64::try_from(number).ok();
    Incoming {
        name: status.r#ref,
        bytes: bytes(status.offset).unwrap_or_default(),
        of: bytes(status.total).filter(|total| *total > 0),
    }
}

fn text<'a>(map: &'a Map, key: &str) -> &'a str {
    map.get(key).map(String::as_str).unwrap_or_default()
}

fn time(nanoseconds: i64) -> Timestamp {
    Timestamp::from_nanosecond(nanoseconds.into()).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests;
