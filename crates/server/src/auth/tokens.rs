//! Bearer tokens: where a request carries one, and whose it is.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::memo::{Memo, Unanswered};
use super::with_authenticated_group;
use crate::ports::{Reviews, UserInfo};

/// A WebSocket client in a browser cannot set headers: it sends its token as the name of a subprotocol.
const SUBPROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// Those who wait may be anybody.
const MOST_WAITING: usize = 1024;

/// Bearer tokens, as the cluster knows them.
pub(crate) struct Tokens {
    reviews: Arc<dyn Reviews>,
    users: Memo<Option<Arc<UserInfo>>>,
    remembered_for: Duration,
}

impl Tokens {
    pub fn new(reviews: Arc<dyn Reviews>, remembered_for: Duration) -> Result<Self, String> {
        Ok(Self { reviews, users: Memo::new(MOST_WAITING)?, remembered_for })
    }

    /// Whom the request's tokens name. `None`: it has none. The header comes first; where it names nobody, a subprotocol
    /// may.
    pub async fn identify(&self, headers: &HeaderMap) -> Result<Option<Arc<UserInfo>>, Unanswered> {
        let by_header = match in_header(headers) {
            Some(token) => self.user(token).await.map(Some),
            None => Ok(None),
        };
        if let Ok(Some(_)) = by_header {
            return by_header;
        }
        match in_subprotocol(headers).map_err(Unanswered::Failed)? {
            Some(token) => self.user(&token).await.map(Some),
            None => by_header,
        }
    }

    async fn user(&self, token: &str) -> Result<Arc<UserInfo>, Unanswered> {
        let (reviews, remembered_for, owned) = (self.reviews.clone(), self.remembered_for, token.to_owned());
        let asking = async move {
            let user = reviews.token_review(&owned).await?;
            Ok((user.map(with_authenticated_group).map(Arc::new), remembered_for))
        };
        let user = self.users.get_or_ask(token.as_bytes(), asking).await?;
        user.ok_or_else(|| Unanswered::Failed("invalid bearer token".to_owned()))
    }
}

/// The token of the `Authorization` header. Anything but `Bearer` is none of ours.
fn in_header(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim();
    let mut parts = value.splitn(3, ' ');
    let scheme = parts.next()?;
    parts.next().filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

/// The token that a WebSocket client sends as a subprotocol. Upstream wants another one beside it, which the answer can
/// name.
fn in_subprotocol(headers: &HeaderMap) -> Result<Option<String>, String> {
    if !asks_for_websocket(headers) {
        return Ok(None);
    }
    let mut token = None;
    let mut others = 0;
    for protocol in subprotocols(headers) {
        let Some(encoded) = protocol.strip_prefix(SUBPROTOCOL) else {
            others += 1;
            continue;
        };
        if token.is_some() {
            return Err("multiple base64.bearer.authorization tokens specified".to_owned());
        }
        let decoded = URL_SAFE_NO_PAD
            .decode(encoded)
            .map_err(|_| "invalid base64.bearer.authorization token encoding".to_owned())?;
        let decoded =
            String::from_utf8(decoded).map_err(|_| "invalid base64.bearer.authorization token".to_owned())?;
        token = Some(decoded);
    }
    match token.filter(|token| !token.is_empty()) {
        Some(_) if others == 0 => Err("missing additional subprotocol".to_owned()),
        token => Ok(token),
    }
}

fn asks_for_websocket(headers: &HeaderMap) -> bool {
    let says = |name, wanted: &str| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(wanted))
    };
    says(header::CONNECTION, "upgrade") && says(header::UPGRADE, "websocket")
}

fn subprotocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).map(str::trim)
}

/// Takes all tokens out of a request that goes on: nobody behind the gate, the runtime's streaming server least of all,
/// has a use for them.
pub(super) fn strip(headers: &mut HeaderMap) {
    headers.remove(header::AUTHORIZATION);
    if subprotocols(headers).any(|protocol| protocol.starts_with(SUBPROTOCOL)) {
        let others: Vec<&str> =
            subprotocols(headers).filter(|protocol| !protocol.starts_with(SUBPROTOCOL)).collect();
        match HeaderValue::from_str(&others.join(",")) {
            Ok(others) => headers.insert(header::SEC_WEBSOCKET_PROTOCOL, others),
            Err(_) => headers.remove(header::SEC_WEBSOCKET_PROTOCOL),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            let name = axum::http::HeaderName::from_bytes(name.as_bytes()).expect("a name");
            headers.append(name, HeaderValue::from_str(value).expect("a value"));
        }
        headers
    }

    fn websocket(protocols: &[&str]) -> HeaderMap {
        let mut list = vec![("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")];
        list.extend(protocols.iter().map(|value| ("sec-websocket-protocol", *value)));
        headers(&list)
    }

    #[test]
    fn a_header_carries_a_token_only_as_bearer() {
        for (value, token) in [
            ("Bearer abc", Some("abc")),
            ("bearer abc", Some("abc")),
            ("  Bearer abc def ", Some("abc")),
            ("Bearer", None),
            ("Bearer  abc", None),
            ("Basic abc", None),
            ("", None),
        ] {
            assert_eq!(in_header(&headers(&[("authorization", value)])), token, "{value}");
        }
    }

    #[test]
    fn a_websocket_carries_a_token_as_a_subprotocol() {
        // "jane" and "joe" in base64.
        let (jane, joe) =
            ("base64url.bearer.authorization.k8s.io.amFuZQ", "base64url.bearer.authorization.k8s.io.am9l");
        let both = format!("{jane}, v5.channel.k8s.io");
        let found = |headers: &HeaderMap| in_subprotocol(headers);
        assert_eq!(found(&websocket(&[&both])), Ok(Some("jane".to_owned())));
        assert_eq!(found(&websocket(&["v5.channel.k8s.io", jane])), Ok(Some("jane".to_owned())));
        assert_eq!(found(&websocket(&["v5.channel.k8s.io"])), Ok(None));
        assert_eq!(found(&headers(&[("sec-websocket-protocol", &both)])), Ok(None), "no WebSocket");
        assert!(found(&websocket(&[jane])).is_err(), "there must be another one");
        assert!(found(&websocket(&[jane, joe, "v5.channel.k8s.io"])).is_err());
        for bad in ["base64url.bearer.authorization.k8s.io.a+b/", "base64url.bearer.authorization.k8s.io._w"]
        {
            assert!(found(&websocket(&[bad, "v5.channel.k8s.io"])).is_err(), "{bad}");
        }
    }

    #[test]
    fn no_token_goes_on() {
        let jane = "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.amFuZQ";
        let mut request = websocket(&[jane, "v5.channel.k8s.io"]);
        request.insert("authorization", HeaderValue::from_static("Bearer abc"));
        strip(&mut request);
        assert!(request.get("authorization").is_none());
        let left: Vec<_> = request.get_all("sec-websocket-protocol").iter().collect();
        assert_eq!(left, ["v4.channel.k8s.io,v5.channel.k8s.io"]);

        let mut untouched = websocket(&["a, b", "c"]);
        strip(&mut untouched);
        assert_eq!(untouched.get_all("sec-websocket-protocol").iter().count(), 2);
    }
}
