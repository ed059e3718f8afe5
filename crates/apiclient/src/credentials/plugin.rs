//! One run of a credential plugin: what it is told and what it says.

use std::process::Stdio;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::time;

use crate::kubeconfig::{Cluster, ExecPlugin};

const DEADLINE: Duration = Duration::from_secs(60);
/// A token and a certificate chain are far smaller.
const MAX_OUTPUT: u64 = 1 << 20;
/// What of its complaints is told.
const MAX_COMPLAINT: u64 = 4 << 10;

/// What a plugin gave.
pub struct Given {
    pub token: Option<String>,
    /// With its key, both in PEM.
    pub certificate: Option<(String, String)>,
    pub until: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    status: Option<Status>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    expiration_timestamp: Option<Timestamp>,
    token: String,
    client_certificate_data: String,
    client_key_data: String,
}

pub async fn run(plugin: &ExecPlugin, cluster: &Cluster) -> Result<Given, String> {
    let command = &plugin.command;
    let mut child = Command::new(command)
        .args(&plugin.args)
        .envs(plugin.env.iter().map(|(name, value)| (name, value)))
        .env("KUBERNETES_EXEC_INFO", info(plugin, cluster)?.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| {
            with_hint(plugin, format!("exec: executable {command} cannot be started: {error}"))
        })?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let work = async { tokio::join!(drain(stdout, MAX_OUTPUT), drain(stderr, MAX_COMPLAINT), child.wait()) };
    let (output, complaint, status) = time::timeout(DEADLINE, work)
        .await
        .map_err(|_| format!("exec: executable {command} did not end within {} s", DEADLINE.as_secs()))?;
    let status = status.map_err(|error| format!("exec: executable {command}: {error}"))?;
    if !status.success() {
        let complaint = String::from_utf8_lossy(&complaint);
        let how = match status.code() {
            Some(code) => format!("failed with exit code {code}"),
            None => format!("was ended: {status}"),
        };
        return Err(format!("exec: executable {command} {how}: {}", complaint.trim()));
    }
    given(plugin, &output)
}

/// Reads to the end, keeps the beginning: nobody should hang because nobody reads what it says.
async fn drain(pipe: Option<impl AsyncRead + Unpin>, limit: u64) -> Vec<u8> {
    let mut kept = Vec::new();
    if let Some(mut pipe) = pipe {
        // A pipe that cannot be read has said nothing.
        let _ = (&mut pipe).take(limit).read_to_end(&mut kept).await;
        let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    }
    kept
}

fn info(plugin: &ExecPlugin, cluster: &Cluster) -> Result<Value, String> {
    let mut spec = json!({ "interactive": false });
    if plugin.provide_cluster_info {
        let mut told = json!({ "server": cluster.server });
        if let Some(name) = &cluster.tls_server_name {
            told["tls-server-name"] = json!(name);
        }
        if cluster.insecure {
            told["insecure-skip-tls-verify"] = json!(true);
        }
        if let Some(authority) = &cluster.authority {
            let place = authority.place();
            let pem = authority
                .read()
                .map_err(|error| format!("unable to read certificate-authority {place}: {error}"))?;
            told["certificate-authority-data"] = json!(STANDARD.encode(pem));
        }
        if let Some(extension) = &cluster.exec_extension {
            told["config"] = extension.clone();
        }
        spec["cluster"] = told;
    }
    Ok(json!({ "apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec }))
}

/// Messages never show what it said: credentials, as a rule.
fn given(plugin: &ExecPlugin, output: &[u8]) -> Result<Given, String> {
    let credential: ExecCredential =
        serde_json::from_slice(output).map_err(|_| "decoding stdout: it is no ExecCredential".to_owned())?;
    if credential.kind != "ExecCredential" {
        return Err("decoding stdout: it is no ExecCredential".to_owned());
    }
    if credential.api_version != plugin.api_version {
        return Err(format!(
            "exec plugin is configured to use API version {}, plugin returned version {}",
            plugin.api_version, credential.api_version
        ));
    }
    let status = credential.status.ok_or("exec plugin didn't return a status field")?;
    let certificate = match (status.client_certificate_data, status.client_key_data) {
        (certificate, key) if certificate.is_empty() && key.is_empty() => None,
        (certificate, key) if !certificate.is_empty() && !key.is_empty() => Some((certificate, key)),
        _ => return Err("exec plugin returned only certificate or key, not both".to_owned()),
    };
    let token = Some(status.token).filter(|token| !token.is_empty());
    if token.is_none() && certificate.is_none() {
        return Err("exec plugin didn't return a token or cert/key pair".to_owned());
    }
    Ok(Given { token, certificate, until: status.expiration_timestamp })
}

fn with_hint(plugin: &ExecPlugin, message: String) -> String {
    if plugin.install_hint.is_empty() { message } else { format!("{message}\n{}", plugin.install_hint) }
}
