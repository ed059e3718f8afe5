//! What to send so that the API server's copy of a pod's status becomes ours.
//!
//! A strategic merge patch of the fields that this agent owns. Conditions are merged by type, so those of others stay;
//! addresses are replaced as a whole; everything else is one value.

use crablet_model::names::condition;
use serde_json::{Map, Value, json};

/// Fields that go when we no longer have them. What is not here and not in our status belongs to somebody else.
const OWNED: [&str; 13] = [
    "allocatedResources",
    "containerStatuses",
    "ephemeralContainerStatuses",
    "hostIP",
    "hostIPs",
    "initContainerStatuses",
    "message",
    "observedGeneration",
    "podIP",
    "podIPs",
    "reason",
    "resources",
    "startTime",
];

/// Conditions that go when we no longer have them. All others belong to somebody else.
const OWNED_CONDITIONS: [&str; 8] = [
    condition::POD_SCHEDULED,
    condition::POD_READY_TO_START_CONTAINERS,
    condition::INITIALIZED,
    condition::CONTAINERS_READY,
    condition::READY,
    condition::ALL_CONTAINERS_RESTARTING,
    condition::POD_RESIZE_PENDING,
    condition::POD_RESIZE_IN_PROGRESS,
];

/// Is this condition the agent's alone?
pub fn is_owned_condition(kind: &str) -> bool {
    OWNED_CONDITIONS.contains(&kind)
}

/// The body of the patch, or `None` when the API server has it all. `uid` is the pod's in the API: another pod of the
/// same name is not touched.
pub fn status_patch(theirs: &Value, ours: &Value, uid: &str) -> Option<Value> {
    let empty = Map::new();
    let (theirs, ours) = (theirs.as_object().unwrap_or(&empty), ours.as_object().unwrap_or(&empty));
    let mut changed = Map::new();
    for (field, value) in ours {
        let before = theirs.get(field).unwrap_or(&Value::Null);
        // Of a pod that asks for nothing, `resources` is there and empty, as upstream leaves it.
        let is_there_at_last = before.is_null() && value.is_object();
        if field == "conditions" || !is_there_at_last && same(before, value) {
            continue;
        }
        let value = match field.as_str() {
            "podIPs" | "hostIPs" => replaced(value),
            _ => merged(before, value),
        };
        changed.insert(field.clone(), value);
    }
    let conditions = changed_conditions(list(theirs, "conditions"), list(ours, "conditions"));
    if !conditions.is_empty() {
        changed.insert("conditions".to_owned(), Value::Array(conditions));
    }
    for field in OWNED {
        let had = theirs.get(field).is_some_and(|value| !is_nothing(value));
        if had && ours.get(field).is_none_or(|value| is_nothing(value) && !value.is_object()) {
            changed.insert(field.to_owned(), Value::Null);
        }
    }
    (!changed.is_empty()).then(|| json!({"metadata": {"uid": uid}, "status": changed}))
}

fn list<'a>(status: &'a Map<String, Value>, field: &str) -> &'a [Value] {
    status.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn changed_conditions(theirs: &[Value], ours: &[Value]) -> Vec<Value> {
    let mut changed = Vec::new();
    for condition in ours {
        let before = theirs.iter().find(|c| c["type"] == condition["type"]);
        if before.is_some_and(|before| same(before, condition)) {
            continue;
        }
        let mut condition = condition.clone();
        // Merged into what is there: what has gone has to be said.
        if let (Some(before), Some(fields)) = (before, condition.as_object_mut()) {
            for field in ["reason", "message", "observedGeneration"] {
                if !is_nothing(&before[field]) && !fields.contains_key(field) {
                    fields.insert(field.to_owned(), Value::Null);
                }
            }
        }
        changed.push(condition);
    }
    let gone = theirs.iter().map(|c| &c["type"]).filter(|kind| {
        let owned = kind.as_str().is_some_and(is_owned_condition);
        owned && !ours.iter().any(|c| c["type"] == **kind)
    });
    changed.extend(gone.map(|kind| json!({"$patch": "delete", "type": kind})));
    changed
}

