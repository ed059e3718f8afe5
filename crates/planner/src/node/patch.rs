//! The strategic merge patch between two versions of a Node, for its `status` sub-resource.

use crablet_model::api::Node;
use serde_json::{Map, Value, json};

/// What turns `old` into `new`, as the body of a request. Metadata is accepted there too; the spec is never touched.
/// The agent removes no condition, so there is no word for that.
pub fn status_patch(old: &Node, new: &Node) -> Result<Value, serde_json::Error> {
    let (old, new) = (serde_json::to_value(old)?, serde_json::to_value(new)?);
    let mut patch = Map::new();
    for part in ["metadata", "status"] {
        if let Some(changes) = difference(part, old.get(part), new.get(part)) {
            patch.insert(part.to_owned(), changes);
        }
    }
    Ok(Value::Object(patch))
}

/// `None` when both are the same.
fn difference(path: &str, old: Option<&Value>, new: Option<&Value>) -> Option<Value> {
    match (old, new) {
        _ if old == new => None,
        (_, None) => Some(Value::Null),
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let keys = new.keys().chain(old.keys().filter(|key| !new.contains_key(*key)));
            let changes = keys.filter_map(|key| {
                let change = difference(&format!("{path}.{key}"), old.get(key), new.get(key))?;
                Some((key.clone(), change))
            });
            Some(Value::Object(changes.collect()))
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) if path == "status.conditions" => {
            Some(Value::Array(new.iter().filter_map(|new| condition_change(old, new)).collect()))
        }
        // The API declares a merge key for addresses that is wrong: two of one type are usual.
        (Some(Value::Array(old)), Some(Value::Array(new)))
            if path == "status.addresses" && !old.is_empty() =>
        {
            Some(Value::Array(new.iter().cloned().chain([json!({"$patch": "replace"})]).collect()))
        }
        (_, Some(new)) => Some(new.clone()),
    }
}

/// A condition is known by its type, which is therefore always said.
fn condition_change(old: &[Value], new: &Value) -> Option<Value> {
    let Some(old) = old.iter().find(|old| old["type"] == new["type"]) else { return Some(new.clone()) };
    let mut change = difference("condition", Some(old), Some(new))?;
    change["type"] = new["type"].clone();
    Some(change)
}
