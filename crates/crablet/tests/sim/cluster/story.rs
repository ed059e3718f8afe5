//! What happens in the cluster during a night, and when.

use std::time::Duration;

use super::api::Weather;
use crate::sim::pods::sizes::Size;
use crate::sim::pods::volumes::OBJECTS;
use crate::sim::pods::{EDITS, PodPlan};
use crate::sim::story::{Draft, Moment};

/// Something that happens in the cluster, or between it and the node.
#[derive(Clone, Debug)]
pub enum Event {
    /// As `kubectl delete pod`, with the pod's grace or another.
    Delete {
        pod: usize,
        grace: Option<u32>,
    },
    /// The pod is taken out of the API at once, whatever runs.
    DeleteByForce {
        pod: usize,
    },
    /// Somebody deletes the mirror of a static pod.
    DeleteMirror {
        pod: usize,
        by_force: bool,
    },
    /// A controller writes a condition of its own.
    Condition {
        pod: usize,
    },
    /// A container of a pod that runs is to have another part of the node.
    Resize {
        pod: usize,
        container: usize,
        size: Size,
    },
    /// Somebody adds an ephemeral container to look at a pod that runs.
    Debug {
        pod: usize,
    },
    /// The secret for private images comes to be, right or wrong.
    PullSecret {
        right: bool,
    },
    /// A config map and a secret get new content, or come to be.
    Objects {
        number: u8,
        revision: u32,
    },
    /// They are deleted.
    NoObjects {
        number: u8,
    },

    Weather(Weather),
    Outage(bool),
    BreakWatches,
    CloseWatches,
    ExpireVersions,
    Bookmarks,
    StreamingLists(bool),
    /// The server is one that does not know all fields of a status.
    OldServer,

    /// Cgroups cannot be changed.
    Cgroups {
        busy: bool,
    },
    /// Calls about volumes fail with this probability.
    Volumes {
        chaos: f64,
    },
    /// So many calls about volumes of a kind are not answered.
    VolumesHang {
        kind: &'static str,
        times: u32,
    },
}

