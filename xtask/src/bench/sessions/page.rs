//! `docs/benchmarks-sessions.md`: what the last whole run showed.

use std::fmt::Write;
use std::fs;

use anyhow::{Context, Result};
use crablet_testbed::{kube, say};

use super::Plan;
use super::figures::Results;
use super::load::Load;
use crate::bench::node::page::machine;
use crate::workspace;

const FILE: &str = "docs/benchmarks-sessions.md";

const METHOD: &str = "\
What a kubelet pays for its clients: `logs -f` and `exec` at its own port, without an API server in between. One control
plane, one containerd, one machine, the clients on it too. Each load is put on a kubelet that was started 25 s before and
has 21 pods; what it had without the load is taken off, except from the memory in all. Who went first in one round goes
last in the next.

| what | how |
|---|---|
| memory in all | RSS of the process and its children from `/proc`, at the end of the window; Crablet's keeper process counts as Crablet |
| memory for each session | what the load added to the part of it that no file stands behind, shared out |
| CPU | of the process and its children over the window; 100 % is one core |
| `logs -f` | 10 containers, each followed by a tenth of the clients from its present end on |
| `exec` | `cat` in one container; a session that carries data sends as fast as it can and gets all of it back |
| WebSocket | version 5 of the channels, which the kubelet turns into SPDY for containerd; SPDY goes through as it is |

Upstream opens an inotify instance for each follower of a log, and Linux allows a user 128 of them unless it is told
otherwise: with that default, 200 followers of upstream's logs end with an error. The bench raises the limit for its time.

Values are medians over the rounds. The ratio is upstream's value over Crablet's.
";

pub fn write(plan: &Plan, results: &Results) -> Result<()> {
    fs::write(workspace::root().join(FILE), page(plan, results)?)
        .with_context(|| format!("cannot write `{FILE}`"))?;
    say::step(format!("`{FILE}` is written"));
    Ok(())
}

fn page(plan: &Plan, results: &Results) -> Result<String> {
    let mut text = String::from(
        "# Benchmarks of sessions\n\n<!-- Made by `cargo xtask bench sessions`. Do not edit. -->\n\n",
    );
    writeln!(
        text,
        "Figures of one machine on one day ({}): {}. Kubernetes {}, Crablet {}. {} rounds, {} s for each figure.\n\n{METHOD}",
        jiff::Timestamp::now().strftime("%F"),
        machine(),
        kube::VERSION,
        env!("CARGO_PKG_VERSION"),
        plan.rounds,
        plan.window.as_secs(),
    )?;
    for load in Load::ALL {
        writeln!(text, "## {}\n\n| | Crablet | upstream | ratio |\n|---|---|---|---|", load.title(plan))?;
        for line in results.lines(load) {
            writeln!(text, "| {} | {} |", line.what, line.cells().join(" | "))?;
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_page_says_how_it_was_made() {
        let plan =
            Plan { rounds: 2, window: Duration::from_secs(20), followers: 200, sessions: 100, only: None };
        let text = page(&plan, &Results::default()).unwrap();
        for part in
            ["# Benchmarks of sessions\n", "2 rounds, 20 s", "## 200 `logs -f` of silent containers\n"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
