//! What is known about a pod when a plan is made.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crablet_model::events::Event;
use crablet_model::names::event_reason;
use crablet_model::runtime::{PodRuntime, RuntimeHandler, SandboxState};
use crablet_model::{PodRef, api};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::config::ResolvConf;
use super::memory::{Memory, later};
use super::plan::{Action, OpKey};
use super::resize::Grants;

/// Everything a plan is made from.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    pub id: &'a PodRef,
    /// The pod as its source wants it; `None` for a pod that only the runtime knows.
    pub pod: Option<&'a api::Pod>,
    /// What this version cannot do and the pod asks for. Such a pod is shown, waited with and ended, but not begun.
    pub refused: Option<&'a str>,
    pub wish: &'a Wish,
    /// From an inspection that began after the last operation ended.
    pub runtime: &'a PodRuntime,
    pub memory: &'a Memory,
    pub session: &'a Session,
    pub probes: &'a Probes,
    /// Why this node does not let the pod run, or run on.
    pub verdict: Option<&'a Verdict>,
    /// How the resources in `pod` stand to what was asked for and to what was given.
    pub grants: &'a Grants,
    pub node: &'a NodeFacts,
    pub now: Timestamp,
}

/// What should become of the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    Run,
    End(Ending),
}

/// How a pod ends. Kept on disk, so that a restart neither shortens nor prolongs the grace period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    pub since: Timestamp,
    /// Whole seconds from `since` until containers are killed. At least one.
    pub grace_seconds: i64,
    /// No source wants the pod any more: once it has ended, everything of it is removed.
    pub forget: bool,
    pub why: String,
}

/// The node itself has decided that the pod must not run, or not run on: it was not admitted, it was evicted, made room
/// for a critical pod, or its deadline passed. It is stopped and has failed, for good: the verdict is kept on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// Of the status: `Evicted`, `OutOfcpu`, `DeadlineExceeded`.
    pub reason: String,
    pub message: String,
    pub since: Timestamp,
    /// Whole seconds that running containers have; `None` for those that the pod itself gives them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_seconds: Option<i64>,
    /// Reason and message of a `DisruptionTarget` condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption: Option<(String, String)>,
}

/// How the message of a pod begins that was not let in.
pub const REJECTED: &str = "Pod was rejected: ";

impl Verdict {
    /// It was not let in, or not let back in.
    pub fn is_rejection(&self) -> bool {
        self.message.starts_with(REJECTED)
    }
}

/// What probes have found out about running containers, by container id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probes(pub BTreeMap<String, Probed>);

/// What is known of one instance of a container. `None`: not known yet, or not probed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probed {
    pub startup: Option<bool>,
    pub liveness: Option<bool>,
    pub readiness: Option<bool>,
}

impl Probes {
    pub fn of(&self, container_id: &str) -> Probed {
        self.0.get(container_id).copied().unwrap_or_default()
    }
}

/// A container's last hook: when it began, and whether it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreStop {
    pub since: Timestamp,
    pub ended: bool,
}

/// Pauses between two events that tell of the same state of the network. Upstream tells of it about once a
/// second, and aggregation makes one event of that. Here, too, it comes at once and does not age, with few calls.
const NETWORK_FIRST_SECONDS: i64 = 1;
const NETWORK_MAX_SECONDS: i64 = 30;

/// What was told last of the network that a pod's sandbox waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkTold {
    pub message: String,
    pub at: Timestamp,
    pub pause_seconds: i64,
}

impl NetworkTold {
    pub(super) fn after(before: Option<&Self>, message: &str, now: Timestamp) -> Self {
        let same = before.filter(|before| before.message == message);
        let doubled = |before: &Self| before.pause_seconds.saturating_mul(2).min(NETWORK_MAX_SECONDS);
        let pause_seconds = same.map_or(NETWORK_FIRST_SECONDS, doubled);
        Self { message: message.to_owned(), at: now, pause_seconds }
    }

    /// When it is told again.
    pub(super) fn due(&self) -> Timestamp {
        later(self.at, self.pause_seconds)
    }

    /// Is this what was told, just now? A clock that was set back makes nobody wait.
    pub(super) fn is_fresh(&self, message: &str, now: Timestamp) -> bool {
        self.message == message && (self.at..self.due()).contains(&now)
    }
}

