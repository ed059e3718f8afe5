//! One event, taken apart.

use std::error::Error;
use std::fmt::{Debug, Write};

use tracing::Event;
use tracing::field::{Field, Visit};
use tracing::span::Attributes;

/// The message, the error if there is one, and the other fields.
#[derive(Default)]
pub struct Line {
    pub message: String,
    pub error: Option<String>,
    pub fields: Fields,
}

/// In the order in which they were said. Of two with the same key the inner one counts.
#[derive(Clone, Default)]
pub struct Fields(pub Vec<(&'static str, Value)>);

#[derive(Clone)]
pub enum Value {
    Text(String),
    /// Numbers and booleans, which are written the same everywhere.
    Bare(String),
}

impl Line {
    pub fn of(event: &Event<'_>) -> Self {
        let mut line = Self::default();
        event.record(&mut line);
        line
    }

    /// Adds the fields of a span that the event is in. They come first, as klog puts a logger's own values.
    pub fn put_around(&mut self, outer: &Fields) {
        let mut fields = outer.clone();
        fields.0.retain(|(key, _)| self.fields.0.iter().all(|(inner, _)| inner != key));
        fields.0.append(&mut self.fields.0);
        self.fields = fields;
    }

    /// The start of the message alone.
    pub fn shortened(&self, limit: usize) -> Self {
        let end = (0..=limit).rev().find(|end| self.message.is_char_boundary(*end)).unwrap_or_default();
        let message = match self.message.get(..end) {
            Some(start) if end < self.message.len() => format!("{start}..."),
            _ => self.message.clone(),
        };
        Self { message, ..Self::default() }
    }

    fn text(&mut self, field: &Field, text: String) {
        match field.name() {
            "message" => self.message = text,
            "err" | "error" => self.error = Some(text),
            _ => self.put(field, Value::Text(text)),
        }
    }

    fn bare(&mut self, field: &Field, value: impl ToString) {
        self.put(field, Value::Bare(value.to_string()));
    }

    fn put(&mut self, field: &Field, value: Value) {
        // `event.message` is how a field called `message` gets past the message of the line itself.
        let key = field.name().strip_prefix("event.").unwrap_or(field.name());
        self.fields.0.push((key, value));
    }
}

impl Fields {
    /// Those of a span.
    pub fn of(attributes: &Attributes<'_>) -> Self {
        let mut line = Line::default();
        attributes.record(&mut line);
        line.fields
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        // What `Debug` quoted is quoted once, not twice.
        match text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            Some(inner) if field.name() != "message" && !inner.contains('\\') => {
                self.text(field, inner.to_owned());
            }
            _ => self.text(field, text),
        }
    }

    fn record_error(&mut self, field: &Field, error: &(dyn Error + 'static)) {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let _ = write!(text, ": {cause}"); // writing to a string cannot fail
            source = cause.source();
        }
        self.text(field, text);
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
        // JSON has no number for these.
        if value.is_finite() { self.bare(field, value) } else { self.text(field, value.to_string()) }
    }
}
