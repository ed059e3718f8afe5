//! Docker's configuration files: credentials by registry. In secrets, and in files of the node.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use crablet_host::Files;
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// What the node's files say is believed for so long, as upstream.
const BELIEVED: Duration = Duration::from_secs(300);
const MOST_BYTES: usize = 1 << 20;

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Never printed: it holds passwords.
#[derive(Clone, Default)]
pub(super) struct DockerConfig(pub BTreeMap<String, Entry>);

#[derive(Clone, Default)]
pub(super) struct Entry {
    pub username: String,
    pub password: String,
    pub email: String,
}

/// As Go reads an object: `null` is one without fields.
type Object = Option<Map<String, Value>>;

/// Says what is wrong without saying what was there.
const NOT_JSON: &str = "error occurred while trying to unmarshal json";
const NOT_AUTH: &str = "unable to parse auth field, must be formatted as base64(username:password)";

impl DockerConfig {
    /// `.dockercfg`: entries alone.
    pub fn parse(json: &[u8]) -> Result<Self, &'static str> {
        Self::of(serde_json::from_slice(json).map_err(|_| NOT_JSON)?)
    }

    /// `config.json`: entries below `auths`.
    pub fn parse_with_auths(json: &[u8]) -> Result<Self, &'static str> {
        let config: Object = serde_json::from_slice(json).map_err(|_| NOT_JSON)?;
        let mut entries = BTreeMap::new();
        for (_, auths) in config.into_iter().flatten().filter(|(key, _)| key.eq_ignore_ascii_case("auths")) {
            entries.extend(Self::of(object(auths)?)?.0);
        }
        Ok(Self(entries))
    }

    fn of(entries: Object) -> Result<Self, &'static str> {
        let entries = entries.into_iter().flatten();
        let entries = entries.map(|(place, entry)| Ok((place, Entry::read(object(entry)?)?)));
        Ok(Self(entries.collect::<Result<_, &'static str>>()?))
    }
}

fn object(value: Value) -> Result<Object, &'static str> {
    match value {
        Value::Null => Ok(None),
        Value::Object(fields) => Ok(Some(fields)),
        _ => Err(NOT_JSON),
    }
}

impl Entry {
    /// As Go does: keys in any case, `null` for what is not said, and whatever else there is does not matter.
    fn read(fields: Object) -> Result<Self, &'static str> {
        let (mut entry, mut auth) = (Self::default(), String::new());
        for (key, value) in fields.into_iter().flatten() {
            let field = match key.to_ascii_lowercase().as_str() {
                "username" => &mut entry.username,
                "password" => &mut entry.password,
                "email" => &mut entry.email,
                "auth" => &mut auth,
                _ => continue,
            };
            match value {
                Value::Null => {}
                Value::String(text) => *field = text,
                _ => return Err(NOT_JSON),
            }
        }
        if !auth.is_empty() {
            (entry.username, entry.password) = decoded(auth).ok_or(NOT_AUTH)?;
        }
        Ok(entry)
    }
}

/// User and password, from Base64 that may be broken into lines.
fn decoded(mut auth: String) -> Option<(String, String)> {
    auth.retain(|c| c != '\r' && c != '\n');
    let text = String::from_utf8(LENIENT.decode(auth).ok()?).ok()?;
    let (username, password) = text.split_once(':')?;
    Some((username.to_owned(), password.to_owned()))
}

/// The node's own files: the first that is there and holds.
pub(super) struct NodeFiles {
    /// In the order in which they are tried, with whether entries lie below `auths`.
    places: Vec<(PathBuf, bool)>,
    known: Mutex<Option<(Instant, DockerConfig)>>,
}

impl NodeFiles {
    /// `config.json` in any of the first folders, then `.dockercfg` in any of the second.
    pub fn new(folders: &super::DockerFolders) -> Self {
        let new = folders.config_json.iter().map(|folder| (folder.join("config.json"), true));
        let old = folders.dockercfg.iter().map(|folder| (folder.join(".dockercfg"), false));
        Self { places: new.chain(old).collect(), known: Mutex::default() }
    }

