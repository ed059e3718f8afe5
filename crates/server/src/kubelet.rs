//! The kubelet's main port, 10250: TLS, and nobody gets past `auth` without a name and a permission.
//!
//! | module | what it is |
//! |---|---|
//! | `tls` | the serving certificate of the moment, versions, cipher suites |
//! | `accept` | the accept loop: a bounded number of connections, of which strangers get the smaller part |
//! | `connection` | one connection, HTTP/1.1 or HTTP/2, from its handshake to its end |
//!
//! What is served is put together in [`KubeletServer::new`]. Endpoints join there: those that upstream calls debugging
//! handlers in `debugging`, the others beside `/pods`.

mod accept;
mod connection;
mod tls;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use axum::routing::{any, get};
use bytes::Bytes;
use crablet_host::{Clock, Files};
use rustls::sign::CertifiedKey;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::auth::{self, Authenticator, Authorizer, Gate, client_ca};
use crate::logs::LogService;
use crate::ports::{Logs, PodView, Reviews};
use crate::{pods, reply};

pub(crate) use connection::Peer;
pub use tls::TlsSettings;

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
    /// The body of `/configz`.
    pub configz: Bytes,
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
        let (client_ca, reload) = match settings.client_ca_file {
            Some(path) => {
                let (ca, reload) = client_ca::load(ports.files, path, provider.clone()).await?;
                (Some(ca), Some(reload))
            }
            None => (None, None),
        };
        let tls = tls::Tls::new(&settings.tls, provider, ports.certificate, client_ca.clone())?;
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
        let gate = Arc::new(Gate { node: settings.node, authenticator, authorizer });

        let debugging = if settings.debugging_handlers {
            let logs = LogService {
                logs: ports.logs,
                clock: ports.clock,
                split_streams: settings.split_log_streams,
            };
            debugging(logs, ports.configz)
        } else {
            debugging_disabled()
        };
        let router = pods::routes(ports.pods)
            .merge(debugging)
            .fallback(page_not_found)
            .method_not_allowed_fallback(reply::method_not_allowed)
            .layer(axum::middleware::from_fn_with_state(gate, auth::check));
        Ok(Self { router, tls, reload })
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

/// What is served only where `enableDebuggingHandlers` is true.
fn debugging(logs: LogService, configz: Bytes) -> Router {
    let configz = get(|| async move { reply::json(StatusCode::OK, configz) });
    Router::new().route("/configz", configz).merge(logs.routes())
}

fn debugging_disabled() -> Router {
    const PATHS: [&str; 8] = [
        "/run",
        "/exec",
        "/attach",
        "/portForward",
        "/containerLogs",
        "/runningpods",
        "/debug/pprof",
        "/logs",
    ];
    async fn disabled() -> Response {
        reply::line(StatusCode::METHOD_NOT_ALLOWED, "Debug endpoints are disabled.")
    }
    PATHS.iter().fold(Router::new(), |router, path| {
        router.route(&format!("{path}/"), any(disabled)).route(&format!("{path}/{{*rest}}"), any(disabled))
    })
}

/// Upstream's router answers for the prefixes that it has, Go's multiplexer for the rest, each in its own words.
async fn page_not_found(uri: Uri) -> Response {
    const ROUTED: [&str; 2] = ["pods", "containerLogs"];
    match uri.path().split('/').nth(1) {
        Some(first) if ROUTED.contains(&first) => reply::not_found().await,
        _ => reply::line(StatusCode::NOT_FOUND, "404 page not found"),
    }
}
