//! Makes pods of two kubelets comparable: what must differ (ids, addresses, times) is masked, what is meant to differ is
//! taken out, by name and with its reason.

use std::collections::BTreeSet;

use serde_json::Value;

/// Where Crablet means to differ, as `path prefix` and why.
const MEANT: &[(&str, &str)] = &[
    ("/metadata/uid", "static pods' UIDs are a content hash of our own"),
    ("/metadata/annotations/kubernetes.io~1config.hash", "it is the UID"),
];

/// The same for requests to the runtime.
const MEANT_OF_REQUESTS: &[(&str, &str)] = &[];

/// A pod without what no two runs share.
pub fn pod(pod: &Value) -> Value {
    let mut pod = pod.clone();
    for (path, _) in MEANT {
        let (parent, name) = path.rsplit_once('/').unwrap_or_default();
        if let Some(object) = pod.pointer_mut(parent).and_then(Value::as_object_mut) {
            object.remove(&name.replace("~1", "/"));
        }
    }
    mask(&mut pod);
    sort_conditions(&mut pod);
    forget_how_often(&mut pod);
    pod
}

/// How far a crash loop has come depends on when it is looked at.
fn forget_how_often(pod: &mut Value) {
    let containers = pod.pointer_mut("/status/containerStatuses").and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten() {
        if container["state"]["waiting"]["reason"] == "CrashLoopBackOff" {
            container["restartCount"] = "<some>".into();
            let message = container["state"]["waiting"]["message"].take();
            let message = message.as_str().unwrap_or_default();
            let rest = message.strip_prefix("back-off ").and_then(|text| text.split_once(' '));
            container["state"]["waiting"]["message"] = rest.map(|(_, text)| text).unwrap_or(message).into();
        }
    }
}

/// A request to the runtime without what no two runs share; `own` are paths of this run and what stands for them.
pub fn request(request: &Value, own: &[(String, &str)]) -> Value {
    let mut request = request.clone();
    for (path, _) in MEANT_OF_REQUESTS {
        let (parent, name) = path.rsplit_once('/').unwrap_or_default();
        if let Some(object) = request.pointer_mut(parent).and_then(Value::as_object_mut) {
            object.remove(&name.replace("~1", "/"));
        }
    }
    replace(&mut request, own);
    mask(&mut request);
    request
}

fn replace(value: &mut Value, own: &[(String, &str)]) {
    match value {
        Value::String(text) => own.iter().for_each(|(path, name)| *text = text.replace(path, name)),
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

/// Word by word: container and image ids, UIDs, addresses of the pod network, times.
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
    if (word.len() == 32 && hex(word)) || (word.len() == 36 && hex(&word.replace('-', ""))) {
        return Some("<uid>");
    }
    if word.starts_with("10.213.") {
        return Some("<pod address>");
    }
    let is_time = word.len() >= 20 && word.as_bytes()[4] == b'-' && word.as_bytes()[10] == b'T';
    is_time.then_some("<time>")
}

/// Conditions are a set: their order says nothing.
fn sort_conditions(pod: &mut Value) {
    if let Some(conditions) = pod.pointer_mut("/status/conditions").and_then(Value::as_array_mut) {
        conditions.sort_by_key(|condition| condition["type"].to_string());
    }
}

/// One line for each place where the two differ.
pub fn differences(ours: &Value, theirs: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk("", ours, theirs, &mut found);
    found
}

fn walk(path: &str, ours: &Value, theirs: &Value, found: &mut Vec<String>) {
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
        _ => found.push(format!("{path}: crablet {ours}, upstream {theirs}")),
    }
}
