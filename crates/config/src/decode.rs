//! From a tree of YAML to values of the configuration, ruled by the table.
//!
//! Two kinds of fault: what upstream forgives with a warning (a field that it does not know, a field that comes twice),
//! and what it does not (a value of the wrong kind).

use std::collections::BTreeSet;

use crablet_model::quantity::Quantity;
use serde_json::{Map, Value, json};

use crate::error::{Problem, nearest};
use crate::go;
use crate::schema::{self, Items, Kind, Setting, Zero};
use crate::tree::is_zero;
use crate::yaml::{Data, Entry, Node};

/// What a file says.
#[derive(Debug, Default)]
pub struct Decoded {
    /// With the line of each. What means "not said" is not here.
    pub values: Vec<(&'static str, &'static Setting, Value, usize)>,
    /// Fields that nobody knows. Upstream goes on with a warning.
    pub unknown: Vec<Fault>,
    /// What is said more than once. Upstream goes on with a warning, but not for drop-ins.
    pub duplicated: Vec<Fault>,
    /// Upstream refuses the file.
    pub fatal: Vec<Fault>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub line: usize,
    pub message: String,
    pub hint: Option<String>,
}

impl Fault {
    fn new(line: usize, message: String) -> Self {
        Self { line, message, hint: None }
    }

    /// As a message about a file.
    pub fn problem(&self, path: &str) -> Problem {
        let place = if self.line == 0 { path.to_owned() } else { format!("{path}:{}", self.line) };
        Problem { message: format!("{place}: {}", self.message), hint: self.hint.clone() }
    }
}

/// How names are compared with those of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    Exact,
    /// As Go's JSON decoder does it on its own.
    AnyCase,
}

/// Reads the root of a KubeletConfiguration, `apiVersion` and `kind` apart.
pub fn decode(root: &Node, names: Names) -> Decoded {
    let mut decoder = Decoder { names, out: Decoded::default() };
    duplicates("", root, &mut decoder.out.duplicated);
    match &root.data {
        Data::Map(entries) => decoder.object("", entries),
        Data::Null => (),
        other => decoder.out.fatal.push(wrong(root.line, "the file", "an object", other)),
    }
    decoder.out
}

fn duplicates(path: &str, node: &Node, faults: &mut Vec<Fault>) {
    match &node.data {
        Data::Map(entries) => {
            let mut seen = BTreeSet::new();
            for Entry { key, line, value } in entries {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                if !seen.insert(key) {
                    let message = format!("field {path:?} is already set in this object");
                    let hint = Some("keep one of them".to_owned());
                    faults.push(Fault { line: *line, message, hint });
                }
                duplicates(&path, value, faults);
            }
        }
        Data::List(items) => items.iter().for_each(|item| duplicates(path, item, faults)),
        _ => (),
    }
}

struct Decoder {
    names: Names,
    out: Decoded,
}

impl Decoder {
    fn object(&mut self, prefix: &str, entries: &[Entry]) {
        for entry in entries {
            if prefix.is_empty() && matches!(entry.key.as_str(), "apiVersion" | "kind") {
                continue;
            }
            let path = if prefix.is_empty() { entry.key.clone() } else { format!("{prefix}.{}", entry.key) };
            self.entry(&path, entry);
        }
    }

    fn entry(&mut self, path: &str, entry: &Entry) {
        let mut found = known(path, Names::Exact);
        if found.is_none() {
            self.out.unknown.push(unknown(path, entry.line));
            if self.names == Names::AnyCase {
                found = known(path, Names::AnyCase);
            }
        }
        match found {
            Some(Known::Field(path, setting)) => self.field(path, setting, entry),
            Some(Known::Object(path)) => match &entry.value.data {
                Data::Map(entries) => self.object(&path, entries),
                Data::Null => (),
                other => self.out.fatal.push(wrong(entry.line, &named(&path), "an object", other)),
            },
            None => (),
        }
    }

    fn field(&mut self, path: &'static str, setting: &'static Setting, entry: &Entry) {
        if let Kind::Objects(items) = setting.kind {
            self.out.unknown.extend(unknown_in_items(items, path, &entry.value));
        }
        match value_of(setting, path, &entry.value) {
            Ok(None) => (),
            // Said as zero: as if it had not been said.
            Ok(Some(value)) if setting.zero != Zero::Counts && is_zero(setting.kind, &value) => {
                self.out.values.retain(|(known, ..)| *known != path);
            }
            Ok(Some(value)) => {
                self.out.values.retain(|(known, ..)| *known != path);
                self.out.values.push((path, setting, value, entry.line));
            }
            Err(fault) => self.out.fatal.push(fault),
        }
    }
}

enum Known {
    Field(&'static str, &'static Setting),
    Object(String),
}

