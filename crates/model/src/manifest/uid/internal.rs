//! A pod as JSON in the shape of upstream's inner types (v1.36), where these are not the API's.

use serde_json::{Map, Value};

use super::pod_amounts;
use crate::api::Pod;

/// Fields of the specification that live in the security context inside.
const MOVED: [&str; 5] = ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"];
/// Notes that very old clients wrote, and that are dropped on sight.
const DROPPED: [&str; 4] = [
    "pod.beta.kubernetes.io/init-containers",
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
    "pod.alpha.kubernetes.io/init-container-statuses",
];

pub(super) fn shape(pod: &Pod) -> Value {
    // Cannot fail: all keys are texts. If it did, the place of the manifest would still tell pods apart.
    let mut value = serde_json::to_value(pod).unwrap_or_default();
    let Some(fields) = value.as_object_mut() else { return value };
    // Inside it is the type that tells what an object is.
    fields.retain(|name, _| name != "apiVersion" && name != "kind");
    if let Some(notes) =
        fields.get_mut("metadata").and_then(|meta| meta.get_mut("annotations")?.as_object_mut())
    {
        notes.retain(|name, _| !DROPPED.contains(&name.as_str()));
    }
    if let Some(spec) = fields.get_mut("spec").and_then(Value::as_object_mut) {
        shape_spec(spec);
    }
    if let Some(status) = fields.get_mut("status").and_then(Value::as_object_mut) {
        shape_status(status);
    }
    value
}

fn shape_spec(spec: &mut Map<String, Value>) {
    let moved: Vec<_> = MOVED.iter().filter_map(|name| spec.remove_entry(*name)).collect();
    let context = spec.entry("securityContext").or_insert_with(|| Value::Object(Map::new()));
    if let Some(context) = context.as_object_mut() {
        context.extend(moved);
    }
    pod_amounts::fill_in(spec);
}

/// There is one list of addresses; the first is what the API has as the pod's only one.
fn shape_status(status: &mut Map<String, Value>) {
    let Some(Value::String(only)) = status.remove("podIP").filter(|ip| ip.as_str() != Some("")) else {
        return;
    };
    let first = status.get("podIPs").and_then(|ips| ips.get(0)?.get("ip")?.as_str());
    if first != Some(only.as_str()) {
        status.insert("podIPs".to_owned(), serde_json::json!([{ "ip": only }]));
    }
}
