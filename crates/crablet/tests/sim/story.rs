//! A seed turned into a night: which pods, what goes wrong, and when. Pure data, printed when a seed fails.

use std::time::Duration;

use crablet_cri::fake::{Call, CallFault, Chaos, EventFaults, FaultKind, RuntimeSettings};
use crablet_host::fake::{DiskChaos, WatchFaults};
use fastrand::Rng;

use super::cluster::story::Event;
use super::pods::PodPlan;

/// Something that happens at a moment.
#[derive(Clone, Debug)]
pub enum Moment {
    /// The operator writes the manifest of a pod, by index, in a version of it.
    Put {
        pod: usize,
        version: u32,
    },
    /// The operator saves the same manifest again.
    Touch {
        pod: usize,
    },
    /// The operator leaves a typing error in a manifest.
    Spoil {
        pod: usize,
    },
    Remove {
        pod: usize,
    },
    /// A file that is no manifest at all.
    Litter(u8),

    KillAgent {
        down: Duration,
    },
    /// The agent dies at this many port calls from now.
    KillAtCall {
        calls: u64,
        down: Duration,
    },
    StartAgent,

    RuntimeAway,
    RuntimeBack,
    Calls(Chaos),
    Rule(CallFault),
    Events(EventFaults),
    CutStreams,
    Network(bool),
    LoseSandbox {
        pod: usize,
        with_containers: bool,
    },
    KillContainer {
        pod: usize,
        container: usize,
    },
    LoseTrack {
        pod: usize,
        container: usize,
    },

    Disk(DiskChaos),
    /// Some reads of manifests fail.
    UnreadableManifests {
        times: u32,
    },
    Watches(WatchFaults),
    BreakWatches,
    OverflowWatches,
    /// The wall clock jumps by so many seconds, ahead or back.
    ClockJump(i64),

    Cluster(Event),
}

/// What kind of night it is. Some promises cannot be kept on some nights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Everything but the kinds below.
    Usual,
    /// One pod is stuck in every way, and nothing else goes wrong: the others must not notice.
    OneStuck,
    /// The disk gets full, or cannot be read at times: what was not written, or not read, is not remembered by the next
    /// life.
    BadDisk,
    /// The API server cannot be reached from the start, and nothing else goes wrong: static pods must not notice.
    NoCluster,
    /// The wall clock jumps: what is measured by it ends early, or late.
    ClockJumps,
}

/// Who the node belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    #[default]
    Standalone,
    Cluster,
    /// A node of a cluster on which there is not room for all.
    Crowded,
}

#[derive(Clone, Debug)]
pub struct Story {
    pub seed: u64,
    pub family: Family,
    pub kind: Kind,
    pub runtime: RuntimeSettings,
    pub pods: Vec<PodPlan>,
    /// In order.
    pub moments: Vec<(Duration, Moment)>,
    /// When everything is well again, for the rest of the night.
    pub healed: Duration,
}

impl Story {
    pub fn of(seed: u64, family: Family) -> Self {
        match family {
            Family::Standalone => Self::standalone(seed),
            Family::Cluster => Self::cluster(seed),
            Family::Crowded => Self::crowded(seed),
        }
    }

    fn crowded(seed: u64) -> Self {
        let rng = &mut Rng::with_seed(seed ^ 0xc0_3d3d);
        let pods: Vec<_> =
            (0..rng.usize(2..=7)).map(|number| PodPlan::random_with_size(rng, number)).collect();
        let healed = Duration::from_secs(rng.u64(150..500));
        let runtime = random_runtime(rng);
        let mut draft = Draft { rng, end: healed, moments: Vec::new() };
        draft.crowd(&pods);
        let mut moments = draft.moments;
        moments.sort_by_key(|(at, _)| *at);
        Self { seed, family: Family::Crowded, kind: Kind::Usual, runtime, pods, moments, healed }
    }

    fn cluster(seed: u64) -> Self {
        let rng = &mut Rng::with_seed(seed ^ 0xc1_0573);
        let kind = match rng.u8(0..20) {
            0 => Kind::NoCluster,
            1 => Kind::BadDisk,
            _ => Kind::Usual,
        };
        let pods = (0..rng.usize(1..=5)).map(|number| match rng.u8(0..4) {
            _ if kind == Kind::NoCluster => PodPlan::random(rng, number),
            0 => PodPlan::random(rng, number),
            _ => PodPlan::random_of_api(rng, number),
        });
        let pods: Vec<_> = pods.collect();
        let healed = Duration::from_secs(rng.u64(150..500));
        let runtime = random_runtime(rng);
        let mut draft = Draft { rng, end: healed, moments: Vec::new() };
        if kind == Kind::NoCluster {
            draft.at(Duration::ZERO, Moment::Cluster(Event::Outage(true)));
            draft.come_and_go(0..pods.len());
        } else {
            draft.joined(&pods, kind);
        }
        let mut moments = draft.moments;
        moments.sort_by_key(|(at, _)| *at);
        Self { seed, family: Family::Cluster, kind, runtime, pods, moments, healed }
    }

