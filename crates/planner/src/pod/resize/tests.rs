//! What a resize comes to: who is changed, who is started again, and in which order.

use std::collections::BTreeMap;

use crablet_model::cgroup::limits::{CgroupLimits, CgroupNow};
use crablet_model::runtime::{ContainerState, PodRuntime, SandboxState};
use crablet_model::{PodRef, PodUid};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::{Memory, NodeFacts, Outcome, Plan, Probes, Session, Wish, plan};
use super::steps::{PodCgroup, Step, refusal, steps};
use super::*;

const MIB: i64 = 1 << 20;

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).expect("in range")
}

/// CPU request and limit in thousandths, memory request and limit in MiB.
fn resources((cpu, cpu_limit, memory, memory_limit): Numbers) -> Value {
    json!({
        "requests": {"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")},
        "limits": {"cpu": format!("{cpu_limit}m"), "memory": format!("{memory_limit}Mi")},
    })
}

type Numbers = (i64, i64, i64, i64);

/// A pod whose containers run.
struct World {
    pod: api::Pod,
    runtime: PodRuntime,
    memory: Memory,
    session: Session,
    grants: Grants,
}

impl World {
    /// Containers by name with what they were granted and what they have.
    fn new(containers: &[(&str, Numbers, Numbers)]) -> Self {
        let spec = |of: &dyn Fn(usize) -> Numbers| {
            let all = containers.iter().enumerate();
            let all =
                all.map(|(n, (name, ..))| json!({"name": name, "image": "i", "resources": resources(of(n))}));
            json!({"containers": all.collect::<Vec<_>>()})
        };
        let granted = spec(&|n| containers[n].1);
        let given: api::PodSpec = serde_json::from_value(spec(&|n| containers[n].2)).expect("a spec");
        let pod = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u", "generation": 7}, "spec": granted});
        let uid = PodUid::new("u");
        let sandbox = Sandbox {
            id: "s".to_owned(),
            uid: uid.clone(),
            name: "p".to_owned(),
            namespace: "ns".to_owned(),
            attempt: 0,
            state: SandboxState::Ready,
            created_at: now(),
            ips: vec![[10, 0, 0, 1].into()],
            host_network: false,
        };
        let running = containers.iter().map(|(name, ..)| Container {
            id: format!("id-{name}"),
            sandbox_id: "s".to_owned(),
            uid: uid.clone(),
            name: (*name).to_owned(),
            restart_count: 0,
            hash: String::new(),
            created_at: now(),
            state: ContainerState::Running { started_at: now() },
            image: "i".to_owned(),
            image_ref: "i".to_owned(),
            annotations: BTreeMap::new(),
            log_path: String::new(),
            termination_file: None,
            user: None,
            resources: None,
            stop_signal: None,
        });
        Self {
            pod: serde_json::from_value(pod).expect("a pod"),
            runtime: PodRuntime { sandboxes: vec![sandbox], containers: running.collect() },
            memory: Memory::default(),
            session: Session { taken_over: true, ..Session::default() },
            grants: Grants { actuated: Some(Arc::new(Allocation::actuated(&given))), ..Grants::default() },
        }
    }

    fn plan(&self) -> Plan {
        let (node, probes) = (NodeFacts { network_ready: true, ..NodeFacts::default() }, Probes::default());
        plan(&Facts {
            id: &PodRef::of(&self.pod),
            pod: Some(&self.pod),
            refused: None,
            wish: &Wish::Run,
            runtime: &self.runtime,
            memory: &self.memory,
            session: &self.session,
            probes: &probes,
            verdict: None,
            grants: &self.grants,
            node: &node,
            now: now(),
        })
    }

    fn resize(&self) -> Option<Resize> {
        self.plan().actions.into_iter().find_map(|action| match action {
            Action::Resize(resize) => Some(resize),
            _ => None,
        })
    }

