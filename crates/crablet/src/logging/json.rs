//! JSON lines, key for key as upstream's (zap behind klog): `ts`, `caller`, `msg`, `v` unless it is an error, the fields,
//! and the error of an error last.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value as Json, json};
use tracing::Level;

use super::line::{Line, Value};
use super::{Place, verbosity_of};

/// Everything behind the caller, without braces.
pub fn body(place: Place, line: &Line) -> String {
    let mut text = String::with_capacity(line.message.len() + 64);
    text.push_str("\"msg\":");
    string(&mut text, &line.message);
    let is_error = place.level == Level::ERROR;
    if !is_error {
        let _ = write!(text, ",\"v\":{}", verbosity_of(place.level)); // writing to a string cannot fail
    }
    let error = line.error.as_deref().map(|error| ("err", error));
    let (first, last) = if is_error { (None, error) } else { (error, None) };
    first.into_iter().for_each(|(key, content)| pair(&mut text, key, content));
    for (key, content) in &line.fields.0 {
        match content {
            Value::Text(content) => pair(&mut text, key, content),
            Value::Bare(content) => {
                text.push(',');
                string(&mut text, key);
                let _ = write!(text, ":{content}");
            }
        }
    }
    last.into_iter().for_each(|(key, content)| pair(&mut text, key, content));
    text
}

pub fn line(place: Place, body: &str, repeated: Option<u64>) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut line = String::with_capacity(body.len() + 96);
    let _ = write!(line, "{{\"ts\":{},\"caller\":", since.as_nanos() as f64 / 1e6);
    string(&mut line, &format!("{}/{}:{}", place.folder(), place.file(), place.line));
    line.push(',');
    line.push_str(body);
    if let Some(count) = repeated {
        let _ = write!(line, ",\"repeated\":{count}");
    }
    line.push_str("}\n");
    line
}

fn pair(out: &mut String, key: &str, content: &str) {
    out.push(',');
    string(out, key);
    out.push(':');
    match (key, content.split_once('/')) {
        // References to objects are objects of their own here.
        ("pod" | "object", Some((namespace, name))) => {
            let _ = write!(out, "{}", json!({ "name": name, "namespace": namespace }));
        }
        _ => string(out, content),
    }
}

fn string(out: &mut String, text: &str) {
    let _ = write!(out, "{}", Json::from(text));
}
