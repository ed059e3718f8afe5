//! What a kubelet asked the API server for, from the server's own log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

/// How often, by verb and resource: `patch pods/status`.
pub type Requests = BTreeMap<String, usize>;

pub struct Audit(pub PathBuf);

impl Audit {
    /// A place in the log: what was asked before it and what after it.
    pub fn now(&self) -> u64 {
        std::fs::metadata(&self.0).map_or(0, |file| file.len())
    }

    /// What the node asked for between two places.
    pub fn requests(&self, node: &str, from: u64, to: u64) -> Result<Requests> {
        let mut file = File::open(&self.0).context("the API server keeps no audit log")?;
        file.seek(SeekFrom::Start(from))?;
        let mut text = String::new();
        file.take(to.saturating_sub(from)).read_to_string(&mut text)?;
        let user = format!("system:node:{node}");
        let mut requests = Requests::new();
        for line in text.lines() {
            if let Some(what) = request(line, &user) {
                *requests.entry(what).or_default() += 1;
            }
        }
        Ok(requests)
    }
}

/// One line for each request: at its end, or for a watch at its beginning.
fn request(line: &str, user: &str) -> Option<String> {
    let event: Value = serde_json::from_str(line).ok()?;
    let verb = event["verb"].as_str()?;
    let stage = if verb == "watch" { "ResponseStarted" } else { "ResponseComplete" };
    if event["user"]["username"] != user || event["stage"] != stage {
        return None;
    }
    let object = &event["objectRef"];
    let resource = object["resource"].as_str().unwrap_or("(none)");
    Some(match object["subresource"].as_str() {
        Some(sub) => format!("{verb} {resource}/{sub}"),
        None => format!("{verb} {resource}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_once_and_only_those_of_the_node() {
        let line = |user: &str, verb: &str, stage: &str| {
            format!(
                r#"{{"user":{{"username":"system:node:{user}"}},"verb":"{verb}","stage":"{stage}","objectRef":{{"resource":"pods","subresource":"status"}}}}"#
            )
        };
        let of = |user, verb, stage| request(&line(user, verb, stage), "system:node:a");
        assert_eq!(of("a", "patch", "ResponseComplete"), Some("patch pods/status".into()));
        assert_eq!(of("a", "watch", "ResponseStarted"), Some("watch pods/status".into()));
        assert_eq!(of("a", "watch", "ResponseComplete"), None);
        assert_eq!(of("b", "patch", "ResponseComplete"), None);
    }
}
