use std::sync::Arc;

use crablet_cri::fake::{FakeImage, FakeRuntime, RuntimeSettings};
use crablet_model::PodRef;
use crablet_planner::pod::config::{self, ContainerInputs, EnvObjects, Placement};
use crablet_planner::pod::{NodeFacts, PreparedImage};
use serde_json::json;

use super::*;

/// A pod in a fake runtime, and the calls that looking at it takes.
struct World {
    runtime: FakeRuntime,
    pod: crablet_model::api::Pod,
    sight: Sight,
    counted: usize,
}

impl World {
    fn new() -> Self {
        let settings = RuntimeSettings { trace_reads: true, ..RuntimeSettings::default() };
        let now = || "2026-01-01T00:00:00Z".parse().unwrap();
        let runtime = FakeRuntime::new(settings, fastrand::Rng::with_seed(7), Arc::new(now));
        runtime.put_image("app:1", FakeImage::present());
        let pod = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "uid-1"},
            "spec": {"containers": [{"name": "app", "image": "app:1"}]},
        }));
        Self { runtime, pod: pod.unwrap(), sight: Sight::default(), counted: 0 }
    }

    fn uid(&self) -> PodUid {
        PodRef::of(&self.pod).uid
    }

    async fn sandbox(&self) -> String {
        let made = config::sandbox_config(&self.pod, &NodeFacts::default(), 0, &Placement::default());
        self.runtime.run_sandbox(&made.unwrap().0).await.unwrap()
    }

    async fn container(&self, sandbox: &str) -> String {
        let (node, image) = (
            NodeFacts::default(),
            PreparedImage { image_ref: "app:1".into(), uid: None, username: String::new() },
        );
        let inputs = ContainerInputs {
            objects: &EnvObjects::default(),
            volumes: &Default::default(),
            sub_paths: &Default::default(),
            pod: &self.pod,
            container: &self.pod.spec.as_ref().unwrap().containers[0],
            attempt: 0,
            image: &image,
            node: &node,
            pod_ips: &[],
            etc_hosts: None,
            termination_file: None,
            target_id: None,
            placement: &Placement::default(),
            image_volumes: &Default::default(),
        };
        let config = config::container_config(&inputs).unwrap();
        let (of_sandbox, _) = config::sandbox_config(&self.pod, &node, 0, &Placement::default()).unwrap();
        let id = self.runtime.create_container(sandbox, &config, &of_sandbox).await.unwrap();
        self.runtime.start_container(&id).await.unwrap();
        id
    }

    /// Looks, keeps what it saw, and names the calls.
    async fn look(&mut self, making: bool) -> (PodRuntime, Vec<String>) {
        self.calls();
        let uid = self.uid();
        let seen = self.sight.look(&self.runtime, &uid, making).await.unwrap();
        self.sight.keep(seen.clone());
        (seen, self.calls())
    }

    fn calls(&mut self) -> Vec<String> {
        let all: Vec<String> = self.runtime.read_trace(|trace| {
            trace
                .iter()
                .filter_map(|entry| match &entry.what {
                    crablet_cri::fake::What::Called { call, .. } => Some(call.name().to_owned()),
                    _ => None,
                })
                .collect()
        });
        let fresh = all[self.counted..].to_vec();
        self.counted = all.len();
        fresh
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_listed_once_and_then_asked_for_what_was_touched() {
    let mut world = World::new();
    assert_eq!(world.look(false).await.1, ["list_sandboxes", "list_containers"]);

    let sandbox = world.sandbox().await;
    world.sight.touched(Touched::Sandbox(sandbox.clone()));
    let (seen, calls) = world.look(false).await;
    assert_eq!((seen.sandboxes.len(), calls), (1, vec!["sandbox_status".to_owned()]));

    // Making an image ready touches nothing.
    world.sight.touched(Touched::Nothing);
    assert_eq!(world.look(false).await.1, Vec::<String>::new());

    let container = world.container(&sandbox).await;
    world.sight.touched(Touched::Container(container.clone()));
    let (seen, calls) = world.look(false).await;
    assert!(seen.containers[0].state.is_running());
    assert_eq!(calls, ["container_status"]);

    // At rest little is kept, and everything that is known is asked for again.
    world.sight.rest();
    assert_eq!(world.look(false).await.1, ["sandbox_status", "container_status"]);
}

#[tokio::test(start_paused = true)]
async fn that_nothing_is_left_is_not_taken_from_memory() {
    let mut world = World::new();
    let sandbox = world.sandbox().await;
    let container = world.container(&sandbox).await;
    world.look(false).await;

    world.runtime.stop_sandbox(&sandbox).await.unwrap();
    world.sight.touched(Touched::Sandbox(sandbox.clone()));
    let (seen, calls) = world.look(false).await;
    // What lived in the sandbox went down with it.
    assert_eq!(calls, ["sandbox_status", "container_status"]);
    assert!(seen.containers[0].state.exit().is_some());

    world.runtime.remove_container(&container).await.unwrap();
    world.sight.touched(Touched::ContainerGone(container));
    let (seen, calls) = world.look(false).await;
    assert_eq!((seen.containers.len(), seen.sandboxes.len(), calls.len()), (0, 1, 0));

    world.runtime.remove_sandbox(&sandbox).await.unwrap();
    world.sight.touched(Touched::SandboxGone(sandbox));
    let (seen, calls) = world.look(false).await;
    assert!(seen.is_empty());
    assert_eq!(calls, ["list_sandboxes", "list_containers"]);
}

#[tokio::test(start_paused = true)]
async fn echoes_are_no_news() {
    use RuntimeEventKind::{Created, Deleted, Started, Stopped};
    let mut world = World::new();
    let sandbox = world.sandbox().await;
    let container = world.container(&sandbox).await;
    for rest in [false, true] {
        world.look(false).await;
        if rest {
            world.sight.rest();
        }
        for kind in [Created, Started] {
            assert!(!world.sight.heard(&sandbox, kind) && !world.sight.heard(&container, kind), "{kind:?}");
        }
        // Long gone, and nobody knows it.
        assert!(!world.sight.heard("somebody", Deleted));
    }
    assert!(world.sight.heard(&container, Stopped));
    assert_eq!(world.look(false).await.1, ["sandbox_status", "container_status"]);
}

#[tokio::test(start_paused = true)]
async fn a_stranger_is_looked_for_unless_it_may_be_ours() {
    let mut world = World::new();
    let sandbox = world.sandbox().await;
    world.look(false).await;
    let ours = world.container(&sandbox).await;
    assert!(world.sight.heard(&ours, RuntimeEventKind::Created));
    assert_eq!(world.look(true).await.1, Vec::<String>::new());
    world.sight.touched(Touched::Container(ours.clone()));
    assert_eq!(world.look(false).await.1, ["container_status"]);

    assert!(world.sight.heard("somebody-elses", RuntimeEventKind::Created));
    assert_eq!(world.look(false).await.1[0], "list_sandboxes");
    // An operation that failed or was given up may leave something behind at any time.
    world.sight.touched(Touched::Unknown);
    for _ in 0..2 {
        assert_eq!(world.look(false).await.1[0], "list_sandboxes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_that_came_into_doubt_is_not_kept() {
    let mut world = World::new();
    let sandbox = world.sandbox().await;
    let uid = world.uid();
    let seen = world.sight.look(&world.runtime, &uid, false).await.unwrap();
    world.sight.forget();
    world.sight.keep(seen);
    assert!(world.sight.heard(&sandbox, RuntimeEventKind::Created));
    assert_eq!(world.look(false).await.1[0], "list_sandboxes");
}
