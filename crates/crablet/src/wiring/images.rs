//! Images: what of the settings decides about them, and who knows credentials for them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use async_trait::async_trait;
use crablet_apiserver::{ApiServer, Call, Lane};
use crablet_config::{CredentialProviders, ImageVerification, Settings};
use crablet_model::api;
use crablet_pods::images::providers::config::{Provider, parse};
use crablet_pods::images::providers::{AccountView, ServiceAccounts};
use crablet_pods::images::{DockerFolders, ImageSettings, Verification};
use crablet_pods::settings::ImagePulls;

/// Upstream's gate for service account tokens.
const TOKENS: &str = "KubeletServiceAccountTokenForCredentialProviders";

pub fn image_pulls(settings: &Settings) -> ImagePulls {
    let pulls = settings.image_pulls;
    ImagePulls { parallel: pulls.parallel, qps: pulls.qps, burst: pulls.burst }
}

pub fn image_settings(settings: &Settings, providers: Vec<Provider>) -> ImageSettings {
    ImageSettings {
        pulls: image_pulls(settings),
        verification: match &settings.image_verification {
            ImageVerification::Never { recorded: false } => Verification::Off,
            ImageVerification::Never { recorded: true } => Verification::Never,
            ImageVerification::NeverPreloaded => Verification::NeverPreloaded,
            ImageVerification::NeverAllowlisted(list) => Verification::NeverAllowlisted(list.clone()),
            ImageVerification::Always => Verification::Always,
        },
        root: settings.root_dir.clone(),
        docker: docker_folders(&settings.root_dir),
        providers,
    }
}

/// Upstream's places: the agent's own folder, where it was started, its user's home, the root.
fn docker_folders(root_dir: &Path) -> DockerFolders {
    let here = std::env::current_dir().ok();
    let home = std::env::home_dir();
    let ours = || std::iter::once(root_dir.to_owned()).chain(here.clone());
    DockerFolders {
        config_json: ours()
            .chain(home.iter().map(|home| home.join(".docker")))
            .chain([PathBuf::from("/.docker")])
            .collect(),
        dockercfg: ours().chain(home.clone()).chain([PathBuf::from("/")]).collect(),
    }
}

/// Reads which programs know credentials. What is wrong with it keeps the agent from starting, as upstream.
pub fn credential_providers(settings: &Settings) -> anyhow::Result<Vec<Provider>> {
    let Some(CredentialProviders { config, bin_dir }) = &settings.credential_providers else {
        return Ok(Vec::new());
    };
    if !bin_dir.exists() {
        return Err(anyhow!("plugin binary directory {} did not exist", bin_dir.display()));
    }
    if config.as_os_str().is_empty() {
        return Err(anyhow!("credential provider config path is empty"));
    }
    let files = config_files(config)?;
    let providers =
        parse(&files, bin_dir, settings.feature_gates.enabled(TOKENS)).map_err(anyhow::Error::msg)?;
    for provider in &providers {
        let program = provider.program.display();
        let meta = fs::metadata(&provider.program)
            .map_err(|_| anyhow!("plugin binary executable {program} did not exist"))?;
        if !meta.is_file() || meta.permissions().mode() & 0o111 == 0 {
            return Err(anyhow!("error inspecting binary executable {program}: permission denied"));
        }
    }
    Ok(providers)
}

/// One file, or those of a folder by name.
fn config_files(config: &Path) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let shown = config.display();
    let meta = fs::metadata(config).with_context(|| format!("unable to access path {shown:?}"))?;
    let mut paths = vec![config.to_owned()];
    if meta.is_dir() {
        let entries = fs::read_dir(config).with_context(|| format!("unable to read directory {shown:?}"))?;
        let is_config = |path: &PathBuf| {
            let extension = path.extension().and_then(|extension| extension.to_str());
            matches!(extension, Some("json" | "yaml" | "yml")) && !path.is_dir()
        };
        paths = entries.flatten().map(|entry| entry.path()).filter(is_config).collect();
        paths.sort();
        if paths.is_empty() {
            return Err(anyhow!("no configuration files found in directory {shown:?}"));
        }
    }
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path);
        let text = text.with_context(|| format!("unable to read file {:?}", path.display()))?;
        Ok((path, text))
    };
    paths.into_iter().map(read).collect()
}

/// Asked of the API server each time: there is a pull behind each question.
struct AskedAccounts(Arc<dyn ApiServer>);

pub fn service_accounts(api: Arc<dyn ApiServer>) -> Arc<dyn ServiceAccounts> {
    Arc::new(AskedAccounts(api))
}

#[async_trait]
impl ServiceAccounts for AskedAccounts {
    async fn get(&self, namespace: &str, name: &str) -> Result<AccountView, String> {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}");
        let answer = self.0.call(Call::get(Lane::Main, path)).await.map_err(|error| error.message)?;
        let account: api::ServiceAccount = serde_json::from_slice(&answer)
            .map_err(|_| "the server's service account cannot be read".to_owned())?;
        Ok(AccountView {
            uid: account.metadata.uid.unwrap_or_default(),
            annotations: account.metadata.annotations.unwrap_or_default(),
        })
    }
}
