//! What is written instead of a secret: a short keyed hash. Two records that were made with the same salt can be
//! compared, and nobody can look the value up without it.

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

/// Whether values that are often, but not always, secret (environment variables, verbose answers of the runtime) are
/// written. What is always secret (passwords, tokens, the data of a `Secret`) never is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Values {
    Shown,
    #[default]
    Hashed,
}

/// The key of the hashes. Give two proxies clones of one, and equal secrets have equal hashes.
#[derive(Clone)]
pub struct Salt(hmac::Key);

impl Salt {
    pub fn new(salt: &str) -> Salt {
        Salt(hmac::Key::new(hmac::HMAC_SHA256, salt.as_bytes()))
    }

    /// One of its own for this run.
    pub fn random() -> Salt {
        let mut bytes = [0; 32];
        // If the kernel has no randomness, a fixed key still keeps secrets out of the record.
        let _ = SystemRandom::new().fill(&mut bytes);
        Salt(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
    }

    /// `sha256:` and eight hex digits; an empty value stays empty, because its absence is no secret.
    pub fn hash(&self, value: &[u8]) -> String {
        if value.is_empty() {
            return String::new();
        }
        let tag = hmac::sign(&self.0, value);
        format!("sha256:{}", hex(&tag.as_ref()[..4]))
    }
}

impl std::fmt::Debug for Salt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Salt")
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_have_equal_hashes_under_one_salt_only() {
        let (one, other) = (Salt::new("one"), Salt::new("other"));
        assert_eq!(one.hash(b"s3cret"), one.clone().hash(b"s3cret"));
        assert_ne!(one.hash(b"s3cret"), other.hash(b"s3cret"));
        assert_ne!(one.hash(b"s3cret"), one.hash(b"s3cres"));
        assert_ne!(Salt::random().hash(b"s3cret"), Salt::random().hash(b"s3cret"));
        assert_eq!(one.hash(b""), "");
    }
}
