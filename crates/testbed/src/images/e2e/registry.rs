//! The folder that agnhost's `fake-registry-server` serves: the pause image as `pause:testing`, in the layout that
//! upstream's agnhost image has below `/var/registry` (blobs and manifests by digest, a file for each tag).

use anyhow::Result;
use serde_json::{Value, json};

use super::super::archive::{Config, File, Layer, config_json, go_architecture};
use crate::sha256;

const ROOT: &str = "var/registry/pause";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// The folder's files for an image of one layer.
pub fn files(config: &Config<'_>, layer: &Layer) -> Result<Vec<File>> {
    let config = config_json(config, &[layer])?;
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": descriptor(CONFIG, &config),
        "layers": [descriptor(LAYER, layer.tar())],
    }))?;
    let mut entry = descriptor(MANIFEST, &manifest);
    entry["platform"] = json!({ "architecture": go_architecture(), "os": "linux" });
    let index = serde_json::to_vec(&json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [entry] }))?;
    let tag = format!("{}\n", digest(&index));
    Ok(vec![
        by_digest("blobs", layer.tar()),
        by_digest("blobs", &config),
        by_digest("manifests", &manifest),
        by_digest("manifests", &index),
        File::plain(&format!("{ROOT}/manifests/testing"), 0o644, tag),
    ])
}

fn descriptor(media_type: &str, data: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": digest(data), "size": data.len() })
}

fn digest(data: &[u8]) -> String {
    format!("sha256:{}", sha256::hex(data))
}

fn by_digest(folder: &str, data: &[u8]) -> File {
    let hex = sha256::hex(data);
    File::plain(&format!("{ROOT}/{folder}/sha256/{}/{hex}/data", &hex[..2]), 0o644, data)
}