    pub async fn read(&self, files: &dyn Files) -> DockerConfig {
        let mut known = self.known.lock().await;
        if let Some((since, config)) = &*known
            && since.elapsed() < BELIEVED
        {
            return config.clone();
        }
        let config = self.find(files).await;
        *known = Some((Instant::now(), config.clone()));
        config
    }

    async fn find(&self, files: &dyn Files) -> DockerConfig {
        for (path, has_auths) in &self.places {
            let content = match files.read(path, MOST_BYTES).await {
                Ok(content) => content,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "cannot read a file of credentials for registries");
                    continue;
                }
            };
            let parsed = match has_auths {
                true => DockerConfig::parse_with_auths(&content),
                false => DockerConfig::parse(&content),
            };
            match parsed {
                Ok(config) => return config,
                Err(error) => {
                    tracing::warn!(path = %path.display(), error, "a file of credentials for registries is not understood");
                }
            }
        }
        DockerConfig::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_auth_field_holds_with_and_without_padding() {
        for (auth, expected) in [("dTpwOnE=", ("u", "p:q")), ("dTpwOnE", ("u", "p:q")), ("dTo=", ("u", ""))] {
            let json = format!(r#"{{"auths": {{"a.io": {{"username": "x", "auth": "{auth}"}}}}}}"#);
            let config = DockerConfig::parse_with_auths(json.as_bytes()).unwrap();
            let entry = &config.0["a.io"];
            assert_eq!((&*entry.username, &*entry.password), expected);
        }
    }

    #[test]
    fn what_go_reads_is_read() {
        for entry in [
            r#"{"username": "u", "password": "p", "email": null, "auth": null}"#,
            r#"{"Username": "u", "PASSWORD": "p", "identitytoken": 1}"#,
            r#"{"username": "x", "username": "u", "password": "p"}"#,
            r#"{"auth": "dT\r\npw\n"}"#,
            r#"{"auth": "dTpx", "Auth": null, "auth": "dTpw"}"#,
        ] {
            let entries = format!(r#"{{"a.io": {entry}, "b.io": null}}"#);
            let with_auths = format!(r#"{{"Auths": {entries}, "credsStore": "x", "n": 1}}"#);
            let old = DockerConfig::parse(entries.as_bytes());
            let new = DockerConfig::parse_with_auths(with_auths.as_bytes());
            for config in [old, new] {
                let config = config.unwrap_or_else(|error| panic!("{error}: {entry}"));
                let read = &config.0["a.io"];
                assert_eq!((&*read.username, &*read.password), ("u", "p"), "{entry}");
                assert_eq!(config.0["b.io"].username, "");
            }
        }
        // The bits that are left over at the end do not count.
        let config = DockerConfig::parse(br#"{"a.io": {"auth": "dTpwOnF="}}"#).unwrap();
        assert_eq!(config.0["a.io"].password, "p:q");
        for nothing in ["null", "{}", r#"{"auths": null}"#] {
            assert!(DockerConfig::parse_with_auths(nothing.as_bytes()).unwrap().0.is_empty(), "{nothing}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_what_was_there() {
        for (json, expected) in [
            (r#"{"auths": {"a.io": {"auth": " dTpw"}}}"#, NOT_AUTH),
            (r#"{"auths": {"a.io": {"username": 1}}}"#, NOT_JSON),
            (r#"{"auths": {"a.io": "secret"}}"#, NOT_JSON),
            (r#"{"auths": {"a.io": {"auth": "secret"}}}"#, NOT_AUTH),
            (r#"{"auths": {"a.io": {"auth": "!!"}}}"#, NOT_AUTH),
            (r#"{"auths": "secret"}"#, NOT_JSON),
            ("secret", NOT_JSON),
        ] {
            assert_eq!(DockerConfig::parse_with_auths(json.as_bytes()).err(), Some(expected), "{json}");
        }
        assert!(DockerConfig::parse_with_auths(b"{}").unwrap().0.is_empty());
    }
}
