//! How upstream's printer, go-spew, writes a value: each field by its name, each value after its type in parentheses unless
//! the type is clear from around it, without quotes.

use std::fmt::{self, Write};

use serde_json::Value;

use super::amount::Amount;
use super::types::Types;

/// Resources, of which each amount is rounded. Other amounts are not.
const RESOURCES: &str = "core.ResourceList";
/// Seconds from the first day of the first year to the beginning of 1970.
const EPOCH: i64 = 62_135_596_800;

pub(super) fn pod(pod: &Value, out: &mut impl Write) {
    let mut printer = Printer { types: Types::read(), out };
    // Neither a hash nor a text in memory refuses what is written to it.
    let _ = printer.typed("*core.Pod", Some(pod));
}

struct Printer<'a, W> {
    types: Types,
    out: &'a mut W,
}

impl<W: Write> Printer<'_, W> {
    fn typed(&mut self, type_name: &str, value: Option<&Value>) -> fmt::Result {
        write!(self.out, "({type_name})")?;
        let value = value.filter(|value| !value.is_null());
        match type_name.strip_prefix('*') {
            Some(_) if value.is_none() => self.out.write_str("<nil>"),
            Some(inner) => self.bare(inner, value),
            None => self.bare(type_name, value),
        }
    }

    /// A value whose type has been said, or is clear.
    fn bare(&mut self, type_name: &str, value: Option<&Value>) -> fmt::Result {
        if let Some(item) = type_name.strip_prefix("[]") {
            return self.list(item, value);
        }
        if let Some((_, item)) = type_name.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
            return self.map(value, |printer, value| printer.bare(item, Some(value)));
        }
        match type_name {
            "string" => self.out.write_str(value.and_then(Value::as_str).unwrap_or_default()),
            "bool" => write!(self.out, "{}", value.and_then(Value::as_bool).unwrap_or_default()),
            "int32" | "int64" => write!(self.out, "{}", value.and_then(Value::as_i64).unwrap_or_default()),
            "resource.Quantity" => amount(value).print(self.out),
            "intstr.IntOrString" => self.number_or_text(value),
            "v1.Time" => self.time(value),
            "v1.FieldsV1" => self.bytes(value),
            RESOURCES => self.map(value, |printer, value| amount(Some(value)).rounded().print(printer.out)),
            _ => match self.types.behind(type_name) {
                Some(behind) => self.bare(behind, value),
                None => self.fields(type_name, value),
            },
        }
    }

    fn fields(&mut self, type_name: &str, value: Option<&Value>) -> fmt::Result {
        self.out.write_char('{')?;
        let fields = self.types.fields(type_name).to_vec();
        for (index, field) in fields.iter().enumerate() {
            let blank = if index > 0 { " " } else { "" };
            write!(self.out, "{blank}{}:", field.name)?;
            let inner = match field.key {
                Some(key) => value.and_then(|value| value.get(key)),
                None => value,
            };
            self.typed(field.type_name, inner)?;
        }
        self.out.write_char('}')
    }

    fn list(&mut self, item: &str, value: Option<&Value>) -> fmt::Result {
        let Some(items) = value.and_then(Value::as_array) else { return self.out.write_str("<nil>") };
        self.out.write_char('[')?;
        for (index, value) in items.iter().enumerate() {
            if index > 0 {
                self.out.write_char(' ')?;
            }
            self.bare(item, Some(value))?;
        }
        self.out.write_char(']')
    }

    /// In the order of the keys' bytes.
    fn map(&mut self, value: Option<&Value>, item: impl Fn(&mut Self, &Value) -> fmt::Result) -> fmt::Result {
        let Some(entries) = value.and_then(Value::as_object) else { return self.out.write_str("<nil>") };
        let mut entries: Vec<_> = entries.iter().collect();
        entries.sort_by_key(|(key, _)| *key);
        self.out.write_str("map[")?;
        for (index, (key, value)) in entries.into_iter().enumerate() {
            let blank = if index > 0 { " " } else { "" };
            write!(self.out, "{blank}{key}:")?;
            item(self, value)?;
        }
        self.out.write_char(']')
    }

    fn number_or_text(&mut self, value: Option<&Value>) -> fmt::Result {
        let text = value.and_then(Value::as_str);
        let number = value.and_then(Value::as_i64).unwrap_or_default();
        let kind = i32::from(text.is_some());
        let text = text.unwrap_or_default();
        write!(self.out, "{{Type:(intstr.Type){kind} IntVal:(int32){number} StrVal:(string){text}}}")
    }

    /// Without the time zone, which for upstream is the machine's.
    fn time(&mut self, value: Option<&Value>) -> fmt::Result {
        let time = value.and_then(|value| value.as_str()?.parse::<jiff::Timestamp>().ok());
        let (seconds, nanos) =
            time.map_or((0, 0), |time| (time.as_second() + EPOCH, time.subsec_nanosecond()));
        write!(
            self.out,
            "{{Time:(time.Time){{wall:(uint64){nanos} ext:(int64){seconds} loc:(*time.Location)<nil>}}}}"
        )
    }

    fn bytes(&mut self, value: Option<&Value>) -> fmt::Result {
        let text = value.map(Value::to_string).unwrap_or_default();
        let bytes: Vec<String> = text.bytes().map(|byte| byte.to_string()).collect();
        write!(self.out, "{{Raw:([]uint8)[{}]}}", bytes.join(" "))
    }
}

/// As it was written, or as it was added up.
fn amount(value: Option<&Value>) -> Amount {
    match value {
        Some(Value::String(text)) => Amount::parse(text).unwrap_or_default(),
        Some(sum) => serde_json::from_value(sum.clone()).unwrap_or_default(),
        None => Amount::default(),
    }
}
