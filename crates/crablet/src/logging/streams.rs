//! Where lines go: all to stderr, or, when the streams are split, what is not wrong to stdout, which may be let wait.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crablet_config::{LogFormat, LogStreams};
use tokio::sync::Notify;
use tracing::Level;

type Output = Box<dyn Write + Send>;

pub struct Streams {
    errors: Mutex<Output>,
    /// `None`: it goes where errors go.
    info: Option<Mutex<Buffered>>,
    /// The least bad level that is not info.
    errors_from: Level,
    waiting: Notify,
}

struct Buffered {
    output: Output,
    bytes: Vec<u8>,
    limit: usize,
}

impl Streams {
    pub fn standard(streams: LogStreams, format: LogFormat) -> Self {
        Self::new(streams, format, Box::new(io::stdout()), Box::new(io::stderr()))
    }

    pub fn new(streams: LogStreams, format: LogFormat, info: Output, errors: Output) -> Self {
        let limit = usize::try_from(streams.info_buffer_size).unwrap_or(usize::MAX);
        let info = Buffered { output: info, bytes: Vec::new(), limit };
        // Upstream's JSON knows no warnings: they are information there.
        let errors_from = match format {
            LogFormat::Text => Level::WARN,
            LogFormat::Json => Level::ERROR,
        };
        Self {
            errors: Mutex::new(errors),
            info: streams.split_stream.then(|| Mutex::new(info)),
            errors_from,
            waiting: Notify::new(),
        }
    }

    /// A line. Where it cannot be written, nobody is left to be told.
    pub fn write(&self, level: Level, line: &[u8]) {
        match &self.info {
            Some(info) if level > self.errors_from => {
                if lock(info).write(line) {
                    self.waiting.notify_one();
                }
            }
            _ => {
                let mut errors = lock(&self.errors);
                let _ = errors.write_all(line).and_then(|()| errors.flush());
            }
        }
    }

    pub fn flush(&self) {
        if let Some(info) = &self.info {
            lock(info).flush();
        }
    }

    pub async fn something_waits(&self) {
        self.waiting.notified().await;
    }
}

impl Buffered {
    /// Never splits a line. Returns whether it waits in memory now.
    fn write(&mut self, line: &[u8]) -> bool {
        if self.bytes.len() + line.len() > self.limit {
            self.flush();
        }
        if line.len() > self.limit {
            let _ = self.output.write_all(line).and_then(|()| self.output.flush());
            return false;
        }
        self.bytes.extend_from_slice(line);
        true
    }

    fn flush(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let _ = self.output.write_all(&bytes).and_then(|()| self.output.flush());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
