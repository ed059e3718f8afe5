//! `crablet explain`: asks the agent of this machine why a pod is the way it is.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use hyper::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::asking::{self, printable};

/// What the agent decided in one turn. Equal turns in a row are one entry with a count.
#[derive(Debug, Deserialize)]
struct Decision {
    first: Timestamp,
    last: Timestamp,
    count: u64,
    why: Vec<String>,
}

/// Returns what belongs on stdout.
pub fn run(namespace: &str, pod: &str, root_dir: &Path) -> anyhow::Result<String> {
    // Both names are DNS subdomains: they need no escaping.
    let (status, answer) = asking::ask(root_dir, &format!("/explain/{namespace}/{pod}"))?;
    match status {
        StatusCode::OK => {
            let journal: Vec<Decision> =
                serde_json::from_slice(&answer).context("the agent's answer makes no sense")?;
            Ok(render(namespace, pod, &journal))
        }
        StatusCode::NOT_FOUND => bail!(
            "there is no pod {pod:?} in namespace {namespace:?}\n\
             hint: the name of a static pod ends in the node's name, like `web-node1`"
        ),
        status => Err(asking::refused(status, &answer)),
    }
}

fn render(namespace: &str, pod: &str, journal: &[Decision]) -> String {
    let mut out = format!("{namespace}/{pod}: ");
    // Writing to a string cannot fail.
    let _ = match journal.len() {
        0 => writeln!(out, "nothing was decided yet"),
        1 => writeln!(out, "the latest decision"),
        many => writeln!(out, "the latest {many} decisions, oldest first"),
    };
    for decision in journal {
        let _ = write!(out, "\n{}", decision.first.strftime("%Y-%m-%d %H:%M:%SZ"));
        if decision.count > 1 {
            let span = decision.last.duration_since(decision.first).max(SignedDuration::ZERO).unsigned_abs();
            let span = Duration::from_secs(span.as_secs());
            let _ =
                write!(out, ", {} times within {}", decision.count, crablet_model::duration::format(span));
        }
        out.push('\n');
        for reason in &decision.why {
            let _ = writeln!(out, "  - {}", printable(reason));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_reads_from_top_to_bottom() {
        let journal = br#"[
            {"first":"2026-11-15T04:19:13.5Z","last":"2026-11-15T04:19:13.5Z","count":1,
             "why":["image \"web\" is not here: pull it","sandbox is ready"]},
            {"first":"2026-11-15T04:20:00Z","last":"2026-11-15T04:21:20.9Z","count":12,"why":["wait\u001b[31m for it"]}
        ]"#;
        let journal: Vec<Decision> = serde_json::from_slice(journal).expect("a journal");
        assert_eq!(
            render("default", "web-node1", &journal),
            "default/web-node1: the latest 2 decisions, oldest first\n\
             \n2026-11-15 04:19:13Z\n  - image \"web\" is not here: pull it\n  - sandbox is ready\n\
             \n2026-11-15 04:20:00Z, 12 times within 1m20s\n  - wait [31m for it\n"
        );
    }

    #[test]
    fn a_missing_agent_is_named_with_a_hint() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = run("default", "web", folder.path()).expect_err("nobody listens");
        let text = error.to_string();
        assert!(
            text.starts_with("no agent answers on") && text.contains("\nhint: is crablet running?"),
            "{text}"
        );
    }
}
