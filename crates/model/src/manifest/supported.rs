//! What this version of Crablet can run.
//!
//! The table is a list of what is allowed, so that a field which Kubernetes adds later is refused until somebody teaches
//! Crablet what it means. To support a field, add its line to `table`; it is done when it could be replaced by `spec`.

mod table;

use std::collections::BTreeSet;

use serde_json::Value;

use super::error::{Problems, key, quoted};
use crate::api::Pod;
use table::{ONLY_FROM_API_SERVER, SUPPORTED};

/// What may stand at a path.
enum Rule {
    /// Anything, all the way down.
    Any,
    /// One of these texts in a manifest, any from the API server.
    InManifests(&'static [&'static str]),
}

const NOT_YET: &str = "not supported yet; remove it";

/// Who gave the pod.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Giver {
    Manifest,
    ApiServer,
}

pub(super) fn check(pod: &Pod, giver: Giver) -> Problems {
    let mut walk = Walk { giver, inner: inner_paths(), problems: Problems::default() };
    match serde_json::to_value(pod) {
        Ok(value) => walk.value("", "", &value),
        Err(error) => walk.problems.add("pod", error.to_string()),
    }
    walk.problems
}

/// The paths that lead to supported ones: they are looked into.
fn inner_paths() -> BTreeSet<&'static str> {
    let mut inner = BTreeSet::from([""]);
    for (pattern, _) in SUPPORTED.iter().chain(ONLY_FROM_API_SERVER) {
        inner.extend(pattern.match_indices(['.', '[']).map(|(at, _)| &pattern[..at]));
        inner.extend(pattern.match_indices("[]").map(|(at, brackets)| &pattern[..at + brackets.len()]));
    }
    inner
}

fn find(table: &'static [(&str, Rule)], pattern: &str) -> Option<&'static Rule> {
    table.iter().find(|(known, _)| *known == pattern).map(|(_, rule)| rule)
}

struct Walk {
    giver: Giver,
    inner: BTreeSet<&'static str>,
    problems: Problems,
}

impl Walk {
    /// `pattern` is the path with `[]` for every index; `path` is what a person reads.
    fn value(&mut self, pattern: &str, path: &str, value: &Value) {
        if is_absent(value) {
            return;
        }
        if let Some(rule) = find(SUPPORTED, pattern) {
            return self.rule(rule, path, value);
        }
        if let Some(rule) = find(ONLY_FROM_API_SERVER, pattern) {
            return match self.giver {
                Giver::ApiServer => self.rule(rule, path, value),
                Giver::Manifest => self.problems.add(path, "not supported in a static pod; remove it"),
            };
        }
        if !self.inner.contains(pattern) {
            return self.problems.add(path, NOT_YET);
        }
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    self.value(&pattern_of(pattern, name), &join(path, name), field);
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.value(&format!("{pattern}[]"), &format!("{path}[{index}]"), item);
                }
            }
            _ => {}
        }
    }

    fn rule(&mut self, rule: &Rule, path: &str, value: &Value) {
        match rule {
            Rule::InManifests(texts) if self.giver == Giver::Manifest => {
                let text = value.as_str().unwrap_or_default();
                if !texts.contains(&text) {
                    let known = texts.iter().map(|text| format!("`{text}`")).collect::<Vec<_>>().join(" or ");
                    self.problems.add(path, format!("{} is not supported yet; use {known}", quoted(text)));
                }
            }
            Rule::Any | Rule::InManifests(_) => {}
        }
    }
}

/// The pattern of a field. Containers may have the same fields whatever part they play; what is not for all of them is
/// `validate`'s to refuse.
fn pattern_of(outer: &str, name: &str) -> String {
    match (outer, name) {
        ("", name) => name.to_owned(),
        ("spec", "initContainers" | "ephemeralContainers") => "spec.containers".to_owned(),
        (outer, name) if outer.ends_with("resources.limits") || outer.ends_with("resources.requests") => {
            let name = match name {
                name if name.starts_with("hugepages-") => "hugepages",
                name if name.contains('/') => "extended",
                name => name,
            };
            format!("{outer}.{name}")
        }
        (outer, name) => format!("{outer}.{name}"),
    }
}