/// These lists are merged by a key of their items unless the patch says otherwise.
fn replaced(list: &Value) -> Value {
    let mut items = list.as_array().cloned().unwrap_or_default();
    items.push(json!({"$patch": "replace"}));
    Value::Array(items)
}

/// An object is merged into what is there, key by key: what has gone has to be said.
fn merged(before: &Value, value: &Value) -> Value {
    let (Some(old), Some(new)) = (before.as_object(), value.as_object()) else { return value.clone() };
    let gone = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let kept = new.iter().map(|(key, value)| (key.clone(), merged(&before[key], value)));
    gone.chain(kept).collect()
}

/// The API does not tell what is empty from what is not there.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_nothing),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(a), Value::Object(b)) => {
            let null = Value::Null;
            a.iter().all(|(key, value)| same(value, b.get(key).unwrap_or(&null)))
                && b.iter().all(|(key, value)| a.contains_key(key) || is_nothing(value))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (a, b) => a == b || (is_nothing(a) && is_nothing(b)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_sent() {
        for (theirs, ours, expected) in [
            (json!({}), json!({}), Value::Null),
            (json!({"phase": "Pending"}), json!({"phase": "Pending", "message": ""}), Value::Null),
            (json!({"phase": "Pending"}), json!({"phase": "Running"}), json!({"phase": "Running"})),
            // What we had and have no more goes; what is somebody else's stays.
            (
                json!({"podIP": "10.0.0.1", "reason": "Evicted", "nominatedNodeName": "n", "qosClass": "BestEffort"}),
                json!({"phase": "Running"}),
                json!({"phase": "Running", "podIP": null, "reason": null}),
            ),
            (json!({}), json!({"resources": {}}), json!({"resources": {}})),
            (json!({"resources": {}}), json!({"resources": {}}), Value::Null),
            (
                json!({"podIPs": [{"ip": "10.0.0.1"}]}),
                json!({"podIPs": [{"ip": "10.0.0.2"}]}),
                json!({"podIPs": [{"ip": "10.0.0.2"}, {"$patch": "replace"}]}),
            ),
            (
                json!({"containerStatuses": [{"name": "a", "lastState": {}, "ready": false}]}),
                json!({"containerStatuses": [{"name": "a", "ready": false}]}),
                Value::Null,
            ),
        ] {
            let patch = status_patch(&theirs, &ours, "u1");
            let expected =
                (!expected.is_null()).then(|| json!({"metadata": {"uid": "u1"}, "status": expected}));
            assert_eq!(patch, expected, "{theirs} {ours}");
        }
    }

    #[test]
    fn conditions_of_others_are_left_alone() {
        let theirs = json!({"conditions": [
            {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "m", "lastProbeTime": null},
            {"type": "PodScheduled", "status": "True"},
            {"type": "example.com/gate", "status": "True"},
        ]});
        let ours = json!({"conditions": [
            {"type": "Ready", "status": "True"},
            {"type": "PodScheduled", "status": "True"},
        ]});
        let patch = status_patch(&theirs, &ours, "u1").expect("a patch");
        assert_eq!(
            patch["status"],
            json!({"conditions": [{"type": "Ready", "status": "True", "reason": null, "message": null}]})
        );
    }
    #[test]
    fn conditions_that_we_no_longer_have_go() {
        let theirs = json!({"conditions": [
            {"type": "PodScheduled", "status": "True"},
            {"type": "DisruptionTarget", "status": "True"},
            {"type": "example.com/gate", "status": "True"},
        ]});
        let patch = status_patch(&theirs, &json!({"phase": "Failed"}), "u1").expect("a patch");
        let gone = json!([{"$patch": "delete", "type": "PodScheduled"}]);
        assert_eq!(patch["status"], json!({"phase": "Failed", "conditions": gone}));
    }
}
