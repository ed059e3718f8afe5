//! Hooks of a pod in a fake runtime, under paused time; requests go to a server of the test's own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crablet_cri::fake::{Command, FakeImage, FakeRuntime, RuntimeSettings};
use crablet_host::Clock;
use crablet_host::fake::SimClock;
use crablet_model::runtime::ContainerState;
use crablet_planner::pod::config::{self, ContainerInputs, EnvObjects, Placement};
use crablet_planner::pod::{Action, NodeFacts, PreparedImage};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::hands::Seen;
use crate::order::Order;

#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl EventSink for Told {
    fn emit(&self, event: Event) {
        let field = event.field_path().unwrap_or_default();
        self.0.lock().unwrap().push(format!("{} {field} {}", event.reason, event.message));
    }
}

struct World {
    runtime: FakeRuntime,
    events: Told,
    op: Operation,
    /// Of the container `main`, which runs.
    id: String,
    /// When commands were run, in seconds since the beginning, and their first words.
    ran: Arc<Mutex<Vec<(u64, String)>>>,
}

impl World {
    /// Commands do what their first word says: `fails`, `hangs`, or anything else for success.
    async fn new(lifecycle: Value) -> Self {
        let clock = SimClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let random = fastrand::Rng::with_seed(7);
        let runtime = FakeRuntime::new(RuntimeSettings::default(), random, Arc::new(move || clock.now()));
        runtime.put_image("app:1", FakeImage::present());
        let (ran, since) = (Arc::<Mutex<Vec<_>>>::default(), Instant::now());
        let log = ran.clone();
        runtime.set_commands(Arc::new(move |_, _, command| {
            log.lock().unwrap().push((since.elapsed().as_secs(), command[0].clone()));
            match command[0].as_str() {
                "fails" => Command::exits(3, "in vain"),
                "hangs" => Command::Hangs,
                _ => Command::exits(0, ""),
            }
        }));
        let pod: api::Pod = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "uid-1"},
            "spec": {
                "terminationGracePeriodSeconds": 10,
                "containers": [{"name": "other"}],
                "initContainers": [{"name": "main", "restartPolicy": "Always", "lifecycle": lifecycle}],
            },
        }))
        .unwrap();
        let node = NodeFacts::default();
        let (sandbox, _) = config::sandbox_config(&pod, &node, 0, &Placement::default()).unwrap();
        let sandbox_id = runtime.run_sandbox(&sandbox).await.unwrap();
        let image = PreparedImage { image_ref: "app:1".into(), uid: None, username: String::new() };
        let (_, container) = roster::find(pod.spec.as_ref().unwrap(), "main").unwrap();
        let inputs = ContainerInputs {
            objects: &EnvObjects::default(),
            volumes: &BTreeMap::new(),
            sub_paths: &BTreeMap::new(),
            pod: &pod,
            container: &container,
            attempt: 0,
            image: &image,
            node: &node,
            pod_ips: &[],
            etc_hosts: None,
            termination_file: None,
            target_id: None,
            placement: &Placement::default(),
            image_volumes: &BTreeMap::new(),
        };
        let config = config::container_config(&inputs).unwrap();
        let id = runtime.create_container(&sandbox_id, &config, &sandbox).await.unwrap();
        runtime.start_container(&id).await.unwrap();
        let op = Operation {
            id: crablet_model::PodRef::of(&pod),
            pod: Some(Arc::new(pod)),
            node: Arc::new(node),
            action: Action::TakeOver,
            seen: Seen::Nothing,
            token: 0,
            order: Arc::new(Order::default()),
            stage: Arc::default(),
        };
        Self { runtime, events: Told::default(), op, id, ran }
    }

    fn hooks(&self) -> Hooks<'_> {
        Hooks { runtime: &self.runtime, events: &self.events, op: &self.op }
    }

    async fn post_start(&self) -> Result<(), String> {
        let spec = self.op.pod.as_ref().unwrap().spec.as_ref().unwrap();
        let (_, container) = roster::find(spec, "main").unwrap();
        self.hooks().post_start(&container, &self.id).await
    }

    fn told(&self) -> Vec<String> {
        self.events.0.lock().unwrap().clone()
    }

    fn ran(&self) -> Vec<(u64, String)> {
        self.ran.lock().unwrap().clone()
    }

    fn runs(&self) -> bool {
        self.runtime.containers().iter().any(|c| matches!(c.state, ContainerState::Running { .. }))
    }
}

fn command(words: &[&str]) -> Value {
    json!({ "exec": { "command": words } })
}

