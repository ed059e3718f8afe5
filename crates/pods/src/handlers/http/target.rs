//! Where a request goes, and where a redirect leads.

use std::fmt::Write;

use super::super::dial::host_and_port;
use super::url::Parts;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub tls: bool,
    /// Without brackets.
    pub host: String,
    /// `None`: the one that the scheme has.
    pub port: Option<u16>,
    /// With the query, escaped. As Go shows it: empty if nobody wrote one.
    pub path: String,
}

/// Why a `Location` leads nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Astray {
    /// It is no URL; Go's words for that.
    Unreadable(String),
    /// It names no host that could be asked.
    Elsewhere,
    /// It names this host, but no way to ask it.
    Unaskable { host: String, why: String },
}

impl Target {
    pub fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(), self.path)
    }

    /// `10.0.0.7:8443`
    pub fn authority(&self) -> String {
        match self.port {
            Some(port) => host_and_port(&self.host, port),
            None if self.host.contains(':') => format!("[{}]", self.host),
            None => self.host.clone(),
        }
    }

    pub fn port(&self) -> u16 {
        self.port.unwrap_or(if self.tls { 443 } else { 80 })
    }

    /// What a request asks for.
    pub fn sent(&self) -> String {
        if self.path.starts_with('/') { self.path.clone() } else { format!("/{}", self.path) }
    }

    /// Where a `Location` leads: a URL, `//host/path`, `/path`, `?query`, or a path beside this one.
    pub fn resolve(&self, location: &str) -> Result<Self, Astray> {
        let parts = Parts::read(location).map_err(Astray::Unreadable)?;
        if parts.scheme.is_empty() && parts.authority.is_none() {
            return Ok(Self { path: self.beside(&parts), ..self.clone() });
        }
        let named = parts.authority.filter(|authority| !authority.host.is_empty());
        let Some(authority) = named else { return Err(Astray::Elsewhere) };
        let unaskable = |why| Astray::Unaskable { host: authority.host.to_owned(), why };
        let tls = match parts.scheme.to_ascii_lowercase().as_str() {
            "" => self.tls,
            "http" => false,
            "https" => true,
            other => return Err(unaskable(format!("unsupported protocol scheme {other:?}"))),
        };
        let port = match authority.port {
            "" => None,
            port => match port.parse() {
                Ok(number) => Some(number),
                Err(_) => return Err(unaskable(format!("dial tcp: address {port}: invalid port"))),
            },
        };
        let path = escaped(&without_dots(parts.path), parts.query);
        Ok(Self { tls, host: authority.host.to_owned(), port, path })
    }

    /// A path and a query, seen from here.
    fn beside(&self, parts: &Parts<'_>) -> String {
        if parts.path.is_empty() && parts.query.is_none() {
            return self.path.clone();
        }
        let here = self.path.split('?').next().unwrap_or_default();
        let path = match parts.path {
            "" => here.to_owned(),
            path if path.starts_with('/') => path.to_owned(),
            path => format!("{}/{path}", here.rsplit_once('/').map_or("", |(folder, _)| folder)),
        };
        escaped(&without_dots(&path), parts.query)
    }
}

/// It says how to ask, and not only for what: a `Host` that was made up is not meant for it.
pub(super) fn is_absolute(location: &str) -> bool {
    Parts::read(location).is_ok_and(|parts| !parts.scheme.is_empty())
}

/// What to ask for where somebody wrote this as a path.
///
/// As upstream, it is read as a URL whose scheme and host do not count: of `//a/b` only `/b` is asked. What is no URL is a
/// path as a whole, its question mark and all.
pub(super) fn path_and_query(text: &str) -> String {
    match Parts::read(text) {
        Ok(parts) if !parts.is_opaque() => escaped(parts.path, parts.query),
        _ => {
            let mut out = String::from(if text.starts_with('/') { "" } else { "/" });
            escape(&mut out, text, |byte| in_path(byte) && byte != b'%');
            out
        }
    }
}

/// A path with a slash at its head, unless it is empty, and a query.
fn escaped(path: &str, query: Option<&str>) -> String {
    let mut out = String::with_capacity(path.len() + 1);
    if !path.is_empty() && !path.starts_with('/') {
        out.push('/');
    }
    escape(&mut out, path, in_path);
    if let Some(query) = query {
        out.push('?');
        escape(&mut out, query, |byte| in_path(byte) || matches!(byte, b'?' | b'#' | b'[' | b']'));
    }
    out
}