/// What the worker knows and the runtime does not. Lost when the agent dies, and nothing is harmed by that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// Operations that run now.
    pub ops: BTreeMap<OpKey, Operation>,
    /// What succeeded last on each thing, and when. A runtime that says "done" and shows nothing of it is not asked
    /// again at once.
    pub done: BTreeMap<OpKey, (Action, Timestamp)>,
    /// Images made ready for a start that has not happened yet, by container, each with the name that it was asked for
    /// by: the pod may want another one by now.
    pub images: BTreeMap<String, (String, PreparedImage)>,
    /// When an image whose pulls wait was last looked for in vain, by container.
    pub image_looks: BTreeMap<String, Timestamp>,
    /// Sandboxes whose teardown succeeded. A dead sandbox may still hold a network, so each is stopped once.
    pub stopped_sandboxes: BTreeSet<String>,
    /// Highest restart count of any instance seen, in the runtime or by its log files, by container.
    pub seen_attempts: BTreeMap<String, u32>,
    /// The restart count of a last try that came to nothing, by container: the next one has it again.
    pub in_vain: BTreeMap<String, u32>,
    /// This life of the agent looks after the pod's cgroup and volumes.
    pub taken_over: bool,
    /// When a failed try to do so is due again.
    pub take_over_at: Option<Timestamp>,
    /// Hooks that were begun before a stop, by container id: each runs once.
    pub pre_stops: BTreeMap<String, PreStop>,
    /// Of the grant for which a resize has made the pod's cgroup ready.
    pub cgroup_for: Option<u64>,
    /// The pod's volumes are unmounted and its cgroup is gone.
    pub released: bool,
    /// The pod's folders and logs are gone.
    pub cleaned: bool,
    /// Of a pod without a sandbox, for want of a network.
    pub network_told: Option<NetworkTold>,
    /// The handler that the pod's runtime class means, once it is known and where the status depends on it.
    pub runtime_handler: Option<String>,
    /// Text found in termination message files and logs of exited containers, by container id.
    pub termination_messages: BTreeMap<String, String>,
}

impl Session {
    /// Takes in that an action succeeded. An instance that was started counts also if nobody ever sees it: it may be
    /// removed behind the agent's back before the next inspection.
    pub fn succeeded(&mut self, action: Action, now: Timestamp) {
        if let Action::StartContainer { container, attempt, .. } = &action {
            self.saw_attempt(container, *attempt);
        }
        self.done.insert(action.key(), (action, now));
    }

    /// Takes in which events a plan tells.
    pub fn told(&mut self, events: &[Event], now: Timestamp) {
        let of_network = events.iter().find(|event| event.reason == event_reason::NETWORK_NOT_READY);
        if let Some(event) = of_network {
            let before = self.network_told.as_ref();
            self.network_told = Some(NetworkTold::after(before, &event.message, now));
        }
    }

    /// Takes in an inspection: what was seen counts, and what is gone is forgotten.
    pub fn observe(&mut self, runtime: &PodRuntime) {
        for container in &runtime.containers {
            self.saw_attempt(&container.name, container.restart_count);
        }
        let known = |id: &str| {
            runtime.sandboxes.iter().any(|s| s.id == id) || runtime.containers.iter().any(|c| c.id == id)
        };
        self.stopped_sandboxes.retain(|id| known(id));
        self.termination_messages.retain(|id, _| known(id));
        self.pre_stops.retain(|id, _| known(id));
        // What came late, from a call that nobody waited for any longer, is given back and tidied away once more.
        self.cleaned &= runtime.is_empty();
        let has_sandbox = runtime.sandboxes.iter().any(|s| s.state == SandboxState::Ready);
        self.released &= !has_sandbox;
        // Should the network fail once more, that is told at once.
        if has_sandbox {
            self.network_told = None;
        }
        let (cleaned, released) = (self.cleaned, self.released);
        self.done.retain(|key, (action, _)| match key {
            OpKey::Cleanup => cleaned,
            // Once it was seen, whoever removes it need not be doubted.
            OpKey::CreateSandbox => !is_shown(action, runtime),
            OpKey::Release => released,
            OpKey::Sandbox(id) | OpKey::Container(id) | OpKey::PreStop(id) => known(id),
            _ => true,
        });
    }

