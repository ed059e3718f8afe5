//! What the pod as a whole asks for and may use.

use std::sync::Arc;

use crablet_model::PodRef;
use crablet_model::allocation::Allocation;
use crablet_model::runtime::{LinuxResources, SandboxState};
use serde_json::{Value, json};

use super::super::super::facts::{CgroupKind, Probed};
use super::super::{resources_due, status_patch};
use super::world::{NOW, World, at, exited, later, running};

/// A pod that has begun to run a moment ago, and to which nothing has happened since.
fn new(spec: Value) -> World {
    let world = World::new(spec).sandbox(SandboxState::Ready);
    let world = world.instance("c", "id1", running()).instance("d", "id2", running());
    world.with(|w| {
        w.pod.metadata.generation = Some(1);
        w.runtime.containers.iter_mut().for_each(|c| c.restart_count = 0);
    })
}

fn looked_at_again(spec: Value) -> World {
    new(spec).with(|w| w.now = at(NOW + 100))
}

#[test]
fn a_pod_that_runs_shows_what_its_cgroup_has() {
    let one = |resources: Value| json!({"containers": [{"name": "c", "image": "i", "resources": resources}]});
    let limits = |cpu: &str, memory: &str| json!({"limits": {"cpu": cpu, "memory": memory}, "requests": {"cpu": cpu, "memory": memory}});
    let whole =
        |resources: Value| json!({"resources": resources, "containers": [{"name": "c", "image": "i"}]});
    let two = json!({"containers": [
        {"name": "c", "image": "i", "resources": limits("100m", "16Mi")}, {"name": "d", "image": "i"},
    ]});
    let cases = [
        ("nothing", one(json!({})), json!({})),
        ("what it asks for", one(limits("100m", "16Mi")), limits("100m", "16Mi")),
        (
            "memory in whole pages",
            one(json!({"limits": {"memory": "100M"}, "requests": {"memory": "100M"}})),
            json!({"limits": {"memory": "97656Ki"}, "requests": {"memory": "100M"}}),
        ),
        ("a limit that not all have is none", two, json!({"requests": {"cpu": "100m", "memory": "16Mi"}})),
        (
            "neither disk nor devices",
            one(json!({"requests": {"ephemeral-storage": "1Mi", "example.com/device": "1"}})),
            json!({}),
        ),
        ("CPU that is too little to be told apart", one(json!({"requests": {"cpu": "2m"}})), json!({})),
        (
            "a limit of CPU that is too small, too",
            one(json!({"limits": {"cpu": "7m"}, "requests": {"cpu": "7m"}})),
            json!({"requests": {"cpu": "7m"}}),
        ),
        (
            "memory of zero was asked for",
            one(json!({"requests": {"memory": "0"}})),
            json!({"requests": {"memory": "0"}}),
        ),
        (
            "what is said of the pod as a whole",
            whole(json!({"limits": {"cpu": "5m", "hugepages-2Mi": "4Mi"}, "requests": {"cpu": "1m"}})),
            json!({"limits": {"cpu": "5m", "hugepages-2Mi": "4Mi"}, "requests": {"cpu": "1m"}}),
        ),
    ];
    for (what, spec, expected) in cases {
        assert_eq!(looked_at_again(spec).json()["resources"], expected, "{what}");
    }
}

#[test]
fn weights_of_cgroup_v2_are_coarse() {
    let spec =
        json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]});
    let on =
        |kind| looked_at_again(spec.clone()).with(|w| w.node.pod_cgroups = kind).json()["resources"].clone();
    assert_eq!(on(CgroupKind::V1), json!({"requests": {"cpu": "100m"}}));
    assert_eq!(on(CgroupKind::V2), json!({"requests": {"cpu": "79m"}}));
    assert_eq!(on(CgroupKind::Absent), json!({}));
}