impl Draft<'_> {
    /// The operator of pods that the API server has.
    pub fn cluster_operator(&mut self, pods: &[PodPlan]) {
        for (pod, plan) in pods.iter().enumerate() {
            if !plan.is_of_api() {
                self.mirror_trouble(pod);
                continue;
            }
            let mut at = if self.chance(50) { Duration::ZERO } else { self.any_time() / 2 };
            let mut version = 0;
            self.at(at, Moment::Put { pod, version });
            for _ in 0..self.rng.usize(0..4) {
                at += Duration::from_millis(1) + self.any_time() / 3;
                match self.rng.u8(0..10) {
                    0..5 => {
                        at = self.cluster_deletion(pod, at);
                        if self.chance(70) {
                            version = (version / EDITS + 1) * EDITS;
                            self.at(at, Moment::Put { pod, version });
                        }
                    }
                    5..9 => {
                        version += 1;
                        self.at(at, Moment::Put { pod, version });
                    }
                    _ => self.at(at, Moment::Cluster(Event::Condition { pod })),
                }
            }
            for _ in 0..self.rng.usize(0..6).saturating_sub(3) {
                self.sometime(Moment::Cluster(Event::Debug { pod }));
            }
        }
    }

    /// The operator of pods that take a part of the node: they come, go, and grow and shrink.
    pub fn crowd_operator(&mut self, pods: &[PodPlan]) {
        for (pod, plan) in pods.iter().enumerate().filter(|(_, plan)| plan.is_of_api()) {
            let mut at = if self.chance(50) { Duration::ZERO } else { self.any_time() / 2 };
            let mut version = 0;
            self.at(at, Moment::Put { pod, version });
            for _ in 0..self.rng.usize(0..5) {
                at += Duration::from_millis(1) + self.any_time() / 3;
                if self.chance(70) {
                    let container = self.rng.usize(0..plan.containers.len());
                    let size = Size::random(self.rng);
                    self.at(at, Moment::Cluster(Event::Resize { pod, container, size }));
                    continue;
                }
                at = self.cluster_deletion(pod, at);
                if self.chance(70) {
                    version = (version / EDITS + 1) * EDITS;
                    self.at(at, Moment::Put { pod, version });
                }
            }
        }
    }

    /// When something new may take the pod's name.
    fn cluster_deletion(&mut self, pod: usize, at: Duration) -> Duration {
        let mut at = at;
        if self.chance(75) {
            let grace = [None, None, Some(1), Some(5), Some(40)][self.rng.usize(0..5)];
            self.at(at, Moment::Cluster(Event::Delete { pod, grace }));
            if self.chance(30) {
                at += self.up_to(20);
                self.at(at, Moment::Cluster(Event::Delete { pod, grace: Some(1) }));
            }
            if self.chance(20) {
                at += self.up_to(30);
                self.at(at, Moment::Cluster(Event::DeleteByForce { pod }));
            }
        } else {
            self.at(at, Moment::Cluster(Event::DeleteByForce { pod }));
        }
        at + Duration::from_millis(1) + if self.chance(60) { self.up_to(3) } else { self.up_to(120) }
    }

    fn mirror_trouble(&mut self, pod: usize) {
        if self.chance(30) {
            let by_force = self.rng.bool();
            self.sometime(Moment::Cluster(Event::DeleteMirror { pod, by_force }));
        }
    }

    /// Config maps and secrets.
    pub fn cluster_objects(&mut self) {
        if self.chance(20) {
            self.sometime(Moment::Cluster(Event::PullSecret { right: false }));
        }
        if self.chance(70) {
            self.sometime(Moment::Cluster(Event::PullSecret { right: true }));
        }
        for number in 0..OBJECTS {
            let mut at = if self.chance(70) { Duration::ZERO } else { self.any_time() };
            for revision in 0..self.rng.u32(1..4) {
                self.at(at, Moment::Cluster(Event::Objects { number, revision }));
                at += self.any_time() / 2;
            }
            if self.chance(15) {
                self.sometime(Moment::Cluster(Event::NoObjects { number }));
            }
        }
    }

    pub fn cluster_trouble(&mut self) {
        if self.chance(60) {
            let begin = self.any_time();
            let weather = Weather {
                fail: self.rng.f64() * 0.3,
                lose_answer: if self.chance(70) { self.rng.f64() * 0.1 } else { 0.0 },
                slow: self.rng.f64() * 0.4,
                slow_for: self.up_to(50),
            };
            self.at(begin, Moment::Cluster(Event::Weather(weather)));
            if self.chance(70) {
                let end = begin + self.any_time() / 2;
                self.at(end, Moment::Cluster(Event::Weather(Weather::default())));
            }
        }
        for _ in 0..self.rng.usize(0..3) {
            let begin = if self.chance(20) { Duration::ZERO } else { self.any_time() };
            let end = begin + if self.chance(60) { self.up_to(30) } else { self.up_to(400) };
            self.at(begin, Moment::Cluster(Event::Outage(true)));
            self.at(end, Moment::Cluster(Event::Outage(false)));
        }
        for _ in 0..self.rng.usize(0..6) {
            let moment = match self.rng.u8(0..10) {
                0..3 => Event::BreakWatches,
                3..5 => Event::CloseWatches,
                5..8 => Event::ExpireVersions,
                _ => Event::Bookmarks,
            };
            if matches!(moment, Event::ExpireVersions) && self.chance(70) {
                let at = self.any_time();
                self.at(at, Moment::Cluster(moment));
                self.at(at + Duration::from_millis(1), Moment::Cluster(Event::BreakWatches));
            } else {
                self.sometime(Moment::Cluster(moment));
            }
        }
        if self.chance(25) {
            self.at(Duration::ZERO, Moment::Cluster(Event::StreamingLists(false)));
            if self.chance(50) {
                self.sometime(Moment::Cluster(Event::StreamingLists(true)));
            }
        }
        if self.chance(10) {
            self.at(Duration::ZERO, Moment::Cluster(Event::OldServer));
        }
        if self.chance(20) {
            let begin = self.any_time();
            let end = begin + self.up_to(120);
            self.at(begin, Moment::Cluster(Event::Cgroups { busy: true }));
            self.at(end, Moment::Cluster(Event::Cgroups { busy: false }));
        }
        if self.chance(25) {
            let begin = self.any_time();
            let end = begin + self.up_to(200);
            let chaos = self.rng.f64() * 0.3;
            self.at(begin, Moment::Cluster(Event::Volumes { chaos }));
            self.at(end, Moment::Cluster(Event::Volumes { chaos: 0.0 }));
        }
        for _ in 0..self.rng.usize(0..4).saturating_sub(1) {
            let kind =
                ["secret", "configmap", "projected", "empty-dir", "downward-api"][self.rng.usize(0..5)];
            let times = self.rng.u32(1..4);
            self.sometime(Moment::Cluster(Event::VolumesHang { kind, times }));
        }
    }
}
