//! The names behind CRI's numbers, read from the `.proto` files themselves when first needed.
//!
//! A reader of the small part of the language that those two files use costs a hundred lines; a protobuf compiler in
//! the test build costs fifty crates. Whatever it does not understand it leaves out, and what is left out appears in a
//! record by number.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

static CRI: LazyLock<Schema> = LazyLock::new(|| {
    Schema::read(&[include_str!("../../../protos/proto/cri.proto"), include_str!("../../proto/more.proto")])
});

#[derive(Debug, Default)]
pub struct Schema {
    messages: HashMap<String, Message>,
    enums: HashMap<String, BTreeMap<u64, String>>,
    /// By path: `/runtime.v1.RuntimeService/Version`.
    methods: HashMap<String, Method>,
}

#[derive(Debug, Default)]
pub struct Message {
    pub fields: BTreeMap<u32, Field>,
}

#[derive(Debug)]
pub struct Field {
    pub name: String,
    pub repeated: bool,
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    Int,
    Uint,
    Zigzag,
    Bool,
    Float,
    Double,
    Fixed,
    SignedFixed,
    Text,
    Bytes,
    /// A message or an enum, by name.
    Named(String),
    Map(Box<Kind>, Box<Kind>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Method {
    pub request: String,
    pub response: String,
    /// Whether the answer is a stream of messages.
    pub streams: bool,
}

impl Schema {
    /// CRI v1 and both of its services.
    pub fn cri() -> &'static Schema {
        &CRI
    }

    pub fn method(&self, path: &str) -> Option<&Method> {
        self.methods.get(path)
    }

    pub fn message(&self, name: &str) -> Option<&Message> {
        self.messages.get(name)
    }

    pub fn enum_value(&self, name: &str, number: u64) -> Option<&str> {
        self.enums.get(name)?.get(&number).map(String::as_str)
    }

    fn read(files: &[&str]) -> Schema {
        let mut schema = Schema::default();
        for file in files {
            let words = words(file);
            let mut reader = Reader { words: &words, at: 0, package: String::new(), schema: &mut schema };
            reader.file();
        }
        schema
    }
}

/// Words and single signs, without comments and text in quotes.
fn words(file: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for line in file.lines() {
        let line = line.split("//").next().unwrap_or_default();
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
            let length = if is_word(first) {
                rest.find(|c| !is_word(c)).unwrap_or(rest.len())
            } else {
                first.len_utf8()
            };
            let (word, left) = rest.split_at(length);
            if !first.is_whitespace() {
                words.push(word);
            }
            rest = left;
        }
    }
    words
}

struct Reader<'a> {
    words: &'a [&'a str],
    at: usize,
    package: String,
    schema: &'a mut Schema,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.at).copied();
        self.at += 1;
        word
    }

    fn statement(&mut self) -> Vec<&'a str> {
        let start = self.at.min(self.words.len());
        let length = self.words[start..].iter().position(|word| *word == ";");
        let end = length.map_or(self.words.len(), |length| start + length);
        self.at = end + 1;
        self.words[start..end].to_vec()
    }

    fn file(&mut self) {
        while let Some(word) = self.next() {
            match word {
                "package" => self.package = self.next().unwrap_or_default().to_owned(),
                "message" => self.message(),
                "enum" => self.enumeration(),
                "service" => self.service(),
                ";" => {}
                _ => drop(self.statement()),
            }
        }
    }

    /// `message NAME { ... }`, or a `oneof`, whose fields are the message's own.
    fn message(&mut self) {
        let name = self.next().unwrap_or_default().to_owned();
        self.schema.messages.entry(name.clone()).or_default();
        self.next();
        self.fields(&name);
    }

    fn fields(&mut self, message: &str) {
        while let Some(word) = self.next() {
            match word {
                "}" => return,
                "message" => self.message(),
                "enum" => self.enumeration(),
                "oneof" => {
                    self.at += 2;
                    self.fields(message);
                }
                "option" | "reserved" => drop(self.statement()),
                ";" => {}
                _ => {
                    self.at -= 1;
                    if let Some((number, field)) = field(&self.statement()) {
                        let message = self.schema.messages.entry(message.to_owned()).or_default();
                        message.fields.insert(number, field);
                    }
                }
            }
        }
    }

    fn enumeration(&mut self) {
        let name = self.next().unwrap_or_default().to_owned();
        self.next();
        let mut values = BTreeMap::new();
        while self.words.get(self.at).is_some_and(|word| *word != "}") {
            if let [value, "=", number, ..] = self.statement()[..]
                && let Ok(number) = number.parse()
            {
                values.insert(number, value.to_owned());
            }
        }
        self.next();
        self.schema.enums.insert(name, values);
    }

    fn service(&mut self) {
        let service = self.next().unwrap_or_default().to_owned();
        self.next();
        while self.words.get(self.at).is_some_and(|word| *word != "}") {
            let statement = self.statement();
            let (name, request, response, streams) = match statement[..] {
                ["rpc", name, "(", request, ")", "returns", "(", "stream", response, ")"] => {
                    (name, request, response, true)
                }
                ["rpc", name, "(", request, ")", "returns", "(", response, ")"] => {
                    (name, request, response, false)
                }
                _ => continue,
            };
            let path = format!("/{}.{service}/{name}", self.package);
            let method = Method { request: request.into(), response: response.into(), streams };
            self.schema.methods.insert(path, method);
        }
        self.next();
    }
}

