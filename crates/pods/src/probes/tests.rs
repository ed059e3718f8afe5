//! Probes of a pod in a fake runtime, under paused time.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use crablet_cri::fake::{Command, FakeImage, FakeRuntime, RuntimeSettings};
use crablet_host::fake::SimClock;
use crablet_model::events::Event;
use crablet_planner::pod::config::{self, ContainerInputs, EnvObjects, Placement};
use crablet_planner::pod::{NodeFacts, PreparedImage, Probed};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::*;

/// What was asked, in seconds since the beginning, by the first word of the command.
type Asked = Arc<Mutex<Vec<(f64, String)>>>;

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
    clock: SimClock,
    events: Arc<Told>,
    nudge: Arc<Nudge>,
    prober: Prober,
    pod: api::Pod,
    /// The instances that run, by container.
    instances: BTreeMap<String, String>,
    attempts: u32,
    ending: bool,
    answers: Arc<Mutex<BTreeMap<String, Command>>>,
    asked: Asked,
    nudges: usize,
}

impl World {
    fn new(spec: Value) -> Self {
        Self::drawing(spec, 1)
    }

    fn drawing(spec: Value, seed: u64) -> Self {
        let clock = SimClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let told_time = clock.clone();
        let random = fastrand::Rng::with_seed(7);
        let runtime = FakeRuntime::new(RuntimeSettings::default(), random, Arc::new(move || told_time.now()));
        runtime.put_image("app:1", FakeImage::present());
        let (answers, asked) = (Arc::new(Mutex::new(BTreeMap::new())), Asked::default());
        let begun = Instant::now();
        let (script, log) = (answers.clone(), asked.clone());
        runtime.set_commands(Arc::new(move |_, _, command| {
            let word = command[0].clone();
            let answer = script.lock().unwrap().get(&word).cloned();
            log.lock().unwrap().push((begun.elapsed().as_secs_f64(), word));
            answer.unwrap_or_else(|| Command::exits(0, ""))
        }));
        let pod: api::Pod = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "uid-1"},
            "spec": spec,
        }))
        .unwrap();
        let (nudge, events) = (Arc::new(Nudge::default()), Arc::new(Told::default()));
        let means = Means {
            runtime: Arc::new(runtime.clone()),
            events: events.clone(),
            clock: Arc::new(clock.clone()),
        };
        let prober = Prober::new(means, nudge.clone(), PodRef::of(&pod), fastrand::Rng::with_seed(seed));
        let instances = BTreeMap::new();
        Self {
            runtime,
            clock,
            events,
            nudge,
            prober,
            pod,
            instances,
            attempts: 0,
            ending: false,
            answers,
            asked,
            nudges: 0,
        }
    }

    fn answer(&self, word: &str, answer: Command) {
        self.answers.lock().unwrap().insert(word.to_owned(), answer);
    }

    /// Starts an instance of a container, in a sandbox of its own: the runtime does not mind.
    async fn start(&mut self, name: &str) -> String {
        let node = NodeFacts::default();
        let (sandbox, _) =
            config::sandbox_config(&self.pod, &node, self.attempts, &Placement::default()).unwrap();
        let sandbox_id = self.runtime.run_sandbox(&sandbox).await.unwrap();
        let image = PreparedImage { image_ref: "app:1".into(), uid: None, username: String::new() };
        let spec = self.pod.spec.as_ref().unwrap();
        let (_, container) = crablet_model::roster::find(spec, name).unwrap();
        let inputs = ContainerInputs {
            objects: &EnvObjects::default(),
            volumes: &Default::default(),
            sub_paths: &Default::default(),
            pod: &self.pod,
            container: &container,
            attempt: self.attempts,
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
        let id = self.runtime.create_container(&sandbox_id, &config, &sandbox).await.unwrap();
        self.runtime.start_container(&id).await.unwrap();
        self.attempts += 1;
        self.instances.insert(name.to_owned(), id.clone());
        self.turn();
        id
    }

    /// What a worker's turn tells the prober.
    fn turn(&mut self) {
        let (verdicts, seen) = (self.prober.verdicts(), self.runtime.containers());
        let runtime = PodRuntime { sandboxes: Vec::new(), containers: seen };
        let mut lists = [Vec::new(), Vec::new()];
        for (role, container) in roster(self.pod.spec.as_ref().unwrap()) {
            let Some(id) = self.instances.get(&container.name) else { continue };
            let shown = runtime.containers.iter().find(|c| c.id == *id).unwrap();
            let state = match &shown.state {
                ContainerState::Running { started_at } => json!({"running": {"startedAt": started_at}}),
                _ => json!({"terminated": {"exitCode": 1}}),
            };
            let started = container.startup_probe.is_none() || verdicts.of(id).startup == Some(true);
            lists[usize::from(role == Role::Regular)].push(json!({
                "name": container.name, "containerID": format!("fake://{id}"), "state": state, "started": started,
                "image": "app:1", "imageID": "", "ready": false, "restartCount": 0,
            }));
        }
        let status: api::PodStatus = serde_json::from_value(json!({
            "phase": "Running", "podIP": "127.0.0.1",
            "initContainerStatuses": lists[0], "containerStatuses": lists[1],
        }))
        .unwrap();
        self.prober.attend(&self.pod, &status, &runtime, self.ending);
    }

    /// Lets time pass, with a turn for each nudge.
    async fn pass(&mut self, seconds: f64) {
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        while timeout_at(until, self.nudge.given()).await.is_ok() {
            self.nudges += 1;
            self.nudge.take();
            self.turn();
        }
        sleep_until(until).await;
    }

    fn probed(&self, id: &str) -> Probed {
        self.prober.verdicts().of(id)
    }

    /// When this was asked, in whole tenths of a second since the beginning.
    fn times(&self, word: &str) -> Vec<u64> {
        let asked = self.asked.lock().unwrap();
        let of_word = asked.iter().filter(|(_, w)| w == word);
        of_word.map(|(at, _)| (at * 10.0).round() as u64).collect()
    }

    fn events(&self) -> Vec<String> {
        std::mem::take(&mut self.events.0.lock().unwrap())
    }
}

