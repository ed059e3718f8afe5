use crablet_model::runtime::RuntimeHandler;
use serde_json::json;

use super::*;
use crate::node::status::architecture;
use crate::node::{initial_node, status_changed, update_node};

fn reasons(events: &[crablet_model::events::NodeEvent]) -> Vec<&str> {
    events.iter().map(|event| event.reason).collect()
}

fn ready(node: &api::Node) -> (String, String) {
    let conditions = node.status.as_ref().unwrap().conditions.as_ref().unwrap();
    let ready = conditions.last().unwrap();
    assert_eq!(ready.type_, "Ready", "`Ready` is last");
    (format!("{} {}", ready.status, ready.reason.as_ref().unwrap()), ready.message.clone().unwrap())
}

#[test]
fn a_new_node_says_everything() {
    let mut world = World::new();
    world.settings.labels =
        [("kubernetes.io/hostname".to_owned(), "other".to_owned()), ("a".to_owned(), "b".to_owned())].into();
    world.settings.cloud_external = true;
    world.settings.node_ips = ips(&["10.0.0.5"]);
    world.settings.provider_id = Some("cloud://1".to_owned());
    world.settings.declared_features = vec!["Second".to_owned(), "First".to_owned()];
    world.runtime.handlers = vec![
        RuntimeHandler { name: "runc".to_owned(), user_namespaces: true, ..RuntimeHandler::default() },
        RuntimeHandler { recursive_read_only_mounts: true, ..RuntimeHandler::default() },
    ];
    world.runtime.supplemental_groups_policy = Some(true);
    world.machine.as_mut().unwrap().swap_bytes = 1024;
    let (node, outcome) = initial_node(&world.facts());
    assert_eq!(outcome.errors, Vec::<String>::new());
    assert_eq!(
        reasons(&outcome.events),
        ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"]
    );
    assert_eq!(outcome.events[0].message, "Node n1 status is now: NodeHasSufficientMemory");
    let condition = |type_: &str, status: &str, reason: &str, message: &str| {
        let now = "2026-11-15T10:00:00Z";
        json!({"type": type_, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": now})
    };
    let resources = json!({"cpu": "4", "ephemeral-storage": "100Gi", "memory": "8Gi", "pods": "110"});
    assert_eq!(
        shown(&node),
        json!({
            "metadata": {
                "name": "n1",
                "labels": {
                    "a": "b", "kubernetes.io/hostname": "other",
                    "kubernetes.io/os": "linux", "kubernetes.io/arch": architecture(),
                    "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": architecture(),
                },
                "annotations": {
                    "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                    "alpha.kubernetes.io/provided-node-ip": "10.0.0.5",
                },
            },
            "spec": {
                "providerID": "cloud://1",
                "taints": [{"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}],
            },
            "status": {
                "addresses": [{"type": "InternalIP", "address": "10.0.0.5"}, {"type": "Hostname", "address": "n1"}],
                "capacity": resources, "allocatable": resources,
                "nodeInfo": {
                    "machineID": "m", "systemUUID": "s", "bootID": "b", "kernelVersion": "6.12.0",
                    "osImage": "Some Linux", "containerRuntimeVersion": "containerd://2.1.4",
                    "kubeletVersion": "v1.36.4", "kubeProxyVersion": "", "operatingSystem": "linux",
                    "architecture": architecture(), "swap": {"capacity": 1024},
                },
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
                "runtimeHandlers": [
                    {"name": "", "features": {"recursiveReadOnlyMounts": true, "userNamespaces": false}},
                    {"name": "runc", "features": {"recursiveReadOnlyMounts": false, "userNamespaces": true}},
                ],
                "features": {"supplementalGroupsPolicy": true},
                "declaredFeatures": ["First", "Second"],
                "conditions": [
                    condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
                    condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
                    condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
                    condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
                ],
            },
        })
    );
}

#[test]
fn ready_says_all_that_is_wrong_in_order() {
    type Change = fn(&mut World);
    let cases: &[(Change, &str)] = &[
        (
            |w| w.runtime = RuntimeState::default(),
            "[container runtime status check may not have completed yet, network state unknown]",
        ),
        (|w| w.runtime.errors = vec!["container runtime is down".to_owned()], "container runtime is down"),
        (|w| w.runtime.errors = vec!["a".to_owned(), "b".to_owned(), "a".to_owned()], "[a, b]"),
        (
            |w| {
                w.runtime.errors = vec!["container runtime is down".to_owned()];
                w.runtime.network_error = Some("container runtime network not ready: x".to_owned());
                w.storage_error = Some("CSINode is not yet initialized".to_owned());
                w.runtime.shutting_down = true;
                w.root_capacity = None;
            },
            "[container runtime is down, container runtime network not ready: x, CSINode is not yet initialized, \
            node is shutting down, missing node capacity for resources: ephemeral-storage]",
        ),
    ];
    for (change, expected) in cases {
        let mut world = World::new();
        change(&mut world);
        assert_eq!(ready(&settled(&world)), ("False KubeletNotReady".to_owned(), (*expected).to_owned()));
    }
}

#[test]
fn transitions_are_told_and_kept() {
    let mut world = World::new();
    let node = settled(&world);
    world.now = "2026-11-15T10:01:00Z".parse().unwrap();
    let (same, outcome) = update_node(&node, &world.facts());
    // The labels of system and architecture are new; the status is not.
    assert!(!status_changed(node.status.as_ref().unwrap(), same.status.as_ref().unwrap()));
    assert_eq!((outcome.changed, outcome.events), (true, Vec::new()));

    world.runtime.errors.push("container runtime is down".to_owned());
    let (down, outcome) = update_node(&same, &world.facts());
    assert_eq!((outcome.changed, reasons(&outcome.events)), (true, vec!["NodeNotReady"]));
    let times: Vec<_> = shown(&down)["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["lastTransitionTime"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        times,
        ["2026-11-15T10:00:00Z", "2026-11-15T10:00:00Z", "2026-11-15T10:00:00Z", "2026-11-15T10:01:00Z"]
    );

    world.runtime.errors.clear();
    world.machine.as_mut().unwrap().boot_id = "b2".to_owned();
    let (_, outcome) = update_node(&down, &world.facts());
    assert_eq!(reasons(&outcome.events), ["Rebooted", "NodeReady"]);
    assert_eq!(outcome.events[0].message, "Node n1 has been rebooted, boot id: b2");
}

#[test]
fn a_status_is_compared_by_its_meaning() {
    let status = |json: Value| serde_json::from_value::<api::NodeStatus>(json).unwrap();
    let condition = |type_: &str, status: &str, beat: &str| json!({"type": type_, "status": status, "lastHeartbeatTime": beat});
    let base = json!({
        "capacity": {"memory": "1Gi", "cpu": "1"},
        "conditions": [condition("A", "True", "2026-01-01T00:00:00Z"), condition("B", "True", "2026-01-01T00:00:00Z")],
    });
    let changed = |new: Value| status_changed(&status(base.clone()), &status(new));
    let with = |field: &str, value: Value| {
        let mut new = base.clone();
        new[field] = value;
        new
    };
    assert!(!changed(base.clone()));
    assert!(!changed(with("capacity", json!({"memory": "1048576Ki", "cpu": "1000m"}))));
    assert!(changed(with("capacity", json!({"memory": "1Gi", "cpu": "2"}))));
    assert!(changed(with("capacity", json!({"memory": "1Gi"}))));
    assert!(!changed(with("images", json!([]))));
    assert!(changed(with("images", json!([{"names": ["x"], "sizeBytes": 1}]))));
    assert!(changed(with("addresses", json!([{"type": "Hostname", "address": "n1"}]))));
    assert!(changed(with("nodeInfo", json!({"bootID": "b"}))));
    let later = "2026-02-01T00:00:00Z";
    assert!(!changed(with(
        "conditions",
        json!([condition("B", "True", later), condition("A", "True", later)])
    )));
    assert!(changed(with(
        "conditions",
        json!([condition("B", "True", later), condition("A", "False", later)])
    )));
    assert!(changed(with("conditions", json!([condition("A", "True", later)]))));
}

#[test]
fn the_largest_images_are_shown_with_a_few_names() {
    let image = |name: &str, names: usize, size| api::ContainerImage {
        names: Some((0..names).map(|n| format!("{name}:{n}")).collect()),
        size_bytes: Some(size),
    };
    let shown = |most| {
        let mut world = World::new();
        world.settings.max_images = most;
        world.images = vec![image("small", 1, 1), image("first", 7, 5), image("second", 1, 5)];
        let images = settled(&world).status.unwrap().images.unwrap_or_default();
        images
            .iter()
            .map(|i| format!("{} {}", i.names.as_ref().unwrap()[0], i.names.as_ref().unwrap().len()))
            .collect::<Vec<_>>()
    };
    assert_eq!(shown(2), ["first:0 5", "second:0 1"]);
    assert_eq!(shown(-1), ["first:0 5", "second:0 1", "small:0 1"]);
    assert_eq!(shown(0), Vec::<String>::new());
}

#[test]
fn an_image_without_a_name_is_news_once() {
    let mut world = World::new();
    world.images = vec![api::ContainerImage { names: Some(Vec::new()), size_bytes: Some(1) }];
    let (said, outcome) = update_node(&settled(&World::new()), &world.facts());
    assert!(outcome.changed);
    let mut answer = shown(&said);
    assert_eq!(answer["status"]["images"], json!([{"sizeBytes": 1}]));
    answer["status"]["images"][0]["names"] = Value::Null;
    assert!(!update_node(&node(answer), &world.facts()).1.changed);
}

#[test]
fn volumes_in_use_are_said_once_they_are_known() {
    let mut world = World::new();
    let mut node = settled(&world);
    node.status.as_mut().unwrap().volumes_in_use = Some(vec!["of the last life".to_owned()]);
    assert_eq!(
        shown(&update_node(&node, &world.facts()).0)["status"]["volumesInUse"],
        json!(["of the last life"])
    );
    world.volumes_in_use = Some(vec!["b".to_owned(), "a".to_owned(), "b".to_owned()]);
    assert_eq!(shown(&update_node(&node, &world.facts()).0)["status"]["volumesInUse"], json!(["a", "b"]));
}
