//! One run of a program: a request on its standard input, a response on its standard output.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::time::timeout;

use super::accounts::Account;
use super::config::Provider;
use crate::images::docker_config::{DockerConfig, Entry};

const DEADLINE: Duration = Duration::from_secs(60);
const MOST_OUTPUT: u64 = 1 << 20;
/// What of its complaints is told.
const MOST_COMPLAINT: u64 = 4 << 10;

const ECHOED: &str = "credential provider plugin returned the service account token as the password which is not allowed when service account cache type is not set to 'Token'";

/// For what an answer holds.
pub(super) enum CacheKey {
    Image,
    Registry,
    Global,
}

pub(super) struct Said {
    pub config: DockerConfig,
    pub cache_key: CacheKey,
    /// `None`: as long as the configuration says.
    pub cache_duration: Option<Duration>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Response {
    api_version: String,
    kind: String,
    #[serde(default)]
    cache_key_type: String,
    cache_duration: Option<String>,
    #[serde(default)]
    auth: Option<BTreeMap<String, Option<Auth>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Auth {
    username: Option<String>,
    password: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    #[serde(default)]
    api_version: String,
}

pub(super) async fn run(provider: &Provider, image: &str, account: Option<&Account>) -> Result<Said, String> {
    let mut request = json!({
        "kind": "CredentialProviderRequest",
        "apiVersion": provider.api_version,
        "image": image,
    });
    if let Some(account) = account {
        request["serviceAccountToken"] = json!(account.token);
        if !account.annotations.is_empty() {
            request["serviceAccountAnnotations"] = json!(account.annotations);
        }
    }
    let name = &provider.name;
    let failed = |why: String| {
        format!(
            "failed to get credential from external registry credential provider: error execing credential provider plugin {name} for image {image}: {why}"
        )
    };
    let output = talk(provider, request.to_string().into_bytes()).await.map_err(failed)?;
    let said = understand(provider, &output).map_err(|why| {
        format!("failed to get credential from external registry credential provider: {why}")
    })?;
    let echoed = |account: &&Account| {
        !account.per_token && said.config.0.values().any(|entry| entry.password == account.token)
    };
    match account.filter(echoed) {
        Some(_) => Err(ECHOED.to_owned()),
        None => Ok(said),
    }
}

/// The program has the agent's environment, and what its configuration adds.
async fn talk(provider: &Provider, request: Vec<u8>) -> Result<Vec<u8>, String> {
    let mut child = Command::new(&provider.program)
        .args(&provider.args)
        .envs(provider.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| error.to_string())?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let tell = async {
        if let Some(mut stdin) = stdin {
            // A program that does not listen will say what is wrong, or nothing is.
            let _ = stdin.write_all(&request).await;
        }
    };
    let work =
        async { tokio::join!(tell, drain(stdout, MOST_OUTPUT), drain(stderr, MOST_COMPLAINT), child.wait()) };
    let ((), output, complaint, status) =
        timeout(DEADLINE, work).await.map_err(|_| "context deadline exceeded: ".to_owned())?;
    let status = status.map_err(|error| error.to_string())?;
    if !status.success() {
        let how = match status.code() {
            Some(code) => format!("exit status {code}"),
            None => status.to_string(),
        };
        return Err(format!("{how}: {}", String::from_utf8_lossy(&complaint)));
    }
    Ok(output)
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

/// Messages never show what it said: credentials, as a rule.
fn understand(provider: &Provider, output: &[u8]) -> Result<Said, String> {
    let meta: Meta = serde_json::from_slice(output)
        .map_err(|_| "error reading GVK from response: it is not an object in JSON".to_owned())?;
    if meta.api_version != provider.api_version {
        return Err(format!(
            "apiVersion from credential plugin response did not match expected apiVersion:{}, actual apiVersion:{}",
            provider.api_version, meta.api_version
        ));
    }
    let not_understood = || "error decoding credential provider plugin response from stdout".to_owned();
    let response: Response = serde_json::from_slice(output).map_err(|_| not_understood())?;
    if response.kind != "CredentialProviderResponse" || response.api_version != provider.api_version {
        return Err(not_understood());
    }
    let cache_duration = match response.cache_duration.as_deref() {
        None => None,
        Some(text) => Some(crablet_model::duration::parse(text).map_err(|_| not_understood())?),
    };
    let cache_key = match response.cache_key_type.as_str() {
        "Image" => CacheKey::Image,
        "Registry" => CacheKey::Registry,
        "Global" => CacheKey::Global,
        other => {
            return Err(format!("credential provider plugin did not return a valid cacheKeyType: {other}"));
        }
    };
    let entry = |auth: Option<Auth>| {
        let Auth { username, password } = auth.unwrap_or_default();
        let (username, password) = (username.unwrap_or_default(), password.unwrap_or_default());
        Entry { username, password, email: String::new() }
    };
    let auth = response.auth.unwrap_or_default();
    let config = DockerConfig(auth.into_iter().map(|(place, auth)| (place, entry(auth))).collect());
    Ok(Said { config, cache_key, cache_duration })
}
