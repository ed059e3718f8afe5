use serde_json::json;

use super::*;
use crate::node::status_patch;

#[test]
fn a_patch_says_what_differs_and_nothing_else() {
    let beat = |type_: &str, minute: u32, status: &str| json!({"type": type_, "status": status, "reason": "R", "lastHeartbeatTime": format!("2026-01-01T00:{minute:02}:00Z")});
    let old = json!({
        "metadata": {"name": "n1", "resourceVersion": "7", "labels": {"kept": "1", "changed": "1"}, "annotations": {"gone": "x"}},
        "spec": {"podCIDR": "10.1.0.0/24"},
        "status": {
            "capacity": {"cpu": "4", "hugepages-1Gi": "0"},
            "conditions": [beat("NetworkUnavailable", 0, "False"), beat("MemoryPressure", 1, "False"), beat("Ready", 1, "False")],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.5"}],
            "images": [{"names": ["a"], "sizeBytes": 1}],
            "volumesInUse": ["v"],
            "nodeInfo": {"bootID": "b1", "machineID": "m"},
        },
    });
    let mut new = old.clone();
    new["metadata"]["labels"] = json!({"kept": "1", "changed": "2", "new": "3"});
    new["metadata"]["annotations"] = json!({});
    new["spec"]["podCIDR"] = json!("never sent");
    new["status"]["capacity"] = json!({"cpu": "8"});
    new["status"]["conditions"] = json!([
        beat("NetworkUnavailable", 0, "False"),
        beat("MemoryPressure", 2, "False"),
        beat("Ready", 2, "True"),
        beat("New", 2, "True")
    ]);
    new["status"]["addresses"] =
        json!([{"type": "InternalIP", "address": "10.0.0.6"}, {"type": "InternalIP", "address": "fd00::6"}]);
    new["status"]["images"] = json!([{"names": ["b"], "sizeBytes": 2}, {"names": ["a"], "sizeBytes": 1}]);
    new["status"].as_object_mut().unwrap().remove("volumesInUse");
    new["status"]["nodeInfo"]["bootID"] = json!("b2");
    let later = "2026-01-01T00:02:00Z";
    assert_eq!(
        status_patch(&node(old.clone()), &node(new.clone())).unwrap(),
        json!({
            "metadata": {"labels": {"changed": "2", "new": "3"}, "annotations": {"gone": null}},
            "status": {
                "capacity": {"cpu": "8", "hugepages-1Gi": null},
                "conditions": [
                    {"type": "MemoryPressure", "lastHeartbeatTime": later},
                    {"type": "Ready", "status": "True", "lastHeartbeatTime": later},
                    beat("New", 2, "True"),
                ],
                "addresses": [
                    {"type": "InternalIP", "address": "10.0.0.6"},
                    {"type": "InternalIP", "address": "fd00::6"},
                    {"$patch": "replace"},
                ],
                "images": [{"names": ["b"], "sizeBytes": 2}, {"names": ["a"], "sizeBytes": 1}],
                "volumesInUse": null,
                "nodeInfo": {"bootID": "b2"},
            },
        })
    );
    // First addresses have nothing to replace.
    let mut bare = old;
    bare["status"].as_object_mut().unwrap().remove("addresses");
    let patch = status_patch(&node(bare), &node(new.clone())).unwrap();
    assert_eq!(patch["status"]["addresses"], new["status"]["addresses"]);
    assert_eq!(status_patch(&node(new.clone()), &node(new)).unwrap(), json!({}));
}
