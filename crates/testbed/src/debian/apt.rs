//! Where this machine gets its Debian packages from: what is made here comes from the same place, through the same
//! proxies, checked against the same keys.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::output_of;

/// A package archive that serves one release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    pub uri: String,
    /// The keys that the machine trusts for it, if its sources name a file.
    pub keyring: Option<PathBuf>,
}

/// The machine's own release, as `/etc/os-release` names it.
pub fn release() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release").context("cannot read `/etc/os-release`")?;
    release_in(&text)
}

fn release_in(text: &str) -> Result<String> {
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.map(|value| value.trim_matches(['"', '\'']).to_owned())
    };
    let id = value("ID").unwrap_or_default();
    match value("VERSION_CODENAME") {
        Some(codename) if id == "debian" && !codename.is_empty() => Ok(codename),
        _ => bail!(
            "root file systems are made of this machine's Debian release, and this machine is `{id}`\n\
             hint: run it on Debian"
        ),
    }
}

/// The first of the machine's package sources that serves `release`.
pub fn mirror(release: &str) -> Result<Mirror> {
    let found = source_files()?.into_iter().find_map(|path| {
        let text = fs::read_to_string(&path).ok()?;
        let is_deb822 = path.extension().is_some_and(|extension| extension == "sources");
        let sources = if is_deb822 { deb822(&text) } else { one_line(&text) };
        sources.into_iter().find_map(|source| source.mirror_for(release))
    });
    found.with_context(|| {
        format!("no package source of this machine serves `{release}`\nhint: see `/etc/apt/sources.list.d`")
    })
}

/// apt's files of sources in its own order.
fn source_files() -> Result<Vec<PathBuf>> {
    let mut parts: Vec<PathBuf> = match fs::read_dir("/etc/apt/sources.list.d") {
        Ok(entries) => entries.filter_map(|entry| Some(entry.ok()?.path())).collect(),
        Err(_) => Vec::new(),
    };
    parts.retain(|path| path.extension().is_some_and(|ext| ext == "list" || ext == "sources"));
    parts.sort();
    parts.insert(0, PathBuf::from("/etc/apt/sources.list"));
    parts.retain(|path| path.exists());
    Ok(parts)
}

/// What one entry says, as far as it matters here.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Source {
    types: Vec<String>,
    uris: Vec<String>,
    suites: Vec<String>,
    components: Vec<String>,
    keyring: Option<PathBuf>,
}

impl Source {
    fn mirror_for(&self, release: &str) -> Option<Mirror> {
        let has = |list: &[String], word: &str| list.iter().any(|item| item == word);
        let fits = has(&self.types, "deb") && has(&self.suites, release) && has(&self.components, "main");
        if !fits {
            return None;
        }
        let uri = self.uris.iter().find_map(|uri| plain_uri(uri))?;
        Some(Mirror { uri, keyring: self.keyring.clone() })
    }
}

/// An address that debootstrap understands. Cloud images name a file with a list of mirrors: its first line will do.
fn plain_uri(uri: &str) -> Option<String> {
    if let Some(list) = uri.strip_prefix("mirror+file:") {
        let path = format!("/{}", list.trim_start_matches('/'));
        let text = fs::read_to_string(path).ok()?;
        return text.split_whitespace().find_map(plain_uri);
    }
    ["http://", "https://", "file:/"].iter().any(|scheme| uri.starts_with(scheme)).then(|| uri.to_owned())
}

/// `deb [signed-by=/a/key.gpg] http://mirror/debian bookworm main contrib`
fn one_line(text: &str) -> Vec<Source> {
    text.lines().filter_map(one_line_entry).collect()
}

fn one_line_entry(line: &str) -> Option<Source> {
    let line = line.split('#').next()?.trim();
    let (kind, mut rest) = line.split_once(char::is_whitespace)?;
    let mut keyring = None;
    if let Some((options, after)) = rest.trim_start().strip_prefix('[').and_then(|text| text.split_once(']'))
    {
        keyring = options
            .split_whitespace()
            .find_map(|option| option.strip_prefix("signed-by="))
            .and_then(key_file);
        rest = after;
    }
    let mut words = rest.split_whitespace().map(str::to_owned);
    Some(Source {
        types: vec![kind.to_owned()],
        uris: vec![words.next()?],
        suites: vec![words.next()?],
        components: words.collect(),
        keyring,
    })
}

/// Stanzas of `Field: words`, separated by blank lines; a line that begins with a blank continues the field above.
fn deb822(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    let without_comments = text.lines().filter(|line| !line.starts_with('#'));
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in without_comments.chain([""]) {
        if line.trim().is_empty() {
            sources.extend(stanza(&fields));
            fields.clear();
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = fields.last_mut() {
                value.push('\n');
                value.push_str(line);
            }
        } else if let Some((name, value)) = line.split_once(':') {
            fields.push((name.trim().to_lowercase(), value.to_owned()));
        }
    }
    sources
}

