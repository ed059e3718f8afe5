//! The node on which a story happens: fakes, the agent's lives, and what the operator did.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use crablet::machine::Machine;
use crablet::wiring::{Agent, Ports};
use crablet_apiserver::ApiServer;
use crablet_apiserver::fake::FakeApiServer;
use crablet_config::{Command, Environment, Settings};
use crablet_cri::fake::{Behaviour, FakeRuntime};
use crablet_host::Clock;
use crablet_host::fake::{FakeFiles, FileFault, FileFaultKind, SimClock};
use crablet_model::PodUid;
use crablet_pods::PlanFn;
use crablet_pods::events::EventSink;
use crablet_pods::sources::{Fetch, FetchError, Fetched};
use crablet_pods::users::Ranges;
use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::cluster::api::{Lie, SimApi};
use super::cluster::operator::Cluster;
use super::cluster::story::Event;
use super::machine;
use super::observer::Observer;
use super::pods::commands::{Started, commands};
use super::pods::{MANIFESTS, NODE, images};
use super::room::Room;
use super::story::{Family, Kind, Moment, Story};

pub const ROOT: &str = "/var/lib/kubelet";
pub const POD_LOGS: &str = "/var/log/pods";
pub const CONTAINER_LOGS: &str = "/var/log/containers";
const RECORD: &str = "crablet.json";
const LEDGER: &str = "allocated_pods_state";
/// In the trace.
pub const AGENT_STARTS: &str = "agent starts";

/// More steps through ports than any night needs: an agent that takes them is running in circles.
const STEP_LIMIT: u64 = 400_000;

/// What differs from the real agent in the real world.
#[derive(Clone, Copy)]
pub struct Variant {
    pub plan: PlanFn,
    /// Which nights.
    pub family: Family,
    /// The disk says that it wrote the agent's records, and did not.
    pub forgetful_disk: bool,
    pub trace_reads: bool,
    /// The disk says that it wrote what pods were granted, and did not.
    pub forgetful_ledger: bool,
    /// The machine says that it has ten times the CPUs that it has.
    pub boastful_machine: bool,
    /// What is wrong with the API server.
    pub lie: Option<Lie>,
}

impl Default for Variant {
    fn default() -> Self {
        Self {
            plan: crablet_planner::pod::plan,
            family: Family::Standalone,
            forgetful_disk: false,
            forgetful_ledger: false,
            boastful_machine: false,
            trace_reads: false,
            lie: None,
        }
    }
}

/// Counts the agent's steps through its ports, and ends its life at a chosen one.
#[derive(Default)]
struct Gatekeeper {
    steps: AtomicU64,
    /// 0 for never.
    die_at: AtomicU64,
    dead: AtomicBool,
    died: Notify,
}

impl Gatekeeper {
    fn may_pass(&self) -> bool {
        if self.dead.load(Ordering::Relaxed) {
            return false;
        }
        let step = self.steps.fetch_add(1, Ordering::Relaxed) + 1;
        let last = self.die_at.load(Ordering::Relaxed);
        if (last > 0 && step >= last) || step >= STEP_LIMIT {
            self.dead.store(true, Ordering::Relaxed);
            self.died.notify_one();
            return false;
        }
        true
    }
}

/// What is in a pod's manifest file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manifest {
    Absent,
    Version(u32),
    /// Nobody can read it; this version was there before.
    Spoiled(u32),
}

/// A change that the operator made to a pod's manifest.
#[derive(Clone, Debug)]
pub struct Change {
    pub at: Duration,
    pub pod: usize,
    pub manifest: Manifest,
    /// Of the pod that is wanted from now on; `None` when none is, or none can be read.
    pub uid: Option<PodUid>,
    /// Seconds that the pod has from now on, where that is not as its manifest has it.
    pub grace_seconds: Option<u32>,
}