    fn standalone(seed: u64) -> Self {
        let rng = &mut Rng::with_seed(seed);
        let kind = match rng.u8(0..40) {
            0..4 => Kind::OneStuck,
            4..7 => Kind::BadDisk,
            7..9 => Kind::ClockJumps,
            _ => Kind::Usual,
        };
        let pods: Vec<_> = (0..rng.usize(1..=6)).map(|number| PodPlan::random(rng, number)).collect();
        let healed = Duration::from_secs(rng.u64(300..900));
        let runtime = random_runtime(rng);
        let mut story =
            Self { seed, family: Family::Standalone, kind, runtime, pods, moments: Vec::new(), healed };
        let mut draft = Draft { rng, end: healed, moments: Vec::new() };
        if kind == Kind::OneStuck {
            draft.one_stuck(&story.pods);
        } else {
            draft.operator(0..story.pods.len());
            draft.deaths();
            draft.runtime_trouble();
            draft.host_trouble(kind);
            draft.accidents(&story.pods);
        }
        story.moments = draft.moments;
        story.moments.sort_by_key(|(at, _)| *at);
        story
    }
}

fn random_runtime(rng: &mut Rng) -> RuntimeSettings {
    RuntimeSettings {
        streams_events: rng.u8(0..3) > 0,
        forgives_absence: rng.bool(),
        work_time: (Duration::ZERO, Duration::from_millis(rng.u64(0..3000))),
        ..RuntimeSettings::default()
    }
}

pub struct Draft<'a> {
    pub rng: &'a mut Rng,
    end: Duration,
    moments: Vec<(Duration, Moment)>,
}

