//! Credentials for registries, and which of them an image may be pulled with: upstream's matching rules.

use std::collections::BTreeMap;

use crablet_cri::RegistryAuth;
use ring::digest::{SHA256, digest};
use serde_json::json;

use super::docker_config::DockerConfig;
use super::glob;

/// Docker Hub's name in old configuration files.
const DEFAULT_REGISTRY: &str = "index.docker.io";

/// Whose credentials they are. Records keep it, so that the next pod of the same owner need not pull again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Every pod of the node may use them.
    Node,
    Secret(Coordinates),
    ServiceAccount(Coordinates),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Coordinates {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credential {
    pub auth: RegistryAuth,
    pub owner: Owner,
    /// Tells two apart without telling what they are.
    pub hash: String,
}

/// Credentials of one source, by registry and path.
#[derive(Default)]
pub(super) struct Keyring(BTreeMap<String, Vec<Credential>>);

impl Keyring {
    pub fn add(&mut self, owner: &Owner, config: &DockerConfig) {
        for (place, entry) in &config.0 {
            let Some(key) = key(place) else {
                tracing::error!(
                    entry = place,
                    "an entry of a docker configuration names no registry; ignoring it"
                );
                continue;
            };
            let auth = RegistryAuth { username: entry.username.clone(), password: entry.password.clone() };
            let hash = fingerprint(&entry.username, &entry.password, &entry.email);
            self.0.entry(key).or_default().push(Credential { auth, owner: owner.clone(), hash });
        }
    }

    /// All that fit, the most specific place first. `repository` is whole, with its registry.
    pub fn look_up(&self, repository: &str) -> Vec<Credential> {
        let fitting = self.0.iter().rev().filter(|(key, _)| place_matches(key, repository));
        let found: Vec<_> = fitting.flat_map(|(_, credentials)| credentials.iter().cloned()).collect();
        match found.is_empty() && is_default_registry(repository) {
            true => self.0.get(DEFAULT_REGISTRY).cloned().unwrap_or_default(),
            false => found,
        }
    }
}

/// Registry and path of an entry, which may be a URL.
fn key(place: &str) -> Option<String> {
    let bare = place.strip_prefix("https://").or_else(|| place.strip_prefix("http://")).unwrap_or(place);
    let bare = bare.split(['?', '#']).next().unwrap_or_default();
    let (host, path) = match bare.find('/') {
        Some(slash) => bare.split_at(slash),
        None => (bare, ""),
    };
    // What comes before an at sign names a user.
    let host = host.rsplit('@').next().unwrap_or_default();
    let path = match path.get(..4) {
        Some("/v1/" | "/v2/") => &path[3..],
        _ => path,
    };
    let is_place = !host.contains(|c: char| c.is_whitespace() || c.is_control());
    is_place.then(|| if path == "/" { host.to_owned() } else { format!("{host}{path}") })
}

/// Whether a place, whose host may have wildcards, is the repository's: as many labels, the same port, the beginning of
/// the path.
pub(super) fn place_matches(place: &str, repository: &str) -> bool {
    let (wanted, actual) = (Place::of(place), Place::of(repository));
    let (labels, actual_labels) = (wanted.host.split('.'), actual.host.split('.'));
    wanted.port == actual.port
        && labels.clone().count() == actual_labels.clone().count()
        && actual.path.starts_with(wanted.path)
        && labels.zip(actual_labels).all(|(pattern, label)| glob::matches(pattern, label))
}

struct Place<'a> {
    host: &'a str,
    port: &'a str,
    path: &'a str,
}

impl<'a> Place<'a> {
    fn of(text: &'a str) -> Self {
        let (authority, path) = match text.find('/') {
            Some(slash) => text.split_at(slash),
            None => (text, ""),
        };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port),
            _ => (authority, ""),
        };
        Self { host, port, path }
    }
}

/// Whether an image of this name would come from Docker Hub.
fn is_default_registry(repository: &str) -> bool {
    match repository.split_once('/') {
        None => !repository.is_empty(),
        Some(("docker.io" | "index.docker.io", _)) => true,
        Some((first, _)) => !first.is_empty() && !first.contains(['.', ':']),
    }
}

