//! Makes what two kubelets did comparable: what no two runs share (ids, addresses, times, orders that mean nothing) is
//! masked, what is meant to differ is named in `MEANT` with its reason.

pub mod mask;

use std::collections::BTreeSet;

use serde_json::Value;

/// A word that is one run's own, and what stands for it.
pub type Own = (String, String);

/// What is meant to differ.
struct Meant {
    /// How the name of what is compared begins: `pod`, `status`, `RunPodSandbox`, `CreateContainer`; empty for all.
    part: &'static str,
    /// How the path ends.
    path: &'static str,
    #[expect(dead_code, reason = "for the reader")]
    why: &'static str,
}

const MEANT: &[Meant] = &[Meant {
    part: "",
    path: "/host_id",
    why: "which free range of users a pod gets: upstream draws lots, Crablet takes the first",
}];

/// cgroup v1's number for "no limit". Upstream reports it as the limit of a pod that has none.
const NO_LIMIT: &str = "9007199254740988Ki";

/// A status without what no two runs share.
pub fn status(status: Value, own: &[Own]) -> Value {
    let mut status = status;
    mask::all(&mut status, own);
    // A set.
    sort(status.pointer_mut("/conditions"), "type");
    forget_cgroup(&mut status);
    for list in ["containerStatuses", "initContainerStatuses"] {
        if let Some(containers) = status.get_mut(list).and_then(Value::as_array_mut) {
            containers.iter_mut().for_each(forget_how_often);
        }
    }
    status
}

/// Of a pod that has ended, upstream shows what is left of its cgroup at the moment at which it looks: all, a part, nothing.
pub fn forget_cgroup(status: &mut Value) {
    let has_ended = status["phase"] == "Succeeded" || status["phase"] == "Failed";
    let Some(resources) = status["resources"].as_object_mut() else { return };
    let mut forget = |list: &str, name: &str, always: bool| {
        let Some(amounts) = resources.get_mut(list).and_then(Value::as_object_mut) else { return };
        if always || amounts.get(name).is_some_and(|amount| amount == NO_LIMIT) {
            amounts.remove(name);
        }
        if amounts.is_empty() {
            resources.remove(list);
        }
    };
    forget("requests", "cpu", has_ended);
    forget("limits", "cpu", has_ended);
    forget("limits", "memory", has_ended);
}

/// How far a crash loop has come depends on when it is looked at.
fn forget_how_often(container: &mut Value) {
    if container["state"]["waiting"]["reason"] == "CrashLoopBackOff" {
        container["restartCount"] = "<some>".into();
        let message = container["state"]["waiting"]["message"].take();
        let message = message.as_str().unwrap_or_default();
        let rest = message.strip_prefix("back-off ").and_then(|text| text.split_once(' '));
        container["state"]["waiting"]["message"] = rest.map_or(message, |(_, text)| text).into();
    }
}

/// A request to the runtime without what no two runs share.
pub fn request(request: &Value, own: &[Own]) -> Value {
    let mut request = request.clone();
    // Upstream keeps both in maps: their order is chance.
    sort(request.pointer_mut("/config/envs"), "key");
    for path in ["/config/dns_config/options", "/sandbox_config/dns_config/options"] {
        if let Some(options) = request.pointer_mut(path).and_then(Value::as_array_mut) {
            options.sort_by_key(ToString::to_string);
        }
    }
    mask::all(&mut request, own);
    request
}

fn sort(list: Option<&mut Value>, key: &str) {
    if let Some(items) = list.and_then(Value::as_array_mut) {
        items.sort_by_key(|item| item[key].to_string());
    }
}

/// One line for each place where the two differ and are not meant to.
pub fn differences(what: &str, ours: &Value, theirs: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk("", ours, theirs, &mut found);
    let meant =
        |path: &str| MEANT.iter().any(|meant| what.starts_with(meant.part) && path.ends_with(meant.path));
    found.retain(|(path, _)| !meant(path));
    found.into_iter().map(|(path, text)| format!("{path}: {text}")).collect()
}

fn walk(path: &str, ours: &Value, theirs: &Value, found: &mut Vec<(String, String)>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                let (a, b) = (a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null));
                walk(&format!("{path}/{key}"), a, b, found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                walk(&format!("{path}/{index}"), a, b, found);
            }
        }
        _ if ours == theirs => {}
        _ => found.push((path.to_owned(), format!("crablet {ours}, upstream {theirs}"))),
    }
}
