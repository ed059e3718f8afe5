//! `crablet pulls`: asks the agent of this machine which images are on their way, and how far they are.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use hyper::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::asking::{self, printable};

#[derive(Debug, Deserialize)]
struct Pulls {
    pulls: Vec<Pull>,
    /// `None`: the runtime does not say.
    incoming: Option<Vec<Part>>,
}

#[derive(Debug, Deserialize)]
struct Pull {
    image: String,
    namespace: String,
    pod: String,
    container: String,
    asked: Timestamp,
    /// `None`: it waits for its turn.
    began: Option<Timestamp>,
}

#[derive(Debug, Deserialize)]
struct Part {
    name: String,
    bytes: u64,
    of: Option<u64>,
}

/// Returns what belongs on stdout.
pub fn run(root_dir: &Path) -> anyhow::Result<String> {
    match asking::ask(root_dir, "/pulls")? {
        (StatusCode::OK, answer) => {
            let pulls = serde_json::from_slice(&answer).context("the agent's answer makes no sense")?;
            Ok(render(&pulls, Timestamp::now()))
        }
        (status, answer) => Err(asking::refused(status, &answer)),
    }
}

fn render(told: &Pulls, now: Timestamp) -> String {
    if told.pulls.is_empty() {
        return "no image is being pulled\n".to_owned();
    }
    let mut out = String::new();
    // Writing to a string cannot fail.
    for pull in &told.pulls {
        let whom = format!("{}/{}, container {}", pull.namespace, pull.pod, pull.container);
        let how = match pull.began {
            Some(began) => format!("pulled for {}", span(began, now)),
            None => format!("waits for its turn, for {}", span(pull.asked, now)),
        };
        let _ = writeln!(out, "{} for {}: {how}", printable(&pull.image), printable(&whom));
    }
    match told.incoming.as_deref() {
        None => out.push_str("the runtime does not say how far its pulls are\n"),
        Some([]) => {}
        Some(parts) => {
            out.push_str("on their way to this node:\n");
            for part in parts {
                let of = match part.of {
                    Some(of) => format!("{} of {of} bytes ({} %)", part.bytes, share(part.bytes, of)),
                    None => format!("{} bytes", part.bytes),
                };
                let _ = writeln!(out, "  {}: {of}", printable(&part.name));
            }
        }
    }
    out
}

fn share(bytes: u64, of: u64) -> u128 {
    u128::from(bytes) * 100 / u128::from(of.max(1))
}

fn span(from: Timestamp, to: Timestamp) -> String {
    let span = to.duration_since(from).max(SignedDuration::ZERO).unsigned_abs();
    crablet_model::duration::format(Duration::from_secs(span.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(answer: &str) -> String {
        let now = "2026-11-15T04:20:00Z".parse().expect("a time");
        render(&serde_json::from_str(answer).expect("an answer"), now)
    }

    #[test]
    fn pulls_and_what_has_come_of_them_are_shown() {
        let told = shown(
            r#"{"pulls": [
                {"image": "r.io/a:1", "namespace": "default", "pod": "web", "container": "main",
                 "asked": "2026-11-15T04:18:55Z", "began": "2026-11-15T04:19:00Z"},
                {"image": "r.io/b\u001b:1", "namespace": "default", "pod": "web", "container": "side",
                 "asked": "2026-11-15T04:19:50Z", "began": null}],
               "incoming": [{"name": "layer-sha256:aa", "bytes": 512, "of": 2048},
                            {"name": "layer-sha256:bb", "bytes": 7, "of": null}]}"#,
        );
        assert_eq!(
            told,
            "r.io/a:1 for default/web, container main: pulled for 1m0s\n\
             r.io/b :1 for default/web, container side: waits for its turn, for 10s\n\
             on their way to this node:\n  layer-sha256:aa: 512 of 2048 bytes (25 %)\n  layer-sha256:bb: 7 bytes\n"
        );
    }

    #[test]
    fn what_is_not_known_is_said() {
        assert_eq!(shown(r#"{"pulls": [], "incoming": null}"#), "no image is being pulled\n");
        let one = r#"{"pulls": [{"image": "a", "namespace": "n", "pod": "p", "container": "c",
            "asked": "2026-11-15T04:20:00Z", "began": "2026-11-15T04:20:01Z"}], "incoming": null}"#;
        assert_eq!(
            shown(one),
            "a for n/p, container c: pulled for 0s\nthe runtime does not say how far its pulls are\n"
        );
    }
}