fn field(statement: &[&str]) -> Option<(u32, Field)> {
    let (repeated, kind, rest) = match statement {
        ["map", "<", key, ",", value, ">", rest @ ..] => {
            (false, Kind::Map(Box::new(kind(key)), Box::new(kind(value))), rest)
        }
        ["repeated", of, rest @ ..] => (true, kind(of), rest),
        ["optional", of, rest @ ..] => (false, kind(of), rest),
        [of, rest @ ..] => (false, kind(of), rest),
        [] => return None,
    };
    let [name, "=", number, ..] = rest else { return None };
    Some((number.parse().ok()?, Field { name: (*name).to_owned(), repeated, kind }))
}

fn kind(word: &str) -> Kind {
    match word {
        "int32" | "int64" => Kind::Int,
        "uint32" | "uint64" => Kind::Uint,
        "sint32" | "sint64" => Kind::Zigzag,
        "bool" => Kind::Bool,
        "float" => Kind::Float,
        "double" => Kind::Double,
        "fixed32" | "fixed64" => Kind::Fixed,
        "sfixed32" | "sfixed64" => Kind::SignedFixed,
        "string" => Kind::Text,
        "bytes" => Kind::Bytes,
        name => Kind::Named(name.rsplit('.').next().unwrap_or(name).to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_and_every_type_has_its_names() {
        let schema = Schema::cri();
        assert_eq!(schema.methods.len(), 41);
        for (path, method) in &schema.methods {
            for name in [&method.request, &method.response] {
                assert!(schema.message(name).is_some(), "{path}: {name}");
            }
        }
        let known = |kind: &Kind| match kind {
            Kind::Named(name) => schema.message(name).is_some() || schema.enums.contains_key(name),
            _ => true,
        };
        for (name, message) in &schema.messages {
            for field in message.fields.values() {
                assert!(known(&field.kind), "{name}.{}: {:?}", field.name, field.kind);
            }
        }
    }

    #[test]
    fn names_numbers_and_kinds_are_those_of_the_files() {
        let schema = Schema::cri();
        let events = schema.method("/runtime.v1.RuntimeService/GetContainerEvents").unwrap();
        assert!(events.streams && events.response == "ContainerEventResponse");
        assert!(!schema.method("/runtime.v1.ImageService/PullImage").unwrap().streams);
        let config = schema.message("ContainerConfig").unwrap();
        let shown = |number: u32| (config.fields[&number].name.as_str(), config.fields[&number].kind.clone());
        let map = Kind::Map(Box::new(Kind::Text), Box::new(Kind::Text));
        assert_eq!(shown(9), ("labels", map));
        assert_eq!(shown(6), ("envs", Kind::Named("KeyValue".into())));
        assert_eq!(shown(18), ("stop_signal", Kind::Named("Signal".into())));
        assert!(config.fields[&6].repeated && !config.fields[&5].repeated);
        // From the second file, into the same message.
        let security = schema.message("LinuxContainerSecurityContext").unwrap();
        assert_eq!(security.fields[&10].name, "seccomp_profile_path");
        assert_eq!(schema.enum_value("NamespaceMode", 2), Some("NODE"));
    }
}
