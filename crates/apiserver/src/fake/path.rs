//! Which resource, object and subresource a path means, and what its query asks for.

use serde_json::Value;

/// Resources that the fake knows by their short name: plural, prefix, kind, whether they live in namespaces.
const RESOURCES: &[(&str, &str, &str, bool)] = &[
    ("pods", "api/v1", "Pod", true),
    ("nodes", "api/v1", "Node", false),
    ("secrets", "api/v1", "Secret", true),
    ("configmaps", "api/v1", "ConfigMap", true),
    ("services", "api/v1", "Service", true),
    ("events", "api/v1", "Event", true),
    ("serviceaccounts", "api/v1", "ServiceAccount", true),
    ("namespaces", "api/v1", "Namespace", false),
    ("persistentvolumeclaims", "api/v1", "PersistentVolumeClaim", true),
    ("persistentvolumes", "api/v1", "PersistentVolume", false),
    ("leases", "apis/coordination.k8s.io/v1", "Lease", true),
    ("runtimeclasses", "apis/node.k8s.io/v1", "RuntimeClass", false),
    ("csidrivers", "apis/storage.k8s.io/v1", "CSIDriver", false),
    ("csinodes", "apis/storage.k8s.io/v1", "CSINode", false),
    ("volumeattachments", "apis/storage.k8s.io/v1", "VolumeAttachment", false),
    ("certificatesigningrequests", "apis/certificates.k8s.io/v1", "CertificateSigningRequest", false),
    ("podcertificaterequests", "apis/certificates.k8s.io/v1beta1", "PodCertificateRequest", true),
];

/// A collection: `api/v1` and `pods`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Resource {
    pub prefix: String,
    pub plural: String,
}

impl Resource {
    /// By its short name.
    ///
    /// # Panics
    /// If the fake does not know it: a mistake in a test.
    pub fn named(plural: &str) -> Self {
        let Some(&(plural, prefix, ..)) = RESOURCES.iter().find(|known| known.0 == plural) else {
            panic!("the fake API server knows no resource {plural:?}: add it to RESOURCES");
        };
        Self { prefix: prefix.to_owned(), plural: plural.to_owned() }
    }

    fn known(&self) -> Option<&'static (&'static str, &'static str, &'static str, bool)> {
        RESOURCES.iter().find(|known| known.0 == self.plural && known.1 == self.prefix)
    }

    pub fn kind(&self) -> &'static str {
        self.known().map_or("Unknown", |known| known.2)
    }

    pub fn namespaced(&self) -> bool {
        self.known().is_some_and(|known| known.3)
    }

    pub fn api_version(&self) -> &str {
        self.prefix.split_once('/').map_or("", |(_, version)| version)
    }

    /// As messages name it: `pods`, `leases.coordination.k8s.io`.
    pub fn qualified(&self) -> String {
        match self.api_version().split_once('/') {
            Some((group, _)) => format!("{}.{group}", self.plural),
            None => self.plural.clone(),
        }
    }
}

/// What a path means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub resource: Resource,
    /// Empty for all, or for resources without.
    pub namespace: String,
    pub name: Option<String>,
    pub subresource: Option<String>,
    pub query: Query,
}

/// The part of the query that the fake understands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Query {
    pub selector: Selector,
    pub version: Option<String>,
    pub timeout_seconds: Option<u64>,
    pub bookmarks: bool,
    pub send_initial_events: bool,
    pub version_match: Option<String>,
    pub grace_seconds: Option<i64>,
}

impl Target {
    pub fn parse(path: &str) -> Option<Self> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut segments = path.trim_matches('/').split('/');
        let prefix = match segments.next()? {
            "api" => format!("api/{}", segments.next()?),
            "apis" => format!("apis/{}/{}", segments.next()?, segments.next()?),
            _ => return None,
        };
        let rest: Vec<&str> = segments.collect();
        let (namespace, rest) = match rest.as_slice() {
            ["namespaces", _, "status" | "finalize"] => ("", rest.as_slice()),
            ["namespaces", namespace, inner @ ..] if !inner.is_empty() => (*namespace, inner),
            all => ("", all),
        };
        let resource = Resource { prefix, plural: (*rest.first()?).to_owned() };
        Some(Self {
            resource,
            namespace: namespace.to_owned(),
            name: rest.get(1).map(|s| (*s).to_owned()),
            subresource: rest.get(2).map(|s| (*s).to_owned()),
            query: Query::parse(query),
        })
    }
}

impl Query {
    fn parse(query: &str) -> Self {
        let mut parsed = Self::default();
        for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let value = decoded(value);
            match key {
                "fieldSelector" => parsed.selector = Selector::parse(&value),
                "resourceVersion" => parsed.version = Some(value),
                "resourceVersionMatch" => parsed.version_match = Some(value),
                "timeoutSeconds" => parsed.timeout_seconds = value.parse().ok(),
                "allowWatchBookmarks" => parsed.bookmarks = value == "true",
                "sendInitialEvents" => parsed.send_initial_events = value == "true",
                "gracePeriodSeconds" => parsed.grace_seconds = value.parse().ok(),
                _ => {}
            }
        }
        parsed
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let hex =
            (first == b'%').then(|| tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok())).flatten();
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A field selector: terms that must all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selector(Vec<Term>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    pointer: String,
    equal: bool,
    value: String,
}

impl Selector {
    fn parse(text: &str) -> Self {
        let terms = text.split(',').filter(|term| !term.is_empty());
        Self(
            terms
                .filter_map(|term| {
                    let (field, equal, value) = if let Some((field, value)) = term.split_once("!=") {
                        (field, false, value)
                    } else if let Some((field, value)) = term.split_once("==") {
                        (field, true, value)
                    } else {
                        let (field, value) = term.split_once('=')?;
                        (field, true, value)
                    };
                    let pointer = format!("/{}", field.replace('.', "/"));
                    Some(Term { pointer, equal, value: value.to_owned() })
                })
                .collect(),
        )
    }

    pub fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|term| {
            let value = object.pointer(&term.pointer).and_then(Value::as_str).unwrap_or_default();
            (value == term.value) == term.equal
        })
    }
}
