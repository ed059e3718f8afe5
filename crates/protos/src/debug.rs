//! Debug for messages that hold secrets: a log line shows whether a secret was there, never the secret.

use std::fmt;

use crate::cri::AuthConfig;

impl fmt::Debug for AuthConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthConfig")
            .field("username", &self.username)
            .field("password", &Hidden(&self.password))
            .field("auth", &Hidden(&self.auth))
            .field("server_address", &self.server_address)
            .field("identity_token", &Hidden(&self.identity_token))
            .field("registry_token", &Hidden(&self.registry_token))
            .finish()
    }
}

struct Hidden<'a>(&'a str);

impl fmt::Debug for Hidden<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "hidden" })
    }
}

#[cfg(test)]
mod tests {
    use crate::cri::{AuthConfig, PullImageRequest};

    #[test]
    fn credentials_are_not_printed() {
        let auth = AuthConfig {
            username: "robot".into(),
            password: "s3cret-1".into(),
            auth: "s3cret-2".into(),
            server_address: "registry.example".into(),
            identity_token: "s3cret-3".into(),
            registry_token: String::new(),
        };
        let printed = format!("{:?}", PullImageRequest { auth: Some(auth), ..Default::default() });
        assert!(!printed.contains("s3cret"), "{printed}");
        assert!(
            printed.contains("password: hidden") && printed.contains("registry_token: none"),
            "{printed}"
        );
    }
}
