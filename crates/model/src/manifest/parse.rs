//! Bytes into one JSON value.
//!
//! YAML goes through a plain value rather than straight into the pod: a typed YAML decoder would turn `"110"` into a
//! number and `no` into a text, where Kubernetes refuses both.

use serde_json::{Number, Value};
use serde_saphyr::DuplicateKeyPolicy;

use super::{MAX_MANIFEST_BYTES, ManifestError};

/// Mappings, lists, texts and numbers together. Decoded, an empty container of three bytes takes a thousand times that,
/// so the size in bytes alone does not bound the memory that a manifest costs.
pub(super) const MAX_VALUES: usize = 100_000;

pub(super) struct Parsed {
    pub value: Value,
    pub warnings: Vec<String>,
}

pub(super) fn parse(bytes: &[u8]) -> Result<Parsed, ManifestError> {
    if bytes.len() > MAX_MANIFEST_BYTES {
        return Err(ManifestError::TooLarge { bytes: bytes.len() });
    }
    let text = std::str::from_utf8(bytes).map_err(|e| ManifestError::NotUtf8 { offset: e.valid_up_to() })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Err(ManifestError::Empty);
    }
    let mut warnings = Vec::new();
    let mut value = match json(text) {
        Some(Ok(value)) => value,
        // What begins like JSON may still be YAML in flow style; the JSON complaint is the better one if it is not.
        Some(Err(json_error)) => yaml(text, &mut warnings).map_err(|_| json_error)?,
        None => yaml(text, &mut warnings)?,
    };
    let values = count(&value);
    if values > MAX_VALUES {
        return Err(ManifestError::TooManyValues { values });
    }
    whole_numbers(&mut value);
    if let Some(spec) = value.get_mut("spec") {
        quantities(spec);
    }
    for item in value.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(spec) = item.get_mut("spec") {
            quantities(spec);
        }
    }
    Ok(Parsed { value, warnings })
}

/// `None` when the text does not even begin like JSON.
fn json(text: &str) -> Option<Result<Value, ManifestError>> {
    let parsed = text.trim_start().starts_with('{').then(|| serde_json::from_str::<Value>(text))?;
    Some(parsed.map_err(|error| {
        let reason = error.to_string();
        let place = format!(" at line {} column {}", error.line(), error.column());
        let reason = reason.strip_suffix(&place).unwrap_or(&reason);
        ManifestError::Syntax(format!("line {}, column {}: {reason}", error.line(), error.column()))
    }))
}

/// Of a key that is there twice in a mapping the later one counts, as for upstream; here it is told as well.
fn yaml(text: &str, warnings: &mut Vec<String>) -> Result<Value, ManifestError> {
    let is_twice = |error: &serde_saphyr::Error| {
        matches!(error.without_snippet(), serde_saphyr::Error::DuplicateMappingKey { .. })
    };
    let read = match first_document(text, DuplicateKeyPolicy::Error, warnings) {
        Err(error) if is_twice(&error) => {
            warnings.push(told(&error));
            first_document(text, DuplicateKeyPolicy::LastWins, warnings)
        }
        read => read,
    };
    match read {
        Ok(Some(value)) => Ok(value),
        Ok(None) => Err(ManifestError::Empty),
        Err(error) => Err(ManifestError::Syntax(told(&error))),
    }
}

/// `None` when there is none. Warns of others.
fn first_document(
    text: &str,
    duplicate_keys: DuplicateKeyPolicy,
    warnings: &mut Vec<String>,
) -> Result<Option<Value>, serde_saphyr::Error> {
    // Without legacy octals, a file mode such as `0644` would become the float 644.
    let options = serde_saphyr::options! { legacy_octal_numbers: true, duplicate_keys: duplicate_keys };
    let mut bytes = text.as_bytes();
    let mut documents = serde_saphyr::read_with_options::<_, Value>(&mut bytes, options);
    let first = match documents.next() {
        None => return Ok(None),
        Some(first) => first?,
    };
    match documents.next() {
        None => {}
        // Not a broken second document but a broken end of the only one.
        Some(Err(error)) if !has_second_document(text) => return Err(error),
        Some(_) => warnings.push(
            "the manifest has more than one document; only the first one is used, move the others to their own files"
                .to_owned(),
        ),
    }
    Ok(Some(first))
}

/// Whether a separator follows any content.
fn has_second_document(text: &str) -> bool {
    let mut content = false;
    text.lines().any(|line| {
        let separates = line.starts_with("---") || line.starts_with("...");
        let before = content;
        content |= !separates && !line.trim().is_empty() && !line.starts_with(['#', '%']);
        separates && before
    })
}

/// On one line, with the place first.
fn told(error: &serde_saphyr::Error) -> String {
    let error = error.without_snippet();
    let reason = error.to_string();
    let mut reason =
        reason.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    if let Some(place) = error.location() {
        let (line, column) = (place.line(), place.column());
        if let Some(end) = reason.strip_suffix(&format!(" at line {line}, column {column}")).map(str::len) {
            reason.truncate(end);
        }
        reason.insert_str(0, &format!("line {line}, column {column}: "));
    }
    // Advice for programmers who call the parser, not for authors of manifests.
    reason.replace(", set DuplicateKeyPolicy in Options if acceptable", "; the last one counts")
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0_usize,
    }
}

/// `30.0` is as good as `30`: upstream's way from YAML to JSON loses the difference.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(whole) = number.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < 9.0e15) {
                *number = Number::from(whole as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

/// Quantities may be written as plain numbers (`cpu: 2`); the API types only know them as texts. Surrounding blanks are
/// allowed, too.
fn quantities(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(quantities),
        Value::Object(fields) => {
            for (name, field) in fields {
                match (name.as_str(), field) {
                    ("limits" | "requests" | "overhead", Value::Object(list)) => {
                        list.values_mut().for_each(quantity)
                    }
                    ("divisor" | "sizeLimit", field) => quantity(field),
                    (_, field) => quantities(field),
                }
            }
        }
        _ => {}
    }
}

fn quantity(value: &mut Value) {
    match value {
        Value::Number(number) => *value = Value::String(number.to_string()),
        Value::String(text) if text.trim().len() != text.len() => *text = text.trim().to_owned(),
        _ => {}
    }
}
