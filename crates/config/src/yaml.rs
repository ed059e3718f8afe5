//! YAML (and JSON, which is a part of it) as a tree that remembers lines.
//!
//! Scalars mean what upstream's YAML library takes them to mean, which is YAML 1.1: `yes` is true and `017` is 15. The
//! tree is bounded in depth and in size, aliases counted as often as they are used, so that no small file becomes a large
//! tree.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, Tag};
use serde_json::Value;

mod scalar;

/// No configuration is nested more deeply.
const MAX_DEPTH: usize = 64;
/// No configuration has more parts.
const MAX_NODES: usize = 50_000;

#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// From 1.
    pub line: usize,
    pub data: Data,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    /// In the order of the file; a key may come twice.
    Map(Vec<Entry>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub key: String,
    pub line: usize,
    pub value: Node,
}

/// Why a text is not YAML.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct SyntaxError {
    pub line: usize,
    pub message: String,
}

impl Data {
    /// What messages call it.
    pub fn kind(&self) -> &'static str {
        match self {
            Data::Null => "nothing",
            Data::Bool(_) => "true or false",
            Data::Int(_) => "a number",
            Data::Float(_) => "a number with a fraction",
            Data::Text(_) => "a text",
            Data::List(_) => "a list",
            Data::Map(_) => "an object",
        }
    }
}

impl Node {
    /// The last value of a key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        let Data::Map(entries) = &self.data else { return None };
        entries.iter().rev().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    pub fn as_text(&self) -> Option<&str> {
        match &self.data {
            Data::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Without lines. Of keys that come twice the last one stays.
    pub fn to_json(&self) -> Value {
        match &self.data {
            Data::Null => Value::Null,
            Data::Bool(value) => Value::Bool(*value),
            Data::Int(value) => Value::from(*value),
            Data::Float(value) => Value::from(*value),
            Data::Text(value) => Value::from(value.as_str()),
            Data::List(items) => items.iter().map(Node::to_json).collect(),
            Data::Map(entries) => {
                entries.iter().map(|entry| (entry.key.clone(), entry.value.to_json())).collect()
            }
        }
    }

    /// A tree without lines.
    pub fn from_json(value: &Value) -> Self {
        let data = match value {
            Value::Null => Data::Null,
            Value::Bool(value) => Data::Bool(*value),
            Value::Number(number) => match number.as_i64() {
                Some(whole) => Data::Int(whole),
                None => Data::Float(number.as_f64().unwrap_or_default()),
            },
            Value::String(text) => Data::Text(text.clone()),
            Value::Array(items) => Data::List(items.iter().map(Node::from_json).collect()),
            Value::Object(map) => {
                let entry = |(key, value): (&String, _)| Entry {
                    key: key.clone(),
                    line: 0,
                    value: Node::from_json(value),
                };
                Data::Map(map.iter().map(entry).collect())
            }
        };
        Self { line: 0, data }
    }

    /// How many nodes this is, itself included.
    fn size(&self) -> usize {
        1 + match &self.data {
            Data::List(items) => items.iter().map(Node::size).sum(),
            Data::Map(entries) => entries.iter().map(|entry| entry.value.size()).sum(),
            _ => 0,
        }
    }
}

/// The first document of the text; what comes after it is not read. An empty text is null.
pub fn parse(text: &str) -> Result<Node, SyntaxError> {
    let mut composer =
        Composer { parser: Parser::new_from_str(text), anchors: HashMap::new(), nodes: 0, line: 1 };
    loop {
        match composer.next()? {
            None | Some((Event::StreamEnd, _)) => return Ok(Node { line: 1, data: Data::Null }),
            Some((Event::DocumentStart(..), _)) => {
                let (event, line) = composer.expect()?;
                return composer.node(event, line, 0);
            }
            Some(_) => (),
        }
    }
}

struct Composer<'a> {
    parser: Parser<'a, granit_parser::StrInput<'a>>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    line: usize,
}

impl<'a> Composer<'a> {
    fn next(&mut self) -> Result<Option<(Event<'a>, usize)>, SyntaxError> {
        loop {
            match self.parser.next_event() {
                None => return Ok(None),
                Some(Err(error)) => {
                    return Err(SyntaxError { line: error.marker().line(), message: error.info() });
                }
                Some(Ok((event, span))) if matters(&event) => {
                    self.line = span.start.line();
                    return Ok(Some((event, self.line)));
                }
                Some(Ok(_)) => (),
            }
        }
    }

    fn expect(&mut self) -> Result<(Event<'a>, usize), SyntaxError> {
        self.next()?.ok_or_else(|| self.fail("the text ends too early"))
    }

    fn fail(&self, message: &str) -> SyntaxError {
        SyntaxError { line: self.line, message: message.to_owned() }
    }

    fn count(&mut self, nodes: usize) -> Result<(), SyntaxError> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > MAX_NODES { Err(self.fail("it has too many parts")) } else { Ok(()) }
    }

