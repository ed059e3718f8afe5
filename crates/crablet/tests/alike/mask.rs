//! Masks what no two runs share, word by word.

use serde_json::Value;

use super::Own;

/// All texts within `value`.
pub fn all(value: &mut Value, own: &[Own]) {
    match value {
        Value::String(old) => *old = text(old, own),
        Value::Array(items) => items.iter_mut().for_each(|item| all(item, own)),
        Value::Object(fields) => fields.values_mut().for_each(|field| all(field, own)),
        _ => {}
    }
}

/// Words of the run, ids of containers, images and pods, names of files, addresses of the pod network, times.
pub fn text(text: &str, own: &[Own]) -> String {
    let text = own.iter().fold(text.to_owned(), |text, (word, name)| text.replace(word, name));
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':' | '+');
    let mut out = String::new();
    let mut rest = text.as_str();
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
    // In names of cgroups it follows a word.
    let uid = word.strip_prefix("pod").unwrap_or(word);
    if (uid.len() == 32 && hex(uid)) || (uid.len() == 36 && hex(&uid.replace('-', ""))) {
        return Some("<uid>");
    }
    if word.starts_with("kube-api-access-") {
        return Some("kube-api-access-<random>");
    }
    // Of pods; the node's own, which ends with 1, is the same for both.
    if word.starts_with("10.213.") && !word.ends_with(".1") {
        return Some("<pod address>");
    }
    let is_time = word.len() >= 20 && word.as_bytes()[4] == b'-' && word.as_bytes()[10] == b'T';
    is_time.then_some("<time>")
}
