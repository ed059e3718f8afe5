//! Runtime classes: which handler of the runtime a name means.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::mirror::{Key, Mirror};
use crate::objects::ObjectError;
use crate::port::Lane;
use crate::reflector::Reflection;

/// How long the first one that asks waits for the list.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn reflection() -> Reflection {
    Reflection {
        path: "/apis/node.k8s.io/v1/runtimeclasses".to_owned(),
        selector: None,
        lane: Lane::Main,
        timeout: (300, 600),
    }
}

pub(super) fn read(object: &[u8]) -> Result<(Key, Option<String>), serde_json::Error> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
        #[serde(default)]
        handler: String,
    }
    #[derive(Deserialize)]
    struct Metadata {
        name: Arc<str>,
    }
    let Object { metadata, handler } = serde_json::from_slice(object)?;
    Ok(((Arc::from(""), metadata.name), Some(handler)))
}

pub(super) async fn handler(mirror: &Mirror<String>, class: &str) -> Result<String, ObjectError> {
    if !mirror.known_within(PATIENCE).await {
        let why = "the runtime classes have not been read yet";
        return Err(ObjectError::Unavailable(format!("failed to lookup RuntimeClass {class}: {why}")));
    }
    let key: Key = (Arc::from(""), Arc::from(class));
    let missing = || ObjectError::NotFound(format!("runtimeclass.node.k8s.io {class:?} not found"));
    mirror.items().get(&key).cloned().ok_or_else(missing)
}
