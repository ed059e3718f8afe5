use serde_json::json;

use super::*;
use crate::node::initial_node;

#[test]
fn registration_corrects_what_the_agent_is_right_about() {
    let mut world = World::new();
    world.settings.labels = [
        ("mine".to_owned(), "new".to_owned()),
        ("topology.kubernetes.io/zone".to_owned(), "z2".to_owned()),
        ("node.kubernetes.io/instance-type".to_owned(), String::new()),
    ]
    .into();
    world.settings.taints =
        vec![api::Taint { key: "mine".to_owned(), effect: "NoSchedule".to_owned(), ..api::Taint::default() }];
    world.settings.controller_attach_detach = false;
    world.machine.as_mut().unwrap().huge_pages = [(2 << 20, 8)].into();
    let (initial, _) = initial_node(&world.facts());
    let existing = node(json!({
        "metadata": {
            "name": "n1",
            "labels": {"mine": "old", "topology.kubernetes.io/zone": "z1", "node.kubernetes.io/instance-type": "big"},
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true", "other": "1"},
        },
        "status": {
            "capacity": {"cpu": "1", "hugepages-2Mi": "0", "hugepages-1Gi": "0", "example.com/dongle": "2"},
            "allocatable": {"cpu": "1", "hugepages-2Mi": "0", "hugepages-1Gi": "0", "example.com/dongle": "2"},
        },
    }));
    let reconciled = crate::node::reconcile(&existing, &initial, true).expect("something differs");
    let shown = shown(&reconciled);
    let labels = &shown["metadata"]["labels"];
    assert_eq!(labels["mine"], "old", "labels of the cluster's are the cluster's");
    assert_eq!(labels["topology.kubernetes.io/zone"], "z2");
    assert_eq!(labels["kubernetes.io/hostname"], "n1");
    assert!(labels.get("node.kubernetes.io/instance-type").is_none());
    assert_eq!(shown["metadata"]["annotations"], json!({"other": "1"}));
    assert!(shown.get("spec").is_none(), "taints are set at creation only");
    for list in ["capacity", "allocatable"] {
        assert_eq!(
            shown["status"][list],
            json!({"cpu": "1", "hugepages-2Mi": "16Mi", "example.com/dongle": "0"})
        );
    }
    assert_eq!(crate::node::reconcile(&reconciled, &initial, true), None);
}

#[test]
fn a_node_without_resources_gets_them() {
    let (initial, _) = initial_node(&World::new().facts());
    let bare = node(json!({"metadata": {"name": "n1"}}));
    let reconciled = crate::node::reconcile(&bare, &initial, true).expect("everything differs");
    let (got, wanted) = (reconciled.status.unwrap(), initial.status.unwrap());
    assert_eq!((got.capacity, got.allocatable), (wanted.capacity, wanted.allocatable));
}