impl Draft<'_> {
    pub fn at(&mut self, at: Duration, moment: Moment) {
        if at < self.end {
            self.moments.push((at, moment));
        }
    }

    pub fn any_time(&mut self) -> Duration {
        Duration::from_millis(self.rng.u64(0..self.end.as_millis() as u64))
    }

    pub fn sometime(&mut self, moment: Moment) {
        let at = self.any_time();
        self.at(at, moment);
    }

    pub fn up_to(&mut self, seconds: u64) -> Duration {
        Duration::from_millis(self.rng.u64(0..seconds * 1000))
    }

    pub fn chance(&mut self, percent: u8) -> bool {
        self.rng.u8(0..100) < percent
    }

    fn operator(&mut self, pods: impl Iterator<Item = usize>) {
        for pod in pods {
            let mut at = if self.chance(50) { Duration::ZERO } else { self.any_time() / 2 };
            let mut version = 0;
            self.at(at, Moment::Put { pod, version });
            for _ in 0..self.rng.usize(0..4) {
                at += Duration::from_millis(1) + self.any_time() / 3;
                match self.rng.u8(0..10) {
                    0..4 => {
                        self.at(at, Moment::Remove { pod });
                        at += Duration::from_millis(1);
                        at += if self.chance(50) { self.up_to(5) } else { self.up_to(200) };
                        if self.chance(70) {
                            version += u32::from(self.chance(30));
                            self.at(at, Moment::Put { pod, version });
                        }
                    }
                    4..6 => {
                        version += 1;
                        self.at(at, Moment::Put { pod, version });
                    }
                    6..8 => self.at(at, Moment::Touch { pod }),
                    _ => {
                        self.at(at, Moment::Spoil { pod });
                        at += Duration::from_millis(1) + self.up_to(60);
                        self.at(at, Moment::Put { pod, version });
                    }
                }
            }
        }
        if self.chance(20) {
            let kind = self.rng.u8(..);
            self.sometime(Moment::Litter(kind));
        }
    }

    fn deaths(&mut self) {
        for _ in 0..self.rng.usize(0..=6) {
            let down = if self.chance(70) { self.up_to(5) } else { self.up_to(120) };
            let down = down + Duration::from_millis(1);
            let moment = if self.rng.bool() {
                Moment::KillAgent { down }
            } else {
                Moment::KillAtCall { calls: self.rng.u64(0..200), down }
            };
            self.sometime(moment);
        }
    }

    fn runtime_trouble(&mut self) {
        if self.chance(50) {
            let begin = self.any_time();
            let chaos = Chaos {
                err_before: self.rng.f64() * 0.1,
                err_after: self.rng.f64() * 0.05,
                hang: if self.chance(30) { self.rng.f64() * 0.02 } else { 0.0 },
                slow: self.rng.f64() * 0.3,
                slow_for: self.up_to(10),
            };
            self.at(begin, Moment::Calls(chaos));
            if self.chance(50) {
                let end = begin + self.any_time() / 2;
                self.at(end, Moment::Calls(Chaos::default()));
            }
        }
        for _ in 0..self.rng.usize(0..3) {
            let away = self.any_time();
            let back = away + if self.chance(70) { self.up_to(20) } else { self.up_to(200) };
            self.at(away, Moment::RuntimeAway);
            self.at(back, Moment::RuntimeBack);
        }
        if self.chance(40) {
            let faults = EventFaults {
                lose: self.rng.f64() * 0.5,
                double: self.rng.f64() * 0.3,
                anonymous: self.rng.f64() * 0.1,
                delay: self.up_to(20),
            };
            self.sometime(Moment::Events(faults));
        }
        if self.chance(40) {
            let stalls = FaultKind::Stalls(Duration::from_secs(15) + self.up_to(60));
            let times = self.rng.u32(1..4);
            self.sometime(Moment::Rule(CallFault::on(Call::CreateContainer, stalls).times(times)));
        }
        for _ in 0..self.rng.usize(0..3) {
            self.sometime(Moment::CutStreams);
        }
        if self.chance(15) {
            let down = self.any_time();
            let up = down + self.up_to(100);
            self.at(down, Moment::Network(false));
            self.at(up, Moment::Network(true));
        }
    }

    fn host_trouble(&mut self, kind: Kind) {
        if self.chance(40) {
            let faults = WatchFaults {
                lose: self.rng.f64(),
                double: self.rng.f64() * 0.5,
                delay: self.up_to(20),
                refuse: self.chance(20),
            };
            self.sometime(Moment::Watches(faults));
        }
        if self.chance(20) {
            self.sometime(Moment::BreakWatches);
        }
        if self.chance(20) {
            self.sometime(Moment::OverflowWatches);
        }
        let chaos = DiskChaos {
            full: if kind == Kind::BadDisk { self.rng.f64() * 0.3 } else { 0.0 },
            unreadable: if kind == Kind::BadDisk { self.rng.f64() * 0.05 } else { 0.0 },
            slow: self.rng.f64() * 0.2,
            slow_for: self.up_to(2),
        };
        self.sometime(Moment::Disk(chaos));
        if self.chance(15) {
            let times = self.rng.u32(1..4);
            self.sometime(Moment::UnreadableManifests { times });
        }
        if kind == Kind::ClockJumps {
            for _ in 0..self.rng.usize(1..4) {
                let seconds = if self.rng.bool() { self.rng.i64(1..4000) } else { -self.rng.i64(1..4000) };
                self.sometime(Moment::ClockJump(seconds));
            }
        }
    }

    fn accidents(&mut self, pods: &[PodPlan]) {
        for _ in 0..self.rng.usize(0..5) {
            let pod = self.rng.usize(0..pods.len());
            let container = self.rng.usize(0..pods[pod].everyone().count());
            let moment = match self.rng.u8(0..4) {
                0 => Moment::LoseSandbox { pod, with_containers: self.rng.bool() },
                1 => Moment::LoseTrack { pod, container },
                _ => Moment::KillContainer { pod, container },
            };
            self.sometime(moment);
        }
    }

    /// The first pod's calls all hang, or all fail; the others come and go around it.
    fn one_stuck(&mut self, pods: &[PodPlan]) {
        let kind = match self.rng.u8(0..3) {
            0 => FaultKind::Hang { effect: false },
            1 => FaultKind::Hang { effect: true },
            _ => FaultKind::ErrBefore("no".to_owned()),
        };
        use Call::{CreateContainer, PullImage, RunSandbox, StartContainer, StopContainer, StopSandbox};
        for call in [CreateContainer, PullImage, RunSandbox, StartContainer, StopContainer, StopSandbox] {
            if self.rng.bool() {
                let fault = CallFault::on(call, kind.clone()).of_pod(&pods[0].full_name());
                self.at(Duration::ZERO, Moment::Rule(fault));
            }
        }
        self.at(Duration::ZERO, Moment::Put { pod: 0, version: 0 });
        if self.rng.bool() {
            self.sometime(Moment::Remove { pod: 0 });
        }
        self.come_and_go(1..pods.len());
    }

    /// Everything that can happen to a node of a cluster.
    fn joined(&mut self, pods: &[PodPlan], kind: Kind) {
        self.operator((0..pods.len()).filter(|pod| !pods[*pod].is_of_api()));
        self.cluster_operator(pods);
        self.cluster_objects();
        self.cluster_trouble();
        self.deaths();
        if self.chance(50) {
            self.runtime_trouble();
        }
        if kind == Kind::BadDisk || self.chance(50) {
            self.host_trouble(kind);
        }
        self.accidents(pods);
    }

    /// Pods that come, go, and ask for other parts of a node that is too small for them.
    fn crowd(&mut self, pods: &[PodPlan]) {
        self.operator((0..pods.len()).filter(|pod| !pods[*pod].is_of_api()));
        self.crowd_operator(pods);
        if self.chance(50) {
            self.cluster_trouble();
        }
        self.deaths();
        if self.chance(50) {
            self.runtime_trouble();
        }
        if self.chance(50) {
            self.host_trouble(Kind::Usual);
        }
        self.accidents(pods);
    }

    fn come_and_go(&mut self, pods: std::ops::Range<usize>) {
        for pod in pods {
            let at = self.any_time() / 2;
            self.at(at, Moment::Put { pod, version: 0 });
            if self.chance(30) {
                let at = at + self.any_time() / 2;
                self.at(at, Moment::Remove { pod });
            }
        }
    }
}