    fn policy(mut self, container: usize, resource: &str) -> Self {
        let policy = json!([{"resourceName": resource, "restartPolicy": "RestartContainer"}]);
        let spec = self.pod.spec.as_mut().expect("a spec");
        spec.containers[container].resize_policy = serde_json::from_value(policy).expect("a policy");
        self
    }

    fn condition(&self, kind: &str) -> Option<Value> {
        let conditions = self.plan().status.expect("a status").conditions.unwrap_or_default();
        let found = conditions.into_iter().find(|c| c.type_ == kind)?;
        Some(serde_json::to_value(found).expect("json"))
    }
}

const SMALL: Numbers = (100, 100, 100, 100);
const LARGE: Numbers = (200, 200, 200, 200);

#[test]
fn who_gives_something_back_is_changed_first() {
    let world = World::new(&[("a", LARGE, SMALL), ("b", SMALL, LARGE), ("c", SMALL, SMALL)]);
    let resize = world.resize().expect("a resize");
    let names = |all: &[Change]| all.iter().map(|c| c.container.clone()).collect::<Vec<_>>();
    assert_eq!(
        (names(&resize.memory), names(&resize.cpu)),
        (vec!["b".into(), "a".into()], vec!["b".into(), "a".into()])
    );
    assert!(!resize.for_starts && !resize.whole);
}

#[test]
fn where_nothing_differs_nothing_is_done() {
    assert_eq!(World::new(&[("a", SMALL, SMALL)]).resize(), None);
    let mut unknown = World::new(&[("a", LARGE, SMALL)]);
    unknown.grants.actuated = None;
    assert_eq!(unknown.resize(), None, "nobody knows what it has: it is taken for what it was granted");
    assert_eq!(unknown.condition("PodResizeInProgress"), None);
}

#[test]
fn a_container_is_started_again_where_its_policy_asks_for_it() {
    for (resource, granted, restarts) in [
        ("memory", (200, 200, 100, 100), false),
        ("memory", (100, 100, 200, 200), true),
        ("cpu", (200, 100, 100, 100), true),
        ("cpu", (100, 100, 200, 100), false),
    ] {
        let mut world = World::new(&[("a", granted, SMALL), ("b", LARGE, SMALL)]).policy(0, resource);
        let plan = world.plan();
        let stopped = plan.actions.iter().any(
            |a| matches!(a, Action::StopContainer { message, .. } if message == "Container a resize requires restart"),
        );
        assert_eq!(stopped, restarts, "{resource} {granted:?}");
        assert_eq!(world.resize().is_none(), restarts, "{resource} {granted:?}: nothing before it is down");
        if !restarts {
            continue;
        }
        // It is down: the pod's cgroup and the other container come before its start.
        world.memory = plan.memory;
        let exit = crablet_model::runtime::Exit {
            code: 0,
            reason: String::new(),
            message: String::new(),
            started_at: None,
            finished_at: now(),
        };
        world.runtime.containers[0].state = ContainerState::Exited(exit);
        let image =
            super::super::PreparedImage { image_ref: "i".to_owned(), uid: None, username: String::new() };
        world.session.images.insert("a".to_owned(), ("i:latest".to_owned(), image));
        let resize = world.resize().expect("a resize");
        assert!(resize.for_starts && resize.cpu.iter().all(|c| c.container == "b"));
        let starts =
            |world: &World| world.plan().actions.iter().any(|a| matches!(a, Action::StartContainer { .. }));
        assert!(!starts(&world), "it waits for the resize");
        let mut memory = std::mem::take(&mut world.memory);
        memory.absorb(&mut world.session, Outcome::Resized { digest: resize.digest }, now());
        world.memory = memory;
        let granted = Allocation::actuated(world.pod.spec.as_ref().expect("a spec"));
        let mut given = (**world.grants.actuated.as_ref().expect("what it was given")).clone();
        given.containers.extend(granted.containers.into_iter().filter(|(name, _)| name == "b"));
        world.grants.actuated = Some(Arc::new(given));
        assert!(starts(&world), "the pod's cgroup is ready for it");
    }
}

