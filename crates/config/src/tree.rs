//! The effective configuration while it is being put together: a value and its origin for every setting.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use serde_json::{Map, Value};

use crate::go;
use crate::schema::{self, Kind, Setting, Zero};

pub const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
pub const KIND: &str = "KubeletConfiguration";

/// Objects that `/configz` shows even when nothing is in them.
const ALWAYS: [&str; 9] = [
    "authentication.x509",
    "authentication.webhook",
    "authentication.anonymous",
    "authorization.webhook",
    "logging.options.text",
    "logging.options.json",
    "memorySwap",
    "crashLoopBackOff",
    "logging",
];

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tree {
    /// By [`Setting::key`].
    entries: BTreeMap<String, Entry>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub value: Value,
    pub origin: Origin,
}

/// Who said it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Default,
    /// `--config` or a drop-in, and the line in it.
    File(Rc<str>, usize),
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(path, line) => write!(f, "{path}:{line}"),
            Origin::Flag => f.write_str("flag"),
        }
    }
}

impl Tree {
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    pub fn origin(&self, key: &str) -> Origin {
        self.entries.get(key).map_or(Origin::Default, |entry| entry.origin.clone())
    }

    pub fn set(&mut self, key: impl Into<String>, value: Value, origin: Origin) {
        self.entries.insert(key.into(), Entry { value, origin });
    }

    pub fn unset(&mut self, key: &str) {
        self.entries.remove(key);
    }

    pub fn text(&self, key: &str) -> &str {
        self.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    pub fn is(&self, key: &str) -> bool {
        self.get(key).and_then(Value::as_bool).unwrap_or_default()
    }

    /// 0 where nothing was said.
    pub fn int(&self, key: &str) -> i64 {
        self.get(key).and_then(Value::as_i64).unwrap_or_default()
    }

    /// Nanoseconds.
    pub fn duration(&self, key: &str) -> i64 {
        match self.get(key) {
            Some(Value::String(text)) => go::parse_duration(text).unwrap_or_default(),
            Some(value) => value.as_i64().unwrap_or_default(),
            None => 0,
        }
    }

    pub fn texts(&self, key: &str) -> Vec<&str> {
        self.items(key).iter().filter_map(Value::as_str).collect()
    }

    pub fn items(&self, key: &str) -> &[Value] {
        self.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    pub fn pairs(&self, key: &str) -> impl Iterator<Item = (&str, &str)> {
        let map = self.get(key).and_then(Value::as_object);
        map.into_iter().flatten().filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
    }

    /// Names that were switched on or off.
    pub fn bools(&self, key: &str) -> BTreeMap<String, bool> {
        let map = self.get(key).and_then(Value::as_object);
        map.into_iter().flatten().filter_map(|(name, value)| Some((name.clone(), value.as_bool()?))).collect()
    }

    /// The KubeletConfiguration, as `/configz` shows it.
    pub fn to_json(&self) -> Value {
        let mut root = Map::new();
        for path in ALWAYS {
            insert(&mut root, path, Value::Object(Map::new()));
        }
        for (path, setting) in schema::fields() {
            if let Some(value) = self.get(path).filter(|value| shown(setting, value)) {
                insert(&mut root, path, value.clone());
            }
        }
        root.insert("apiVersion".to_owned(), API_VERSION.into());
        root.insert("kind".to_owned(), KIND.into());
        Value::Object(root)
    }
}

/// Go's `omitempty`, where upstream uses it.
fn shown(setting: &Setting, value: &Value) -> bool {
    match value {
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty(),
        value => setting.zero != Zero::Unset || !is_zero(setting.kind, value),
    }
}

/// Is this what Go would have if nothing had been said?
pub fn is_zero(kind: Kind, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(on) => !on,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => match kind {
            Kind::Duration | Kind::Flush => go::parse_duration(text) == Ok(0),
            Kind::Quantity => text == "0",
            _ => text.is_empty(),
        },
        // An empty list or map is not the same as none: it keeps the default away.
        Value::Array(_) | Value::Object(_) => false,
    }
}

/// Puts a value at a dotted path. An object that is already there stays.
fn insert(object: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None if value.is_object() => {
            object.entry(path).or_insert(value);
        }
        None => {
            object.insert(path.to_owned(), value);
        }
        Some((first, rest)) => {
            let inner = object.entry(first).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}
