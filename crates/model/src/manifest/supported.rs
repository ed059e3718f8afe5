//! What this version of Crablet can run.
//!
//! The table is a list of what is allowed, so that a field which Kubernetes adds later is refused until somebody teaches
//! Crablet what it means. To support a field, add its line; the file is done when the table could be replaced by `spec`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::error::{Problems, key, quoted};
use crate::api::Pod;

/// What may stand at a path.
enum Rule {
    /// Anything, all the way down.
    Any,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// Only this, because it is what happens anyway.
    Only(bool),
}

use Rule::{Any, OneOf, Only};

const SECCOMP_TYPES: Rule = OneOf(&["RuntimeDefault", "Unconfined"]);

/// `[]` stands for each item of a list.
const SUPPORTED: &[(&str, Rule)] = &[
    ("apiVersion", Any),
    ("kind", Any),
    ("status", Any),
    // Names and notes.
    ("metadata.name", Any),
    ("metadata.generateName", Any),
    ("metadata.namespace", Any),
    ("metadata.uid", Any),
    ("metadata.labels", Any),
    ("metadata.annotations", Any),
    // Written by an API server, and without meaning here.
    ("metadata.creationTimestamp", Any),
    ("metadata.finalizers", Any),
    ("metadata.generation", Any),
    ("metadata.managedFields", Any),
    ("metadata.ownerReferences", Any),
    ("metadata.resourceVersion", Any),
    ("metadata.selfLink", Any),
    // The pod.
    ("spec.restartPolicy", Any),
    ("spec.terminationGracePeriodSeconds", Any),
    ("spec.nodeName", Any),
    ("spec.os.name", OneOf(&["linux"])),
    ("spec.hostUsers", Only(true)),
    // Network and names.
    ("spec.dnsPolicy", Any),
    ("spec.dnsConfig", Any),
    ("spec.hostAliases", Any),
    ("spec.hostIPC", Any),
    ("spec.hostNetwork", Any),
    ("spec.hostPID", Any),
    ("spec.hostname", Any),
    ("spec.setHostnameAsFQDN", Any),
    ("spec.shareProcessNamespace", Any),
    ("spec.subdomain", Any),
    // For schedulers and API servers; without effect on a static pod.
    ("spec.affinity", Any),
    ("spec.automountServiceAccountToken", Any),
    ("spec.enableServiceLinks", Any),
    ("spec.nodeSelector", Any),
    ("spec.preemptionPolicy", Any),
    ("spec.priority", Any),
    ("spec.priorityClassName", Any),
    ("spec.schedulerName", Any),
    ("spec.tolerations", Any),
    ("spec.topologySpreadConstraints", Any),
    // Who the pod's processes are.
    ("spec.securityContext.runAsGroup", Any),
    ("spec.securityContext.runAsNonRoot", Any),
    ("spec.securityContext.runAsUser", Any),
    ("spec.securityContext.seccompProfile.type", SECCOMP_TYPES),
    ("spec.securityContext.supplementalGroups", Any),
    ("spec.securityContext.supplementalGroupsPolicy", OneOf(&["Merge"])),
    // Containers.
    ("spec.containers[].args", Any),
    ("spec.containers[].command", Any),
    ("spec.containers[].env[].name", Any),
    ("spec.containers[].env[].value", Any),
    ("spec.containers[].env[].valueFrom.fieldRef", Any),
    ("spec.containers[].env[].valueFrom.resourceFieldRef", Any),
    ("spec.containers[].image", Any),
    ("spec.containers[].imagePullPolicy", Any),
    ("spec.containers[].name", Any),
    ("spec.containers[].ports", Any),
    ("spec.containers[].resources.limits.cpu", Any),
    ("spec.containers[].resources.limits.ephemeral-storage", Any),
    ("spec.containers[].resources.limits.memory", Any),
    ("spec.containers[].resources.requests.cpu", Any),
    ("spec.containers[].resources.requests.ephemeral-storage", Any),
    ("spec.containers[].resources.requests.memory", Any),
    ("spec.containers[].securityContext.allowPrivilegeEscalation", Any),
    ("spec.containers[].securityContext.capabilities", Any),
    ("spec.containers[].securityContext.privileged", Any),
    ("spec.containers[].securityContext.procMount", OneOf(&["Default"])),
    ("spec.containers[].securityContext.readOnlyRootFilesystem", Any),
    ("spec.containers[].securityContext.runAsGroup", Any),
    ("spec.containers[].securityContext.runAsNonRoot", Any),
    ("spec.containers[].securityContext.runAsUser", Any),
    ("spec.containers[].securityContext.seccompProfile.type", SECCOMP_TYPES),
    ("spec.containers[].stdin", Any),
    ("spec.containers[].stdinOnce", Any),
    ("spec.containers[].terminationMessagePath", Any),
    ("spec.containers[].terminationMessagePolicy", Any),
    ("spec.containers[].tty", Any),
    ("spec.containers[].workingDir", Any),
];