#[test]
fn a_resize_is_told_from_its_grant_to_its_end() {
    let mut world = World::new(&[("a", LARGE, SMALL)]);
    world.grants.granted = Some(6);
    let told = world.condition("PodResizeInProgress").expect("a condition");
    assert_eq!((&told["status"], &told["observedGeneration"]), (&json!("True"), &json!(6)));
    assert!(told.get("reason").is_none());

    world.memory = world.plan().memory;
    let mut memory = world.memory.clone();
    memory.absorb(&mut world.session, Outcome::ResizeFailed { message: "no".to_owned() }, now());
    world.memory = memory;
    let plan = world.plan();
    let told = world.condition("PodResizeInProgress").expect("a condition");
    assert_eq!((&told["reason"], &told["message"]), (&json!("Error"), &json!("no")));
    assert_eq!(plan.events.len(), 1);
    assert!(
        plan.events[0].message.starts_with("Pod resize error: {\"containers\":["),
        "{}",
        plan.events[0].message
    );
    assert!(plan.events[0].message.ends_with("\"generation\":6,\"error\":\"no\"}"));
    assert!(plan.actions.is_empty() && plan.wake_at.is_some(), "it is tried again later");
    world.memory = plan.memory;
    assert!(world.plan().events.is_empty(), "an error is told once");

    let given = Allocation::actuated(world.pod.spec.as_ref().expect("a spec"));
    world.grants.actuated = Some(Arc::new(given));
    let plan = world.plan();
    let texts: Vec<_> = plan.events.iter().map(|e| (e.reason.as_ref(), e.message.as_str())).collect();
    let expected = "Pod resize completed: {\"containers\":[{\"name\":\"a\",\"resources\":{\"limits\":{\"cpu\":\"200m\",\
                    \"memory\":\"200Mi\"},\"requests\":{\"cpu\":\"200m\",\"memory\":\"200Mi\"}}}],\"generation\":6}";
    assert_eq!(texts, [("ResizeCompleted", expected)]);
    assert_eq!(world.condition("PodResizeInProgress"), None);
    world.memory = plan.memory;
    assert!(world.plan().events.is_empty());
}

/// Nothing runs, and what is to start waits for the pod's cgroup: the next try has to wait, too.
#[test]
fn a_resize_for_what_starts_is_not_tried_again_at_once() {
    let mut world = World::new(&[("a", LARGE, SMALL)]);
    world.runtime.containers.clear();
    assert!(world.resize().is_some());
    world.memory = world.plan().memory;
    let failed = Outcome::ResizeFailed { message: "device or resource busy".to_owned() };
    world.memory.absorb(&mut world.session, failed, now());
    let plan = world.plan();
    assert_eq!(world.resize(), None);
    assert!(plan.wake_at.is_some());
    assert!(plan.events.iter().all(|event| event.reason != "ResizeCompleted"), "{:?}", plan.events);
}

#[test]
fn what_a_pod_waits_for_is_told_until_it_is_judged_again() {
    let mut world = World::new(&[("a", SMALL, SMALL)]);
    world.grants.pending =
        Pending::Waits { reason: "Deferred", message: "no room".to_owned(), generation: Some(7) };
    let told = world.condition("PodResizePending").expect("a condition");
    assert_eq!(
        (&told["reason"], &told["message"], &told["observedGeneration"]),
        (&json!("Deferred"), &json!("no room"), &json!(7))
    );
    world.memory = world.plan().memory;
    world.grants.pending = Pending::Unjudged;
    assert_eq!(world.condition("PodResizePending"), Some(told), "the agent was restarted");
    world.grants.pending = Pending::Nothing;
    assert_eq!(world.condition("PodResizePending"), None);
}

