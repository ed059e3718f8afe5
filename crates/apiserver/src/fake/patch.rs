//! Merge patches, plain and strategic, as far as a node's agent uses them.

use serde_json::{Map, Value};

/// Lists that a strategic patch merges by a key. All other lists are replaced whole.
const MERGE_KEYS: &[(&str, &str)] = &[
    ("conditions", "type"),
    ("addresses", "type"),
    ("podIPs", "ip"),
    ("hostIPs", "ip"),
    ("ownerReferences", "uid"),
    ("containers", "name"),
    ("initContainers", "name"),
    ("ephemeralContainers", "name"),
    ("volumes", "name"),
    ("env", "name"),
    ("imagePullSecrets", "name"),
    ("resourceClaimStatuses", "name"),
];

/// RFC 7386.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    let fields = as_object(target);
    for (key, value) in patch {
        if value.is_null() {
            fields.remove(key);
        } else {
            merge(fields.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// `application/strategic-merge-patch+json`
pub(super) fn strategic(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if patch.get("$patch").and_then(Value::as_str) == Some("replace") {
        *target = Value::Object(without_directives(patch));
        return;
    }
    let fields = as_object(target);
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            if let Some(Value::Array(items)) = fields.get_mut(list) {
                let gone = value.as_array().map(Vec::as_slice).unwrap_or_default();
                items.retain(|item| !gone.contains(item));
            }
            continue;
        }
        if key.starts_with('$') {
            continue;
        }
        match value {
            Value::Null => {
                fields.remove(key);
            }
            Value::Array(patch) if key == "finalizers" => {
                let items = as_array(fields.entry(key.clone()).or_insert(Value::Null));
                let new: Vec<Value> = patch.iter().filter(|item| !items.contains(item)).cloned().collect();
                items.extend(new);
            }
            Value::Array(patch) => match MERGE_KEYS.iter().find(|(list, _)| list == key) {
                Some((_, merge_key)) => {
                    let items = as_array(fields.entry(key.clone()).or_insert(Value::Null));
                    merge_list(items, patch, merge_key);
                }
                None => {
                    fields.insert(key.clone(), value.clone());
                }
            },
            Value::Object(_) => strategic(fields.entry(key.clone()).or_insert(Value::Null), value),
            plain => {
                fields.insert(key.clone(), plain.clone());
            }
        }
    }
}

fn merge_list(items: &mut Vec<Value>, patch: &[Value], key: &str) {
    let directive = |item: &Value| item.get("$patch").and_then(Value::as_str).map(str::to_owned);
    if patch.iter().any(|item| directive(item).as_deref() == Some("replace")) {
        *items = patch.iter().filter(|item| directive(item).is_none()).cloned().collect();
        return;
    }
    for item in patch {
        let at = items.iter().position(|old| old.get(key) == item.get(key));
        match (directive(item).as_deref(), at) {
            (Some("delete"), Some(at)) => {
                items.remove(at);
            }
            (Some("delete"), None) => {}
            (_, Some(at)) => strategic(&mut items[at], item),
            (_, None) => {
                let mut new = Value::Null;
                strategic(&mut new, item);
                items.push(new);
            }
        }
    }
}

fn without_directives(object: &Map<String, Value>) -> Map<String, Value> {
    object.iter().filter(|(key, _)| !key.starts_with('$')).map(|(k, v)| (k.clone(), v.clone())).collect()
}

fn as_object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("it has just been made one")
}

fn as_array(value: &mut Value) -> &mut Vec<Value> {
    if !value.is_array() {
        *value = Value::Array(Vec::new());
    }
    value.as_array_mut().expect("it has just been made one")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn conditions_merge_by_type_and_other_lists_are_replaced() {
        let mut pod = json!({"status": {
            "conditions": [{"type": "Ready", "status": "False", "reason": "x"}, {"type": "Other", "status": "True"}],
            "podIPs": [{"ip": "10.0.0.1"}],
            "containerStatuses": [{"name": "a"}, {"name": "b"}],
            "reason": "Evicted",
        }});
        strategic(
            &mut pod,
            &json!({"status": {
                "$setElementOrder/conditions": [{"type": "Ready"}],
                "conditions": [{"type": "Ready", "status": "True", "reason": null}],
                "podIPs": [{"$patch": "replace"}, {"ip": "10.0.0.2"}],
                "containerStatuses": [{"name": "c"}],
                "reason": null,
            }}),
        );
        let expected = json!({"status": {
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "True"}],
            "podIPs": [{"ip": "10.0.0.2"}],
            "containerStatuses": [{"name": "c"}],
        }});
        assert_eq!(pod, expected);
    }

    #[test]
    fn elements_are_deleted_by_directive() {
        let mut node = json!({"status": {"conditions": [{"type": "A"}, {"type": "B"}]}});
        strategic(&mut node, &json!({"status": {"conditions": [{"$patch": "delete", "type": "A"}]}}));
        assert_eq!(node, json!({"status": {"conditions": [{"type": "B"}]}}));
    }

    #[test]
    fn a_merge_patch_removes_with_null_and_replaces_lists() {
        let mut object = json!({"a": {"b": 1, "c": [1, 2]}, "d": 1});
        merge(&mut object, &json!({"a": {"b": null, "c": [3]}, "e": {"f": null, "g": 1}}));
        assert_eq!(object, json!({"a": {"c": [3]}, "d": 1, "e": {"g": 1}}));
    }
}
