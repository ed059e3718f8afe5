//! Who makes a request, and how the API server is told.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use ring::digest;
use serde_json::Value;

use super::subject::{self, Subject};
use crate::secrets::hex;

/// All headers that speak for someone else; what a client sends of them is removed.
const SPEAKING_FOR_OTHERS: &str = "x-remote-";

/// A client with a certificate that was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certified {
    subject: Subject,
    /// As upstream's authenticator has it since v1.32: an extra of every user with a certificate.
    fingerprint: String,
}

impl Certified {
    pub fn of(certificate: &[u8]) -> Option<Certified> {
        let fingerprint = digest::digest(&digest::SHA256, certificate);
        let fingerprint = format!("X509SHA256={}", hex(fingerprint.as_ref()));
        Some(Certified { subject: subject::of(certificate)?, fingerprint })
    }
}

/// The name that the record shows and rules see. Of a token it is what the token says of itself; whether that is true,
/// the API server decides.
pub fn user(certified: Option<&Certified>, headers: &HeaderMap) -> String {
    if let Some(certified) = certified {
        return certified.subject.user.clone();
    }
    let Some(authorization) = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()) else {
        return "system:anonymous".to_owned();
    };
    let Some(token) = authorization.strip_prefix("Bearer ") else { return "unknown".to_owned() };
    subject_of_token(token).unwrap_or_else(|| "unknown token".to_owned())
}

fn subject_of_token(token: &str) -> Option<String> {
    let parts: Vec<&str> = token.trim().split('.').collect();
    match parts[..] {
        [_, claims, _] => {
            let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
            let claims: Value = serde_json::from_slice(&claims).ok()?;
            claims["sub"].as_str().map(str::to_owned)
        }
        // A bootstrap token: its first half is its name.
        [id, secret] if id.len() == 6 && secret.len() == 16 => Some(format!("system:bootstrap:{id}")),
        _ => None,
    }
}

/// Removes what a client may not say, and says who it is.
pub fn speak_for(certified: Option<&Certified>, headers: &mut HeaderMap) {
    let spoofed: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with(SPEAKING_FOR_OTHERS)).cloned().collect();
    for name in spoofed {
        headers.remove(name);
    }
    let Some(Certified { subject, fingerprint }) = certified else { return };
    let mut say = |name: &'static str, value: &str| {
        // Bytes, because names need not be ASCII. What no header can hold is nobody's name.
        if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
            headers.append(HeaderName::from_static(name), value);
        }
    };
    say("x-remote-user", &subject.user);
    for group in &subject.groups {
        say("x-remote-group", group);
    }
    say("x-remote-extra-authentication.kubernetes.io%2fcredential-id", fingerprint);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_name_their_subject() {
        let bearer = |token: &str| {
            let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
            user(None, &HeaderMap::from_iter([(AUTHORIZATION, value)]))
        };
        let claims = URL_SAFE_NO_PAD.encode(r#"{"sub":"system:serviceaccount:ns:sa"}"#);
        assert_eq!(bearer(&format!("e30.{claims}.sig")), "system:serviceaccount:ns:sa");
        assert_eq!(bearer("abcdef.0123456789abcdef"), "system:bootstrap:abcdef");
        assert_eq!(bearer("static"), "unknown token");
        assert_eq!(user(None, &HeaderMap::new()), "system:anonymous");
    }
}
