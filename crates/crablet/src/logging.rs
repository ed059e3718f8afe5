//! Log lines on stderr in klog's form, which upstream's users and tools read:
//!
//! ```text
//! I1115 04:19:13.123456    4711 worker.rs:42] "Message" err="why" pod="namespace/name" count=3
//! ```
//!
//! A line that says the same as one of the last minute is counted instead of printed. The count follows with the first
//! line of any kind that is logged after that minute, so nothing has to wake up for it.

mod klog;
mod repeats;

use std::fmt::Write as _;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormattedFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;

use klog::{Fields, Payload};
use repeats::{Repeats, Seen};

/// Logs to stderr from now on. `verbosity` is klog's `-v`.
pub fn init(verbosity: u32) {
    // Only a test that shares its process with others finds a logger in place already.
    let _ = tracing::subscriber::set_global_default(subscriber(verbosity, io::stderr));
}

fn subscriber<W>(verbosity: u32, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer()
        .fmt_fields(Fields)
        .event_format(Lines::default())
        .with_writer(writer);
    tracing_subscriber::registry().with(levels(verbosity)).with(lines)
}

/// The libraries below Crablet say much that only their authors understand: they are heard when something is wrong.
fn levels(verbosity: u32) -> Targets {
    let own = match verbosity {
        0..4 => LevelFilter::INFO,
        4..6 => LevelFilter::DEBUG,
        6.. => LevelFilter::TRACE,
    };
    let others = if verbosity >= 8 { LevelFilter::TRACE } else { LevelFilter::WARN };
    Targets::new().with_target("crablet", own).with_default(others)
}

/// Writes one event as one line, unless it was just said.
#[derive(Default)]
struct Lines {
    repeats: Mutex<Repeats>,
}

impl<S> FormatEvent<S, Fields> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, Fields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let mut payload = Payload::of(event);
        for span in ctx.event_scope().into_iter().flatten() {
            if let Some(fields) = span.extensions().get::<FormattedFields<Fields>>() {
                payload.push_str(fields);
            }
        }
        let payload = payload.into_text();
        let place = Place::of(event.metadata());

        let seen = {
            let mut repeats = self.repeats.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            for told in repeats.expired(now) {
                let _ = writeln!(writer, "{}{} repeated={}", told.place.header(), told.text, told.count);
            }
            repeats.note(now, place, &payload)
        };
        match seen {
            Seen::New => writeln!(writer, "{}{payload}", place.header()),
            Seen::Repeated => Ok(()),
        }
    }
}

/// Where an event comes from, and how bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    severity: char,
    file: &'static str,
    line: u32,
}

impl Place {
    fn of(metadata: &Metadata<'static>) -> Self {
        let severity = match *metadata.level() {
            Level::ERROR => 'E',
            Level::WARN => 'W',
            // klog has no other letters: how detailed a line is only decides whether it is printed.
            _ => 'I',
        };
        let path = metadata.file().unwrap_or("unknown");
        let file = path.rsplit(['/', '\\']).next().unwrap_or(path);
        Self { severity, file, line: metadata.line().unwrap_or_default() }
    }

    fn header(&self) -> String {
        let now = Timestamp::now().to_zoned(TimeZone::UTC);
        let mut header = String::with_capacity(64);
        // Writing to a string cannot fail.
        let _ = write!(
            header,
            "{}{:02}{:02} {:02}:{:02}:{:02}.{:06} {:>7} {}:{}] ",
            self.severity,
            now.month(),
            now.day(),
            now.hour(),
            now.minute(),
            now.second(),
            now.timestamp().subsec_microsecond().unsigned_abs(),
            std::process::id(),
            self.file,
            self.line
        );
        header
    }
}

#[cfg(test)]
mod tests;