pub struct World {
    pub story: Story,
    pub runtime: FakeRuntime,
    pub files: FakeFiles,
    pub machine: machine::Machine,
    pub cluster: Option<Cluster>,
    pub observer: Observer,
    pub room: Room,
    /// When the operator asked for another part of the node, for which container of which pod.
    pub resizes: Vec<(Duration, PodUid, usize, usize)>,
    pub changes: Vec<Change>,
    pub manifests: Vec<Manifest>,
    pub started_up: Started,
    /// How often the agent was started.
    pub lives: u64,
    clock: SimClock,
    started: Instant,
    settings: Settings,
    plan: PlanFn,
    rng: Rng,
    gatekeeper: Arc<Gatekeeper>,
    agent: Option<Agent>,
    down: Duration,
    agenda: BTreeMap<(Duration, usize), Moment>,
    /// By pod and version: a UID costs the decoding of a manifest.
    uids: RefCell<BTreeMap<(usize, u32), PodUid>>,
}

impl World {
    pub fn new(story: Story, variant: Variant) -> Self {
        let mut rng = Rng::with_seed(story.seed ^ 0x5eed);
        let midnight: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a timestamp");
        let clock = SimClock::starting_at(midnight);
        let files = FakeFiles::new(rng.fork());
        let wall = clock.clone();
        let mut settings = story.runtime.clone();
        settings.trace_reads = variant.trace_reads;
        let runtime = FakeRuntime::new(settings, rng.fork(), Arc::new(move || wall.now()));
        let started_up = Started::default();
        runtime.set_commands(commands(&started_up));
        let disk = files.clone();
        runtime.set_write_file(Arc::new(move |path, content| {
            disk.try_put(path, content).map_err(|e| e.to_string())
        }));
        let gatekeeper = Arc::new(Gatekeeper::default());
        let gate = { gatekeeper.clone() };
        let gate: crablet_host::fake::Gate = Arc::new(move |_| gate.may_pass());
        files.set_gate(Some(gate.clone()));
        runtime.set_gate(Some(gate.clone()));
        let machine = machine::Machine::new(&mut rng, gate.clone());
        let (disk, below) = (files.clone(), machine.clone());
        runtime.set_make_source(Arc::new(move |path| below.make_source(&disk, path)));
        if variant.forgetful_disk {
            files.add_fault(FileFault::on("write_atomic", RECORD, FileFaultKind::Forget));
        }
        if variant.forgetful_ledger {
            files.add_fault(FileFault::on("write_atomic", LEDGER, FileFaultKind::Forget));
        }
        if variant.boastful_machine {
            machine.boast();
        }
        files.put_folder(MANIFESTS);
        files.put("/etc/hosts", "127.0.0.1 localhost\n");
        for (name, image) in images(&mut rng, false) {
            runtime.put_image(&name, image);
        }
        for pod in &story.pods {
            for container in pod.everyone() {
                runtime.behave(&pod.full_name(), &container.name, container.behaviour.clone());
            }
            for (number, life) in pod.debuggers.iter().enumerate() {
                runtime.behave(&pod.full_name(), &format!("e{number}"), Behaviour::living(life.clone()));
            }
        }
        let cluster = (story.family != Family::Standalone).then(|| {
            let wall = clock.clone();
            let server = FakeApiServer::new(Arc::new(move || wall.now()));
            Cluster::new(SimApi::new(server, gate, runtime.clone(), machine.clone(), rng.fork(), &variant))
        });
        let moments = story.moments.iter().cloned().enumerate();
        let agenda = moments.map(|(number, (at, moment))| ((at, number), moment)).collect();
        Self {
            manifests: vec![Manifest::Absent; story.pods.len()],
            story,
            runtime,
            files,
            machine,
            cluster,
            observer: Observer::default(),
            room: Room::default(),
            resizes: Vec::new(),
            changes: Vec::new(),
            started_up,
            lives: 0,
            clock,
            started: Instant::now(),
            settings: Settings { register_node: true, ..agent_settings() },
            plan: variant.plan,
            rng,
            gatekeeper,
            agent: None,
            down: Duration::ZERO,
            agenda,
            uids: RefCell::default(),
        }
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub fn steps(&self) -> u64 {
        self.gatekeeper.steps.load(Ordering::Relaxed)
    }

    pub fn clock_was_set_back(&self) -> bool {
        self.story.moments.iter().any(|(_, moment)| matches!(moment, Moment::ClockJump(..0)))
    }

    pub fn is_running_in_circles(&self) -> bool {
        self.steps() >= STEP_LIMIT
    }

    /// The only place that knows how an agent is made.
    pub fn start_agent(&mut self) {
        if self.agent.is_some() || self.is_running_in_circles() {
            return;
        }
        self.runtime.note(AGENT_STARTS);
        let files = self.files.clone();
        // A disk that does not take records, or does not give them back, does not let the next life remember.
        let remembers = self.story.kind != Kind::BadDisk;
        self.observer.forget_unless(|uid| remembers && files.content(record_path(uid)).is_some());
        self.gatekeeper.dead.store(false, Ordering::Relaxed);
        let ports = Ports {
            runtime: Arc::new(self.runtime.clone()),
            files: Arc::new(self.files.clone()),
            fetch: Arc::new(NoNetwork),
            clock: Arc::new(self.clock.clone()),
            events: Arc::new(Unheard),
            machine: Machine { memory_bytes: 8 << 30, milli_cpus: 2000, ..Machine::default() },
            api: self.cluster.as_ref().map(|cluster| cluster.api.clone() as Arc<dyn ApiServer>),
            node_host: self.machine.node.clone(),
            volume_host: Arc::new(self.machine.volumes.clone()),
            plugins_registry: None,
            cgroups: self.machine.cgroups(),
            credential_providers: Vec::new(),
            user_ranges: Ranges::default(),
            seed: self.rng.u64(..),
            plan: self.plan,
        };
        let agent = Agent::start(&self.settings, ports);
        self.observer.attach(&agent);
        self.agent = Some(agent);
        self.lives += 1;
        self.note_sight();
    }

    /// `kill -9`.
    pub fn kill_agent(&mut self, down: Duration) {
        if self.agent.take().is_some() {
            self.gatekeeper.dead.store(true, Ordering::Relaxed);
            self.gatekeeper.die_at.store(0, Ordering::Relaxed);
            self.runtime.note(format!("agent killed at step {}", self.steps()));
            self.observer.detach(self.started.elapsed());
            self.later(down, Moment::StartAgent);
            self.note_sight();
        }
    }

    pub fn later(&mut self, wait: Duration, moment: Moment) {
        let at = self.elapsed() + wait;
        let first = self.story.moments.len();
        let number = (first..).find(|number| !self.agenda.contains_key(&(at, *number))).unwrap_or(first);
        self.agenda.insert((at, number), moment);
    }

    /// Lets time pass until a moment, and happen what is due by then.
    pub async fn play(&mut self, until: Duration) {
        loop {
            let due = self.agenda.first_key_value().map(|((at, _), _)| *at).filter(|at| *at <= until);
            let next = self.started + due.unwrap_or(until);
            let gatekeeper = self.gatekeeper.clone();
            // Biased, because an unbiased select draws from a generator that no seed governs. Every arm is cancel-safe:
            // a notification, a change of a watched value, an instant.
            tokio::select! {
                biased;
                () = gatekeeper.died.notified() => {
                    let down = self.down;
                    self.kill_agent(down);
                }
                () = self.observer.changed() => {
                    self.observer.look(self.started.elapsed());
                    self.look_at_room();
                }
                () = tokio::time::sleep_until(next) => match due.and_then(|_| self.agenda.pop_first()) {
                    Some((_, moment)) => self.happens(moment),
                    None => return,
                },
            }
        }
    }

    fn happens(&mut self, moment: Moment) {
        if !matches!(moment, Moment::StartAgent) {
            self.runtime.note(format!("{moment:?}"));
        }
        match moment {
            Moment::Put { pod, version } => self.put(pod, version),
            Moment::Touch { pod } => {
                if let Manifest::Version(version) = self.manifests[pod] {
                    self.files.put(self.story.pods[pod].path(), self.story.pods[pod].manifest(version));
                }
            }
            Moment::Spoil { pod } => {
                if let Manifest::Version(version) = self.manifests[pod] {
                    self.files
                        .put(self.story.pods[pod].path(), "apiVersion: v1\nkind: Pod\nmetadata: {name: [");
                    self.changed(pod, Manifest::Spoiled(version), None);
                }
            }
            Moment::Remove { pod } => self.remove(pod),
            Moment::Litter(kind) => self.litter(kind),
            Moment::KillAgent { down } => self.kill_agent(down),
            Moment::KillAtCall { calls, down } => {
                self.down = down;
                self.gatekeeper.die_at.store(self.steps() + calls + 1, Ordering::Relaxed);
            }
            Moment::StartAgent => self.start_agent(),
            Moment::RuntimeAway => self.runtime.go_away(),
            Moment::RuntimeBack => self.runtime.come_back(),
            Moment::Calls(chaos) => self.runtime.set_chaos(chaos),
            Moment::Rule(fault) => self.runtime.add_fault(fault),
            Moment::Events(faults) => self.runtime.set_event_faults(faults),
            Moment::CutStreams => {
                let with_error = self.rng.bool();
                self.runtime.cut_event_streams(with_error);
            }
            Moment::Network(ready) => self.runtime.set_network_ready(ready),
            Moment::LoseSandbox { pod, with_containers } => {
                if let Some(uid) = self.uid(pod) {
                    self.runtime.lose_sandbox(&uid, with_containers);
                }
            }
            Moment::KillContainer { pod, container } => {
                if let Some(uid) = self.uid(pod) {
                    self.runtime.kill_container(&uid, &self.name_of(pod, container), 137);
                }
            }
            Moment::LoseTrack { pod, container } => {
                if let Some(uid) = self.uid(pod) {
                    self.runtime.lose_track(&uid, &self.name_of(pod, container));
                }
            }
            Moment::Disk(chaos) => self.files.set_chaos(chaos),
            Moment::UnreadableManifests { times } => {
                let unreadable = FileFaultKind::Errno(libc::EIO);
                self.files.add_fault(FileFault::on("read", MANIFESTS, unreadable).times(times));
            }
            Moment::Watches(faults) => self.files.set_watch_faults(faults),
            Moment::BreakWatches => self.files.break_watches(),
            Moment::OverflowWatches => self.files.overflow_watches(),
            Moment::Cluster(event) => self.happens_in_cluster(event),
            Moment::ClockJump(seconds) => self.clock.jump(SignedDuration::from_secs(seconds)),
        }
    }

    fn name_of(&self, pod: usize, container: usize) -> String {
        self.story.pods[pod].everyone().nth(container).map(|c| c.name.clone()).unwrap_or_default()
    }

    pub fn changed(&mut self, pod: usize, manifest: Manifest, grace_seconds: Option<u32>) {
        self.manifests[pod] = manifest;
        let uid = self.uid(pod);
        self.changes.push(Change { at: self.elapsed(), pod, manifest, uid, grace_seconds });
    }

    fn put(&mut self, pod: usize, version: u32) {
        let plan = &self.story.pods[pod];
        if plan.is_of_api() {
            return self.put_in_api(pod, version);
        }
        self.files.put(plan.path(), plan.manifest(version));
        let was_wanted = self.uid(pod);
        self.changed(pod, Manifest::Version(version), None);
        if let Some(uid) = self.uid(pod)
            && was_wanted.as_ref() != Some(&uid)
        {
            self.observer.may_begin_anew(&uid);
        }
    }

    pub fn remove(&mut self, pod: usize) {
        if self.story.pods[pod].is_of_api() {
            return self.happens_in_cluster(Event::Delete { pod, grace: None });
        }
        self.files.remove(self.story.pods[pod].path());
        self.changed(pod, Manifest::Absent, None);
    }

    /// What an operator leaves in the folder by mistake: none of it is a pod, and all of it is harmless.
    fn litter(&self, kind: u8) {
        let at = |name: &str| format!("{MANIFESTS}/{name}");
        match kind % 6 {
            0 => self.files.put_folder(at("old/older")),
            1 => self.files.put_other(at("pipe.yaml")),
            2 => self.files.put_link(at("link.yaml"), "/nowhere"),
            3 => self.files.put(at("README"), "put manifests here"),
            4 => self.files.put(at(".hidden.yaml"), self.story.pods[0].manifest(7)),
            _ => self.files.put(at("empty.yaml"), ""),
        }
    }

    /// The UID of the pod that is wanted now.
    pub fn uid(&self, pod: usize) -> Option<PodUid> {
        match self.manifests[pod] {
            Manifest::Version(version) => {
                let mut uids = self.uids.borrow_mut();
                Some(uids.entry((pod, version)).or_insert_with(|| self.story.pods[pod].uid(version)).clone())
            }
            Manifest::Absent | Manifest::Spoiled(_) => None,
        }
    }

    /// Everything that was broken is mended, and the agent runs.
    pub fn heal(&mut self) {
        self.runtime.note("everything is well from now on");
        self.agenda.clear();
        self.gatekeeper.die_at.store(0, Ordering::Relaxed);
        self.files.clear_faults();
        self.runtime.clear_faults();
        self.runtime.come_back();
        self.runtime.set_network_ready(true);
        for (name, image) in images(&mut self.rng, true) {
            self.runtime.put_image(&name, image);
        }
        for pod in 0..self.manifests.len() {
            if let Manifest::Spoiled(version) = self.manifests[pod] {
                self.put(pod, version);
            }
        }
        self.heal_cluster();
        self.start_agent();
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub fn agent(&self) -> Option<&Agent> {
        self.agent.as_ref()
    }

    /// What is left of pods on the disk.
    pub fn leftovers(&self) -> Vec<String> {
        let folders = [format!("{ROOT}/pods"), POD_LOGS.to_owned(), CONTAINER_LOGS.to_owned()];
        let paths = folders.iter().flat_map(|folder| self.files.paths_below(folder));
        paths.chain(self.machine.held()).collect()
    }
}

pub fn record_path(uid: &PodUid) -> String {
    format!("{ROOT}/pods/{uid}/{RECORD}")
}

fn agent_settings() -> Settings {
    let args = [
        format!("--pod-manifest-path={MANIFESTS}"),
        format!("--root-dir={ROOT}"),
        format!("--container-logs-dir={CONTAINER_LOGS}"),
        format!("--hostname-override={NODE}"),
        "--container-runtime-endpoint=unix:///run/sim.sock".to_owned(),
        "--resolv-conf=".to_owned(),
    ];
    let args = args.into_iter().map(Into::into);
    let environment = Environment { hostname: NODE.to_owned() };
    match crablet_config::parse(args, &environment, |_: &std::path::Path| {
        Err(std::io::ErrorKind::NotFound.into())
    }) {
        Ok(Command::Run(settings)) => Settings { pod_logs_dir: POD_LOGS.into(), ..*settings },
        other => panic!("the simulation's flags are refused: {other:?}"),
    }
}

struct NoNetwork;

#[async_trait]
impl Fetch for NoNetwork {
    async fn get(
        &self,
        _: &str,
        _: &[(String, String)],
        _: usize,
        _: Duration,
    ) -> Result<Fetched, FetchError> {
        Err(FetchError::Connection("there is no network".to_owned()))
    }
}

struct Unheard;

impl EventSink for Unheard {
    fn emit(&self, _: crablet_model::events::Event) {}
}