fn known(path: &str, names: Names) -> Option<Known> {
    let same = |known: &str| match names {
        Names::Exact => known == path,
        Names::AnyCase => known.eq_ignore_ascii_case(path),
    };
    for (field, setting) in schema::fields() {
        if same(field) {
            return Some(Known::Field(field, setting));
        }
        let inside = field.match_indices('.').map(|(end, _)| &field[..end]);
        if let Some(object) = inside.into_iter().find(|object| same(object)) {
            return Some(Known::Object(object.to_owned()));
        }
    }
    None
}

fn unknown(path: &str, line: usize) -> Fault {
    let hint = match nearest(path, schema::fields().map(|(field, _)| field)) {
        Some(known) => Some(format!("did you mean `{known}`?")),
        None => schema::by_flag(path).map(|setting| match setting.field {
            Some(field) => format!("`--{path}` is a flag; the field is `{field}`"),
            None => format!("`--{path}` is a flag; it has no field"),
        }),
    };
    Fault { line, message: format!("unknown field {path:?}"), hint }
}

fn unknown_in_items(items: Items, path: &str, list: &Node) -> Vec<Fault> {
    let Data::List(objects) = &list.data else { return Vec::new() };
    let mut faults = Vec::new();
    for (index, object) in objects.iter().enumerate() {
        let Data::Map(entries) = &object.data else { continue };
        for entry in entries.iter().filter(|entry| !items.names().contains(&entry.key.as_str())) {
            let message = format!("unknown field \"{path}[{index}].{}\"", entry.key);
            let hint = nearest(&entry.key, items.names().iter().copied());
            let hint = hint.map(|known| format!("did you mean `{known}`?"));
            faults.push(Fault { line: entry.line, message, hint });
        }
    }
    faults
}

fn named(path: &str) -> String {
    format!("field {path:?}")
}

fn wrong(line: usize, what: &str, want: &str, found: &Data) -> Fault {
    Fault::new(line, format!("{what} must be {want}, not {}", found.kind()))
}

/// `None`: null, which is not a value.
fn value_of(setting: &Setting, path: &str, node: &Node) -> Result<Option<Value>, Fault> {
    let what = named(path);
    if node.data == Data::Null {
        // Go's reader of durations wants a text; only where it is a pointer upstream is null left alone.
        return match (setting.kind, setting.zero) {
            (Kind::Duration, Zero::Shown) => {
                Err(wrong(node.line, &what, "a duration such as \"1m30s\"", &node.data))
            }
            _ => Ok(None),
        };
    }
    Ok(Some(match setting.kind {
        Kind::Bool => bool_of(&what, node)?.into(),
        Kind::Int32 => int_of(&what, node, i32::MIN.into(), i32::MAX.into())?.into(),
        Kind::Int64 => int_of(&what, node, i64::MIN, i64::MAX)?.into(),
        Kind::Level => int_of(&what, node, 0, u32::MAX.into())?.into(),
        Kind::Float => float_of(&what, node)?.into(),
        Kind::Flush if matches!(node.data, Data::Int(_) | Data::Float(_)) => {
            int_of(&what, node, i64::MIN, i64::MAX)?.into()
        }
        Kind::Duration | Kind::Flush => duration_of(&what, node)?.into(),
        Kind::Text(_) | Kind::Path | Kind::Ip => text_of(&what, node)?.into(),
        Kind::Quantity => quantity_of(&what, node)?.into(),
        Kind::TextList(_) => texts_of(&what, node)?,
        Kind::Int32List => each(&what, node, |what, node| match node.data {
            Data::Null => Ok(json!(0)),
            _ => int_of(what, node, i32::MIN.into(), i32::MAX.into()).map(Value::from),
        })?,
        Kind::TextMap(_) => map_of(path, node, |what, node| match node.data {
            Data::Null => Ok(json!("")),
            _ => text_of(what, node).map(Value::from),
        })?,
        Kind::BoolMap => map_of(path, node, |what, node| bool_of(what, node).map(Value::from))?,
        Kind::Headers => map_of(path, node, |what, node| match node.data {
            Data::Null => Ok(Value::Null),
            _ => texts_of(what, node),
        })?,
        Kind::Objects(items) => {
            each(&what, node, |what, node| item_of(items, what.trim_start_matches("field "), node))?
        }
    }))
}

fn bool_of(what: &str, node: &Node) -> Result<bool, Fault> {
    match node.data {
        Data::Bool(value) => Ok(value),
        ref other => Err(wrong(node.line, what, "true or false", other)),
    }
}

fn int_of(what: &str, node: &Node, from: i64, to: i64) -> Result<i64, Fault> {
    let number = match node.data {
        Data::Int(number) => number,
        // `20.0` is 20.
        Data::Float(number) if number.fract() == 0.0 && number.abs() < 1e15 => number as i64,
        ref other => return Err(wrong(node.line, what, "a whole number", other)),
    };
    if (from..=to).contains(&number) {
        return Ok(number);
    }
    Err(Fault::new(node.line, format!("{what} is {number}: give a whole number from {from} to {to}")))
}

