//! The file behind `--config`: KubeletConfiguration v1beta1 in YAML or JSON.
//!
//! Strict: what this version would not do is refused by name instead of being ignored. Upstream goes on with a warning
//! when it meets a field that it does not know.

use std::io;
use std::path::{Path, PathBuf};

use crablet_model::duration;
use serde_json::{Map, Value};

use crate::draft::Draft;
use crate::error::{Problem, UsageError, nearest};
use crate::flags::want_number;
use crate::table::{self, SETTINGS, Setting, Take, Zero};
use crate::upstream;

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const KIND: &str = "KubeletConfiguration";

pub fn unreadable(path: &Path, error: &io::Error) -> UsageError {
    Problem::new(format!("cannot read config file {path:?}: {error}")).into()
}

/// Writes what the file says over the draft. Every mistake in it is named.
pub fn apply(draft: &mut Draft, path: &Path, bytes: &[u8]) -> Result<(), UsageError> {
    let fail = |what: String| Problem::new(format!("config file {path:?}{what}"));
    let text = std::str::from_utf8(bytes).map_err(|_| fail(" is not valid UTF-8".to_owned()))?;
    if text.trim().is_empty() {
        return Err(fail(" is empty".to_owned()).into());
    }
    // Octal numbers and duplicate keys as Go's YAML parser treats them.
    let options = serde_saphyr::options! { legacy_octal_numbers: true, with_snippet: false };
    let value = serde_saphyr::from_str_with_options::<Value>(text, options)
        .map_err(|error| fail(format!(": {}", one_line(&error.to_string()))))?;
    let Value::Object(mut root) = value else {
        return Err(fail(format!(" holds {}, not a {KIND}", kind_of(&value))).into());
    };
    check_kind(&mut root).map_err(|problem| Problem {
        message: format!("config file {path:?}: {}", problem.message),
        ..problem
    })?;

    let mut reader = Reader { draft, folder: path.parent().unwrap_or(Path::new("")), problems: Vec::new() };
    reader.object("", &root);
    let problems = reader.problems.into_iter();
    let problems: Vec<_> = problems
        .map(|problem| Problem { message: format!("config file {path:?}: {}", problem.message), ..problem })
        .collect();
    if problems.is_empty() { Ok(()) } else { Err(UsageError::from(problems)) }
}

fn check_kind(root: &mut Map<String, Value>) -> Result<(), Problem> {
    let (version, kind) = (root.remove("apiVersion"), root.remove("kind"));
    match (version.as_ref().and_then(Value::as_str), kind.as_ref().and_then(Value::as_str)) {
        (Some(API_VERSION), Some(KIND)) => Ok(()),
        (None | Some(""), _) | (_, None | Some("")) => Err(Problem::new("apiVersion or kind is missing")
            .hint(format!("start the file with `apiVersion: {API_VERSION}` and `kind: {KIND}`"))),
        (Some(version), Some(kind)) => Err(Problem::new(format!("it is a {kind:?} of {version:?}"))
            .hint(format!("it must be a `{KIND}` of `{API_VERSION}`"))),
    }
}

struct Reader<'a> {
    draft: &'a mut Draft,
    folder: &'a Path,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn object(&mut self, prefix: &str, fields: &Map<String, Value>) {
        for (key, value) in fields {
            let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
            if let Some(setting) = table::by_field(&path) {
                if let Err(problem) = self.take(setting, &path, value) {
                    self.problems.push(problem);
                }
            } else if holds_settings(&path) {
                match value {
                    Value::Object(fields) => self.object(&path, fields),
                    Value::Null => (),
                    other => self.problems.push(wrong(&path, "an object", other)),
                }
            } else {
                self.problems.push(unknown(&path));
            }
        }
    }

    fn take(&mut self, setting: &Setting, path: &str, value: &Value) -> Result<(), Problem> {
        if value.is_null() {
            return Ok(());
        }
        let unset = setting.zero == Zero::IsUnset;
        match setting.take {
            Take::Bool(set) => {
                set(self.draft, value.as_bool().ok_or_else(|| wrong(path, "true or false", value))?)
            }
            Take::Number(from, to, set) => {
                let number = value.as_i64().ok_or_else(|| wrong(path, "a whole number", value))?;
                if number == 0 && unset {
                    return Ok(());
                }
                if !(from..=to).contains(&number) {
                    return Err(Problem::new(format!(
                        "field {path:?} is {number}: {}",
                        want_number(from, to)
                    )));
                }
                set(self.draft, number);
            }
            Take::Duration(set) => {
                let text =
                    value.as_str().ok_or_else(|| wrong(path, "a duration such as \"1m30s\"", value))?;
                let duration = duration::parse(text)
                    .map_err(|error| Problem::new(format!("field {path:?}: {error}")))?;
                if !(duration.is_zero() && unset) {
                    set(self.draft, duration);
                }
            }
            Take::Text(_, set) => {
                let text = text_of(path, value)?;
                if !(text.is_empty() && unset) {
                    set(self.draft, text);
                }
            }
            Take::Path(set) => {
                let text = text_of(path, value)?;
                if !text.is_empty() {
                    set(self.draft, self.folder.join(text));
                } else if !unset {
                    set(self.draft, PathBuf::new());
                }
            }
            Take::List(_, set) => set(self.draft, texts_of(path, value)?),
            Take::Headers(set) => set(self.draft, headers_of(path, value)?),
        }
        Ok(())
    }
}

fn text_of(path: &str, value: &Value) -> Result<String, Problem> {
    value.as_str().map(str::to_owned).ok_or_else(|| wrong(path, "a text", value))
}

fn texts_of(path: &str, value: &Value) -> Result<Vec<String>, Problem> {
    let list = value.as_array().ok_or_else(|| wrong(path, "a list of texts", value))?;
    list.iter().enumerate().map(|(index, item)| text_of(&format!("{path}[{index}]"), item)).collect()
}

/// `{name: [value, value]}`.
fn headers_of(path: &str, value: &Value) -> Result<Vec<(String, String)>, Problem> {
    let map = value.as_object().ok_or_else(|| wrong(path, "an object of lists of texts", value))?;
    let mut headers = Vec::new();
    for (name, values) in map {
        for value in texts_of(&format!("{path}.{name}"), values)? {
            headers.push((name.clone(), value));
        }
    }
    Ok(headers)
}

/// Is this an object whose inside this version reads?
fn holds_settings(path: &str) -> bool {
    let inside = |field: &str| field.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
    SETTINGS.iter().filter_map(|setting| setting.field).any(inside)
}

fn unknown(path: &str) -> Problem {
    if upstream::FIELDS.contains(&path) {
        return Problem::new(format!("field {path:?} is not supported by this version yet"));
    }
    let problem = Problem::new(format!("unknown field {path:?}"));
    match nearest(path, SETTINGS.iter().filter_map(|setting| setting.field)) {
        Some(known) => problem.hint(format!("did you mean `{known}`?")),
        None => problem,
    }
}

fn wrong(path: &str, want: &str, found: &Value) -> Problem {
    Problem::new(format!("field {path:?} must be {want}, not {}", kind_of(found)))
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(number) if number.is_f64() => "a number with a fraction",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
