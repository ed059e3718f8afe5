//! A JSON value into a typed pod, with the path of everything that does not fit.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::error::{ManifestError, Problems, key, quoted};
use super::nulls;
use crate::api::Pod;

/// More unknown fields than this are counted rather than listed.
const LISTED_UNKNOWN_FIELDS: usize = 50;

/// Checks `apiVersion` and `kind`, and returns the kind.
pub(super) fn check_kind<'a>(value: &Value, kinds: &[&'a str]) -> Result<&'a str, ManifestError> {
    let Value::Object(fields) = value else {
        return Err(ManifestError::Syntax(format!(
            "the manifest holds {}; it must hold a mapping that begins with `apiVersion` and `kind`",
            kind_of(value)
        )));
    };
    let mut problems = Problems::default();
    match fields.get("apiVersion") {
        Some(Value::String(version)) if version == "v1" => {}
        Some(Value::String(version)) if !version.is_empty() => {
            problems.add("apiVersion", format!("{} is not `v1`", quoted(version)));
        }
        None | Some(Value::Null | Value::String(_)) => problems.add("apiVersion", "required; set it to `v1`"),
        Some(other) => problems.add("apiVersion", format!("must be the text `v1`, found {}", kind_of(other))),
    }
    let wanted = kinds.iter().map(|kind| format!("`{kind}`")).collect::<Vec<_>>().join(" or ");
    let mut found = None;
    match fields.get("kind") {
        Some(Value::String(kind)) if !kind.is_empty() => {
            found = kinds.iter().find(|wanted| *wanted == kind).copied();
            if found.is_none() {
                problems.add("kind", format!("{} is not {wanted}", quoted(kind)));
            }
        }
        None | Some(Value::Null | Value::String(_)) => {
            problems.add("kind", format!("required; set it to {wanted}"))
        }
        Some(other) => problems.add("kind", format!("must be the text {wanted}, found {}", kind_of(other))),
    }
    match found {
        Some(kind) if problems.is_empty() => Ok(kind),
        _ => Err(ManifestError::Undecodable(problems)),
    }
}

/// The pod, and one warning for each field that no pod has.
pub(super) fn pod(mut value: Value) -> Result<(Pod, Vec<String>), Problems> {
    nulls::fill(&mut value);
    let (mut unknown, mut more) = (Vec::new(), 0_usize);
    let decoded: Result<Pod, _> = serde_ignored::deserialize(&value, |path| {
        if unknown.len() < LISTED_UNKNOWN_FIELDS {
            unknown.push(format!("{}: unknown field, ignored", path_of(&path)));
        } else {
            more += 1;
        }
    });
    match decoded {
        Ok(pod) => {
            if more > 0 {
                unknown.push(format!("{more} more unknown fields are ignored"));
            }
            Ok((pod, unknown))
        }
        Err(error) => {
            let mut search = Search::default();
            search.below(&value);
            if search.problems.is_empty() {
                search.problems.add("pod", message_of(&error.to_string()));
            }
            Err(search.problems)
        }
    }
}

/// `spec.containers[0].env`, from the deserializer's own notion of a path.
fn path_of(path: &serde_ignored::Path<'_>) -> String {
    use serde_ignored::Path;
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", path_of(parent)),
        Path::Map { parent, key: name } => match path_of(parent) {
            parent if parent.is_empty() => key(name),
            parent => format!("{parent}.{}", key(name)),
        },
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            path_of(parent)
        }
    }
}

enum Step {
    Field(String),
    Index(usize),
}

/// Finds every field of the wrong type.
///
/// The deserializer says what is wrong but not where. So each part of the value is decoded alone, wrapped into the fields
/// that lead to it: a part that fails although none of its own parts does is the culprit. This costs the size of the
/// manifest times its depth, and only when something is wrong.
#[derive(Default)]
struct Search {
    steps: Vec<Step>,
    problems: Problems,
}

impl Search {
    const ENOUGH: usize = 20;

    fn below(&mut self, value: &Value) {
        if self.problems.len() >= Self::ENOUGH {
            return;
        }
        let Err(error) = self.try_decode(value.clone()) else { return };
        // What fails even when it is empty is itself of the wrong type, whatever it holds.
        let empty = match value {
            Value::Object(_) => Value::Object(Map::new()),
            Value::Array(_) => Value::Array(Vec::new()),
            _ => Value::Null,
        };
        let before = self.problems.len();
        match value {
            _ if self.try_decode(empty).is_err() => {}
            Value::Object(fields) => {
                for (name, field) in fields {
                    self.step(Step::Field(name.clone()), field);
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.step(Step::Index(index), item);
                }
            }
            _ => {}
        }
        if self.problems.len() == before {
            self.problems.add(self.path(), message_of(&error.to_string()));
        }
    }

    fn step(&mut self, step: Step, value: &Value) {
        self.steps.push(step);
        self.below(value);
        self.steps.pop();
    }

    fn try_decode(&self, value: Value) -> Result<Pod, serde_json::Error> {
        Pod::deserialize(&self.wrap(value))
    }

    fn wrap(&self, value: Value) -> Value {
        self.steps.iter().rev().fold(value, |inner, step| match step {
            Step::Field(name) => Value::Object(Map::from_iter([(name.clone(), inner)])),
            Step::Index(_) => Value::Array(vec![inner]),
        })
    }

    fn path(&self) -> String {
        let mut path = String::new();
        for step in &self.steps {
            match step {
                Step::Index(index) => path.push_str(&format!("[{index}]")),
                Step::Field(name) if path.is_empty() => path.push_str(&key(name)),
                Step::Field(name) => path.push_str(&format!(".{}", key(name))),
            }
        }
        path
    }
}

/// Turns "invalid type: integer `5`, expected a string" into words for somebody who never saw the decoder.
fn message_of(error: &str) -> String {
    let Some((found, expected)) = error
        .strip_prefix("invalid type: ")
        .or_else(|| error.strip_prefix("invalid value: "))
        .and_then(|rest| rest.rsplit_once(", expected "))
    else {
        return crate::image::shorten(error).escape_debug().to_string();
    };
    let found =
        crate::image::shorten(found).replace('`', "").escape_debug().to_string().replace("\\\"", "\"");
    let is_text = expected == "a string";
    let expected = match expected {
        "a string" => "a text",
        "Quantity" => "a quantity such as `500m` or `128Mi`",
        "a boolean" => "`true` or `false`",
        "i32" | "i64" | "u32" | "u64" => "a whole number",
        "a sequence" => "a list",
        "a map" => "a mapping",
        other if other.chars().next().is_some_and(char::is_uppercase) => "a mapping",
        other => other,
    };
    let hint = if is_text && found.starts_with(['i', 'b', 'f']) { "; put it in quotes" } else { "" };
    format!("must be {expected}, found {found}{hint}")
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}
