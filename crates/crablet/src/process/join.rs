//! How the node becomes known to its cluster: the connection to the API server, and the certificate it is made with.
//!
//! ```text
//!  kubeconfig is good ──────────────────────────> client
//!  no kubeconfig, but one for bootstrapping:
//!     with rotation:    kubeconfig is written ──> client, to which the certificate comes later
//!     without rotation: certificate is waited for, kubeconfig is written ──> client
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use crablet_apiclient::{ApiClient, ClientSettings, Kubeconfig};
use crablet_apiserver::ApiServer;
use crablet_certificates::bootstrap::{self, needs_bootstrap, write_kubeconfig};
use crablet_certificates::{Bootstrap, ClientRotation, ClientSetup, Cluster, Store, store};
use crablet_config::{KUBERNETES_VERSION, Settings};
use crablet_host::{LinuxFiles, SystemClock};
use crablet_planner::node::status::architecture;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::info;

/// The node as a member of a cluster. Dropping it ends the renewal of its certificate.
pub struct Membership {
    client: ApiClient,
    tasks: JoinSet<()>,
    fatal: Option<watch::Receiver<Option<String>>>,
}

impl Membership {
    pub fn api(&self) -> Arc<dyn ApiServer> {
        Arc::new(self.client.clone())
    }

    /// Returns when the node cannot go on without a new start.
    pub async fn lost(&mut self) -> anyhow::Error {
        let Some(fatal) = &mut self.fatal else { return std::future::pending().await };
        // Cancel-safe: a wait, and a task that has ended stays so.
        tokio::select! {
            biased;
            said = fatal.wait_for(Option::is_some) => match said {
                Ok(said) => anyhow!("{}", said.clone().unwrap_or_default()),
                Err(_) => std::future::pending().await,
            },
            Some(ended) = self.tasks.join_next() => match ended {
                Err(error) => anyhow!("the renewal of certificates broke: {error}"),
                Ok(()) => anyhow!("the renewal of certificates ended by itself"),
            },
        }
    }
}

/// A wrong file is told before anything is made or opened. Fine without one. With a bootstrap file too, one of the two has
/// to be good: the other is made or removed while a node joins its cluster.
pub fn check(settings: &Settings) -> anyhow::Result<()> {
    let Some(path) = &settings.kubeconfig else { return Ok(()) };
    let Err(error) = Kubeconfig::load(path) else { return Ok(()) };
    let Some(bootstrap) = &settings.bootstrap_kubeconfig else {
        return Err(error).context("invalid kubeconfig");
    };
    Kubeconfig::load(bootstrap).map(drop).with_context(|| match path.exists() {
        true => format!("invalid kubeconfig: {error}; unable to load bootstrap kubeconfig"),
        false => "unable to load bootstrap kubeconfig".to_owned(),
    })
}

/// `None` without a kubeconfig: the node stands alone.
pub async fn join(settings: &Settings) -> anyhow::Result<Option<Membership>> {
    let Some(path) = &settings.kubeconfig else { return Ok(None) };
    let (files, clock) = (Arc::new(LinuxFiles), Arc::new(SystemClock));
    let mut bootstrap_api: Option<Arc<dyn ApiServer>> = None;
    if let Some(bootstrap_path) = &settings.bootstrap_kubeconfig
        && needs_bootstrap(&*files, &*clock, path).await?
    {
        let config = Kubeconfig::load(bootstrap_path).context("unable to load bootstrap kubeconfig")?;
        let api: Arc<dyn ApiServer> = Arc::new(ApiClient::new(&config, client_settings(settings))?);
        let cluster = cluster_of(&config)?;
        if settings.rotate_certificates {
            let certificate = client_store(settings).current_path();
            write_kubeconfig(&*files, path, &cluster, &certificate).await?;
            bootstrap_api = Some(api);
        } else {
            info!("Using bootstrap kubeconfig to generate TLS client cert, key and kubeconfig file");
            bootstrap::run(Bootstrap {
                api,
                files,
                clock,
                rng: fastrand::Rng::new(),
                node_name: settings.node_name.clone(),
                folder: settings.cert_dir.clone(),
                kubeconfig: path.clone(),
                cluster,
            })
            .await
            .context("failed to run Kubelet: unable to bootstrap")?;
        }
    }
    let config = Kubeconfig::load(path).context("invalid kubeconfig")?;
    let has_certificate = config.inline_pair().is_some() || config.pair_files().is_some();
    let membership = if settings.rotate_certificates && (has_certificate || bootstrap_api.is_some()) {
        rotating(settings, config, bootstrap_api).await?
    } else {
        let client = ApiClient::new(&config, client_settings(settings)).context("invalid kubeconfig")?;
        Membership { client, tasks: JoinSet::new(), fatal: None }
    };
    info!(server = membership.client.server(), "The API server of this node's cluster");
    Ok(Some(membership))
}