#[test]
fn the_cgroup_is_shown_once_the_pod_was_looked_at_again() {
    let resources = json!({"requests": {"memory": "1M", "ephemeral-storage": "1Mi"}});
    let probe = json!({"exec": {"command": ["true"]}, "periodSeconds": 55});
    let probed =
        json!({"containers": [{"name": "c", "image": "i", "resources": resources, "readinessProbe": probe}]});
    let plain = json!({"containers": [{"name": "c", "image": "i", "resources": resources}]});
    let (sums, cgroup) = (resources, json!({"requests": {"memory": "1M"}}));
    let shown = |world: &World| world.json()["resources"].clone();
    let due =
        |world: &World| resources_due(&world.facts(&PodRef::of(&world.pod)), &world.pod, &world.status());

    let world = new(plain.clone());
    assert_eq!(shown(&world), sums);
    let at = due(&world).expect("a time");
    let wait = at.duration_since(later(world.now, -50)).as_secs();
    assert!((60..=90).contains(&wait), "{wait} s after its start");
    let world = world.with(|w| w.now = at);
    assert_eq!((shown(&world), due(&world)), (cgroup.clone(), None));

    let ready = Probed { readiness: Some(true), ..Probed::default() };
    assert_eq!(shown(&new(probed.clone())), sums);
    assert_eq!(shown(&new(probed.clone()).with(|w| w.now = later(w.now, 5))), cgroup, "its probe was asked");
    assert_eq!(shown(&new(probed).probed("id1", ready)), cgroup);
    assert_eq!(shown(&new(plain.clone()).with(|w| w.pod.metadata.generation = Some(2))), cgroup);
    assert_eq!(shown(&new(plain.clone()).with(|w| w.runtime.containers[0].restart_count = 1)), cgroup);
    assert_eq!(shown(&new(plain.clone()).with(|w| w.now = later(w.now, 100)).made_static()), sums);
    // It is not begun yet, or has ended.
    assert_eq!(shown(&World::new(plain.clone()).sandbox(SandboxState::Ready)), sums);
    let mut never = plain;
    never["restartPolicy"] = "Never".into();
    let ended = World::new(never).sandbox(SandboxState::NotReady).instance("c", "id1", exited(0));
    assert_eq!((ended.phase().as_str(), shown(&ended)), ("Succeeded", cgroup));
}

#[test]
fn a_container_shows_what_the_runtime_says_and_asks_for_memory_to_the_digit() {
    let asked = json!({
        "requests": {"cpu": "100m", "memory": "10000000500m"}, "limits": {"cpu": "200m", "memory": "20M"},
    });
    let world = new(json!({"containers": [{"name": "c", "image": "i", "resources": asked}]}));
    let world = world.with(|w| {
        let spec = w.pod.spec.clone().expect("a spec");
        w.grants.actuated = Some(Arc::new(Allocation::actuated(&spec)));
    });
    assert_eq!(world.container()["resources"], asked, "a runtime that says nothing does as it is told");
    let numbers = LinuxResources {
        cpu_shares: 102,
        cpu_quota: 30_000,
        cpu_period: 100_000,
        memory_limit: 20_000_000,
        ..LinuxResources::default()
    };
    let world = world.with(|w| w.runtime.containers[0].resources = Some(numbers));
    assert_eq!(
        world.container()["resources"],
        json!({
            "requests": {"cpu": "100m", "memory": "10000000500m"}, "limits": {"cpu": "300m", "memory": "20000000"},
        })
    );
}

#[test]
fn an_amount_that_has_gone_is_taken_back() {
    let theirs = json!({"resources": {"requests": {"memory": "1M", "ephemeral-storage": "1Mi"}, "limits": {"cpu": "1m"}}});
    let patch = |resources: Value| {
        let patch = status_patch(&theirs, &json!({"resources": resources}), "u1").expect("a patch");
        patch["status"]["resources"].clone()
    };
    assert_eq!(
        patch(json!({"requests": {"memory": "1M"}})),
        json!({"requests": {"memory": "1M", "ephemeral-storage": null}, "limits": null})
    );
    assert_eq!(patch(json!({})), json!({"requests": null, "limits": null}));
}
