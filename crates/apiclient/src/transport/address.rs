//! Where the API server is.

use http::Uri;
use http::uri::{Authority, Scheme};

/// `https://10.0.0.1:6443`, possibly with a path before all others.
#[derive(Clone, Debug)]
pub struct Address {
    pub secure: bool,
    pub authority: Authority,
    /// Without its last slash; empty for most.
    prefix: String,
}

impl Address {
    /// Without a scheme it is HTTPS if something is said about certificates, as upstream.
    pub fn parse(server: &str, certificates: bool) -> Result<Self, String> {
        let wrong = || format!("clusters: server: {server:?} is no address like https://10.0.0.1:6443");
        let uri: Uri = match server.split_once("://") {
            Some(_) => server.parse(),
            None => format!("{}://{server}", if certificates { "https" } else { "http" }).parse(),
        }
        .map_err(|_| wrong())?;
        let secure = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(wrong()),
        };
        let authority = uri.authority().filter(|authority| !authority.host().is_empty()).ok_or_else(wrong)?;
        if authority.as_str().contains('@') {
            return Err("clusters: server: credentials belong to the user, not into the address".to_owned());
        }
        if uri.query().is_some() {
            return Err(wrong());
        }
        let prefix = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { secure, authority: authority.clone(), prefix })
    }

    /// Without the brackets of an IPv6 address.
    pub fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }

    pub fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.secure { 443 } else { 80 })
    }

    pub fn url(&self, path: &str) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}{}{path}", self.authority, self.prefix)
    }

    /// As HTTP/1.1 says it.
    pub fn path(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_understood_as_upstream_does() {
        let address = Address::parse("https://[::1]:6443/k8s/", false).expect("IPv6 with a path");
        assert_eq!((address.host(), address.port()), ("::1", 6443));
        assert_eq!(address.url("/api"), "https://[::1]:6443/k8s/api");
        assert_eq!(Address::parse("api.test", true).expect("a name").url("/api"), "https://api.test/api");
        assert_eq!(Address::parse("http://api.test", true).expect("plain").port(), 80);
        for wrong in ["ftp://api.test", "https://", "https://u:p@api.test"] {
            assert!(Address::parse(wrong, true).is_err(), "{wrong}");
        }
    }
}
