//! A log as the body of an answer.

use std::convert::Infallible;
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use jiff::Timestamp;
use tokio::sync::watch;

use super::file::LogReader;
use super::follow::{Noticed, Watch, Watcher};
use super::lines::{Lines, NotALog, Wanted};
use super::options::LogOptions;
use crate::ports::LogFile;

/// Each item is what a block of the file has to show; the next block is read when the client has taken it. What goes wrong is
/// said at the end of the body: the head of the answer has been sent by then, as upstream does it.
pub fn read(
    file: LogFile,
    options: LogOptions,
    now: Timestamp,
    watcher: Watcher,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    let begin = Step::Open(file, options, now, watcher);
    stream::unfold(begin, |step| async {
        let mut step = step;
        loop {
            step = match next(step).await {
                Ok(Turn::Show(bytes, step)) => return Some((Ok(bytes), step)),
                Ok(Turn::Go(step)) => step,
                Ok(Turn::End) => return None,
                Err(why) => return Some((Ok(Bytes::from(why)), Step::Over)),
            }
        }
    })
}

enum Step {
    Open(LogFile, LogOptions, Timestamp, Watcher),
    Read(Box<Reading>),
    Over,
}

enum Turn {
    Show(Bytes, Step),
    Go(Step),
    End,
}

async fn next(step: Step) -> Result<Turn, String> {
    match step {
        Step::Open(file, options, now, watcher) => {
            Ok(Turn::Go(Step::Read(Box::new(Reading::begin(file, options, now, watcher).await?))))
        }
        Step::Read(mut reading) => {
            let mut output = Vec::new();
            let flow = reading.turn(&mut output).await?;
            let step = if flow.is_break() { Step::Over } else { Step::Read(reading) };
            Ok(if output.is_empty() { Turn::Go(step) } else { Turn::Show(output.into(), step) })
        }
        Step::Over => Ok(Turn::End),
    }
}

struct Reading {
    path: PathBuf,
    reader: LogReader,
    offset: u64,
    lines: Lines,
    /// Used again for each block.
    block: Vec<u8>,
    following: Option<Following>,
}

struct Following {
    ended: watch::Receiver<bool>,
    watcher: Watcher,
    /// Begun at the first end of the file.
    watch: Option<Watch>,
    /// What has not been looked into yet.
    noticed: Option<Noticed>,
}

impl Reading {
    async fn begin(
        file: LogFile,
        options: LogOptions,
        now: Timestamp,
        watcher: Watcher,
    ) -> Result<Self, String> {
        let LogFile { path, ended } = file;
        let failed = |what: &str, error: io::Error| format!("failed to {what} log file {path:?}: {error}");
        let reader = LogReader::open(path.clone()).await.map_err(|error| failed("open", error))?;
        let offset = match options.tail {
            Some(lines) => reader.tail(lines).await.map_err(|error| failed("search", error))?,
            None => 0,
        };
        let wanted = Wanted {
            since: options.since.moment(now),
            timestamps: options.timestamps,
            stream: options.stream,
            // Who follows wants what comes after the tail as well.
            lines: options.tail.filter(|_| !options.follow),
            bytes: options.limit,
        };
        let following = options.follow.then(|| Following { ended, watcher, watch: None, noticed: None });
        Ok(Self { path, reader, offset, lines: Lines::new(wanted), block: Vec::new(), following })
    }

    /// A block, or a wait for one.
    async fn turn(&mut self, output: &mut Vec<u8>) -> Result<ControlFlow<()>, String> {
        let block = std::mem::take(&mut self.block);
        self.block =
            self.reader.read(self.offset, block).await.map_err(|error| self.failed("read", &error))?;
        if self.block.is_empty() {
            return self.at_the_end().await;
        }
        self.offset += self.block.len() as u64;
        if let Some(following) = &mut self.following {
            // This is what was noticed.
            following.noticed.take_if(|noticed| *noticed == Noticed::Written);
        }
        self.lines.feed(&self.block, output).map_err(not_a_log)
    }

    async fn at_the_end(&mut self) -> Result<ControlFlow<()>, String> {
        // Not needed while nothing is read.
        self.block = Vec::new();
        let Some(following) = &mut self.following else {
            return self.lines.end_of_file().map(ControlFlow::Break).map_err(not_a_log);
        };
        let Some(watch) = &mut following.watch else {
            // Read once more after the watch has begun, and look for another file, so that nothing falls between the two.
            following.watch = Some(following.watcher.start(&self.path));
            following.noticed = Some(Noticed::Changed);
            return Ok(ControlFlow::Continue(()));
        };
        match following.noticed {
            None => following.noticed = Some(watch.wait(&mut following.ended).await),
            Some(noticed) => {
                if !self.has_another_file().await? {
                    if noticed == Noticed::Ended {
                        return Ok(ControlFlow::Break(()));
                    }
                    self.following.iter_mut().for_each(|following| following.noticed = None);
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Whether there is something else to read. A rotated log goes on with the new file, once something is in it, because
    /// then the runtime writes nothing to the old one any more. A file that was cut short is begun again.
    async fn has_another_file(&mut self) -> Result<bool, String> {
        let found = match LogReader::open(self.path.clone()).await {
            Ok(found) => found,
            // Between the two files.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(self.failed("open", &error)),
        };
        let failed = |error| self.failed("read", &error);
        // In this order: once something is in the new file, the old one's size is its last.
        let new = found.len().await.map_err(failed)?;
        let old = self.reader.len().await.map_err(failed)?;
        if old > self.offset {
            return Ok(true);
        }
        if new == 0 || found.is_same_file(&self.reader) && new >= self.offset {
            return Ok(false);
        }
        self.lines.end_of_file().map_err(not_a_log)?;
        (self.reader, self.offset) = (found, 0);
        Ok(true)
    }

    fn failed(&self, what: &str, error: &io::Error) -> String {
        format!("failed to {what} log file {:?}: {error}", self.path)
    }
}

/// Without the line that upstream quotes: it is of a file that may be no log at all.
fn not_a_log(_: NotALog) -> String {
    "failed to get parse function: unsupported log format".to_owned()
}
