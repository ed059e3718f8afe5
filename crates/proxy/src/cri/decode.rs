//! Messages as JSON for the record: fields by the names of the `.proto` files, what those do not know by number, and
//! secrets as hashes.
//!
//! A field with its default value is not on the wire and not in the JSON. Enums are their names, maps are objects, bytes
//! are text if they are text and `hex:...` if not. A field that the schema does not know is `"#18": 5`; if it has a
//! length it is shown in hex.

use serde_json::{Map, Value, json};

use super::schema::{Field, Kind, Message, Schema};
use super::wire::{self, Wire};
use crate::secrets::{Salt, Values, hex};

/// How much of an unknown field is shown.
const UNKNOWN_SHOWN: usize = 256;
/// Shorter values are too often an ordinary word for their occurrence elsewhere to mean anything.
const TELLING: usize = 6;
/// `kubectl apply` keeps the whole manifest here, environment included.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What is kept out of the record, and how much goes in.
#[derive(Debug, Clone)]
pub struct Limits {
    pub values: Values,
    pub salt: Salt,
    /// How much of a command's output (`ExecSync`) is written.
    pub output: usize,
    /// Messages longer than this are not decoded, unless a rule has to see them.
    pub message: usize,
}

pub struct Decoder<'a> {
    schema: &'static Schema,
    /// Without: everything is shown, for the eyes of rules.
    limits: Option<&'a Limits>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Treat {
    Show,
    Hash,
    Shorten,
}

impl<'a> Decoder<'a> {
    /// For the record.
    pub fn redacting(limits: &'a Limits) -> Decoder<'a> {
        Decoder { schema: Schema::cri(), limits: Some(limits) }
    }

    /// For rules, which see what the runtime would see. Nothing of it may be written.
    pub fn plain() -> Decoder<'static> {
        Decoder { schema: Schema::cri(), limits: None }
    }

    /// A message of this type; of none that is known if `name` is not.
    pub fn message(&self, name: &str, bytes: &[u8]) -> Value {
        if let Some(limits) = self.limits
            && bytes.len() > limits.message
        {
            return json!({ "not_decoded": format!("{} bytes", bytes.len()) });
        }
        self.decode(name, bytes).unwrap_or_else(|| json!({ "not_protobuf": self.unknown_bytes(name, bytes) }))
    }

    fn decode(&self, name: &str, bytes: &[u8]) -> Option<Value> {
        let nothing = Message::default();
        let message = self.schema.message(name).unwrap_or(&nothing);
        let mut object = Map::new();
        for (number, wire) in wire::fields(bytes)? {
            match message.fields.get(&number) {
                Some(field) => self.field(name, field, wire, &mut object),
                None => push(&mut object, &format!("#{number}"), self.unknown(name, wire)),
            }
        }
        if name == "ContainerConfig"
            && let Some(limits) = self.limits
            && limits.values == Values::Hashed
        {
            self.hide_expanded(limits, bytes, &mut object);
        }
        Some(Value::Object(object))
    }

    fn field(&self, message: &str, field: &Field, wire: Wire<'_>, object: &mut Map<String, Value>) {
        let name = field.name.as_str();
        match (&field.kind, wire) {
            (Kind::Map(key, value), Wire::Bytes(bytes)) => {
                let entry = object.entry(name).or_insert_with(|| json!({}));
                if let (Some(entries), Some((key, value))) =
                    (entry.as_object_mut(), self.entry(message, name, key, value, bytes))
                {
                    entries.insert(key, value);
                }
            }
            (Kind::Text | Kind::Bytes | Kind::Named(_), Wire::Bytes(bytes)) => {
                let value = self.value(&field.kind, self.treat(message, name), wire);
                let value = value.unwrap_or_else(|| self.unknown(message, Wire::Bytes(bytes)));
                add(object, field, value);
            }
            // Numbers, many in one piece.
            (kind, Wire::Bytes(mut bytes)) => {
                while let Some(value) = packed(kind, &mut bytes) {
                    let value = self.value(kind, Treat::Show, value).unwrap_or_default();
                    add(object, field, value);
                }
            }
            (kind, wire) => {
                let value =
                    self.value(kind, Treat::Show, wire).unwrap_or_else(|| self.unknown(message, wire));
                add(object, field, value);
            }
        }
    }

    fn value(&self, kind: &Kind, treat: Treat, wire: Wire<'_>) -> Option<Value> {
        Some(match (kind, wire) {
            (Kind::Named(name), Wire::Bytes(bytes)) => self.decode(name, bytes)?,
            (Kind::Named(name), Wire::Varint(number)) => match self.schema.enum_value(name, number) {
                Some(value) => json!(value),
                None => json!(number as i64),
            },
            (Kind::Text | Kind::Bytes, Wire::Bytes(bytes)) => self.text(treat, bytes),
            (Kind::Bool, Wire::Varint(number)) => json!(number != 0),
            (Kind::Int, Wire::Varint(number)) => json!(number as i64),
            (Kind::Uint, Wire::Varint(number)) => json!(number),
            (Kind::Zigzag, Wire::Varint(number)) => json!((number >> 1) as i64 ^ -((number & 1) as i64)),
            (Kind::Double, Wire::Fixed64(bits)) => json!(f64::from_bits(bits)),
            (Kind::Fixed, Wire::Fixed64(number)) => json!(number),
            (Kind::SignedFixed, Wire::Fixed64(number)) => json!(number as i64),
            (Kind::Float, Wire::Fixed32(bits)) => json!(f32::from_bits(bits)),
            (Kind::Fixed, Wire::Fixed32(number)) => json!(number),
            (Kind::SignedFixed, Wire::Fixed32(number)) => json!(number as i32),
            _ => return None,
        })
    }