pub(super) fn check(pod: &Pod) -> Problems {
    let mut walk = Walk { inner: inner_paths(), problems: Problems::default() };
    match serde_json::to_value(pod) {
        Ok(value) => walk.value("", "", &value),
        Err(error) => walk.problems.add("pod", error.to_string()),
    }
    walk.problems
}

/// The paths that lead to supported ones: they are looked into.
fn inner_paths() -> BTreeSet<&'static str> {
    let mut inner = BTreeSet::from([""]);
    for (pattern, _) in SUPPORTED {
        inner.extend(pattern.match_indices(['.', '[']).map(|(at, _)| &pattern[..at]));
        inner.extend(pattern.match_indices("[]").map(|(at, brackets)| &pattern[..at + brackets.len()]));
    }
    inner
}

struct Walk {
    inner: BTreeSet<&'static str>,
    problems: Problems,
}

impl Walk {
    /// `pattern` is the path with `[]` for every index; `path` is what a person reads.
    fn value(&mut self, pattern: &str, path: &str, value: &Value) {
        if is_absent(value) {
            return;
        }
        if let Some((_, rule)) = SUPPORTED.iter().find(|(supported, _)| *supported == pattern) {
            return self.rule(rule, path, value);
        }
        if !self.inner.contains(pattern) {
            return self.problems.add(path, "not supported yet; remove it");
        }
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    let pattern = if pattern.is_empty() { name.clone() } else { format!("{pattern}.{name}") };
                    self.value(&pattern, &join(path, name), field);
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
            Any => {}
            OneOf(texts) => {
                let text = value.as_str().unwrap_or_default();
                if !texts.contains(&text) {
                    let known = texts.iter().map(|text| format!("`{text}`")).collect::<Vec<_>>().join(" or ");
                    self.problems.add(path, format!("{} is not supported yet; use {known}", quoted(text)));
                }
            }
            Only(wanted) => {
                if value.as_bool() != Some(*wanted) {
                    self.problems.add(path, format!("`{}` is not supported yet; remove it", !wanted));
                }
            }
        }
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

    fn problems(spec: serde_json::Value) -> String {
        let pod = serde_json::from_value(serde_json::json!({"spec": spec})).expect("a pod");
        check(&pod).to_string()
    }

    #[test]
    fn each_unsupported_field_is_named() {
        for (spec, expected) in [
            (
                serde_json::json!({"initContainers": [{"name": "i"}]}),
                "spec.initContainers: not supported yet; remove it",
            ),
            (serde_json::json!({"volumes": [{"name": "v"}]}), "spec.volumes: not supported yet; remove it"),
            (
                serde_json::json!({"containers": [{"name": "a"}, {"name": "b", "livenessProbe": {}}]}),
                "spec.containers[1].livenessProbe: not supported yet; remove it",
            ),
            (
                serde_json::json!({"containers": [{"name": "a", "resources": {"limits": {"hugepages-2Mi": "1", "cpu": "1"}}}]}),
                "spec.containers[0].resources.limits[hugepages-2Mi]: not supported yet; remove it",
            ),
            (
                serde_json::json!({"containers": [{"name": "a", "env": [{"name": "E", "valueFrom": {"fileKeyRef": {"key": "k", "path": "p", "volumeName": "v"}}}]}]}),
                "spec.containers[0].env[0].valueFrom.fileKeyRef: not supported yet; remove it",
            ),
            (
                serde_json::json!({"hostUsers": false}),
                "spec.hostUsers: `false` is not supported yet; remove it",
            ),
            (serde_json::json!({"hostUsers": true, "initContainers": []}), ""),
            (
                serde_json::json!({"securityContext": {"seccompProfile": {"type": "Localhost"}}}),
                "spec.securityContext.seccompProfile.type: \"Localhost\" is not supported yet; use `RuntimeDefault` or `Unconfined`",
            ),
            (
                serde_json::json!({"securityContext": {"fsGroup": 1, "sysctls": [{"name": "a", "value": "b"}]}}),
                "spec.securityContext.fsGroup: not supported yet; remove it; spec.securityContext.sysctls: not supported yet; remove it",
            ),
            (
                serde_json::json!({"os": {"name": "windows"}}),
                "spec.os.name: \"windows\" is not supported yet; use `linux`",
            ),
        ] {
            assert_eq!(problems(spec.clone()), expected, "{spec}");
        }
    }

    #[test]
    fn no_line_of_the_table_is_written_twice() {
        let mut seen = BTreeSet::new();
        for (pattern, _) in SUPPORTED {
            assert!(seen.insert(pattern), "{pattern}");
        }
    }
}
