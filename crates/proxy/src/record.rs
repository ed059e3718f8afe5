//! What was seen: every line of the record, in memory and in a file, and how often what was asked.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::Notify;

use crate::error::{Error, Result};

/// How many lines are kept in memory; older ones are in the file only.
pub const DEFAULT_KEPT: usize = 100_000;

/// A line of a record, and what calls are counted by.
pub trait Recorded: Serialize + Send + Sync + 'static {
    type Key: Ord + Clone + Send + 'static;
}

/// How a call ended, seen from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The answer of the other side went to the client, whole.
    Answered,
    /// A rule made the answer up; the other side was not asked.
    Failed,
    /// A rule made the answer up; the other side was asked, and its answer is in the record.
    FailedAfter,
    /// The client gave up, or the proxy was stopped, before there was a whole answer.
    GivenUp,
    /// A rule closed the client's connection.
    Cut,
    /// The connection to the other side broke, or the other side reset the call.
    Broken,
}

/// Which part of a call a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The whole of it.
    Call,
    /// A stream of answers, a watch or an upgraded connection begins.
    Start,
    /// One message of a stream (CRI only).
    Message,
    /// It has ended.
    End,
}

/// A handle to a record; clones are the same record.
pub struct Recorder<R: Recorded>(Arc<Inner<R>>);

impl<R: Recorded> Clone for Recorder<R> {
    fn clone(&self) -> Self {
        Recorder(Arc::clone(&self.0))
    }
}

struct Inner<R: Recorded> {
    state: Mutex<State<R>>,
    changed: Condvar,
    notify: Notify,
    kept: usize,
}

struct State<R: Recorded> {
    file: File,
    problem: Option<String>,
    lines: VecDeque<Arc<R>>,
    forgotten: u64,
    counts: BTreeMap<R::Key, u64>,
    calls: u64,
}

impl<R: Recorded> Recorder<R> {
    /// Appends to the file at `log`.
    pub fn open(log: &Path, kept: usize) -> Result<Recorder<R>> {
        let file = OpenOptions::new().create(true).append(true).open(log);
        let file = file.map_err(|source| Error::Log { path: log.to_owned(), source })?;
        let state = State {
            file,
            problem: None,
            lines: VecDeque::new(),
            forgotten: 0,
            counts: BTreeMap::new(),
            calls: 0,
        };
        Ok(Recorder(Arc::new(Inner {
            state: Mutex::new(state),
            changed: Condvar::new(),
            notify: Notify::new(),
            kept,
        })))
    }

    /// All lines so far that are still in memory, in the order in which they were written.
    pub fn lines(&self) -> Vec<Arc<R>> {
        self.state().lines.iter().cloned().collect()
    }

    /// How many lines memory no longer holds; the file has them.
    pub fn forgotten(&self) -> u64 {
        self.state().forgotten
    }

    /// How often what was asked, from the moment a call arrives.
    pub fn counts(&self) -> BTreeMap<R::Key, u64> {
        self.state().counts.clone()
    }

    /// How many calls arrived whose key is such.
    pub fn count(&self, such: impl Fn(&R::Key) -> bool) -> u64 {
        self.state().counts.iter().filter(|(key, _)| such(key)).map(|(_, count)| count).sum()
    }

    /// The number of the call that arrived last; calls are numbered from 1. To look at what comes after now.
    pub fn last_call(&self) -> u64 {
        self.state().calls
    }

    /// The first failure to write the file, if there was one.
    pub fn problem(&self) -> Option<String> {
        self.state().problem.clone()
    }

    /// Blocks until there is such a line, and gives the first. Lines that are there already count.
    pub fn wait(&self, what: &str, within: Duration, such: impl Fn(&R) -> bool) -> Result<Arc<R>> {
        // By number since the first line ever, because old lines may be forgotten while we wait.
        let mut seen = 0;
        let mut found = None;
        let waited = self.0.changed.wait_timeout_while(self.state(), within, |state| {
            found = look(state, &mut seen, &such);
            found.is_none()
        });
        drop(waited);
        found.ok_or_else(|| Error::Waited { what: what.to_owned(), within })
    }

    /// [`Recorder::wait`] for those who have a runtime; the deadline is the caller's.
    pub async fn next(&self, such: impl Fn(&R) -> bool) -> Arc<R> {
        let mut seen = 0;
        loop {
            let notified = self.0.notify.notified();
            let mut notified = std::pin::pin!(notified);
            notified.as_mut().enable();
            if let Some(found) = look(&mut self.state(), &mut seen, &such) {
                return found;
            }
            notified.await;
        }
    }

    /// A call arrived: it is counted, and gets its number.
    pub(crate) fn arrived(&self, key: R::Key) -> u64 {
        let mut state = self.state();
        *state.counts.entry(key).or_default() += 1;
        state.calls += 1;
        state.calls
    }

    pub(crate) fn write(&self, line: R) {
        let text = serde_json::to_string(&line);
        let mut state = self.state();
        let written = match text {
            Ok(mut text) => {
                text.push('\n');
                state.file.write_all(text.as_bytes()).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        if let Err(problem) = written {
            state.problem.get_or_insert(problem);
        }
        if state.lines.len() >= self.0.kept {
            state.lines.pop_front();
            state.forgotten += 1;
        }
        state.lines.push_back(Arc::new(line));
        drop(state);
        self.0.changed.notify_all();
        self.0.notify.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State<R>> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks at the lines from number `seen` on, and moves it past them.
fn look<R: Recorded>(state: &mut State<R>, seen: &mut u64, such: &impl Fn(&R) -> bool) -> Option<Arc<R>> {
    let skip = seen.saturating_sub(state.forgotten) as usize;
    *seen = state.forgotten + state.lines.len() as u64;
    state.lines.iter().skip(skip).find(|line| such(line)).cloned()
}