    fn entry(
        &self,
        message: &str,
        field: &str,
        key: &Kind,
        value: &Kind,
        bytes: &[u8],
    ) -> Option<(String, Value)> {
        let parts = wire::fields(bytes)?;
        let part = |number| parts.iter().rev().find(|part| part.0 == number).map(|part| part.1);
        let key = part(1).and_then(|wire| self.value(key, Treat::Show, wire)).unwrap_or_else(|| json!(""));
        let key = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
        let treat = if key == LAST_APPLIED { self.if_hashed() } else { self.treat(message, field) };
        let value = part(2).and_then(|wire| self.value(value, treat, wire)).unwrap_or_else(|| json!(""));
        Some((key, value))
    }

    fn text(&self, treat: Treat, bytes: &[u8]) -> Value {
        let shown = |bytes: &[u8]| match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => format!("hex:{}", hex(bytes)),
        };
        match (treat, self.limits) {
            (Treat::Hash, Some(limits)) => json!(limits.salt.hash(bytes)),
            (Treat::Shorten, Some(limits)) if bytes.len() > limits.output => {
                let mut end = limits.output;
                // Not in the middle of a character.
                while end > 0 && bytes[end] & 0xc0 == 0x80 {
                    end -= 1;
                }
                json!(format!("{}... (cut: {} bytes in all)", shown(&bytes[..end]), bytes.len()))
            }
            _ => json!(shown(bytes)),
        }
    }

    /// What may be secret, and what may be long.
    fn treat(&self, message: &str, field: &str) -> Treat {
        match (message, field) {
            ("AuthConfig", "password" | "auth" | "identity_token" | "registry_token") => Treat::Hash,
            ("KeyValue", "value") => self.if_hashed(),
            // Verbose answers hold a container's whole specification and the runtime's configuration.
            (_, "info") if message.ends_with("Response") => self.if_hashed(),
            ("ExecSyncResponse", "stdout" | "stderr") => Treat::Shorten,
            _ => Treat::Show,
        }
    }

    fn if_hashed(&self) -> Treat {
        match self.limits {
            Some(limits) if limits.values == Values::Hashed => Treat::Hash,
            _ => Treat::Show,
        }
    }

    fn unknown(&self, message: &str, wire: Wire<'_>) -> Value {
        match wire {
            Wire::Varint(number) => json!(number),
            Wire::Fixed64(number) => json!(format!("fixed64:{number:016x}")),
            Wire::Fixed32(number) => json!(format!("fixed32:{number:08x}")),
            Wire::Bytes(bytes) => self.unknown_bytes(message, bytes),
        }
    }

    fn unknown_bytes(&self, message: &str, bytes: &[u8]) -> Value {
        match self.limits {
            Some(limits) if matches!(message, "AuthConfig" | "KeyValue" | "PullImageRequest") => {
                json!(limits.salt.hash(bytes))
            }
            Some(limits) if bytes.len() > UNKNOWN_SHOWN => {
                let (shown, hash) = (hex(&bytes[..UNKNOWN_SHOWN]), limits.salt.hash(bytes));
                json!(format!("hex:{shown}... (cut: {} bytes in all, {hash})", bytes.len()))
            }
            _ => json!(format!("hex:{}", hex(bytes))),
        }
    }

    /// A kubelet puts the values of variables into commands and arguments that name them: `$(PASSWORD)`.
    fn hide_expanded(&self, limits: &Limits, bytes: &[u8], object: &mut Map<String, Value>) {
        let Some(Value::Object(plain)) = Decoder::plain().decode("ContainerConfig", bytes) else { return };
        let envs = plain.get("envs").and_then(Value::as_array).into_iter().flatten();
        let values: Vec<&str> =
            envs.filter_map(|env| env["value"].as_str()).filter(|value| value.len() >= TELLING).collect();
        for name in ["command", "args"] {
            for word in object.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten() {
                let Some(text) = word.as_str() else { continue };
                let hidden = values.iter().fold(text.to_owned(), |text, value| {
                    if text.contains(value) {
                        text.replace(value, &limits.salt.hash(value.as_bytes()))
                    } else {
                        text
                    }
                });
                *word = json!(hidden);
            }
        }
    }
}

/// A second value under the same name makes a list of it.
fn push(object: &mut Map<String, Value>, name: &str, value: Value) {
    match object.get_mut(name) {
        None => drop(object.insert(name.to_owned(), value)),
        Some(Value::Array(values)) => values.push(value),
        Some(first) => *first = json!([first.take(), value]),
    }
}

fn add(object: &mut Map<String, Value>, field: &Field, value: Value) {
    if !field.repeated {
        object.insert(field.name.clone(), value);
        return;
    }
    let values = object.entry(field.name.as_str()).or_insert_with(|| json!([]));
    if let Some(values) = values.as_array_mut() {
        values.push(value);
    }
}

fn packed<'a>(kind: &Kind, bytes: &mut &'a [u8]) -> Option<Wire<'a>> {
    Some(match kind {
        Kind::Double => Wire::Fixed64(u64::from_le_bytes(wire::take(bytes, 8)?.try_into().ok()?)),
        Kind::Float => Wire::Fixed32(u32::from_le_bytes(wire::take(bytes, 4)?.try_into().ok()?)),
        _ => Wire::Varint(wire::varint(bytes)?),
    })
}

#[cfg(test)]
mod tests;
