//! Makes what two kubelets did comparable: what no two runs share (ids, addresses, times, orders that mean nothing) is
//! masked, what is meant to differ is named here with its reason.

use std::collections::BTreeSet;

use serde_json::Value;

/// What is meant to differ.
struct Meant {
    /// `status`, `RunPodSandbox`, `CreateContainer`; empty for all.
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

/// cgroup v1's number for "no limit". Upstream reports it as a pod's limit if it looks at the right moment.
const NO_LIMIT: &str = "9007199254740988Ki";

/// A status without what no two runs share.
pub fn status(status: Value, own: &[(String, String)]) -> Value {
    let mut status = status;
    replace(&mut status, own);
    mask(&mut status);
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.sort_by_key(|condition| condition["type"].to_string());
    }
    if status["resources"]["limits"]["memory"] == NO_LIMIT
        && let Some(resources) = status["resources"].as_object_mut()
    {
        resources.remove("limits");
    }
    for list in ["containerStatuses", "initContainerStatuses"] {
        if let Some(containers) = status[list].as_array_mut() {
            containers.iter_mut().for_each(forget_how_often);
        }
    }
    status
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
pub fn request(request: Value, own: &[(String, String)]) -> Value {
    let mut request = request;
    // Upstream keeps both in maps: their order is chance.
    sort(request.pointer_mut("/config/envs"), "key");
    for path in ["/config/dns_config/options", "/sandbox_config/dns_config/options"] {
        if let Some(options) = request.pointer_mut(path).and_then(Value::as_array_mut) {
            options.sort_by_key(ToString::to_string);
        }
    }
    replace(&mut request, own);
    mask(&mut request);
    request
}

fn sort(list: Option<&mut Value>, key: &str) {
    if let Some(items) = list.and_then(Value::as_array_mut) {
        items.sort_by_key(|item| item[key].to_string());
    }
}

fn replace(value: &mut Value, own: &[(String, String)]) {
    match value {
        Value::String(text) => own.iter().for_each(|(word, name)| *text = text.replace(word, name)),
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, own)),
        Value::Object(fields) => fields.values_mut().for_each(|field| replace(field, own)),
        _ => {}
    }
}

fn mask(value: &mut Value) {
    match value {
        Value::String(text) => *text = masked(text),
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::Object(fields) => fields.values_mut().for_each(mask),
        _ => {}
    }
}

/// Word by word: ids of containers and images, names of files, addresses of the pod network, times.
fn masked(text: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':' | '+');
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        out.push_str(kind_of(word).unwrap_or(word));
        let mut tail = after.chars();
        out.extend(tail.next());
        rest = tail.as_str();
    }
    out
}

fn kind_of(word: &str) -> Option<&'static str> {
    let hex = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit());
    let plain = word.strip_prefix("sha256:").unwrap_or(word);
    if plain.len() == 64 && hex(plain) {
        return Some("<id>");
    }
    // The random name of a file for last words.
    if word.len() == 8 && hex(word) {
        return Some("<random>");
    }
    // Of pods; the node's own, which ends with 1, is the same for both.
    if word.starts_with("10.213.") && !word.ends_with(".1") {
        return Some("<pod address>");
    }
    let is_time = word.len() >= 20 && word.as_bytes()[4] == b'-' && word.as_bytes()[10] == b'T';
    is_time.then_some("<time>")
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
