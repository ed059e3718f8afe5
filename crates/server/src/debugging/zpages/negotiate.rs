//! From the `Accept` header to the form of an answer, by the rules of upstream's API machinery.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    Object { version: Version, encoding: Encoding },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V1alpha1,
    V1beta1,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Json,
    IndentedJson,
    Yaml,
}

/// In the order in which they are preferred.
const SUPPORTED: [(&str, &str); 3] = [("application", "json"), ("application", "yaml"), ("text", "plain")];

/// Objects are given only to who names their version. `Err`: nothing that is accepted can be given; the refusal has this
/// form.
pub fn negotiate(accept: &str, kind: &str, pretty: bool) -> Result<Form, Encoding> {
    if accept.trim().is_empty() {
        return Ok(Form::Text);
    }
    let clauses = Clause::parse(accept);
    for clause in &clauses {
        for media in SUPPORTED.iter().filter(|media| clause.takes(media)) {
            match (media.1, clause.wanted(kind)) {
                _ if clause.has("stream") || clause.has("sv") => {}
                ("plain", Wanted::Nothing) => return Ok(Form::Text),
                ("yaml", Wanted::Version(version)) => {
                    return Ok(Form::Object { version, encoding: Encoding::Yaml });
                }
                ("json", Wanted::Version(version)) => {
                    let encoding = json(pretty || clause.param("pretty") == Some("1"));
                    return Ok(Form::Object { version, encoding });
                }
                _ => {}
            }
        }
    }
    Err(refusal(&clauses, pretty))
}

fn json(pretty: bool) -> Encoding {
    if pretty { Encoding::IndentedJson } else { Encoding::Json }
}

/// The form in which the refusal itself is acceptable; indented JSON if in none.
fn refusal(clauses: &[Clause<'_>], pretty: bool) -> Encoding {
    for clause in clauses {
        let watches = clause.param("stream").is_some_and(|stream| !stream.is_empty());
        let streams = clause.param("stream") == Some("watch");
        for media in SUPPORTED.iter().filter(|media| clause.takes(media)) {
            match media.1 {
                _ if clause.wanted("") != Wanted::Nothing || clause.has("sv") => {}
                "json" if !watches || streams => {
                    return json(pretty || clause.param("pretty") == Some("1"));
                }
                "yaml" if !watches => return Encoding::Yaml,
                _ => {}
            }
        }
    }
    Encoding::IndentedJson
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// What the server has.
    Nothing,
    Version(Version),
    SomethingElse,
}

struct Clause<'a> {
    kind: &'a str,
    subtype: &'a str,
    quality: f32,
    params: Vec<(&'a str, &'a str)>,
}

impl<'a> Clause<'a> {
    /// The best first.
    fn parse(header: &'a str) -> Vec<Self> {
        let mut clauses: Vec<Self> = header.split(',').filter_map(Self::one).collect();
        // Upstream's order is none for clauses of the same quality; ours keeps the client's.
        clauses.sort_by(|a, b| {
            b.quality
                .total_cmp(&a.quality)
                .then((a.kind == "*").cmp(&(b.kind == "*")))
                .then((a.subtype == "*").cmp(&(b.subtype == "*")))
        });
        clauses
    }

    fn one(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';');
        let media = parts.next()?.trim();
        let (kind, subtype) = match media.split_once('/') {
            Some((kind, subtype)) if !subtype.contains('/') => (kind.trim(), subtype.trim()),
            None if media == "*" => ("*", "*"),
            _ => return None,
        };
        let mut params: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
        params.iter_mut().for_each(|(name, value)| (*name, *value) = (name.trim(), value.trim()));
        let quality = params.iter().find(|(name, _)| *name == "q");
        let quality = quality.map_or(1.0, |(_, value)| value.parse().unwrap_or(0.0));
        Some(Self { kind, subtype, quality, params })
    }

    fn takes(&self, (kind, subtype): &(&str, &str)) -> bool {
        match (self.kind, self.subtype) {
            ("*", "*") => true,
            (own, "*") => own == *kind,
            (own, own_subtype) => own == *kind && own_subtype == *subtype,
        }
    }

    fn param(&self, name: &str) -> Option<&str> {
        self.params.iter().rev().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    fn has(&self, name: &str) -> bool {
        self.param(name).is_some_and(|value| !value.is_empty())
    }

    fn wanted(&self, kind: &str) -> Wanted {
        let (group, version, as_kind) = (self.param("g"), self.param("v"), self.param("as"));
        match (group, version) {
            (None, None) if as_kind.is_none() => Wanted::Nothing,
            (Some("config.k8s.io"), Some("v1alpha1")) if as_kind == Some(kind) => {
                Wanted::Version(Version::V1alpha1)
            }
            (Some("config.k8s.io"), Some("v1beta1")) if as_kind == Some(kind) => {
                Wanted::Version(Version::V1beta1)
            }
            _ => Wanted::SomethingElse,
        }
    }
}
