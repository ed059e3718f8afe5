//! `docs/benchmarks.md`: what the last whole run showed.

use std::fmt::Write;
use std::fs;

use anyhow::{Context, Result};
use crablet_testbed::{kube, say};

use super::Plan;
use super::figures::Results;
use crate::workspace;

const FILE: &str = "docs/benchmarks.md";

const METHOD: &str = "\
One control plane, one containerd, one machine. Each round begins with a bare CRI client, which gives the floor; then each
kubelet joins, is measured, leaves, and what it left is removed. Who went first in one round goes last in the next.

| what | how |
|---|---|
| at rest | memory, CPU and context switches of the process and its children from `/proc`, 15 s after the last work. Crablet's keeper process counts as Crablet |
| a burst | one client creates (later deletes) all pods, 16 requests at once, bound to the node from the start; the time runs from the first request to the last event of a watch on the API server |
| the pods | one container of the smallest image, which leaves at once when told to; no probes, no init containers; the token of the service account is mounted, as everywhere |
| the floor | RunPodSandbox, CreateContainer and StartContainer for each pod, 16 pods at once, then StopContainer and StopPodSandbox; the messages ask for what kubelets ask for (seccomp, masked paths, mounts, a cgroup for each pod); the control plane runs beside it and has nothing to do |
| CPU of the machine | all of it, from `/proc/stat`: with both cores busy, half of it is the time that a burst takes |
| reactions | one pod after the other on an empty node; an exit is the moment at which the kernel reports the end of the container's process |
| start-up | from the start of the process to the event that says that the node is ready; nothing to build or to pull |
| requests | from the API server's audit log |

Values are medians over the rounds; percentiles are over the samples of all rounds. Both kubelets get the same
configuration and credentials. The ratio is upstream's value over Crablet's. A bar is what Crablet has promised itself for
this value; a burst's bar is 1.1 times the floor.
";

pub fn write(plan: &Plan, results: &Results) -> Result<()> {
    fs::write(workspace::root().join(FILE), page(plan, results)?)
        .with_context(|| format!("cannot write `{FILE}`"))?;
    say::step(format!("`{FILE}` is written"));
    Ok(())
}

fn page(plan: &Plan, results: &Results) -> Result<String> {
    let mut text =
        String::from("# Benchmarks\n\n<!-- Made by `cargo xtask bench node`. Do not edit. -->\n\n");
    writeln!(
        text,
        "Figures of one machine on one day ({}): {}. Kubernetes {}, Crablet {}. {} rounds, {} s for each figure at rest, {} \
         samples of each reaction in each round.\n\n{METHOD}",
        jiff::Timestamp::now().strftime("%F"),
        machine(),
        kube::VERSION,
        env!("CARGO_PKG_VERSION"),
        plan.rounds,
        plan.idle.as_secs(),
        plan.reactions,
    )?;
    for section in results.sections(plan.pods) {
        let mut title = section.title.clone();
        if let Some(first) = title.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        writeln!(
            text,
            "## {title}\n\n| | Crablet | upstream | ratio | floor | bar |\n|---|---|---|---|---|---|"
        )?;
        for line in &section.lines {
            writeln!(text, "| {} | {} |", line.what, line.cells().join(" | "))?;
        }
        text.push('\n');
    }
    if let Some(removal) = results.floor_removal() {
        writeln!(
            text,
            "To remove what it had stopped, the bare client needed another {removal:.2} s; kubelets do that later."
        )?;
    }
    Ok(text)
}

/// Without a name: what matters of it for the figures.
pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, |count| count.get());
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = memory.split_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(0.0);
    let kernel = rustix::system::uname();
    let release = kernel.release().to_string_lossy();
    let unified = fs::exists("/sys/fs/cgroup/cgroup.controllers").unwrap_or(false);
    let version: String =
        release.split(|c: char| !(c.is_ascii_digit() || c == '.')).next().unwrap_or_default().into();
    format!(
        "{cores} cores, {:.0} GiB of memory, Linux {version}, cgroup v{}",
        kib / 1024.0 / 1024.0,
        if unified { 2 } else { 1 }
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_page_says_how_it_was_made_and_what_is_promised() {
        let plan = Plan {
            rounds: 2,
            pods: 110,
            idle: Duration::from_secs(60),
            reactions: 20,
            only: None,
            at_once: 16,
        };
        let text = page(&plan, &Results::default()).unwrap();
        for part in ["# Benchmarks\n", "2 rounds, 60 s", "## At rest, 110 pods\n", "| at most 20.0 MiB |"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