/// `/a/../b` is `/b`.
fn without_dots(path: &str) -> String {
    if path.is_empty() {
        return String::new();
    }
    let mut kept = Vec::new();
    let mut last = "";
    for segment in path.strip_prefix('/').unwrap_or(path).split('/') {
        match segment {
            "." => {}
            ".." => {
                kept.pop();
            }
            segment => kept.push(segment),
        }
        last = segment;
    }
    if matches!(last, "." | "..") {
        kept.push("");
    }
    format!("/{}", kept.join("/"))
}

fn in_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!'()*%".contains(&byte)
}

fn escape(out: &mut String, text: &str, stays: impl Fn(u8) -> bool) {
    for byte in text.bytes() {
        if stays(byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str) -> Target {
        Target { tls: false, host: "10.0.0.1".to_owned(), port: Some(8080), path: path.to_owned() }
    }

    #[test]
    fn a_path_is_sent_as_a_url_has_it() {
        let cases = [
            ("", "/"),
            ("/", "/"),
            ("/healthz", "/healthz"),
            ("healthz", "/healthz"),
            ("/healthz?deep=yes&a=b%20c#part", "/healthz?deep=yes&a=b%20c"),
            ("/with space/ü", "/with%20space/%C3%BC"),
            ("/kept%2Fescape", "/kept%2Fescape"),
            // Not a URL: nothing of it is taken for a query.
            ("/bad%zz?x=1", "/bad%25zz%3Fx=1"),
        ];
        for (written, sent) in cases {
            assert_eq!(target(&path_and_query(written)).sent(), sent, "{written}");
        }
    }

    #[test]
    fn what_a_path_says_of_a_host_is_left_out() {
        let cases = [
            ("//healthz", "", "/"),
            ("//healthz?x=1", "?x=1", "/?x=1"),
            ("//api/healthz", "/healthz", "/healthz"),
            ("///healthz", "///healthz", "///healthz"),
            ("http://x/y", "/y", "/y"),
            // No hosts, so no URLs.
            ("//a b/c", "//a%20b/c", "//a%20b/c"),
            ("//a:b/c?d", "//a:b/c%3Fd", "//a:b/c%3Fd"),
        ];
        for (written, shown, sent) in cases {
            let target = target(&path_and_query(written));
            assert_eq!(target.url(), format!("http://10.0.0.1:8080{shown}"), "{written}");
            assert_eq!(target.sent(), sent, "{written}");
        }
    }

    #[test]
    fn a_redirect_is_resolved_against_what_was_asked() {
        let from = target("/a/b?c=d");
        let cases = [
            ("/x", "http://10.0.0.1:8080/x"),
            ("x?y=z", "http://10.0.0.1:8080/a/x?y=z"),
            ("../x/.", "http://10.0.0.1:8080/x/"),
            ("?y=z", "http://10.0.0.1:8080/a/b?y=z"),
            ("", "http://10.0.0.1:8080/a/b?c=d"),
            ("//10.0.0.2/x#part", "http://10.0.0.2/x"),
            ("https://10.0.0.1/x", "https://10.0.0.1/x"),
            ("HTTP://user@[fd00::1]:81", "http://[fd00::1]:81"),
        ];
        for (location, expected) in cases {
            let led = from.resolve(location).map(|target| target.url());
            assert_eq!(led.as_deref(), Ok(expected), "{location}");
        }
        assert_eq!(from.resolve("https://10.0.0.1/x").map(|target| target.port()), Ok(443));
    }

    #[test]
    fn a_redirect_may_lead_nowhere() {
        let from = target("/");
        let unaskable = |why: &str| Astray::Unaskable { host: "10.0.0.1".to_owned(), why: why.to_owned() };
        let cases = [
            ("ftp://10.0.0.1/x", unaskable("unsupported protocol scheme \"ftp\"")),
            ("http://10.0.0.1:70000/", unaskable("dial tcp: address 70000: invalid port")),
            ("mailto:somebody", Astray::Elsewhere),
            ("http:/x", Astray::Elsewhere),
            (
                "http://10.0.0.1:notaport/x",
                Astray::Unreadable(
                    "parse \"http://10.0.0.1:notaport/x\": invalid port \":notaport\" after host".to_owned(),
                ),
            ),
        ];
        for (location, expected) in cases {
            assert_eq!(from.resolve(location), Err(expected), "{location}");
        }
    }
}
