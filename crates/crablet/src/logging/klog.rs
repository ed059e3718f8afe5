//! klog's text lines.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use crablet_host::clock::local_time;
use tracing::Level;

use super::Place;
use super::line::{Line, Value};

/// Everything behind the header.
pub fn body(line: &Line) -> String {
    let mut text = String::with_capacity(line.message.len() + 64);
    quote(&mut text, &line.message);
    if let Some(error) = &line.error {
        text.push_str(" err=");
        value(&mut text, error);
    }
    for (key, content) in &line.fields.0 {
        let _ = write!(text, " {key}="); // writing to a string cannot fail
        match content {
            Value::Text(content) => value(&mut text, content),
            Value::Bare(content) => text.push_str(content),
        }
    }
    text
}

pub fn line(place: Place, body: &str, repeated: Option<u64>) -> String {
    let mut line = header(place);
    line.push_str(body);
    if let Some(count) = repeated {
        let _ = write!(line, " repeated={count}");
    }
    line.push('\n');
    line
}

fn header(place: Place) -> String {
    let severity = match place.level {
        Level::ERROR => 'E',
        Level::WARN => 'W',
        // klog has no other letters: how detailed a line is only decides whether it is printed.
        _ => 'I',
    };
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = local_time(i64::try_from(since.as_secs()).unwrap_or_default());
    let mut header = String::with_capacity(160);
    let _ = write!(
        header,
        "{severity}{:02}{:02} {:02}:{:02}:{:02}.{:06} {:>7} {}:{}] ",
        now.month,
        now.day,
        now.hour,
        now.minute,
        now.second,
        since.subsec_micros(),
        std::process::id(),
        place.file(),
        place.line
    );
    header
}

/// Several lines are set off with tabs, so that none of them can be taken for a log line.
fn value(out: &mut String, text: &str) {
    if !text.contains('\n') {
        return quote(out, text);
    }
    out.push_str("<\n");
    for line in text.lines() {
        out.push('\t');
        out.extend(line.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }));
        out.push('\n');
    }
    out.push_str(" >");
}

/// As Go's `strconv.Quote`.
fn quote(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if c.is_control() && u32::from(c) < 0x80 => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
