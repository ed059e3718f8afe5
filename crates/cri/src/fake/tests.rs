use std::time::Duration;

use crablet_model::names::{annotation, label};
use crablet_model::runtime::{
    Container, ContainerConfig, ContainerSecurity, ContainerState, DnsConfig, LinuxResources, Map, Mount,
    NamespaceOptions, RuntimeEventKind, SandboxConfig, SandboxState,
};
use crablet_model::{PodRef, PodUid};
use futures_util::{FutureExt, StreamExt};
use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::port::{CriError, ErrorKind, Runtime};

mod containers;
mod faults;
mod replay;
mod sandboxes;

const SECOND: Duration = Duration::from_secs(1);
const IMAGE: &str = "app:1";

fn runtime() -> FakeRuntime {
    with(RuntimeSettings::default())
}

fn with(settings: RuntimeSettings) -> FakeRuntime {
    seeded(settings, 7)
}

fn seeded(settings: RuntimeSettings, seed: u64) -> FakeRuntime {
    let started = Instant::now();
    let base: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let now = move || base + SignedDuration::try_from(started.elapsed()).unwrap();
    let runtime = FakeRuntime::new(settings, fastrand::Rng::with_seed(seed), Arc::new(now));
    runtime.put_image(IMAGE, FakeImage::present());
    runtime
}

fn pod() -> PodRef {
    PodRef::new("web", "default", "uid-1")
}

fn sandbox(pod: &PodRef, attempt: u32) -> SandboxConfig {
    SandboxConfig {
        name: pod.name.to_string(),
        namespace: pod.namespace.to_string(),
        uid: pod.uid.clone(),
        attempt,
        hostname: pod.name.to_string(),
        log_directory: format!("/logs/{}", pod.log_dir_name()),
        dns: DnsConfig::default(),
        port_mappings: Vec::new(),
        labels: labels(pod),
        annotations: Map::new(),
        cgroup_parent: String::new(),
        runtime_handler: String::new(),
        sysctls: Map::new(),
        namespaces: NamespaceOptions::default(),
        privileged: false,
        run_as_user: None,
        run_as_group: None,
        supplemental_groups: Vec::new(),
        groups_policy: Default::default(),
        seccomp: Default::default(),
        selinux: None,
        resources: LinuxResources::default(),
        overhead: LinuxResources::default(),
    }
}

fn labels(pod: &PodRef) -> Map {
    Map::from([
        (label::POD_NAME.to_owned(), pod.name.to_string()),
        (label::POD_NAMESPACE.to_owned(), pod.namespace.to_string()),
        (label::POD_UID.to_owned(), pod.uid.to_string()),
    ])
}

fn container(pod: &PodRef, name: &str, attempt: u32) -> ContainerConfig {
    let mut labels = labels(pod);
    labels.insert(label::CONTAINER_NAME.to_owned(), name.to_owned());
    ContainerConfig {
        name: name.to_owned(),
        attempt,
        image_ref: IMAGE.to_owned(),
        user_specified_image: IMAGE.to_owned(),
        command: Vec::new(),
        args: Vec::new(),
        working_dir: String::new(),
        env: Vec::new(),
        mounts: Vec::new(),
        devices: Vec::new(),
        labels,
        annotations: Map::from([(annotation::CONTAINER_RESTART_COUNT.to_owned(), attempt.to_string())]),
        log_path: format!("{name}/{attempt}.log"),
        stdin: false,
        stdin_once: false,
        tty: false,
        resources: LinuxResources::default(),
        hugepage_limits: Vec::new(),
        memory_swap_limit: 0,
        unified: Map::new(),
        security: ContainerSecurity::default(),
        stop_signal: None,
    }
}

/// Runs a sandbox and one container in it; returns their ids.
async fn started(runtime: &FakeRuntime, name: &str) -> (String, String) {
    let pod = pod();
    let sandbox_id = runtime.run_sandbox(&sandbox(&pod, 0)).await.unwrap();
    let id =
        runtime.create_container(&sandbox_id, &container(&pod, name, 0), &sandbox(&pod, 0)).await.unwrap();
    runtime.start_container(&id).await.unwrap();
    (sandbox_id, id)
}

async fn state(runtime: &FakeRuntime, id: &str) -> ContainerState {
    runtime.container_status(id).await.unwrap().state
}

/// Exit code and reason, `None` while the container has not exited.
async fn exit(runtime: &FakeRuntime, id: &str) -> Option<(i32, String)> {
    state(runtime, id).await.exit().map(|exit| (exit.code, exit.reason.clone()))
}

fn violations(runtime: &FakeRuntime) -> Vec<String> {
    runtime.violations().into_iter().map(|violation| violation.message).collect()
}
