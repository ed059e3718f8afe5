//! What Ginkgo says while it runs, read line by line for a progress line. Results are never taken from here but from its
//! report at the end: should a line be misread, only the display is wrong for a moment.

use super::report::State;

/// Thirty dashes at the left edge stand between specs; those inside a spec's output are indented.
const DELIMITER: &str = "------------------------------";

/// One piece of news.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// How many specs were selected; comes once, before the first of them.
    Selected(usize),
    /// A spec runs. With several processes only the long ones are told, when they have run for a while.
    Running(String),
    /// A spec is over. Its labels may stand behind the name, in brackets.
    Finished { name: String, state: State },
}

/// Reads Ginkgo's output with `-v --no-color`. With several processes a spec is told when it is over, as a header
/// (`• [1.2 seconds]`) and its name; with one process the name comes first and the header ends it.
#[derive(Debug, Default)]
pub struct Parser {
    after_delimiter: bool,
    /// The state in a header whose spec's name comes with the next line.
    header: Option<State>,
    running: Option<String>,
}

impl Parser {
    pub fn line(&mut self, line: &str) -> Option<Event> {
        let after_delimiter = std::mem::replace(&mut self.after_delimiter, line == DELIMITER);
        if let Some(state) = self.header.take() {
            self.running = None;
            return Some(Event::Finished { name: without_node_type(line), state });
        }
        if let Some(count) = selected(line) {
            return Some(Event::Selected(count));
        }
        if let Some(name) = in_progress_report(line) {
            return Some(Event::Running(name.to_owned()));
        }
        if let Some(state) = header(line) {
            return self.finished(state);
        }
        // All of upstream's specs begin with the group that owns them.
        if after_delimiter && line.starts_with("[sig-") {
            self.running = Some(line.to_owned());
            return Some(Event::Running(line.to_owned()));
        }
        None
    }

    fn finished(&mut self, state: State) -> Option<Event> {
        match self.running.take() {
            Some(name) => Some(Event::Finished { name, state }),
            None => {
                self.header = Some(state);
                None
            }
        }
    }
}

/// `Will run 246 of 7137 specs`
fn selected(line: &str) -> Option<usize> {
    line.strip_prefix("Will run ")?.split(' ').next()?.parse().ok()
}

/// `    [sig-node] Pods should ... (Spec Runtime: 41.2s)`
fn in_progress_report(line: &str) -> Option<&str> {
    let (name, _) = line.split_once(" (Spec Runtime: ")?;
    Some(name.trim_start())
}

/// `• [3.1 seconds]`, `• [FAILED] [3.1 seconds]`, `S [SKIPPED] [0.1 seconds]`, `P [PENDING]`
fn header(line: &str) -> Option<State> {
    let rest =
        line.strip_prefix("• [").or_else(|| line.strip_prefix("S [")).or_else(|| line.strip_prefix("P ["))?;
    let word = rest.split(']').next()?;
    Some(match word {
        "SKIPPED" | "PENDING" => State::Skipped,
        _ if word.ends_with(" seconds") => State::Passed,
        _ => State::Failed,
    })
}

/// In a failed spec's name Ginkgo marks the node that failed: `Pods [It] should ...`.
fn without_node_type(line: &str) -> String {
    const NODES: &[&str] =
        &["[It] ", "[BeforeEach] ", "[AfterEach] ", "[JustBeforeEach] ", "[DeferCleanup (Each)] "];
    NODES.iter().fold(line.to_owned(), |name, node| name.replacen(node, "", 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(text: &str) -> Vec<Event> {
        let mut parser = Parser::default();
        text.lines().filter_map(|line| parser.line(line)).collect()
    }

    fn finished(name: &str, state: State) -> Event {
        Event::Finished { name: name.into(), state }
    }

    #[test]
    fn several_processes_tell_specs_when_they_are_over() {
        let said = "\
Running Suite: Kubernetes e2e suite - /x
Random Seed: 1 - will randomize all specs

Will run 3 of 7137 specs
Running in parallel across 2 processes
------------------------------
[SynchronizedBeforeSuite] PASSED [0.1 seconds]
[SynchronizedBeforeSuite]
k8s.io/kubernetes/test/e2e/e2e.go:69
------------------------------
• [5.123 seconds]
[sig-node] Pods should get a host IP [NodeConformance] [Conformance]
k8s.io/kubernetes/test/e2e/common/node/pods.go:202

  Timeline >>
  ------------------------------
  • [FAILED] not a header, since it is part of the output
  << Timeline
------------------------------
  ------------------------------
  Progress Report for Ginkgo Process #2
  Automatically polling progress:
    [sig-node] Probes wait (Spec Runtime: 41.2s)
      k8s.io/x.go:1
  ------------------------------
------------------------------
• [FAILED] [2.000 seconds]
[sig-node] Probes [It] wait
------------------------------
S [SKIPPED] [0.010 seconds]
[sig-node] Swap
";
        assert_eq!(
            events(said),
            [
                Event::Selected(3),
                finished(
                    "[sig-node] Pods should get a host IP [NodeConformance] [Conformance]",
                    State::Passed
                ),
                Event::Running("[sig-node] Probes wait".into()),
                finished("[sig-node] Probes wait", State::Failed),
                finished("[sig-node] Swap", State::Skipped),
            ]
        );
    }

    #[test]
    fn one_process_tells_the_name_first() {
        let said = "\
Will run 2 of 700 specs
------------------------------
[sig-node] Pods should run
k8s.io/kubernetes/test/e2e/common/node/pods.go:202
  STEP: one
• [1.5 seconds]
------------------------------
[sig-node] Pods should fail
k8s.io/kubernetes/test/e2e/common/node/pods.go:203
• [FAILED] [1.5 seconds]
[sig-node] Pods [It] should fail
------------------------------
";
        let run = "[sig-node] Pods should run";
        let fail = "[sig-node] Pods should fail";
        assert_eq!(
            events(said),
            [
                Event::Selected(2),
                Event::Running(run.into()),
                finished(run, State::Passed),
                Event::Running(fail.into()),
                finished(fail, State::Failed),
            ]
        );
    }
}
