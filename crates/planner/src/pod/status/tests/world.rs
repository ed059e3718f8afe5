//! Everything a status is made from, and short ways to say it.

use crablet_model::runtime::{Container, ContainerState, Exit, PodRuntime, Sandbox};
use crablet_model::{PodRef, PodUid};
use serde_json::{Value, json};

use super::super::super::facts::{
    CgroupKind, Ending, NodeFacts, Operation, Probed, Probes, Session, Verdict,
};
use super::super::super::memory::{self, CrashLoop, PullBackOff};
use super::super::super::plan::{OpKey, plan};
use super::super::super::resize::Grants;
use super::super::super::restart;
use super::super::*;

/// 2023-11-14T22:13:20Z, and a bit that no status may show.
pub(super) const NOW: i64 = 1_700_000_000;

pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::new(seconds, 123_456_789).expect("a timestamp")
}

/// Everything a status is made from. Starts as a pod of one container `c` of which nothing is there.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) pod: api::Pod,
    pub(super) wish: Wish,
    pub(super) runtime: PodRuntime,
    pub(super) memory: Memory,
    pub(super) session: Session,
    pub(super) probes: Probes,
    /// Of the node, just now.
    pub(super) verdict: Option<Verdict>,
    pub(super) grants: Grants,
    pub(super) node: NodeFacts,
    pub(super) now: Timestamp,
}

impl World {
    pub(super) fn new(spec: Value) -> Self {
        let pod = json!({"metadata": {"name": "web", "namespace": "default", "uid": "u1", "generation": 3}, "spec": spec});
        Self {
            pod: serde_json::from_value(pod).expect("a pod"),
            wish: Wish::Run,
            runtime: PodRuntime::default(),
            memory: Memory::default(),
            session: Session::default(),
            probes: Probes::default(),
            verdict: None,
            grants: Grants::default(),
            node: NodeFacts {
                runtime_name: "containerd".to_owned(),
                max_crash_loop_seconds: 300,
                cpu_cfs_quota: true,
                pod_cgroups: CgroupKind::V1,
                ..Default::default()
            },
            now: at(NOW),
        }
    }

    pub(super) fn one(policy: &str) -> Self {
        Self::new(json!({"restartPolicy": policy, "containers": [{"name": "c", "image": "busybox"}]}))
    }

    pub(super) fn status(&self) -> api::PodStatus {
        let id = PodRef::of(&self.pod);
        status(&self.facts(&id), &self.pod, &self.memory)
    }

    pub(super) fn facts<'a>(&'a self, id: &'a PodRef) -> Facts<'a> {
        Facts {
            id,
            pod: Some(&self.pod),
            refused: None,
            wish: &self.wish,
            runtime: &self.runtime,
            memory: &self.memory,
            session: &self.session,
            probes: &self.probes,
            verdict: self.verdict.as_ref(),
            grants: &self.grants,
            node: &self.node,
            now: self.now,
        }
    }

    pub(super) fn json(&self) -> Value {
        serde_json::to_value(self.status()).expect("json")
    }

    /// The status of the init, regular or ephemeral container of this name.
    pub(super) fn named(&self, name: &str) -> Value {
        let status = self.json();
        let lists = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"];
        let mut all = lists.iter().filter_map(|list| status[list].as_array()).flatten();
        all.find(|c| c["name"] == name).cloned().expect("a status")
    }

    pub(super) fn phase(&self) -> String {
        self.status().phase.expect("a phase")
    }

    /// The first container's status.
    pub(super) fn container(&self) -> Value {
        self.json()["containerStatuses"][0].clone()
    }

    pub(super) fn condition(&self, kind: &str) -> Value {
        let all = self.json()["conditions"].clone();
        all.as_array().and_then(|all| all.iter().find(|c| c["type"] == kind)).cloned().expect("a condition")
    }

    /// Publishes the status and lets time pass, as when the agent comes back.
    pub(super) fn publish(&mut self) -> &mut Self {
        self.memory.status = Some(self.status());
        self.now = later(self.now, 3);
        self
    }

    /// The same by a whole plan, which takes in what is to be remembered.
    pub(super) fn plans(&mut self) -> &mut Self {
        let id = PodRef::of(&self.pod);
        self.memory = plan(&self.facts(&id)).memory;
        self.now = later(self.now, 3);
        self
    }