fn printed(steps: &[Step<'_>]) -> Vec<String> {
    let one = |step: &Step<'_>| match step {
        Step::Pod(CgroupLimits { memory: Some(bytes), .. }) => format!("pod memory {}", bytes / MIB),
        Step::Pod(CgroupLimits { cpu_quota: Some(quota), .. }) => format!("pod quota {quota}"),
        Step::Pod(limits) => format!("pod shares {}", limits.cpu_shares.unwrap_or_default()),
        Step::Container(change, to) => format!(
            "{} cpu {}/{} memory {}/{}",
            change.container,
            to.cpu_request,
            to.cpu_limit,
            to.memory_request / MIB,
            to.memory_limit / MIB
        ),
    };
    steps.iter().map(one).collect()
}

fn cgroup(wanted: i64) -> CgroupLimits {
    CgroupLimits {
        cpu_shares: Some(wanted),
        cpu_quota: Some(wanted * 100),
        cpu_period: Some(100_000),
        memory: Some(wanted * MIB),
        ..CgroupLimits::default()
    }
}

fn at(size: i64) -> CgroupNow {
    CgroupNow {
        cpu_shares: size,
        cpu_quota: size * 100,
        cpu_period: 100_000,
        memory: size * MIB,
        memory_usage: 50 * MIB,
    }
}

#[test]
fn the_pod_grows_before_its_containers_and_shrinks_after_them() {
    let up = World::new(&[("a", LARGE, SMALL)]).resize().expect("a resize");
    let (wanted, now) = (cgroup(200), at(100));
    assert_eq!(
        printed(&steps(&up, Some(PodCgroup { wanted: &wanted, now: &now }))),
        [
            "pod memory 200",
            "a cpu 100/100 memory 200/200",
            "pod quota 20000",
            "pod shares 200",
            "a cpu 200/200 memory 200/200",
        ]
    );
    let down = World::new(&[("a", SMALL, LARGE)]).resize().expect("a resize");
    let (wanted, now) = (cgroup(100), at(200));
    assert_eq!(
        printed(&steps(&down, Some(PodCgroup { wanted: &wanted, now: &now }))),
        [
            "a cpu 200/200 memory 100/100",
            "pod memory 100",
            "a cpu 100/100 memory 100/100",
            "pod shares 100",
            "pod quota 10000",
        ]
    );
    assert_eq!(printed(&steps(&down, None)).len(), 2, "pods have no cgroup: only the container changes");
    let open = CgroupLimits { cpu_shares: Some(100), ..CgroupLimits::default() };
    let now = at(100);
    let same = steps(&down, Some(PodCgroup { wanted: &open, now: &now }));
    assert_eq!(printed(&same).len(), 2, "no limit leaves what there is");
}

#[test]
fn memory_that_is_used_is_not_taken_away() {
    let down = World::new(&[("a", SMALL, LARGE)]).resize().expect("a resize");
    let (wanted, now) = (cgroup(100), at(200));
    let ask = |used: Option<i64>, now: &CgroupNow| {
        let used = used.map(|mib| u64::try_from(mib * MIB).expect("not negative"));
        refusal(&down, Some(PodCgroup { wanted: &wanted, now }), &BTreeMap::from([("a", used)]))
    };
    assert_eq!(ask(Some(50), &now), None);
    assert_eq!(
        ask(Some(100), &now).as_deref(),
        Some(
            "cannot decrease memory limits: attempting to set container \"a\" memory limit (104857600) below current usage (104857600)"
        )
    );
    let full = CgroupNow { memory_usage: 100 * MIB, ..now };
    assert_eq!(
        ask(None, &full).as_deref(),
        Some(
            "cannot decrease memory limits: [attempting to set pod memory limit (104857600) below current usage (104857600), missing container \"a\" memory usage]"
        )
    );
    let up = World::new(&[("a", LARGE, SMALL)]).resize().expect("a resize");
    let wanted = cgroup(200);
    assert_eq!(refusal(&up, Some(PodCgroup { wanted: &wanted, now: &full }), &BTreeMap::new()), None);
}