/// Kubernetes does not tell these from a field that is not there.
fn is_absent(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Names that are not plain words are map keys, and read better in brackets.
fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else if name.bytes().all(|b| b.is_ascii_alphanumeric()) {
        format!("{path}.{name}")
    } else {
        format!("{path}[{}]", key(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(spec: serde_json::Value, giver: Giver) -> String {
        let pod = serde_json::from_value(serde_json::json!({"spec": spec})).expect("a pod");
        check(&pod, giver).to_string()
    }

    #[test]
    fn each_unsupported_field_is_named() {
        for (spec, expected) in [
            (
                serde_json::json!({"initContainers": [{"name": "a", "resources": {"claims": [{"name": "c"}]}}]}),
                "spec.initContainers[0].resources.claims: not supported yet; remove it",
            ),
            (
                serde_json::json!({"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "rbd": {"image": "i", "monitors": []}}]}),
                "spec.volumes[1].rbd: not supported yet; remove it",
            ),
            (
                serde_json::json!({"containers": [{"name": "a"}, {"name": "b", "livenessProbe": {"httpGet": {"port": 1, "protocol": "HTTP2"}}}]}),
                "spec.containers[1].livenessProbe.httpGet.protocol: not supported yet; remove it",
            ),
            (
                serde_json::json!({"containers": [{"name": "a", "resources": {"claims": [{"name": "c"}]}}]}),
                "spec.containers[0].resources.claims: not supported yet; remove it",
            ),
            (
                serde_json::json!({"resources": {"requests": {"cpu": "1", "ephemeral-storage": "1"}}}),
                "spec.resources.requests[ephemeral-storage]: not supported yet; remove it",
            ),
            (serde_json::json!({"hostUsers": false, "initContainers": []}), ""),
        ] {
            for giver in [Giver::Manifest, Giver::ApiServer] {
                assert_eq!(problems(spec.clone(), giver), expected, "{spec}");
            }
        }
    }

    #[test]
    fn another_system_is_refused_in_a_manifest_and_left_to_admission_elsewhere() {
        let spec = serde_json::json!({"os": {"name": "windows"}});
        let expected = "spec.os.name: \"windows\" is not supported yet; use `linux`";
        assert_eq!(problems(spec.clone(), Giver::Manifest), expected);
        assert_eq!(problems(spec, Giver::ApiServer), "");
    }

    #[test]
    fn some_fields_are_for_pods_of_the_api_server() {
        for (spec, path) in [
            (serde_json::json!({"schedulingGroup": {"podGroupName": "g"}}), "spec.schedulingGroup"),
            (
                serde_json::json!({"ephemeralContainers": [{"name": "e", "targetContainerName": "a"}]}),
                "spec.ephemeralContainers[0].targetContainerName",
            ),
        ] {
            assert_eq!(problems(spec.clone(), Giver::ApiServer), "", "{spec}");
            let expected = format!("{path}: not supported in a static pod; remove it");
            assert_eq!(problems(spec, Giver::Manifest), expected);
        }
    }

    #[test]
    fn what_holds_nothing_is_no_trouble() {
        let spec = serde_json::json!({
            "resources": {"limits": {}}, "securityContext": {"seLinuxOptions": {}},
            "containers": [{"name": "a", "lifecycle": {}, "resources": {}, "securityContext": {}}],
        });
        assert_eq!(problems(spec, Giver::Manifest), "");
    }

    #[test]
    fn no_line_of_the_table_is_written_twice() {
        let mut seen = BTreeSet::new();
        for (pattern, _) in SUPPORTED.iter().chain(ONLY_FROM_API_SERVER) {
            assert!(seen.insert(pattern), "{pattern}");
        }
    }
}
