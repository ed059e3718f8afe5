//! Where a request goes, and where a redirect leads.

use std::fmt::Write;

use super::super::dial::host_and_port;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub tls: bool,
    /// Without brackets.
    pub host: String,
    pub port: u16,
    /// With the query, and fit to be sent.
    pub path: String,
}

impl Target {
    pub fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}{}", host_and_port(&self.host, self.port), self.path)
    }

    /// Where a `Location` leads: a URL, `//host/path`, `/path`, `?query`, or a path beside this one. `None` if it is
    /// nothing that can be asked.
    pub fn resolve(&self, location: &str) -> Option<Self> {
        let location = location.split('#').next().unwrap_or_default();
        if let Some(rest) = location.strip_prefix("//") {
            return parse(self.tls, rest);
        }
        if let Some((scheme, rest)) = location.split_once("://") {
            return match scheme.to_ascii_lowercase().as_str() {
                "http" => parse(false, rest),
                "https" => parse(true, rest),
                _ => None,
            };
        }
        let here = self.path.split('?').next().unwrap_or_default();
        let path = match location.as_bytes().first() {
            None => self.path.clone(),
            Some(b'/') => path_and_query(location),
            Some(b'?') => path_and_query(&format!("{here}{location}")),
            Some(_) => {
                let folder = here.rsplit_once('/').map_or("", |(folder, _)| folder);
                path_and_query(&format!("{folder}/{location}"))
            }
        };
        Some(Self { path, ..self.clone() })
    }
}

/// Whether a `Location` says whom to ask, and not only for what.
pub(super) fn names_a_host(location: &str) -> bool {
    location.starts_with("//") || location.split(['?', '#']).next().is_some_and(|l| l.contains("://"))
}

/// `[user@]host[:port][/path]`
fn parse(tls: bool, text: &str) -> Option<Target> {
    let end = text.find(['/', '?']).unwrap_or(text.len());
    let (authority, path) = text.split_at(end);
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => authority.find(':').map_or((authority, ""), |colon| authority.split_at(colon)),
    };
    let port = match port.strip_prefix(':').unwrap_or_default() {
        "" => {
            if tls {
                443
            } else {
                80
            }
        }
        number => number.parse().ok()?,
    };
    if host.is_empty() {
        return None;
    }
    Some(Target { tls, host: host.to_owned(), port, path: path_and_query(path) })
}

/// What to send for a path that somebody wrote: escaped where it has to be, without a fragment, with a slash at its
/// head. A path that is no URL is sent as it is, its question mark and all.
pub(super) fn path_and_query(text: &str) -> String {
    let (without_fragment, _) = text.split_once('#').unwrap_or((text, ""));
    let (path, query) = match without_fragment.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (without_fragment, None),
    };
    let mut out = String::with_capacity(text.len() + 1);
    if !text.starts_with('/') {
        out.push('/');
    }
    if !is_escaped_well(path) || text.contains(|c: char| c.is_ascii_control()) {
        escape(&mut out, text, |byte| in_path(byte) && byte != b'%');
        return out;
    }
    escape(&mut out, path, in_path);
    if let Some(query) = query {
        out.push('?');
        escape(&mut out, query, |byte| in_path(byte) || matches!(byte, b'?' | b'#' | b'[' | b']'));
    }
    out
}

/// Every `%` is followed by two digits.
fn is_escaped_well(text: &str) -> bool {
    let mut pieces = text.split('%');
    pieces.next();
    pieces.all(|after| after.len() >= 2 && after.bytes().take(2).all(|byte| byte.is_ascii_hexdigit()))
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
            assert_eq!(path_and_query(written), sent, "{written}");
        }
    }

    #[test]
    fn a_redirect_is_resolved_against_what_was_asked() {
        let from =
            Target { tls: false, host: "10.0.0.1".to_owned(), port: 8080, path: "/a/b?c=d".to_owned() };
        let cases = [
            ("/x", Some("http://10.0.0.1:8080/x")),
            ("x?y=z", Some("http://10.0.0.1:8080/a/x?y=z")),
            ("?y=z", Some("http://10.0.0.1:8080/a/b?y=z")),
            ("", Some("http://10.0.0.1:8080/a/b?c=d")),
            ("//10.0.0.2/x#part", Some("http://10.0.0.2:80/x")),
            ("https://10.0.0.1/x", Some("https://10.0.0.1:443/x")),
            ("HTTP://user@[fd00::1]:81", Some("http://[fd00::1]:81/")),
            ("ftp://10.0.0.1/x", None),
            ("http://10.0.0.1:notaport/x", None),
        ];
        for (location, expected) in cases {
            let led = from.resolve(location).map(|target| target.url());
            assert_eq!(led.as_deref(), expected, "{location}");
        }
    }
}