fn probe(word: &str, more: Value) -> Value {
    let mut probe = json!({"exec": {"command": [word]}, "periodSeconds": 10, "timeoutSeconds": 1,
        "successThreshold": 1, "failureThreshold": 3});
    for (field, value) in more.as_object().unwrap() {
        probe[field] = value.clone();
    }
    probe
}

fn app(probes: Value) -> Value {
    let mut container = json!({"name": "app", "image": "app:1"});
    for (field, value) in probes.as_object().unwrap() {
        container[field] = value.clone();
    }
    json!({"containers": [container]})
}

#[tokio::test(start_paused = true)]
async fn readiness_is_asked_soon_after_the_start_and_then_in_each_period() {
    let mut world = World::new(app(json!({"readinessProbe": probe("ready", json!({}))})));
    let id = world.start("app").await;
    world.pass(0.5).await;
    assert_eq!(world.probed(&id).readiness, None);
    world.pass(30.0).await;
    assert_eq!(world.times("ready"), [10, 110, 210]);
    assert_eq!(world.probed(&id).readiness, Some(true));
    assert!(world.prober.has_spoken());
    // The same answer again is no news.
    assert_eq!(world.nudges, 1);
    assert_eq!(world.events(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_ready_does_not_wait_for_a_long_period() {
    let seldom = json!({"periodSeconds": 600});
    let probes =
        json!({"readinessProbe": probe("ready", seldom.clone()), "livenessProbe": probe("live", seldom)});
    let mut world = World::new(app(probes));
    world.answer("ready", Command::exits(1, ""));
    let id = world.start("app").await;
    world.pass(5.0).await;
    world.answer("ready", Command::exits(0, ""));
    world.pass(95.0).await;
    let asked = world.times("ready");
    assert!(asked.len() == 2 && (610..=910).contains(&asked[1]), "{asked:?}");
    assert_eq!(world.probed(&id).readiness, Some(true));
    // From here on at its own pace, as any other kind from the beginning.
    world.pass(400.0).await;
    assert_eq!(world.times("ready"), asked);
    assert!(world.times("live").len() <= 1);
}

#[tokio::test(start_paused = true)]
async fn so_many_answers_in_a_row_make_a_verdict() {
    let thresholds = json!({"periodSeconds": 1, "successThreshold": 2, "failureThreshold": 3});
    let mut world = World::new(app(json!({"readinessProbe": probe("ready", thresholds)})));
    let id = world.start("app").await;
    world.pass(1.5).await;
    assert_eq!(world.probed(&id).readiness, None);
    world.pass(1.0).await;
    assert_eq!(world.probed(&id).readiness, Some(true));
    world.answer("ready", Command::exits(1, "not now"));
    world.pass(2.0).await;
    assert_eq!(world.probed(&id).readiness, Some(true));
    world.pass(1.0).await;
    assert_eq!(world.probed(&id).readiness, Some(false));
    // Every failure was told.
    let told = "Unhealthy spec.containers{app} Readiness probe failed: not now";
    assert_eq!(world.events(), [told; 3]);
    world.answer("ready", Command::exits(0, ""));
    world.pass(2.0).await;
    assert_eq!(world.probed(&id).readiness, Some(true));
}

#[tokio::test(start_paused = true)]
async fn the_startup_probe_holds_the_others_back() {
    let probes = json!({
        "startupProbe": probe("up", json!({"periodSeconds": 2, "failureThreshold": 30})),
        "readinessProbe": probe("ready", json!({})),
        "livenessProbe": probe("live", json!({})),
    });
    let mut world = World::new(app(probes));
    world.answer("up", Command::exits(1, ""));
    let id = world.start("app").await;
    world.pass(20.0).await;
    assert!(world.times("ready").is_empty() && world.times("live").is_empty());
    let asked = world.times("up").len();
    assert!((9..=10).contains(&asked), "{asked}");
    world.answer("up", Command::exits(0, ""));
    world.pass(2.0).await;
    assert_eq!(world.probed(&id).startup, Some(true));
    let (up, ready) = (world.times("up"), world.times("ready"));
    assert_eq!(ready.first(), up.last(), "ready is asked as soon as it is up");
    world.pass(30.0).await;
    assert_eq!(world.times("up"), up, "what is up is not asked whether it is");
    assert!(!world.times("live").is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_is_not_alive_is_left_alone_until_the_next() {
    let mut world = World::new(app(json!({"livenessProbe": probe("live", json!({"periodSeconds": 1}))})));
    world.answer("live", Command::exits(1, ""));
    let first = world.start("app").await;
    world.pass(5.0).await;
    assert_eq!(world.probed(&first).liveness, Some(false));
    assert_eq!(world.times("live").len(), 3);
    assert_eq!(world.nudges, 1);
    world.pass(60.0).await;
    assert_eq!(world.times("live").len(), 3);
    // Stopped, and not begun again yet: the verdict stands.
    world.runtime.stop_container(&first, Duration::ZERO).await.unwrap();
    world.turn();
    assert_eq!(world.probed(&first).liveness, Some(false));

    world.answer("live", Command::exits(0, ""));
    let second = world.start("app").await;
    assert_eq!(world.probed(&first), Probed::default());
    assert_eq!(world.probed(&second).liveness, None);
    world.pass(5.0).await;
    assert_eq!(world.probed(&second).liveness, Some(true));
    // That it is alive is what everybody took it for.
    assert_eq!(world.nudges, 1);
}

#[tokio::test(start_paused = true)]
async fn failures_of_an_earlier_instance_do_not_count() {
    let mut world = World::new(app(json!({"livenessProbe": probe("live", json!({"periodSeconds": 1}))})));
    world.answer("live", Command::exits(1, ""));
    world.start("app").await;
    world.pass(2.5).await;
    assert_eq!(world.times("live").len(), 2);
    let second = world.start("app").await;
    world.pass(2.5).await;
    assert_eq!((world.times("live").len(), world.probed(&second).liveness), (4, None));
    world.pass(1.0).await;
    assert_eq!(world.probed(&second).liveness, Some(false));
}

#[tokio::test(start_paused = true)]
async fn a_command_that_hangs_is_a_failure() {
    let mut world = World::new(app(json!({"livenessProbe": probe("live", json!({"failureThreshold": 1}))})));
    world.answer("live", Command::Hangs);
    let id = world.start("app").await;
    world.pass(12.0).await;
    assert_eq!(world.probed(&id).liveness, Some(false));
    let told = "Unhealthy spec.containers{app} Liveness probe failed: command timed out: \"live\" timed out after 1s";
    assert_eq!(world.events(), [told]);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_cannot_be_asked_says_nothing_about_the_container() {
    let mut world = World::new(app(json!({"livenessProbe": probe("live", json!({"failureThreshold": 1}))})));
    world.answer("live", Command::Refused("no such file".to_owned()));
    let id = world.start("app").await;
    world.pass(10.0).await;
    assert_eq!(world.times("live").len(), 3, "asked again at once, three times in all");
    assert_eq!(world.probed(&id).liveness, None);
    let told = "Unhealthy spec.containers{app} Liveness probe errored and resulted in unknown state: \
        rpc error: code = Unknown desc = no such file";
    assert_eq!(world.events(), [told]);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_before_the_initial_delay() {
    let delay = json!({"initialDelaySeconds": 15});
    let probes =
        json!({"readinessProbe": probe("ready", delay.clone()), "livenessProbe": probe("live", delay)});
    let mut world = World::new(app(probes));
    world.start("app").await;
    world.pass(40.0).await;
    assert_eq!(world.times("ready"), [150, 250, 350]);
    assert_eq!(world.times("live"), [150, 250, 350]);
}

#[tokio::test(start_paused = true)]
async fn while_the_pod_ends_only_readiness_and_sidecars_are_asked() {
    let often = json!({"periodSeconds": 1});
    let mut spec = app(
        json!({"readinessProbe": probe("ready", often.clone()), "livenessProbe": probe("live", often.clone())}),
    );
    spec["initContainers"] = json!([
        {"name": "mesh", "image": "app:1", "restartPolicy": "Always", "livenessProbe": probe("mesh", often.clone())},
        {"name": "once", "image": "app:1", "livenessProbe": probe("never", often)},
    ]);
    let mut world = World::new(spec);
    for name in ["mesh", "once", "app"] {
        world.start(name).await;
    }
    world.pass(5.0).await;
    assert!(!world.times("live").is_empty());
    world.ending = true;
    world.turn();
    let before = [world.times("live").len(), world.times("ready").len(), world.times("mesh").len()];
    world.pass(5.0).await;
    let after = [world.times("live").len(), world.times("ready").len(), world.times("mesh").len()];
    assert_eq!((after[0], after[1] > before[1], after[2] > before[2]), (before[0], true, true));
    assert!(world.times("never").is_empty(), "an init container that ends is not probed");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_ended_is_asked_nothing_any_more() {
    let mut world = World::new(app(json!({"readinessProbe": probe("ready", json!({"periodSeconds": 1}))})));
    let id = world.start("app").await;
    world.pass(5.0).await;
    assert_eq!(world.probed(&id).readiness, Some(true));
    let ended = api::PodStatus { phase: Some("Succeeded".to_owned()), ..Default::default() };
    world.prober.attend(&world.pod, &ended, &PodRuntime::default(), false);
    let asked = world.times("ready").len();
    world.pass(10.0).await;
    assert_eq!((world.times("ready").len(), world.probed(&id)), (asked, Probed::default()));
}

/// When a hundred probes are asked first, in tenths of a second, counted by second.
async fn first_questions(found: bool) -> Vec<usize> {
    let mut by_second = vec![0; 11];
    for seed in 0..100 {
        let liveness = json!({"livenessProbe": probe("live", json!({}))});
        let mut world = World::drawing(app(liveness), seed);
        let id = world.start("app").await;
        let mut base = 0;
        if found {
            // The next life of the agent, a minute later.
            world.prober.clear();
            world.asked.lock().unwrap().clear();
            world.pass(60.0).await;
            base = 600;
            let means = Means {
                runtime: Arc::new(world.runtime.clone()),
                events: world.events.clone(),
                clock: Arc::new(world.clock.clone()),
            };
            let random = fastrand::Rng::with_seed(seed);
            world.prober = Prober::new(means, world.nudge.clone(), PodRef::of(&world.pod), random);
            world.turn();
            assert_eq!(world.probed(&id), Probed::default(), "nothing is known that was not asked");
        }
        world.pass(10.5).await;
        by_second[((world.times("live")[0] - base) / 10) as usize] += 1;
    }
    by_second
}

#[tokio::test(start_paused = true)]
async fn probes_that_begin_together_are_spread_in_time() {
    let fresh = first_questions(false).await;
    assert!(fresh[..7].iter().all(|asked| *asked == 0), "new instances have nearly a period: {fresh:?}");
    assert!(fresh[7..10].iter().all(|asked| *asked > 5), "{fresh:?}");
    let found = first_questions(true).await;
    assert!(found[..10].iter().all(|asked| (2..=25).contains(asked)), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_life_saw_start_need_not_prove_it_again() {
    let probes = json!({"startupProbe": probe("up", json!({})), "readinessProbe": probe("ready", json!({}))});
    let mut world = World::new(app(probes));
    let id = world.start("app").await;
    let status: api::PodStatus = serde_json::from_value(json!({
        "phase": "Running",
        "containerStatuses": [{
            "name": "app", "containerID": format!("fake://{id}"), "started": true, "ready": true, "restartCount": 0,
            "image": "app:1", "imageID": "", "state": {"running": {"startedAt": "2025-12-31T00:00:00Z"}},
        }],
    }))
    .unwrap();
    let runtime = PodRuntime { sandboxes: Vec::new(), containers: Vec::new() };
    world.prober.attend(&world.pod, &status, &runtime, false);
    let known = Probed { startup: Some(true), ..Probed::default() };
    assert_eq!(world.probed(&id), known);
    world.pass(10.0).await;
    assert!(world.times("up").is_empty());
    assert_eq!(world.times("ready").len(), 1);
}