/// The whole name of an image's repository, without tag and digest: `docker.io/library/busybox` for `busybox`.
pub(super) fn repository(image: &str) -> Option<String> {
    let name = crablet_model::image::parse(image).ok()?.name;
    let (registry, path) = match name.split_once('/') {
        Some((first, path)) if first.contains(['.', ':']) || first == "localhost" => (first, path),
        _ => ("docker.io", name),
    };
    let registry = if registry == "index.docker.io" { "docker.io" } else { registry };
    Some(match registry == "docker.io" && !path.contains('/') {
        true => format!("{registry}/library/{path}"),
        false => format!("{registry}/{path}"),
    })
}

/// As upstream's, so that records which it left are understood: SHA-256 over Go's JSON of the credentials.
fn fingerprint(username: &str, password: &str, email: &str) -> String {
    let fields = [("username", username), ("password", password), ("email", email)];
    let said = fields.iter().filter(|(_, value)| !value.is_empty());
    let parts: Vec<String> = said.map(|(name, value)| format!("{}:{}", json!(name), json!(value))).collect();
    let text = format!("{{{}}}", parts.join(","))
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026");
    hex(digest(&SHA256, text.as_bytes()).as_ref())
}

pub(super) fn sha256_hex(text: &str) -> String {
    hex(digest(&SHA256, text.as_bytes()).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(config: &str) -> Keyring {
        let mut ring = Keyring::default();
        ring.add(&Owner::Node, &DockerConfig::parse(config.as_bytes()).unwrap());
        ring
    }

    fn users(ring: &Keyring, repository: &str) -> Vec<String> {
        ring.look_up(repository).into_iter().map(|found| found.auth.username).collect()
    }

    #[test]
    fn places_match_label_by_label_port_by_port_and_by_the_beginning_of_the_path() {
        for (place, repository, matches) in [
            ("a.io", "a.io/x/y", true),
            ("a.io", "b.io/x", false),
            ("a.io/x", "a.io/x/y", true),
            ("a.io/x", "a.io/xy", true),
            ("a.io/x", "a.io/y", false),
            ("*.a.io", "b.a.io/x", true),
            ("*.a.io", "c.b.a.io/x", false),
            ("*.*.a.io", "c.b.a.io/x", true),
            ("r*y.io", "registry.io/x", true),
            ("*.io", "a.io/x", true),
            ("a.io:5000", "a.io:5000/x", true),
            ("a.io", "a.io:5000/x", false),
            ("*.io:5000", "a.io:5000/x", true),
            ("*.io:*", "a.io:5000/x", false),
        ] {
            assert_eq!(place_matches(place, repository), matches, "{place} {repository}");
        }
    }

    #[test]
    fn the_most_specific_place_comes_first() {
        let config = r#"{"a.io": {"username": "host"}, "https://a.io/team/": {"username": "slash"},
            "a.io/team/app": {"username": "app"}, "b.io/v2/": {"username": "b"}, "http://c.io/v1/x": {"username": "c"}}"#;
        let ring = ring(config);
        assert_eq!(users(&ring, "a.io/team/app"), ["app", "slash", "host"]);
        assert_eq!(users(&ring, "a.io/other"), ["host"]);
        assert_eq!(users(&ring, "b.io/any"), ["b"]);
        assert_eq!(users(&ring, "c.io/x/y"), ["c"]);
        assert!(users(&ring, "d.io/x").is_empty());
    }

    #[test]
    fn docker_hub_has_an_old_name() {
        let ring = ring(r#"{"https://index.docker.io/v1/": {"username": "hub"}}"#);
        assert_eq!(users(&ring, "docker.io/library/busybox"), ["hub"]);
        assert_eq!(users(&ring, "docker.io/me/app"), ["hub"]);
        assert!(users(&ring, "quay.io/me/app").is_empty());
    }

    #[test]
    fn repositories_are_whole_names() {
        for (image, expected) in [
            ("busybox", "docker.io/library/busybox"),
            ("busybox:1.36", "docker.io/library/busybox"),
            (
                "me/app@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                "docker.io/me/app",
            ),
            ("localhost/app", "localhost/app"),
            ("a.io:5000/b/c:t", "a.io:5000/b/c"),
        ] {
            assert_eq!(repository(image).as_deref(), Some(expected), "{image}");
        }
    }

    #[test]
    fn fingerprints_are_those_of_upstream() {
        assert_eq!(fingerprint("u", "p", ""), sha256_hex(r#"{"username":"u","password":"p"}"#));
        assert_eq!(
            fingerprint("u", "a<b&c", ""),
            sha256_hex(r#"{"username":"u","password":"a\u003cb\u0026c"}"#)
        );
        assert_eq!(fingerprint("u", "", "e"), sha256_hex(r#"{"username":"u","email":"e"}"#));
    }
}
