//! Messages and values, quoted as klog quotes them.

use std::error::Error;
use std::fmt::{self, Debug, Write};

use tracing::Event;
use tracing::field::{Field, Visit};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;

/// The part of a line that says what happened: the message, the error if there is one, then the other fields.
#[derive(Default)]
pub struct Payload {
    message: String,
    error: String,
    fields: String,
}

impl Payload {
    pub fn of(event: &Event<'_>) -> Self {
        let mut payload = Self::default();
        event.record(&mut payload);
        payload
    }

    /// Appends fields that are formatted already.
    pub fn push_str(&mut self, fields: &str) {
        self.fields.push_str(fields);
    }

    pub fn into_text(self) -> String {
        let mut text = String::with_capacity(self.message.len() + self.error.len() + self.fields.len() + 2);
        quote(&mut text, &self.message);
        text + &self.error + &self.fields
    }

    /// The place for a value, with its key written already.
    fn slot(&mut self, field: &Field) -> &mut String {
        let (slot, key) = match field.name() {
            "err" | "error" => (&mut self.error, "err"),
            // `event.message` is how a field called `message` gets past the message of the line itself.
            name => (&mut self.fields, name.strip_prefix("event.").unwrap_or(name)),
        };
        let _ = write!(slot, " {key}=");
        slot
    }

    fn bare(&mut self, field: &Field, value: impl fmt::Display) {
        let _ = write!(self.slot(field), "{value}");
    }

    fn text(&mut self, field: &Field, text: &str) {
        if field.name() == "message" {
            text.clone_into(&mut self.message);
        } else {
            value(self.slot(field), text);
        }
    }
}

impl Visit for Payload {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        // What `Debug` quoted is quoted once, not twice.
        match text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            Some(inner) if field.name() != "message" && !inner.contains('\\') => self.text(field, inner),
            _ => self.text(field, &text),
        }
    }

    fn record_error(&mut self, field: &Field, error: &(dyn Error + 'static)) {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let _ = write!(text, ": {cause}");
            source = cause.source();
        }
        self.text(field, &text);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.bare(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.bare(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.bare(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.bare(field, value);
    }
}

/// Formats the fields of spans; the events inside carry them at the end of their lines.
pub struct Fields;

impl<'w> FormatFields<'w> for Fields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut payload = Payload::default();
        fields.record(&mut payload);
        writer.write_str(&payload.error)?;
        writer.write_str(&payload.fields)
    }
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
