//! The kubeconfig of a node.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use crablet_host::{Clock, Files};
use serde::Deserialize;
use tracing::warn;

use super::BootstrapError;
use crate::pair::{LONGEST_FILE, Pair};

/// How the API server is reached, as the bootstrap kubeconfig says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    pub server: String,
    /// Absolute, or it would mean another file beside another kubeconfig. Goes before the data.
    pub certificate_authority: Option<PathBuf>,
    /// As in the kubeconfig: base64 of PEM.
    pub certificate_authority_data: Option<String>,
    pub tls_server_name: Option<String>,
    pub insecure_skip_tls_verify: bool,
    pub proxy_url: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Kubeconfig {
    current_context: String,
    contexts: Vec<NamedContext>,
    users: Vec<NamedUser>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Context {
    user: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct User {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
}

/// Whether the kubeconfig is not there, cannot be used, or holds a client certificate that is over. A kubeconfig that
/// is there and cannot be read is an error: it may be good.
pub async fn needs_bootstrap(
    files: &dyn Files,
    clock: &dyn Clock,
    path: &Path,
) -> Result<bool, BootstrapError> {
    let text = match files.read(path, LONGEST_FILE).await {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(BootstrapError::Disk { doing: "read", path: path.to_owned(), error }),
    };
    let reason = match pair(files, path, &text).await {
        Ok(pair) if clock.now() <= pair.chain_ends => return Ok(false),
        Ok(pair) => format!("part of its client certificate expired at {}", pair.chain_ends),
        Err(reason) => reason,
    };
    warn!(path = %path.display(), reason, "Existing kubeconfig does not do, a client certificate will be requested");
    Ok(true)
}

/// The client certificate of the current context. The reasons name no content: it may be secret.
async fn pair(files: &dyn Files, path: &Path, text: &[u8]) -> Result<Pair, String> {
    let text = std::str::from_utf8(text).map_err(|_| "not a text".to_owned())?;
    let config: Kubeconfig = serde_saphyr::from_str(text).map_err(|_| "not a kubeconfig".to_owned())?;
    let context = config.contexts.iter().find(|context| context.name == config.current_context);
    let context = context.ok_or_else(|| format!("no context {:?} in it", config.current_context))?;
    let user = config.users.iter().find(|user| user.name == context.context.user);
    let User { client_certificate, client_certificate_data, client_key, client_key_data } =
        &user.ok_or_else(|| format!("no user {:?} in it", context.context.user))?.user;
    let certificate = content(files, path, "client-certificate", client_certificate, client_certificate_data);
    let key = content(files, path, "client-key", client_key, client_key_data);
    Pair::from_pem(&certificate.await?, &key.await?).map_err(|error| format!("client certificate: {error}"))
}

/// Data goes before a file; a file is looked for beside the kubeconfig.
async fn content(
    files: &dyn Files,
    kubeconfig: &Path,
    field: &str,
    file: &Option<PathBuf>,
    data: &Option<String>,
) -> Result<Vec<u8>, String> {
    match (data.as_deref(), file) {
        (Some(data), _) if !data.is_empty() => {
            BASE64_STANDARD.decode(data.trim()).map_err(|_| format!("{field}-data is not base64"))
        }
        (_, Some(file)) => {
            let path = kubeconfig.parent().unwrap_or(Path::new("/")).join(file);
            let read = files.read(&path, LONGEST_FILE).await;
            read.map_err(|error| format!("{field} `{}`: {error}", path.display()))
        }
        _ => Err(format!("no {field} in it")),
    }
}

/// Writes a kubeconfig whose user is the pair at `pem`, as upstream names its parts. With `rotateCertificates` it can
/// be written before there is a pair.
pub async fn write_kubeconfig(
    files: &dyn Files,
    path: &Path,
    cluster: &Cluster,
    pem: &Path,
) -> Result<(), BootstrapError> {
    let disk = |doing, error| BootstrapError::Disk { doing, path: path.to_owned(), error };
    if let Some(folder) = path.parent() {
        files.create_folder(folder, 0o755).await.map_err(|error| disk("create the folder of", error))?;
    }
    let text = render(cluster, pem);
    files.write_atomic(path, text.as_bytes(), 0o600).await.map_err(|error| disk("write", error))
}

fn render(cluster: &Cluster, pem: &Path) -> String {
    let path = |path: &Path| path.display().to_string();
    let (file, data) = match (&cluster.certificate_authority, &cluster.certificate_authority_data) {
        (Some(file), _) => (Some(path(file)), None),
        (None, data) => (None, data.clone()),
    };
    let fields = [
        ("certificate-authority", file),
        ("certificate-authority-data", data),
        ("insecure-skip-tls-verify", cluster.insecure_skip_tls_verify.then(|| "true".to_owned())),
        ("proxy-url", cluster.proxy_url.clone()),
        ("server", Some(cluster.server.clone())),
        ("tls-server-name", cluster.tls_server_name.clone()),
    ];
    let mut yaml = String::from("apiVersion: v1\nclusters:\n- cluster:\n");
    for (field, value) in fields {
        if let Some(value) = value {
            let value = if field == "insecure-skip-tls-verify" { value } else { scalar(&value) };
            let _ = writeln!(yaml, "    {field}: {value}");
        }
    }
    let pem = scalar(&path(pem));
    let _ = write!(
        yaml,
        "  name: default-cluster\n\
         contexts:\n- context:\n    cluster: default-cluster\n    namespace: default\n    user: default-auth\n  name: default-context\n\
         current-context: default-context\n\
         kind: Config\n\
         users:\n- name: default-auth\n  user:\n    client-certificate: {pem}\n    client-key: {pem}\n"
    );
    yaml
}

/// Plain where that is surely a string, as upstream writes it, else quoted.
fn scalar(text: &str) -> String {
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._:=+-".contains(&byte))
        && (text.starts_with('/') || text.contains("://") || text.len() > 100)
        && !text.ends_with(':');
    if plain { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}
