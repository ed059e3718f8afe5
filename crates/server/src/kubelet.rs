//! The kubelet's main port, 10250: TLS, and nobody gets past `auth` without a name and a permission.
//!
//! | module | what it is |
//! |---|---|
//! | `tls` | the serving certificate of the moment, versions, cipher suites |
//! | `accept` | the accept loop: a bounded number of connections, of which strangers get the smaller part |
//! | `connection` | one connection, HTTP/1.1 or HTTP/2, from its handshake to its end |
//! | `wire` | its socket: what is counted there, and queries that are too long for the HTTP library |
//!
//! What is served is put together in [`KubeletServer::new`]. Endpoints join there: those that upstream calls debugging
//! handlers come from `debugging`, the others stand beside `/pods`.

mod accept;
mod connection;
mod tls;
mod wire;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use crablet_host::{Clock, Files};
use jiff::Timestamp;
use rustls::sign::CertifiedKey;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::auth::{self, Authenticator, Authorizer, Gate, client_ca};
use crate::mux::{Mux, dispatching};
use crate::ports::{Containers, Logs, Manifests, PodView, Reviews, Verbosity};
use crate::{debugging, manifests, metrics, pods};

pub(crate) use connection::Peer;
pub use tls::TlsSettings;
pub(crate) use wire::{Wire, query_of};

/// What the configuration says about the main port.
#[derive(Clone, Debug)]
pub struct KubeletServerSettings {
    pub node: Arc<str>,
    pub tls: TlsSettings,
    /// `authentication.x509.clientCAFile`
    pub client_ca_file: Option<PathBuf>,
    /// `authentication.webhook`: how long a token's owner is remembered. `None`: tokens are not looked at.
    pub token_webhook: Option<Duration>,
    /// `authentication.anonymous.enabled`
    pub anonymous: bool,
    pub authorization: AuthorizationMode,
    /// `enableDebuggingHandlers`
    pub debugging_handlers: bool,
    /// The gate `PodLogsQuerySplitStreams`.
    pub split_log_streams: bool,
    /// The gate `ExtendWebSocketsToKubelet`.
    pub websockets: bool,
    /// The gate `ContainerCheckpoint`.
    pub checkpoint: bool,
    /// The gate `ComponentFlagz`.
    pub flagz: bool,
    /// The gate `ComponentStatusz`.
    pub statusz: bool,
    /// `enableSystemLogHandler`
    pub system_logs: bool,
    /// `enableSystemLogQuery`
    pub system_log_query: bool,
    /// `enableProfilingHandler`
    pub profiling_handler: bool,
    /// `enableDebugFlagsHandler`
    pub debug_flags_handler: bool,
}

/// `authorization.mode`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorizationMode {
    AlwaysAllow,
    Webhook { allowed_for: Duration, denied_for: Duration },
}

/// What the main port needs from the rest of the program.
pub struct KubeletServerPorts {
    /// `None` until there is one: handshakes fail meanwhile.
    pub certificate: watch::Receiver<Option<Arc<CertifiedKey>>>,
    pub pods: Arc<dyn PodView>,
    pub logs: Arc<dyn Logs>,
    /// `None` without a cluster.
    pub reviews: Option<Arc<dyn Reviews>>,
    pub containers: Arc<dyn Containers>,
    /// Manifests handed in over HTTP, behind authorisation.
    pub manifests: Arc<dyn Manifests>,
    pub verbosity: Arc<dyn Verbosity>,
    /// The body of `/configz`.
    pub configz: Bytes,
    /// What each flag is set to, for `/flagz`.
    pub flags: BTreeMap<String, String>,
    /// For `/statusz`.
    pub version: String,
    pub started: Timestamp,
    /// The folder that `/logs/` shows: `/var/log`.
    pub system_log_folder: PathBuf,
    /// The program that node log queries ask for services' logs; a name without a slash is looked for in `PATH`.
    pub journalctl: PathBuf,
    pub files: Arc<dyn Files>,
    pub clock: Arc<dyn Clock>,
}

