//! The value of an environment variable.

use std::fmt;

/// Mostly text, but a secret may hold any bytes, and a container gets them as they are. Printed with a sign
/// in place of what is no text.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct EnvValue(Vec<u8>);

impl EnvValue {
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for EnvValue {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<String> for EnvValue {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl From<&str> for EnvValue {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl fmt::Display for EnvValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&String::from_utf8_lossy(&self.0), f)
    }
}

impl fmt::Debug for EnvValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(&self.0), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_kept_and_still_prints() {
        let value = EnvValue::from(vec![b'a', 0xff]);
        assert_eq!(value.as_bytes(), [b'a', 0xff]);
        assert_eq!(format!("{value} {value:?}"), "a\u{fffd} \"a\u{fffd}\"");
        assert_eq!(EnvValue::from("ü"), EnvValue::from("ü".to_owned()));
    }
}
