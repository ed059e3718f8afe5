//! Nulls among the values of a map and the items of a list: `labels: {a: }`, `args: [~]`.
//!
//! Upstream's decoder takes each as the empty value of its type (v1.36); the API types here have no place for
//! it. A null that stands for a whole field is no field, here as there, and is left alone. So is one among
//! amounts: for upstream that is a zero which no text says, and it would count in the UID.

use serde_json::Value;

use super::uid::types::Types;

pub(super) fn fill(pod: &mut Value) {
    typed(&Types::read(), "core.Pod", pod);
}

fn typed(types: &Types, type_name: &str, value: &mut Value) {
    let type_name = type_name.strip_prefix('*').unwrap_or(type_name);
    if let Some(item) = type_name.strip_prefix("[]") {
        for value in value.as_array_mut().into_iter().flatten() {
            element(types, item, value);
        }
    } else if let Some((_, item)) = type_name.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
        for value in value.as_object_mut().into_iter().flat_map(|entries| entries.values_mut()) {
            element(types, item, value);
        }
    } else if let Some(behind) = types.behind(type_name) {
        typed(types, behind, value);
    } else {
        fields(types, type_name, value);
    }
}

fn fields(types: &Types, type_name: &str, value: &mut Value) {
    for field in types.fields(type_name) {
        match field.key {
            Some(key) => {
                if let Some(inner) = value.get_mut(key) {
                    typed(types, field.type_name, inner);
                }
            }
            None => typed(types, field.type_name, value),
        }
    }
}

fn element(types: &Types, type_name: &str, value: &mut Value) {
    if !value.is_null() {
        return typed(types, type_name, value);
    }
    match types.behind(type_name).unwrap_or(type_name) {
        "string" => *value = Value::from(""),
        "int32" | "int64" => *value = Value::from(0),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_null_among_texts_and_numbers_is_an_empty_one() {
        let mut pod = json!({
            "metadata": {"labels": {"a": null, "b": "c"}, "annotations": null, "finalizers": [null]},
            "spec": {
                "nodeSelector": {"a": null},
                "securityContext": {"supplementalGroups": [null, 5]},
                "containers": [{"name": null, "args": ["x", null], "env": [null]}],
                "initContainers": [{"securityContext": {"capabilities": {"add": [null]}}}],
            },
        });
        fill(&mut pod);
        assert_eq!(
            pod,
            json!({
                "metadata": {"labels": {"a": "", "b": "c"}, "annotations": null, "finalizers": [""]},
                "spec": {
                    "nodeSelector": {"a": ""},
                    "securityContext": {"supplementalGroups": [0, 5]},
                    "containers": [{"name": null, "args": ["x", ""], "env": [null]}],
                    "initContainers": [{"securityContext": {"capabilities": {"add": [""]}}}],
                },
            })
        );
    }

    #[test]
    fn what_has_no_such_type_is_left_alone() {
        let pod = json!({
            "spec": {
                "containers": [null, {"resources": {"limits": {"cpu": null}}, "env": {"a": null}}],
                "odd": {"a": null},
            },
        });
        for value in [pod, json!(null), json!(5), json!([null])] {
            let mut filled = value.clone();
            fill(&mut filled);
            assert_eq!(filled, value);
        }
    }
}