fn float_of(what: &str, node: &Node) -> Result<f64, Fault> {
    match node.data {
        Data::Float(number) => Ok(number),
        Data::Int(number) => Ok(number as f64),
        ref other => Err(wrong(node.line, what, "a number", other)),
    }
}

fn text_of(what: &str, node: &Node) -> Result<String, Fault> {
    match &node.data {
        Data::Text(text) => Ok(text.clone()),
        other => Err(Fault {
            hint: matches!(other, Data::Bool(_) | Data::Int(_) | Data::Float(_))
                .then(|| "put it in quotes".to_owned()),
            ..wrong(node.line, what, "a text", other)
        }),
    }
}

fn duration_of(what: &str, node: &Node) -> Result<String, Fault> {
    let Data::Text(text) = &node.data else {
        return Err(wrong(node.line, what, "a duration such as \"1m30s\"", &node.data));
    };
    let nanos = go::parse_duration(text).map_err(|why| Fault::new(node.line, format!("{what}: {why}")))?;
    Ok(go::format_duration(nanos))
}

fn quantity_of(what: &str, node: &Node) -> Result<String, Fault> {
    let text = match &node.data {
        Data::Text(text) => text.clone(),
        Data::Int(number) => number.to_string(),
        Data::Float(number) => number.to_string(),
        other => return Err(wrong(node.line, what, "a quantity such as \"64Ki\"", other)),
    };
    let quantity = Quantity::parse(&text).map_err(|why| Fault::new(node.line, format!("{what}: {why}")))?;
    Ok(quantity.to_string())
}

fn texts_of(what: &str, node: &Node) -> Result<Value, Fault> {
    each(what, node, |what, node| match node.data {
        Data::Null => Ok(json!("")),
        _ => text_of(what, node).map(Value::from),
    })
}

fn each(what: &str, node: &Node, read: impl Fn(&str, &Node) -> Result<Value, Fault>) -> Result<Value, Fault> {
    let Data::List(items) = &node.data else {
        return Err(wrong(node.line, what, "a list", &node.data));
    };
    let path = what.trim_start_matches("field ").trim_matches('"');
    let read = |(index, item)| read(&named(&format!("{path}[{index}]")), item);
    items.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>().map(Value::from)
}

fn map_of(
    path: &str,
    node: &Node,
    read: impl Fn(&str, &Node) -> Result<Value, Fault>,
) -> Result<Value, Fault> {
    let Data::Map(entries) = &node.data else {
        return Err(wrong(node.line, &named(path), "an object", &node.data));
    };
    let mut map = Map::new();
    for Entry { key, value, .. } in entries {
        map.insert(key.clone(), read(&named(&format!("{path}.{key}")), value)?);
    }
    Ok(map.into())
}

/// One object of a list. Names that it does not know are left out, as upstream's lenient decoder does.
fn item_of(items: Items, path: &str, node: &Node) -> Result<Value, Fault> {
    let path = path.trim_matches('"');
    if !matches!(node.data, Data::Map(_) | Data::Null) {
        return Err(wrong(node.line, &named(path), "an object", &node.data));
    }
    let nothing = Node { line: node.line, data: Data::Null };
    let part = |name: &str| (named(&format!("{path}.{name}")), node.get(name).unwrap_or(&nothing));
    let int = |name: &str, from: i64, to: i64| {
        let (what, node) = part(name);
        if node.data == Data::Null { Ok(0) } else { int_of(&what, node, from, to) }
    };
    let text = |name: &str| {
        let (what, node) = part(name);
        if node.data == Data::Null { Ok(String::new()) } else { text_of(&what, node) }
    };
    let (i32_min, i32_max) = (i32::MIN.into(), i32::MAX.into());
    Ok(match items {
        Items::VModule => {
            json!({"filePattern": text("filePattern")?, "verbosity": int("verbosity", 0, u32::MAX.into())?})
        }
        Items::ShutdownByPriority => json!({
            "priority": int("priority", i32_min, i32_max)?,
            "shutdownGracePeriodSeconds": int("shutdownGracePeriodSeconds", i64::MIN, i64::MAX)?,
        }),
        Items::ReservedMemory => {
            let (what, limits) = part("limits");
            let limits = match limits.data {
                Data::Null => Value::Null,
                _ => map_of(what.trim_start_matches("field ").trim_matches('"'), limits, |what, node| {
                    quantity_of(what, node).map(Value::from)
                })?,
            };
            json!({"numaNode": int("numaNode", i32_min, i32_max)?, "limits": limits})
        }
        Items::Taints => {
            let mut taint = json!({"key": text("key")?, "effect": text("effect")?});
            for name in ["value", "timeAdded"] {
                let said = text(name)?;
                if !said.is_empty() {
                    taint[name] = said.into();
                }
            }
            taint
        }
    })
}
