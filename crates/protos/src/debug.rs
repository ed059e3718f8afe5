//! Debug for messages that hold secrets: a log line shows whether a secret was there, never the secret.

use std::fmt;

use std::collections::BTreeMap;

use crate::cri::AuthConfig;
use crate::csi::{NodeExpandVolumeRequest, NodePublishVolumeRequest, NodeStageVolumeRequest};

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

impl fmt::Debug for NodeStageVolumeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeStageVolumeRequest")
            .field("volume_id", &self.volume_id)
            .field("staging_target_path", &self.staging_target_path)
            .field("volume_capability", &self.volume_capability)
            .field("publish_context", &self.publish_context)
            .field("volume_context", &self.volume_context)
            .field("secrets", &Keys(&self.secrets))
            .finish()
    }
}

impl fmt::Debug for NodePublishVolumeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodePublishVolumeRequest")
            .field("volume_id", &self.volume_id)
            .field("staging_target_path", &self.staging_target_path)
            .field("target_path", &self.target_path)
            .field("volume_capability", &self.volume_capability)
            .field("readonly", &self.readonly)
            .field("publish_context", &self.publish_context)
            // Tokens are among it.
            .field("volume_context", &Keys(&self.volume_context))
            .field("secrets", &Keys(&self.secrets))
            .finish()
    }
}

impl fmt::Debug for NodeExpandVolumeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeExpandVolumeRequest")
            .field("volume_id", &self.volume_id)
            .field("volume_path", &self.volume_path)
            .field("capacity_range", &self.capacity_range)
            .field("staging_target_path", &self.staging_target_path)
            .field("volume_capability", &self.volume_capability)
            .field("secrets", &Keys(&self.secrets))
            .finish()
    }
}

/// Names without what they stand for.
struct Keys<'a>(&'a BTreeMap<String, String>);

impl fmt::Debug for Keys<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
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
    use crate::csi::{NodePublishVolumeRequest, NodeStageVolumeRequest};

    #[test]
    fn secrets_for_drivers_are_not_printed() {
        let secrets = || [("key".to_owned(), "s3cret".to_owned())].into();
        let stage = NodeStageVolumeRequest { secrets: secrets(), ..Default::default() };
        let publish =
            NodePublishVolumeRequest { secrets: secrets(), volume_context: secrets(), ..Default::default() };
        let printed = format!("{stage:?} {publish:?}");
        assert!(!printed.contains("s3cret") && printed.contains("key"), "{printed}");
    }

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
