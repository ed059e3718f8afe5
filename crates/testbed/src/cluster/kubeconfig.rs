//! kubeconfig files with everything in them, so that they work from any folder.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::pki::Identity;

/// Writes the file that lets `identity` talk to `server`.
pub fn write(path: &Path, server: &str, ca: &str, user: &str, identity: &Identity) -> Result<()> {
    let credentials = json!({
        "client-certificate-data": STANDARD.encode(&identity.certificate),
        "client-key-data": STANDARD.encode(&identity.key),
    });
    write_for(path, server, ca, user, &credentials)
}

/// The same for whoever has the bearer token.
pub fn write_for_token(path: &Path, server: &str, ca: &str, token: &str) -> Result<()> {
    write_for(path, server, ca, "bearer", &json!({ "token": token }))
}

/// JSON is YAML enough.
fn write_for(path: &Path, server: &str, ca: &str, user: &str, credentials: &Value) -> Result<()> {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "crablet-testbed",
            "cluster": { "server": server, "certificate-authority-data": STANDARD.encode(ca) },
        }],
        "users": [{ "name": user, "user": credentials }],
        "contexts": [{ "name": user, "context": { "cluster": "crablet-testbed", "user": user } }],
        "current-context": user,
    });
    let mut file = fs::OpenOptions::new();
    file.write(true).create(true).truncate(true).mode(0o600);
    let written = file.open(path).and_then(|mut file| writeln!(file, "{config:#}"));
    written.with_context(|| format!("cannot write `{}`", path.display()))
}
