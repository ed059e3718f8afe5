//! What is seen while a suite runs: one line that is written over and over on a terminal, a line for each spec elsewhere.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use crablet_testbed::suites::report::State;
use crablet_testbed::suites::stream::Event;

/// As much of a spec's name as is shown among others.
const NAME: usize = 60;
/// As wide as terminals are at least.
const LINE: usize = 118;
/// How often the state is told where lines cannot be written over, when no spec ends meanwhile.
const SIGN_OF_LIFE: Duration = Duration::from_secs(60);

pub struct Progress {
    terminal: bool,
    started: Instant,
    last: Instant,
    processes: usize,
    tally: Tally,
}

/// The state of a run so far.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    selected: usize,
    passed: usize,
    failed: usize,
    skipped: usize,
    /// The running specs that are known by name.
    running: Vec<String>,
}

impl Progress {
    pub fn new(processes: usize) -> Progress {
        let now = Instant::now();
        Progress {
            terminal: stderr().is_terminal(),
            started: now,
            last: now,
            processes,
            tally: Tally::default(),
        }
    }

    pub fn hear(&mut self, event: Event) {
        let finished = match &event {
            Event::Finished { name, state } => Some((name.clone(), *state)),
            _ => None,
        };
        self.tally.count(event);
        let mut out = stderr().lock();
        // Nobody to see it is no reason to stop.
        let _ = match finished {
            _ if self.terminal => {
                if let Some((name, State::Failed)) = finished {
                    let _ = writeln!(out, "\r\x1b[K    failed: {name}");
                }
                write!(out, "\r\x1b[K{}", cut(&self.line(), LINE))
            }
            Some((name, state)) => {
                self.last = Instant::now();
                writeln!(out, "    {}", self.spec_line(&name, state))
            }
            None if self.last.elapsed() > SIGN_OF_LIFE => {
                self.last = Instant::now();
                writeln!(out, "    {}", self.line())
            }
            None => Ok(()),
        };
        let _ = out.flush();
    }

    /// Leaves the line that was written over.
    pub fn end(&self) {
        if self.terminal {
            eprintln!();
        }
    }

    fn spec_line(&self, name: &str, state: State) -> String {
        let Tally { selected, .. } = self.tally;
        let elapsed = duration(self.started.elapsed().as_secs());
        format!("{elapsed} {}/{selected} {} {name}", self.tally.done(), told(state))
    }

    fn line(&self) -> String {
        let tally = &self.tally;
        let mut line = format!(
            "{} {}/{} done, {} passed, {} failed, {} skipped, {} running",
            duration(self.started.elapsed().as_secs()),
            tally.done(),
            tally.selected,
            tally.passed,
            tally.failed,
            tally.skipped,
            self.processes.min(tally.selected - tally.done().min(tally.selected)),
        );
        if let Some(name) = tally.running.last() {
            line += &format!(": {}", cut(name, NAME));
        }
        line
    }
}

impl Tally {
    fn done(&self) -> usize {
        self.passed + self.failed + self.skipped
    }

    fn count(&mut self, event: Event) {
        match event {
            Event::Selected(count) => self.selected = count,
            Event::Running(name) => {
                self.running.retain(|known| *known != name);
                self.running.push(name);
            }
            Event::Finished { name, state } => {
                // With several processes, labels follow the name of a spec that is over.
                self.running.retain(|known| !name.starts_with(known.as_str()));
                match state {
                    State::Passed => self.passed += 1,
                    State::Failed => self.failed += 1,
                    State::Skipped => self.skipped += 1,
                }
            }
        }
    }
}

pub fn told(state: State) -> &'static str {
    match state {
        State::Passed => "passed",
        State::Failed => "failed",
        State::Skipped => "skipped",
    }
}

/// `1:02:03`, or `2:03` in the first hour.
pub fn duration(seconds: u64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

fn cut(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_counted_as_they_end() {
        let mut tally = Tally::default();
        let finished = |name: &str, state| Event::Finished { name: name.into(), state };
        let events = [
            Event::Selected(4),
            Event::Running("[sig-node] slow".into()),
            Event::Running("[sig-node] slower".into()),
            finished("[sig-node] quick [Conformance]", State::Passed),
            finished("[sig-node] slow [sig-node, Conformance]", State::Failed),
            finished("[sig-node] other", State::Skipped),
        ];
        for event in events {
            tally.count(event);
        }
        let running = vec!["[sig-node] slower".to_owned()];
        assert_eq!(tally, Tally { selected: 4, passed: 1, failed: 1, skipped: 1, running });
        assert_eq!(tally.done(), 3);
    }

    #[test]
    fn times_and_names_are_short() {
        assert_eq!((duration(59), duration(3723)), ("0:59".into(), "1:02:03".into()));
        assert_eq!((cut("äöü", 2), cut("äöü", 3)), ("äö...".into(), "äöü".into()));
    }
}