#[tokio::test(start_paused = true)]
async fn a_failed_begin_ends_the_container_as_any_end_does() {
    let hooks = json!({ "postStart": command(&["fails", "badly"]), "preStop": command(&["hangs"]) });
    let world = World::new(hooks).await;
    let told = world.post_start().await.unwrap_err();
    assert_eq!(
        told,
        "Exec lifecycle hook ([fails badly]) for Container \"main\" in Pod \"web_default(uid-1)\" failed - \
         error: command 'fails badly' exited with 3: , message: \"in vain\""
    );
    assert_eq!(
        world.told(),
        [
            "FailedPostStartHook spec.initContainers{main} PostStartHook failed",
            "Killing spec.initContainers{main} FailedPostStartHook",
        ]
    );
    // The hook for the end had the whole grace, and then the container was stopped all the same.
    assert_eq!(world.ran(), [(0, "fails".to_owned()), (0, "hangs".to_owned())]);
    assert!(!world.runs());
}

#[tokio::test(start_paused = true)]
async fn a_good_begin_leaves_the_container_alone() {
    for hooks in
        [json!({ "postStart": command(&["works"]) }), json!({ "postStart": { "sleep": { "seconds": 5 } } })]
    {
        let world = World::new(hooks).await;
        assert_eq!(world.post_start().await, Ok(()));
        assert!(world.runs() && world.told().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_run_is_said() {
    let hooks = json!({ "postStart": { "tcpSocket": { "port": 80 } } });
    let told = World::new(hooks).await.post_start().await.unwrap_err();
    assert!(told.starts_with("Cannot run handler: invalid handler"), "{told}");
    // A port that the container does not name.
    let hooks = json!({ "postStart": { "httpGet": { "host": "127.0.0.1", "port": "www", "path": "/up" } } });
    let told = World::new(hooks).await.post_start().await.unwrap_err();
    let expected =
        "HTTP lifecycle hook (/up) for Container \"main\" in Pod \"web_default(uid-1)\" failed - error: ";
    assert!(told.starts_with(expected), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_end_is_told_and_stops_nothing() {
    let world = World::new(json!({ "preStop": command(&["fails"]) })).await;
    world.hooks().pre_stop("main", &world.id, Duration::from_secs(10)).await;
    assert_eq!(world.told(), ["FailedPreStopHook spec.initContainers{main} PreStopHook failed"]);
    assert!(world.runs());
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_takes_too_long_is_forgotten_at_last() {
    let world = World::new(json!({ "preStop": command(&["hangs"]) })).await;
    let since = Instant::now();
    world.hooks().pre_stop("main", &world.id, Duration::from_secs(10)).await;
    // Not when the grace is over: whoever stops the container does not wait here.
    assert!(since.elapsed() > Duration::from_secs(10));
    assert!(world.told().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_hook_is_known_without_the_pods_specification() {
    let mut world = World::new(json!({ "preStop": command(&["works"]) })).await;
    world.op.pod = None;
    world.hooks().pre_stop("main", &world.id, Duration::from_secs(10)).await;
    assert_eq!(world.ran(), [(0, "works".to_owned())]);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_an_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 4096]).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab").await.unwrap();
    });
    let world =
        World::new(json!({ "postStart": { "httpGet": { "host": "127.0.0.1", "port": port } } })).await;
    assert_eq!(world.post_start().await, Ok(()));
    assert!(world.runs() && world.told().is_empty());
    server.await.unwrap();
}

#[tokio::test]
async fn a_plain_answer_is_good_where_tls_was_expected() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let mut heard = Vec::new();
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = vec![0; 4096];
            let count = stream.read(&mut bytes).await.unwrap();
            heard.push(String::from_utf8_lossy(&bytes[..count]).into_owned());
            stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        }
        heard
    });
    let secret = json!([{ "name": "Authorization", "value": "Basic b3Blbg==" }]);
    let get = json!({ "host": "127.0.0.1", "port": at.port(), "path": "/end", "scheme": "HTTPS", "httpHeaders": secret });
    let world = World::new(json!({ "preStop": { "httpGet": get } })).await;
    world.hooks().pre_stop("main", &world.id, Duration::from_secs(10)).await;
    let heard = server.await.unwrap();
    assert!(heard[0].starts_with('\u{16}'), "{heard:?}");
    assert!(heard[1].starts_with("GET /end HTTP/1.1\r\n"), "{heard:?}");
    assert!(!heard[1].contains("b3Blbg"), "{heard:?}");
    let expected = format!(
        "LifecycleHTTPFallback  request to HTTPS lifecycle hook {at} got HTTP response, retry with HTTP succeeded"
    );
    assert_eq!(world.told(), [expected]);
}
