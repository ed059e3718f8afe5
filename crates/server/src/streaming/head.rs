//! What a request's head says about upgrades. As lenient as upstream is, so that the same requests take the same way.

use axum::http::{HeaderMap, HeaderName, header};

pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("x-stream-protocol-version");
pub const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Exec and attach with half-closes.
pub const V5: &str = "v5.channel.k8s.io";
const TUNNEL_PREFIX: &str = "SPDY/3.1+";
const KUBERNETES_SUFFIX: &str = ".k8s.io";
/// Browsers cannot set `Authorization`, so the token is said to be a protocol.
const BEARER_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

pub fn is_upgrade(headers: &HeaderMap) -> bool {
    headers.get_all(header::CONNECTION).iter().any(|value| contains(value.as_bytes(), "upgrade"))
}

pub fn is_websocket(headers: &HeaderMap) -> bool {
    let websocket = |value: &header::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"websocket");
    headers.get(header::UPGRADE).is_some_and(websocket) && is_upgrade(headers)
}

/// Only the first header of that name counts, as upstream has it.
pub fn wants_v5(headers: &HeaderMap) -> bool {
    is_websocket(headers) && first_protocols(headers).any(|protocol| protocol == V5)
}

pub fn wants_tunnel(headers: &HeaderMap) -> bool {
    is_websocket(headers) && first_protocols(headers).any(|protocol| tunnelled(protocol).is_some())
}

/// The SPDY protocols that a client offers inside a tunnel.
pub fn tunnelled_protocols(headers: &HeaderMap) -> Vec<String> {
    first_protocols(headers).filter_map(tunnelled).map(str::to_owned).collect()
}

/// The tunnel's name for a SPDY protocol.
pub fn tunnel_of(protocol: &str) -> String {
    format!("{TUNNEL_PREFIX}{protocol}")
}

fn tunnelled(protocol: &str) -> Option<&str> {
    protocol.strip_prefix(TUNNEL_PREFIX).filter(|inner| inner.ends_with(KUBERNETES_SUFFIX))
}

pub fn first_protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let value = headers.get(header::SEC_WEBSOCKET_PROTOCOL).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().split(',').map(str::trim).filter(|protocol| !protocol.is_empty())
}

/// Takes out what the runtime must not see: who the client is has been settled.
pub fn without_credentials(headers: &mut HeaderMap) {
    headers.remove(header::AUTHORIZATION);
    let carries = |value: &header::HeaderValue| contains(value.as_bytes(), BEARER_PREFIX);
    if !headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().any(carries) {
        return;
    }
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL);
    let protocols = values.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    let kept: Vec<_> =
        protocols.map(str::trim).filter(|protocol| !protocol.starts_with(BEARER_PREFIX)).collect();
    let kept = header::HeaderValue::from_str(&kept.join(","));
    headers.remove(header::SEC_WEBSOCKET_PROTOCOL);
    if let Ok(kept) = kept
        && !kept.is_empty()
    {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, kept);
    }
}

/// Without regard to case. `wanted` is in lower case.
pub fn contains(value: &[u8], wanted: &str) -> bool {
    value.windows(wanted.len()).any(|window| window.eq_ignore_ascii_case(wanted.as_bytes()))
}
