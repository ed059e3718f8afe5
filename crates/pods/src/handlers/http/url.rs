//! URLs as Go's `net/url` reads them: what is asked for depends on it, and what cannot be read is told in its words.

use std::net::{Ipv4Addr, Ipv6Addr};

/// What a URL consists of, as it was written. The fragment is of no use here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts<'a> {
    /// Empty if there is none.
    pub scheme: &'a str,
    pub authority: Option<Authority<'a>>,
    pub path: &'a str,
    pub query: Option<&'a str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Authority<'a> {
    /// Without brackets.
    pub host: &'a str,
    /// Digits, or nothing.
    pub port: &'a str,
}

impl<'a> Parts<'a> {
    pub fn read(text: &'a str) -> Result<Self, String> {
        let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
        let parts = Self::without_fragment(before).map_err(|why| format!("parse {before:?}: {why}"))?;
        well_escaped(fragment).map_err(|why| format!("parse {text:?}: {why}"))?;
        Ok(parts)
    }

    fn without_fragment(text: &'a str) -> Result<Self, String> {
        if text.contains(|letter: char| letter.is_ascii_control()) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        let (scheme, rest) = split_scheme(text)?;
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query)),
            None => (rest, None),
        };
        if !rest.starts_with('/') {
            if !scheme.is_empty() {
                return Ok(Self { scheme, authority: None, path: rest, query });
            }
            if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
        }
        let (authority, path) = match rest.strip_prefix("//") {
            Some(after) if !scheme.is_empty() || !after.starts_with('/') => {
                let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
                (Some(Authority::read(scheme, authority)?), path)
            }
            _ => (None, rest),
        };
        well_escaped(path)?;
        Ok(Self { scheme, authority, path, query })
    }

    /// `mailto:somebody` and the like: what follows the scheme is no path.
    pub fn is_opaque(&self) -> bool {
        !self.scheme.is_empty() && self.authority.is_none() && !self.path.starts_with('/')
    }
}

impl<'a> Authority<'a> {
    /// `[user@]host[:port]`
    fn read(scheme: &str, text: &'a str) -> Result<Self, String> {
        let (user, place) = text.rsplit_once('@').unwrap_or(("", text));
        let authority = Self::without_user(scheme, place)?;
        if !user.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte)) {
            return Err("net/url: invalid userinfo".to_owned());
        }
        well_escaped(user)?;
        Ok(authority)
    }

    fn without_user(scheme: &str, text: &'a str) -> Result<Self, String> {
        match text.rfind('[') {
            Some(0) => return Self::in_brackets(text),
            Some(_) => return Err("invalid IP-literal".to_owned()),
            None => {}
        }
        // A host has no colons; Go has always been lenient about those of other schemes.
        let is_http = ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
        let colon = if is_http { text.find(':') } else { text.rfind(':') };
        let (host, port) = text.split_at(colon.unwrap_or(text.len()));
        let port = digits(port)?;
        valid_host(host)?;
        Ok(Self { host, port })
    }

    fn in_brackets(text: &'a str) -> Result<Self, String> {
        let inside = text.strip_prefix('[').unwrap_or(text);
        let (host, port) = inside.rsplit_once(']').ok_or("missing ']' in host")?;
        let port = digits(port)?;
        let address = host.split("%25").next().unwrap_or_default();
        if address.parse::<Ipv4Addr>().is_ok() {
            return Err("invalid IP-literal".to_owned());
        }
        match address.parse::<Ipv6Addr>() {
            Ok(_) => Ok(Self { host, port }),
            Err(_) => Err(format!("invalid host: ParseAddr({host:?}): unable to parse IP")),
        }
    }
}

/// A scheme, if there is one, and what follows it.
fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    let in_scheme = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '+' | '-' | '.');
    match text.split_once(|letter: char| !in_scheme(letter)) {
        Some(("", _)) if text.starts_with(':') => Err("missing protocol scheme".to_owned()),
        Some((scheme, rest))
            if text[scheme.len()..].starts_with(':')
                && scheme.starts_with(|first: char| first.is_ascii_alphabetic()) =>
        {
            Ok((scheme, rest))
        }
        _ => Ok(("", text)),
    }
}

/// What follows a host: nothing, or a colon and digits.
fn digits(after: &str) -> Result<&str, String> {
    let port = after.strip_prefix(':').unwrap_or(after);
    let has_colon = port.len() < after.len();
    if port.bytes().all(|byte| byte.is_ascii_digit()) && (has_colon || after.is_empty()) {
        return Ok(port);
    }
    Err(format!("invalid port {after:?} after host"))
}

fn valid_host(host: &str) -> Result<(), String> {
    let odd = |letter: &char| {
        letter.is_ascii() && !letter.is_ascii_alphanumeric() && !"-_.~!$&'()*+,;=:[]<>\"%".contains(*letter)
    };
    match host.chars().find(odd) {
        Some(letter) => Err(format!("invalid character {:?} in host name", letter.to_string())),
        None => well_escaped(host),
    }
}

/// Every `%` is followed by two digits.
fn well_escaped(text: &str) -> Result<(), String> {
    for (at, _) in text.match_indices('%') {
        let escape = &text.as_bytes()[at..text.len().min(at + 3)];
        if escape.len() < 3 || !escape[1..].iter().all(u8::is_ascii_hexdigit) {
            return Err(format!("invalid URL escape {:?}", String::from_utf8_lossy(escape)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_go_cannot_read_is_refused_in_its_words() {
        let cases = [
            ("http://10.0.0.1:notaport/", "invalid port \":notaport\" after host"),
            ("http://10.0.0.1:1:2/", "invalid port \":1:2\" after host"),
            ("//a b/c", "invalid character \" \" in host name"),
            ("http://[fd00::1/", "missing ']' in host"),
            ("http://[10.0.0.1]/", "invalid IP-literal"),
            (":80/x", "missing protocol scheme"),
            ("1:80/x", "first path segment in URL cannot contain colon"),
            ("/x%zz", "invalid URL escape \"%zz\""),
            ("/x%", "invalid URL escape \"%\""),
        ];
        for (text, why) in cases {
            assert_eq!(Parts::read(text), Err(format!("parse {text:?}: {why}")));
        }
        assert_eq!(Parts::read("/x#%"), Err("parse \"/x#%\": invalid URL escape \"%\"".to_owned()));
    }

    #[test]
    fn the_rest_is_taken_apart() {
        let host = |host, port| Some(Authority { host, port });
        let parts = |scheme, authority, path, query| Ok(Parts { scheme, authority, path, query });
        let cases = [
            ("", parts("", None, "", None)),
            ("/a?b=c?#d", parts("", None, "/a", Some("b=c?"))),
            ("//a:1/b", parts("", host("a", "1"), "/b", None)),
            ("//a?b", parts("", host("a", ""), "", Some("b"))),
            ("///a", parts("", None, "///a", None)),
            ("HTTP:///a", parts("HTTP", host("", ""), "/a", None)),
            ("https://u:p@[fd00::1]:81", parts("https", host("fd00::1", "81"), "", None)),
            ("http:/a", parts("http", None, "/a", None)),
        ];
        for (text, expected) in cases {
            assert_eq!(Parts::read(text), expected, "{text}");
        }
        assert!(Parts::read("mailto:somebody").unwrap().is_opaque());
        assert!(!Parts::read("http:/a").unwrap().is_opaque());
    }
}