    fn saw_attempt(&mut self, container: &str, attempt: u32) {
        match self.seen_attempts.get_mut(container) {
            Some(highest) => *highest = (*highest).max(attempt),
            None => {
                self.seen_attempts.insert(container.to_owned(), attempt);
            }
        }
    }
}

fn is_shown(made: &Action, runtime: &PodRuntime) -> bool {
    match made {
        Action::CreateSandbox { attempt } => runtime.sandboxes.iter().any(|s| s.attempt >= *attempt),
        _ => false,
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    pub since: Timestamp,
    /// For stops: the grace that the runtime was given, in seconds from `since`.
    pub grace_seconds: Option<i64>,
    /// Of one that makes a sandbox or a container: the runtime is making it just now. Before that it waits for what is
    /// needed, after that for a hook.
    pub with_runtime: bool,
    /// Of one that makes an image ready: which.
    pub image: Option<String>,
}

impl Operation {
    /// One that begins.
    pub fn of(action: &Action, now: Timestamp) -> Self {
        let grace_seconds = match action {
            Action::StopContainer { grace, .. } => i64::try_from(grace.as_secs()).ok(),
            _ => None,
        };
        let image = match action {
            Action::EnsureImage { image, .. } => Some(image.clone()),
            _ => None,
        };
        Self { since: now, grace_seconds, with_runtime: false, image }
    }
}

/// An image that is on the node and may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedImage {
    /// What to create the container from.
    pub image_ref: String,
    /// The image's own user, numeric or by name.
    pub uid: Option<i64>,
    pub username: String,
}

/// How the machine's cgroups limit swap, if they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SwapControl {
    #[default]
    Absent,
    /// cgroup v1 limits memory and swap together.
    Together,
    /// cgroup v2 limits swap on its own.
    Alone,
}

/// The cgroups that pods have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CgroupKind {
    /// `cgroupsPerQOS` is off.
    #[default]
    Absent,
    V1,
    V2,
}

/// What is true of the whole node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFacts {
    pub name: String,
    /// What statuses show of the node's addresses, at most one of each family. Empty in standalone mode, as upstream:
    /// only a Node object has addresses.
    pub host_ips: Vec<IpAddr>,
    /// The same addresses for what containers are told, known also in standalone mode.
    pub own_ips: Vec<IpAddr>,
    /// As `--node-ip` gives them; empty if it does not.
    pub node_ips: Vec<IpAddr>,
    pub memory_capacity: i64,
    /// What pods may use in all: containers without a limit of their own are told this.
    pub allocatable_memory: i64,
    pub allocatable_milli_cpu: i64,
    pub allocatable_storage: i64,
    /// `containerd`, `cri-o`: the scheme of container ids in statuses.
    pub runtime_name: String,
    /// The ways to run a sandbox that the runtime knows.
    pub runtime_handlers: Vec<RuntimeHandler>,
    pub network_ready: bool,
    pub network_message: String,
    /// What of that the runtime says of its network.
    pub network_problem: Option<String>,
    /// Below it lies `pods/<uid>`.
    pub root_dir: String,
    pub pod_logs_dir: String,
    pub cluster_dns: Vec<String>,
    pub cluster_domain: String,
    /// `None`: the configuration names no resolver file.
    pub resolv_conf: Option<ResolvConf>,
    /// `cpuCFSQuota`.
    pub cpu_cfs_quota: bool,
    /// `cpuCFSQuotaPeriod` in microseconds; `None` for the usual one.
    pub cpu_period: Option<i64>,
    /// Containers that are out of memory die as a whole; only cgroup v2 can do that.
    pub oom_group: bool,
    pub seccomp_default: bool,
    /// Pods may say which signal ends their containers (gate `ContainerStopSignals`).
    pub stop_signals: bool,
    /// Paths under `/sys/devices/system/cpu` to mask besides the fixed ones.
    pub extra_masked_paths: Vec<String>,
    /// Whether files that containers get must be labelled.
    pub selinux_enabled: bool,
    /// Sizes of huge pages that the machine has, as cgroups name them: `2MB`, `1GB`.
    pub hugepage_sizes: Vec<String>,
    pub swap_control: SwapControl,
    pub pod_cgroups: CgroupKind,
    /// Longest crash-loop back-off in seconds.
    pub max_crash_loop_seconds: i64,
}
