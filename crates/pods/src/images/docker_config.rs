//! Docker's configuration files: credentials by registry. In secrets, and in files of the node.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use crablet_host::Files;
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// What the node's files say is believed for so long, as upstream.
const BELIEVED: Duration = Duration::from_secs(300);
const MOST_BYTES: usize = 1 << 20;

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
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

#[derive(Default, Deserialize)]
#[serde(default)]
struct Wire {
    username: String,
    password: String,
    email: String,
    auth: String,
}

#[derive(Deserialize)]
struct WithAuths {
    auths: Option<BTreeMap<String, Wire>>,
}

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
        let config: WithAuths = serde_json::from_slice(json).map_err(|_| NOT_JSON)?;
        Self::of(config.auths.unwrap_or_default())
    }

    fn of(entries: BTreeMap<String, Wire>) -> Result<Self, &'static str> {
        let entries = entries.into_iter().map(|(place, entry)| Ok((place, entry.decoded()?)));
        Ok(Self(entries.collect::<Result<_, &'static str>>()?))
    }
}

impl Wire {
    /// What `auth` says holds, if it says anything.
    fn decoded(self) -> Result<Entry, &'static str> {
        let Self { username, password, email, auth } = self;
        if auth.is_empty() {
            return Ok(Entry { username, password, email });
        }
        let decoded = LENIENT.decode(auth.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let (username, password) = decoded
            .as_deref()
            .and_then(|text| text.split_once(':'))
            .map(|(username, password)| (username.to_owned(), password.to_owned()))
            .ok_or(NOT_AUTH)?;
        Ok(Entry { username, password, email })
    }
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
    fn what_is_wrong_is_said_without_what_was_there() {
        for (json, expected) in [
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