/// A setting of the main port that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(String);

/// The main port, ready to serve.
pub struct KubeletServer {
    router: Router,
    tls: tls::Tls,
    reload: Option<client_ca::Reload>,
}

impl KubeletServer {
    pub async fn new(
        settings: KubeletServerSettings,
        ports: KubeletServerPorts,
    ) -> Result<Self, SettingsError> {
        Self::assemble(settings, ports).await.map_err(SettingsError)
    }

    async fn assemble(settings: KubeletServerSettings, ports: KubeletServerPorts) -> Result<Self, String> {
        let provider = tls::provider(&settings.tls)?;
        let (client_ca, reload) = match &settings.client_ca_file {
            Some(path) => {
                let (ca, reload) =
                    client_ca::load(ports.files.clone(), path.clone(), provider.clone()).await?;
                (Some(ca), Some(reload))
            }
            None => (None, None),
        };
        let tls = tls::Tls::new(&settings.tls, provider, ports.certificate.clone(), client_ca.clone())?;
        if client_ca.is_none() && settings.token_webhook.is_none() && !settings.anonymous {
            return Err("no authentication method configured: set authentication.x509.clientCAFile, or \
                        enable authentication.webhook or authentication.anonymous"
                .to_owned());
        }
        let reviews = |what: &str| {
            ports.reviews.clone().ok_or_else(|| format!("no client provided, cannot use webhook {what}"))
        };
        let tokens = match settings.token_webhook {
            Some(remembered_for) => Some(auth::Tokens::new(reviews("authentication")?, remembered_for)?),
            None => None,
        };
        let authorizer = match settings.authorization {
            AuthorizationMode::AlwaysAllow => Authorizer::AlwaysAllow,
            AuthorizationMode::Webhook { allowed_for, denied_for } => {
                Authorizer::webhook(reviews("authorization")?, allowed_for, denied_for)?
            }
        };
        let authenticator =
            Authenticator { clock: ports.clock.clone(), client_ca, tokens, anonymous: settings.anonymous };
        let gate = Arc::new(Gate::new(settings.node.clone(), authenticator, authorizer));

        let router = routes(&settings, ports, gate);
        Ok(Self { router, tls, reload })
    }

    /// What is served, without connections: requests come from nobody in particular.
    #[doc(hidden)]
    pub fn into_router(self) -> Router {
        self.router
    }

    /// Serves until `shutdown`. Dropping the future ends every connection.
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let Self { router, tls, reload } = self;
        let reloading = async {
            match reload {
                Some(reload) => reload.run().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = accept::run(listener, router, tls, shutdown) => {}
            () = reloading => {}
        }
    }
}

/// Everything that is served, and a layer for who may have it.
fn routes(settings: &KubeletServerSettings, ports: KubeletServerPorts, gate: Arc<Gate>) -> Router {
    let mut entries = pods::entries();
    entries.push(manifests::ENTRY);
    let served = pods::routes(ports.pods.clone()).merge(manifests::routes(ports.manifests.clone()));
    let served = if settings.debugging_handlers {
        entries.extend(debugging::entries(settings));
        let listed = Mux::new(entries.clone()).listed_paths();
        served.merge(debugging::routes(settings, ports, listed))
    } else {
        entries.extend(debugging::DISABLED);
        served.merge(debugging::disabled())
    };
    let guarded = dispatching(served).layer(axum::middleware::from_fn_with_state(gate, auth::check));
    metrics::measured(Mux::new(entries).in_front_of(guarded), measured_paths(settings))
}

fn measured_paths(settings: &KubeletServerSettings) -> metrics::Paths {
    let gated =
        [(settings.checkpoint, "checkpoint"), (settings.flagz, "flagz"), (settings.statusz, "statusz")];
    let on: Vec<_> = gated.into_iter().filter_map(|(is_on, path)| is_on.then_some(path)).collect();
    metrics::Paths::main(settings.debugging_handlers, &on)
}
