//! The pods of the bench: bound to their node from the start, so that no scheduler has a part in the figures.

use crablet_testbed::images;
use serde_json::{Value, json};

pub const COLLECTION: &str = "/api/v1/namespaces/default/pods";

pub fn path(name: &str) -> String {
    format!("{COLLECTION}/{name}")
}

/// Does nothing, and leaves at once when it is told to.
pub fn resting(node: &str, name: &str) -> Value {
    pod(node, name, "Always", json!({ "name": "main", "image": images::PAUSE }))
}

/// Ends well when its process gets SIGTERM. `mark` is in the process's command line, and nobody else's.
pub fn ending(node: &str, name: &str, mark: &str) -> Value {
    // The shell waits for its child, so a signal is handled at once.
    let script = format!("trap 'exit 0' TERM; sleep 1000000 & wait; : {mark}");
    let container = json!({ "name": "main", "image": images::BUSYBOX, "command": ["sh", "-c", script] });
    pod(node, name, "Never", container)
}

fn pod(node: &str, name: &str, restart: &str, mut container: Value) -> Value {
    container["imagePullPolicy"] = "Never".into();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "labels": { "bench": "node" } },
        "spec": { "nodeName": node, "restartPolicy": restart, "containers": [container] },
    })
}
