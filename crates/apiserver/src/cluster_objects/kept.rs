//! Config maps and secrets as they are kept: the JSON of what pods can see of them, nothing else.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// An object without the parts that can be larger than its content: managed fields, the last applied configuration.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Slim<'a> {
    #[serde(default)]
    metadata: SlimMetadata,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    binary_data: Option<&'a RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    immutable: Option<bool>,
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimMetadata {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
}

/// An object that has been seen.
#[derive(Clone)]
pub(super) struct Kept {
    pub json: Bytes,
    pub version: Box<str>,
    pub immutable: bool,
}

impl Kept {
    pub fn of(object: &[u8]) -> Result<Self, serde_json::Error> {
        let slim: Slim<'_> = serde_json::from_slice(object)?;
        let json = Bytes::from(serde_json::to_vec(&slim)?);
        let immutable = slim.immutable == Some(true);
        Ok(Self { json, version: slim.metadata.resource_version.into_boxed_str(), immutable })
    }

    /// Whether this is an older state than another. Versions that are no numbers are never older.
    pub fn is_older_than(&self, other: &Self) -> bool {
        let number = |version: &str| version.parse::<u64>().ok();
        matches!((number(&self.version), number(&other.version)), (Some(own), Some(other)) if own < other)
    }
}
