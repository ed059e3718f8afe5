//! Makes answers of two kubelets comparable: what must differ is masked, what is meant to differ is named with its
//! reason.

use serde_json::Value;

use super::cases::Case;
use super::client::Answer;

/// Headers that say something about the answer; others (dates, lengths) say something about the server.
const TELLING: &[&str] = &[
    "content-type",
    "location",
    "allow",
    "x-content-type-options",
    "warning",
    "retry-after",
    "upgrade",
    "sec-websocket-protocol",
];

/// Where Crablet means to differ: the beginning of the path, and why.
pub const MEANT: &[(&str, &str)] = &[
    ("/healthz/device-plugin", "there are no device plugins yet"),
    ("/stats", "statistics are not served yet"),
    ("/metrics", "some figures are not served yet, and the others tell of another program"),
    ("/debug/pprof/heap", "profiles of a Go program"),
    ("/debug/pprof/profile", "profiles of a Go program"),
    ("/debug/pprof/symbol", "profiles of a Go program"),
];

pub fn is_meant(path: &str) -> bool {
    MEANT.iter().any(|(prefix, _)| path.starts_with(prefix))
}

/// An answer in one line. Bodies of good answers are the business of other tests, except for the shortest ones.
pub fn shown(answer: &Answer, case: &Case, node: &str) -> String {
    let mut line = answer.status.to_string();
    let mut telling: Vec<_> =
        answer.headers.iter().filter(|(name, _)| TELLING.contains(&name.as_str())).collect();
    telling.sort();
    for (name, value) in telling {
        line.push_str(&format!(" {name}: {value};"));
    }
    let is_short = case.path.starts_with("/healthz") || case.path.starts_with("/run/");
    if answer.status != 200 || is_short {
        line.push_str(&format!(" {:?}", masked(&answer.text())));
    }
    if answer.status == 200 && case.path == "/configz" {
        line.push_str(&format!(" {:?}", names(&answer.text())));
    }
    line.replace(node, "NODE")
}

/// Told by Crablet alone: it has a default there, and upstream none.
const OWN_DEFAULT: &str = "maxParallelImagePulls";

/// The configurations that are told, each with the names of its fields.
fn names(configurations: &str) -> Vec<(String, Vec<String>)> {
    let all: serde_json::Map<String, Value> = serde_json::from_str(configurations).unwrap_or_default();
    let fields = |one: &Value| {
        let names = one.as_object().into_iter().flat_map(|map| map.keys());
        names.filter(|name| *name != OWN_DEFAULT).cloned().collect()
    };
    all.iter().map(|(name, one)| (name.clone(), fields(one))).collect()
}

/// Without what no two runs share, and without what is not there yet.
fn masked(text: &str) -> String {
    let is_id = |word: &str| word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let text = text.replace("[+]device-plugin ok\n", "");
    let words = text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()).map(|word| {
        let bare = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        if is_id(bare) { word.replace(bare, "ID") } else { word.to_owned() }
    });
    let text: String = words.collect();
    // The runtime counts what it was sent, and a Go program sends more.
    match text.split_once("does not exist in request with ") {
        Some((before, _)) if before.starts_with("unable to upgrade") => before.to_owned(),
        _ => text,
    }
}
