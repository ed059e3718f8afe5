//! Log lines as upstream's users and tools read them, in klog's form or as JSON:
//!
//! ```text
//! I1115 04:19:13.123456    4711 worker.rs:42] "Message" err="why" pod="namespace/name" count=3
//! {"ts":1763180353123.456,"caller":"pods/worker.rs:42","msg":"Message","v":0,"pod":{"name":"name","namespace":"namespace"},"count":3}
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`levels`] | which lines are printed: `-v` and `--vmodule`, which may change while the agent runs |
//! | [`line`] | one event: its message, its error, its fields |
//! | [`klog`], [`json`] | the two ways to write that |
//! | [`repeats`] | what was said within the last minute |
//! | [`streams`] | stdout and stderr, and what waits in memory for them |
//!
//! A line that says the same as one of the last minute is counted instead of printed. The count follows with the first
//! line of any kind that is logged after that minute, so nothing has to wake up for it.

mod json;
mod klog;
mod levels;
mod line;
mod repeats;
mod streams;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crablet_config::{LogFormat, Logging};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use levels::Levels;
use line::{Fields, Line};
use repeats::{Repeats, Seen};
use streams::Streams;

/// What can be done about the log while the agent runs.
#[derive(Clone)]
pub struct Control {
    levels: Levels,
    streams: Arc<Streams>,
}

/// Logs from now on.
pub fn init(logging: &Logging) -> Control {
    let streams = Arc::new(Streams::standard(logging.streams(), logging.format));
    let (subscriber, control) = subscriber(logging, streams);
    // Only a test that shares its process with others finds a logger in place already.
    let _ = tracing::subscriber::set_global_default(subscriber);
    control
}

impl Control {
    /// Other levels from now on. Format and streams stay as they were at the start.
    pub fn set_levels(&self, logging: &Logging) {
        self.levels.set(logging.verbosity, &logging.vmodule);
        tracing::callsite::rebuild_interest_cache();
    }

    /// Another verbosity from now on, until the configuration says something else.
    pub fn set_verbosity(&self, verbosity: u32) {
        self.levels.set_verbosity(verbosity);
        tracing::callsite::rebuild_interest_cache();
    }

    /// Writes what still waits in memory.
    pub fn flush(&self) {
        self.streams.flush();
    }

    /// Writes what waits in memory when it has waited for the flush frequency. Sleeps as long as nothing waits.
    pub async fn keep_flushed(&self, every: std::time::Duration) {
        loop {
            self.streams.something_waits().await;
            tokio::time::sleep(every).await;
            self.streams.flush();
        }
    }
}

fn subscriber(logging: &Logging, streams: Arc<Streams>) -> (impl Subscriber + Send + Sync + use<>, Control) {
    let levels = Levels::new(logging.verbosity, &logging.vmodule);
    let printer = Printer { format: logging.format, streams: streams.clone(), repeats: Mutex::default() };
    let subscriber = tracing_subscriber::registry().with(levels.clone()).with(printer);
    (subscriber, Control { levels, streams })
}

/// Writes one event as one line, unless it was just said.
struct Printer {
    format: LogFormat,
    streams: Arc<Streams>,
    repeats: Mutex<Repeats>,
}

impl<S> Layer<S> for Printer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(Fields::of(attributes));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut line = Line::of(event);
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(fields) = span.extensions().get::<Fields>() {
                line.put_around(fields);
            }
        }
        self.print(Place::of(event.metadata()), &line);
    }
}

impl Printer {
    fn print(&self, place: Place, line: &Line) {
        let body = self.body(place, line);
        let (told, seen) = {
            let mut repeats = self.repeats.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let told = repeats.expired(now);
            let seen = repeats.note(now, place, &body, |limit| self.body(place, &line.shortened(limit)));
            (told, seen)
        };
        for told in told {
            self.write(told.place, &told.body, Some(told.count));
        }
        if seen == Seen::New {
            self.write(place, &body, None);
        }
    }

    fn body(&self, place: Place, line: &Line) -> String {
        match self.format {
            LogFormat::Text => klog::body(line),
            LogFormat::Json => json::body(place, line),
        }
    }

    fn write(&self, place: Place, body: &str, repeated: Option<u64>) {
        let text = match self.format {
            LogFormat::Text => klog::line(place, body, repeated),
            LogFormat::Json => json::line(place, body, repeated),
        };
        self.streams.write(place.level, text.as_bytes());
    }
}

/// Where an event comes from, and how bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    level: Level,
    /// As the compiler saw it: `crates/pods/src/worker.rs`.
    path: &'static str,
    line: u32,
}

impl Place {
    fn of(metadata: &Metadata<'static>) -> Self {
        Self {
            level: *metadata.level(),
            path: metadata.file().unwrap_or("unknown"),
            line: metadata.line().unwrap_or_default(),
        }
    }

    /// `worker.rs`
    fn file(self) -> &'static str {
        self.path.rsplit(['/', '\\']).next().unwrap_or(self.path)
    }

    /// `pods`: the folder of the file, or of the crate.
    fn folder(self) -> &'static str {
        self.path.rsplit(['/', '\\']).skip(1).find(|part| *part != "src").unwrap_or_default()
    }
}

/// klog's verbosity of a level. Errors and warnings are always printed.
fn verbosity_of(level: Level) -> u32 {
    match level {
        Level::ERROR | Level::WARN | Level::INFO => 0,
        Level::DEBUG => 4,
        Level::TRACE => 6,
    }
}

#[cfg(test)]
mod tests;
