//! kubeconfig files with everything in them, so that they work from any folder.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::pki::Identity;

/// Writes the file that lets `identity` talk to `server`. JSON is YAML enough.
pub fn write(path: &Path, server: &str, ca: &str, user: &str, identity: &Identity) -> Result<()> {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "crablet-testbed",
            "cluster": { "server": server, "certificate-authority-data": STANDARD.encode(ca) },
        }],
        "users": [{
            "name": user,
            "user": {
                "client-certificate-data": STANDARD.encode(&identity.certificate),
                "client-key-data": STANDARD.encode(&identity.key),
            },
        }],
        "contexts": [{ "name": user, "context": { "cluster": "crablet-testbed", "user": user } }],
        "current-context": user,
    });
    fs::write(path, format!("{config:#}\n")).with_context(|| format!("cannot write `{}`", path.display()))
}