fn stanza(fields: &[(String, String)]) -> Option<Source> {
    let value = |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str());
    let words = |name: &str| -> Vec<String> {
        value(name).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    };
    if fields.is_empty() || value("enabled").is_some_and(|value| value.trim() == "no") {
        return None;
    }
    Some(Source {
        types: words("types"),
        uris: words("uris"),
        suites: words("suites"),
        components: words("components"),
        keyring: value("signed-by").map(str::trim).and_then(key_file),
    })
}

/// A key may also stand in the sources themselves, or be named by its fingerprint: then debootstrap's default serves.
fn key_file(value: &str) -> Option<PathBuf> {
    let path = Path::new(value.lines().next()?.split([',', ' ']).next()?);
    path.is_absolute().then(|| path.to_owned())
}

/// The proxies that apt is told to use, as the variables that debootstrap's downloads obey.
pub fn proxies() -> Vec<(&'static str, String)> {
    let Ok(dump) = output_of(Command::new("apt-config").arg("dump")) else { return Vec::new() };
    proxies_in(&dump)
}

fn proxies_in(dump: &str) -> Vec<(&'static str, String)> {
    let value = |key: &str| {
        let rest =
            dump.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" \"")?.strip_suffix("\";"));
        rest.filter(|value| !value.is_empty() && *value != "DIRECT").map(str::to_owned)
    };
    let known = [("http_proxy", "Acquire::http::Proxy"), ("https_proxy", "Acquire::https::Proxy")];
    known.into_iter().filter_map(|(variable, key)| Some((variable, value(key)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirror_in(sources: Vec<Source>) -> Option<Mirror> {
        sources.iter().find_map(|source| source.mirror_for("bookworm"))
    }

    #[test]
    fn one_line_sources_are_read_with_their_options_and_comments() {
        let text = "# deb http://old.test/debian bookworm main\n\
                    deb-src http://source.test/debian bookworm main\n\
                    deb http://security.test/debian bookworm-security main\n\
                    deb [arch=amd64 signed-by=/keys/debian.gpg] https://mirror.test/debian bookworm main contrib # best\n";
        let mirror = mirror_in(one_line(text)).unwrap();
        assert_eq!(mirror.uri, "https://mirror.test/debian");
        assert_eq!(mirror.keyring, Some("/keys/debian.gpg".into()));
    }

    #[test]
    fn deb822_sources_are_read_with_comments_and_continued_lines() {
        let text = "Types: deb\n# a comment inside\nURIs: http://other.test/debian\nSuites: bookworm-security\n\
                    Components: main\n\n\
                    Enabled: no\nTypes: deb\nURIs: http://off.test/debian\nSuites: bookworm\nComponents: main\n\n\
                    Types: deb deb-src\nURIs: http://mirror.test/debian\nSuites: bookworm\n bookworm-updates\n\
                    Components: main\nSigned-By: /keys/debian.gpg\n";
        let mirror = mirror_in(deb822(text)).unwrap();
        assert_eq!(
            mirror,
            Mirror { uri: "http://mirror.test/debian".into(), keyring: Some("/keys/debian.gpg".into()) }
        );
    }

    #[test]
    fn an_address_that_only_apt_understands_is_passed_over() {
        let text =
            "deb tor+http://hidden.test/debian bookworm main\ndeb http://mirror.test/debian bookworm main\n";
        assert_eq!(mirror_in(one_line(text)).unwrap().uri, "http://mirror.test/debian");
    }

    #[test]
    fn a_key_inside_the_sources_is_no_file() {
        assert_eq!(key_file("-----BEGIN PGP PUBLIC KEY BLOCK-----"), None);
        assert_eq!(key_file("/keys/a.gpg"), Some("/keys/a.gpg".into()));
    }

    #[test]
    fn the_release_is_debians_only() {
        let debian = "ID=debian\nVERSION_CODENAME=bookworm\n";
        assert_eq!(release_in(debian).unwrap(), "bookworm");
        assert!(release_in("ID=ubuntu\nVERSION_CODENAME=noble\n").is_err());
    }

    #[test]
    fn proxies_come_from_apts_configuration() {
        let dump = "Acquire::http \"\";\nAcquire::http::Proxy \"http://proxy.test:3142\";\nAcquire::https::Proxy \"DIRECT\";\n";
        assert_eq!(proxies_in(dump), [("http_proxy", "http://proxy.test:3142".to_owned())]);
    }
}
