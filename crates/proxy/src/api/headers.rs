//! Headers that are about one connection and not about the request.

use http::header::{
    CONNECTION, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Uri, Version};

/// Whether the client wants to speak something else over this connection: SPDY or WebSocket, for `exec`.
pub fn is_upgrade(parts: &Parts) -> bool {
    let connection = parts.headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let mut options = connection.flat_map(|value| value.split(','));
    parts.version == Version::HTTP_11
        && parts.headers.contains_key(UPGRADE)
        && options.any(|option| option.trim().eq_ignore_ascii_case("upgrade"))
}

/// Removes what ends here. An upgrade keeps its two headers, because the next hop must see them.
pub fn remove_hop_by_hop(headers: &mut HeaderMap, upgrade: bool) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .filter(|name| *name != UPGRADE)
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in [CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING] {
        headers.remove(name);
    }
    for name in ["keep-alive", "proxy-connection"] {
        headers.remove(name);
    }
    if upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    } else {
        headers.remove(UPGRADE);
    }
}

/// Makes an HTTP/1.1 request to the API server of what came, in whatever version.
pub fn readdress(parts: &mut Parts, upstream: &Authority) {
    if !parts.headers.contains_key(HOST)
        && let Some(authority) = parts.uri.authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        parts.headers.insert(HOST, host);
    }
    let path = parts.uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
    let mut uri = http::uri::Parts::default();
    uri.scheme = Some(Scheme::HTTPS);
    uri.authority = Some(upstream.clone());
    uri.path_and_query = Some(path);
    // All three parts are there and valid.
    parts.uri = Uri::from_parts(uri).unwrap_or_default();
    parts.version = Version::HTTP_11;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_keeps_what_it_needs_and_nothing_else() {
        let request = http::Request::get("/exec")
            .header("connection", "Keep-Alive, Upgrade, x-one")
            .header("keep-alive", "timeout=5")
            .header("x-one", "hop")
            .header("x-two", "end")
            .header("upgrade", "SPDY/3.1")
            .body(());
        let (mut parts, ()) = request.unwrap().into_parts();
        assert!(is_upgrade(&parts));
        remove_hop_by_hop(&mut parts.headers, true);
        let mut names: Vec<&str> = parts.headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["connection", "upgrade", "x-two"]);
        remove_hop_by_hop(&mut parts.headers, false);
        assert!(!is_upgrade(&parts) && parts.headers.len() == 1);
    }
}
