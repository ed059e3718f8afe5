//! The little that is read of objects, and the queries that are sent.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::port::{ApiError, ErrorKind};

/// Says which object it is and of which version. All the rest is skipped.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Identity {
    pub name: String,
    pub namespace: String,
    pub resource_version: String,
}

pub(super) fn identity(object: &[u8]) -> Result<Identity, ApiError> {
    #[derive(Deserialize)]
    struct Object {
        #[serde(default)]
        metadata: Identity,
    }
    serde_json::from_slice::<Object>(object)
        .map(|object| object.metadata)
        .map_err(|error| unreadable("object", &error))
}

/// A bookmark: its version, and whether the initial events end here.
pub(super) fn bookmark(object: &[u8]) -> Result<(String, bool), ApiError> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Annotations {
        #[serde(rename = "k8s.io/initial-events-end")]
        initial_events_end: String,
    }
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Metadata {
        resource_version: String,
        annotations: Option<Annotations>,
    }
    #[derive(Deserialize)]
    struct Object {
        #[serde(default)]
        metadata: Metadata,
    }
    let metadata =
        serde_json::from_slice::<Object>(object).map_err(|error| unreadable("bookmark", &error))?.metadata;
    let end = metadata.annotations.is_some_and(|annotations| annotations.initial_events_end == "true");
    Ok((metadata.resource_version, end))
}

/// A list: its version and its items, each in memory of its own, so that keeping one does not keep all.
pub(super) fn list(body: &[u8]) -> Result<(String, Vec<Bytes>), ApiError> {
    #[derive(Deserialize)]
    struct List<'a> {
        #[serde(default)]
        metadata: Identity,
        #[serde(borrow, default)]
        items: Option<Vec<&'a RawValue>>,
    }
    let list: List<'_> = serde_json::from_slice(body).map_err(|error| unreadable("list", &error))?;
    let items = list.items.unwrap_or_default();
    let items = items.into_iter().map(|item| Bytes::copy_from_slice(item.get().as_bytes())).collect();
    Ok((list.metadata.resource_version, items))
}

fn unreadable(what: &str, error: &serde_json::Error) -> ApiError {
    ApiError::new(ErrorKind::Other, format!("the server sent a {what} that cannot be read: {error}"))
}

/// A value as it stands in a query.
pub(super) fn encoded(value: &str) -> String {
    let mut text = String::with_capacity(value.len() + 8);
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}
