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

/// `None` without a kubeconfig: the node stands alone.
pub async fn join(settings: &Settings) -> anyhow::Result<Option<Membership>> {
    let Some(path) = &settings.kubeconfig else { return Ok(None) };
    let (files, clock) = (Arc::new(LinuxFiles), Arc::new(SystemClock));
    let mut bootstrap_api: Option<Arc<dyn ApiServer>> = None;
    if let Some(bootstrap_path) = &settings.bootstrap_kubeconfig
        && needs_bootstrap(&*files, &*clock, path).await?
    {
        let config = load(bootstrap_path).context("unable to load bootstrap kubeconfig")?;
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
    let config = load(path).context("invalid kubeconfig")?;
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

fn load(path: &Path) -> anyhow::Result<Kubeconfig> {
    Ok(Kubeconfig::load(path)?)
}

fn client_settings(settings: &Settings) -> ClientSettings {
    let number = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    ClientSettings {
        user_agent: format!("kubelet/{KUBERNETES_VERSION} (linux/{}) crablet", machine_word()),
        qps: number(settings.kube_api_qps),
        burst: number(settings.kube_api_burst),
        event_qps: number(settings.event_record_qps),
        event_burst: number(settings.event_burst),
    }
}

/// The machine in Go's words.
fn machine_word() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
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