async fn rotating(
    settings: &Settings,
    config: Kubeconfig,
    bootstrap: Option<Arc<dyn ApiServer>>,
) -> anyhow::Result<Membership> {
    let mut store = client_store(settings);
    if let Some((certificate, key)) = config.pair_files()
        && certificate != store.current_path()
    {
        store = store.with_fallback(certificate.to_owned(), key.to_owned());
    }
    let initial = config.inline_pair();
    let client = ApiClient::new(&config.without_certificate(), client_settings(settings))
        .context("invalid kubeconfig")?;
    let mut tasks = JoinSet::new();
    let taker = client.clone();
    let setup = ClientSetup {
        store,
        node_name: settings.node_name.clone(),
        api: Arc::new(client.clone()),
        bootstrap,
        initial,
        clock: Arc::new(SystemClock),
        rng: fastrand::Rng::new(),
        on_new: Arc::new(move |pem| {
            if let Err(error) = taker.set_client_certificate(&pem) {
                tracing::error!(%error, "a new client certificate cannot be used");
            }
        }),
    };
    let rotation = ClientRotation::start(setup, &mut tasks).await?;
    Ok(Membership { client, tasks, fatal: Some(rotation.fatal) })
}

fn client_store(settings: &Settings) -> Store {
    Store::new(Arc::new(LinuxFiles), Arc::new(SystemClock), settings.cert_dir.clone(), store::CLIENT)
}

fn client_settings(settings: &Settings) -> ClientSettings {
    let number = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    ClientSettings {
        user_agent: format!("kubelet/{KUBERNETES_VERSION} (linux/{}) crablet", architecture()),
        qps: number(settings.kube_api_qps),
        burst: number(settings.kube_api_burst),
        event_qps: number(settings.event_record_qps),
        event_burst: number(settings.event_burst),
    }
}

/// How the bootstrap kubeconfig says that the API server is reached.
fn cluster_of(config: &Kubeconfig) -> anyhow::Result<Cluster> {
    let (certificate_authority, certificate_authority_data) = match config.authority() {
        Some(Ok(path)) => (Some(absolute(path)?), None),
        Some(Err(pem)) => (None, Some(BASE64_STANDARD.encode(pem))),
        None => (None, None),
    };
    Ok(Cluster {
        server: config.server().to_owned(),
        certificate_authority,
        certificate_authority_data,
        tls_server_name: config.tls_server_name().map(str::to_owned),
        insecure_skip_tls_verify: config.is_insecure(),
        proxy_url: None,
    })
}

fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("certificate-authority: {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crablet_config::{Command, Environment};

    use super::*;

    const GOOD: &str = "
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: 'https://10.0.0.1:6443', insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: s3cret}}]
";

    /// What is said of files with these texts; `None` is a file that is not there. Without the folder's name.
    fn said(kubeconfig: Option<&str>, bootstrap: Option<Option<&str>>) -> String {
        let home = tempfile::tempdir().expect("a folder");
        let file = |name: &str, text: Option<&str>| {
            let path = home.path().join(name);
            if let Some(text) = text {
                fs::write(&path, text).expect("a file");
            }
            path.display().to_string()
        };
        let mut flags = vec![format!("--kubeconfig={}", file("k", kubeconfig))];
        flags.extend(bootstrap.map(|text| format!("--bootstrap-kubeconfig={}", file("b", text))));
        let environment = Environment { hostname: "node1".to_owned() };
        let no_files = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
        match crablet_config::parse(flags.iter().map(Into::into), &environment, no_files) {
            Ok(Command::Run(settings)) => match check(&settings) {
                Ok(()) => "good".to_owned(),
                Err(error) => format!("{error:#}").replace(&home.path().display().to_string(), "~"),
            },
            other => panic!("the flags are refused: {other:?}"),
        }
    }

    #[test]
    fn one_kubeconfig_has_to_be_good() {
        let unset = "current-context: it is not set";
        let gone = "No such file or directory (os error 2)";
        assert_eq!(said(Some(GOOD), None), "good");
        assert_eq!(said(Some(GOOD), Some(None)), "good");
        assert_eq!(said(None, Some(Some(GOOD))), "good");
        assert_eq!(said(Some("{}"), Some(Some(GOOD))), "good");
        assert_eq!(said(Some("{}"), None), format!("invalid kubeconfig: ~/k: {unset}"));
        assert_eq!(said(None, None), format!("invalid kubeconfig: ~/k: {gone}"));
        assert_eq!(said(None, Some(None)), format!("unable to load bootstrap kubeconfig: ~/b: {gone}"));
        assert_eq!(
            said(Some("{}"), Some(None)),
            format!("invalid kubeconfig: ~/k: {unset}; unable to load bootstrap kubeconfig: ~/b: {gone}")
        );
    }

    #[test]
    fn what_is_in_the_file_is_not_shown() {
        let broken = said(Some(&GOOD.replace("{token: s3cret}", "{token: 's3cret")), None);
        assert!(broken.starts_with("invalid kubeconfig") && !broken.contains("s3cret"), "{broken}");
    }
}