    fn node(&mut self, event: Event<'a>, line: usize, depth: usize) -> Result<Node, SyntaxError> {
        if depth > MAX_DEPTH {
            return Err(self.fail("it is nested too deeply"));
        }
        self.count(1)?;
        let (anchor, data) = match event {
            Event::Scalar(text, style, anchor, tag) => (anchor, resolve(&text, style, tag.as_deref())),
            Event::SequenceStart(_, anchor, _) => (anchor, self.list(depth)?),
            Event::MappingStart(_, anchor, _) => (anchor, self.map(depth)?),
            Event::Alias(anchor) => {
                let node = self.anchors.get(&anchor).cloned();
                let node = node.ok_or_else(|| self.fail("an alias refers to what contains it"))?;
                self.count(node.size())?;
                return Ok(Node { line, ..node });
            }
            _ => return Err(self.fail("this cannot stand here")),
        };
        let node = Node { line, data };
        if anchor != 0 {
            self.count(node.size())?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Data, SyntaxError> {
        let mut items = Vec::new();
        loop {
            match self.expect()? {
                (Event::SequenceEnd, _) => return Ok(Data::List(items)),
                (event, line) => items.push(self.node(event, line, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Data, SyntaxError> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut merged = Vec::new();
        loop {
            let (event, line) = self.expect()?;
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let merges = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, ..) if text == "<<");
            let key = self.node(event, line, depth + 1)?;
            let (event, value_line) = self.expect()?;
            let value = self.node(event, value_line, depth + 1)?;
            if merges {
                merged.push(value);
            } else {
                let key = self.key(key.data)?;
                entries.push(Entry { key, line, value });
            }
        }
        for node in merged {
            self.merge(&mut entries, node)?;
        }
        Ok(Data::Map(entries))
    }

    fn key(&self, data: Data) -> Result<String, SyntaxError> {
        Ok(match data {
            Data::Text(text) => text,
            Data::Bool(value) => value.to_string(),
            Data::Int(value) => value.to_string(),
            Data::Float(value) => value.to_string(),
            Data::Null => "null".to_owned(),
            Data::List(_) | Data::Map(_) => return Err(self.fail("a name must be a text")),
        })
    }

    /// YAML 1.1's `<<`: what the map says itself wins.
    fn merge(&self, entries: &mut Vec<Entry>, node: Node) -> Result<(), SyntaxError> {
        match node.data {
            Data::Map(more) => {
                for entry in more {
                    if entries.iter().all(|known| known.key != entry.key) {
                        entries.push(entry);
                    }
                }
                Ok(())
            }
            Data::List(nodes) => nodes.into_iter().try_for_each(|node| match node.data {
                Data::Map(_) => self.merge(entries, node),
                _ => Err(self.fail("`<<` needs an object or a list of objects")),
            }),
            _ => Err(self.fail("`<<` needs an object or a list of objects")),
        }
    }
}

/// The parser also reports how things were written, such as comments.
fn matters(event: &Event<'_>) -> bool {
    matches!(
        event,
        Event::StreamEnd
            | Event::DocumentStart(..)
            | Event::DocumentEnd
            | Event::Alias(_)
            | Event::Scalar(..)
            | Event::SequenceStart(..)
            | Event::SequenceEnd
            | Event::MappingStart(..)
            | Event::MappingEnd
    )
}

fn resolve(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Data {
    let is_text =
        tag.is_some_and(|tag| tag.is_yaml_core_schema_tag("str") || tag.is_yaml_core_schema_tag("binary"));
    if is_text || (style != ScalarStyle::Plain && tag.is_none()) {
        return Data::Text(text.to_owned());
    }
    scalar::resolve(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> String {
        parse(text).map_or_else(|error| error.to_string(), |node| node.to_json().to_string())
    }

    #[test]
    fn plain_scalars_mean_what_yaml_1_1_means() {
        for (text, expected) in [
            ("yes", "true"),
            ("Off", "false"),
            ("~", "null"),
            ("", "null"),
            ("017", "15"),
            ("0o17", "15"),
            ("0x10", "16"),
            ("1_000", "1000"),
            ("1.5", "1.5"),
            ("20.0", "20.0"),
            ("1e3", "1000.0"),
            ("10.0.0.1", "\"10.0.0.1\""),
            ("'yes'", "\"yes\""),
            ("!!str yes", "\"yes\""),
            ("10s", "\"10s\""),
            ("2026-01-01", "\"2026-01-01\""),
            (".5", "0.5"),
            (".inf", "\".inf\""),
            ("99999999999999999999", "1e20"),
        ] {
            let found = json(text).replace("100000000000000000000.0", "1e20").replace("1e+20", "1e20");
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn lines_count_from_one_and_duplicates_stay() {
        let node = parse("a: 1\nb:\n  c: [x]\nb: 2\n").expect("yaml");
        let Data::Map(entries) = &node.data else { panic!("{node:?}") };
        assert_eq!(entries.iter().map(|entry| entry.line).collect::<Vec<_>>(), [1, 2, 4]);
        assert_eq!(json("a: 1\nb: {c: [x]}\nb: 2"), r#"{"a":1,"b":2}"#);
        assert_eq!(json("{\n\t\"a\": [1, true, null]\n}"), r#"{"a":[1,true,null]}"#);
    }

    #[test]
    fn anchors_and_merges() {
        assert_eq!(
            json("a: &x {p: 1}\nb: *x\nc: {<<: *x, q: 2}"),
            r#"{"a":{"p":1},"b":{"p":1},"c":{"p":1,"q":2}}"#
        );
        assert_eq!(json("a: 1\n---\na: 2"), r#"{"a":1}"#);
    }

    #[test]
    fn large_trees_are_refused() {
        let mut laughs = "a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned();
        for (name, before) in "bcdefghij".chars().zip("abcdefghi".chars()) {
            laughs.push_str(&format!("{name}: &{name} [{}]\n", vec![format!("*{before}"); 9].join(",")));
        }
        assert!(json(&laughs).contains("too many parts"), "{}", json(&laughs));
        let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
        assert!(json(&deep).starts_with("line 1: "), "{}", json(&deep));
        assert!(json("a: &a [*a]").starts_with("line 1"));
        assert!(json("{").starts_with("line "), "{}", json("{"));
        assert!(json("a: b: c").starts_with("line 1: "));
    }
}