    pub(super) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub(super) fn sandbox(self, state: SandboxState) -> Self {
        self.with(|w| w.runtime.sandboxes.push(sandbox("s1", 0, state)))
    }

    /// Adds an instance that is older than those added before.
    pub(super) fn instance(self, name: &str, id: &str, state: ContainerState) -> Self {
        self.with(|w| {
            let newer = w.runtime.containers.len();
            w.runtime.containers.push(instance(name, id, 10 - newer as u32, state));
        })
    }

    pub(super) fn busy(self, key: OpKey) -> Self {
        self.with(|w| {
            let operation =
                Operation { since: w.now, grace_seconds: Some(30), with_runtime: false, image: None };
            w.session.ops.insert(key, operation);
        })
    }

    pub(super) fn probed(self, id: &str, probed: Probed) -> Self {
        self.with(|w| {
            w.probes.0.insert(id.to_owned(), probed);
        })
    }

    /// Stops what runs, with this code, and the sandbox.
    pub(super) fn stopped(self, code: i32) -> Self {
        self.with(|w| {
            for container in w.runtime.containers.iter_mut().filter(|c| c.state.is_running()) {
                container.state = exited(code);
            }
            w.runtime.sandboxes.iter_mut().for_each(|s| s.state = SandboxState::NotReady);
        })
    }

    pub(super) fn ends(self) -> Self {
        let end =
            Ending { since: at(NOW), grace_seconds: 30, forget: false, why: "it was deleted".to_owned() };
        self.with(|w| w.wish = Wish::End(end))
    }

    pub(super) fn made_static(self) -> Self {
        self.with(|w| {
            let source = (annotation::CONFIG_SOURCE.to_owned(), source::FILE.to_owned());
            w.pod.metadata.annotations = Some([source].into());
        })
    }
}

pub(super) fn later(time: Timestamp, seconds: i64) -> Timestamp {
    memory::later(time, seconds)
}

pub(super) fn sandbox(id: &str, attempt: u32, state: SandboxState) -> Sandbox {
    Sandbox {
        id: id.to_owned(),
        uid: PodUid::new("u1"),
        name: "web".to_owned(),
        namespace: "default".to_owned(),
        attempt,
        state,
        created_at: at(NOW - 100),
        ips: vec!["10.0.0.7".parse().expect("an address")],
        host_network: false,
    }
}

pub(super) fn instance(name: &str, id: &str, restart_count: u32, state: ContainerState) -> Container {
    Container {
        id: id.to_owned(),
        sandbox_id: "s1".to_owned(),
        uid: PodUid::new("u1"),
        name: name.to_owned(),
        restart_count,
        hash: String::new(),
        created_at: at(NOW - 100),
        state,
        image: "docker.io/library/busybox:latest".to_owned(),
        image_ref: "sha256:abc".to_owned(),
        annotations: Default::default(),
        log_path: String::new(),
        termination_file: None,
        user: None,
        resources: None,
        stop_signal: None,
    }
}

pub(super) fn running() -> ContainerState {
    ContainerState::Running { started_at: at(NOW - 50) }
}

pub(super) fn exited(code: i32) -> ContainerState {
    let reason = if code == 0 { "Completed" } else { "Error" };
    ContainerState::Exited(Exit {
        code,
        reason: reason.to_owned(),
        message: String::new(),
        started_at: Some(at(NOW - 50)),
        finished_at: at(NOW - 5),
    })
}

pub(super) fn failed_pull(seconds_ago: i64) -> PullBackOff {
    PullBackOff {
        delay_seconds: 20,
        failed_at: at(NOW - seconds_ago),
        reason: "ErrImagePull".to_owned(),
        message: "no such host".to_owned(),
        announced: None,
    }
}

/// A back-off of ten seconds after the exit of any instance but the one named.
pub(super) fn crash_loops(world: &mut World, begun_after: &str) {
    let exited = instance("c", begun_after, 0, exited(1));
    let (pod, id) = (world.pod.clone(), PodRef::of(&world.pod));
    let mut memory = Memory::default();
    let earlier = World { now: at(NOW - 20), ..world.clone() };
    let spec = &pod.spec.as_ref().expect("a spec").containers[0];
    restart::advance(&earlier.facts(&id), &mut memory, spec, &exited);
    let entry: CrashLoop = memory.crash_loops.remove(&spec.name).expect("an entry");
    world.memory.crash_loops.insert(spec.name.clone(), entry);
}
