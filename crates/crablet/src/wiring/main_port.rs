//! Port 10250.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use crablet_certificates::{Serving, Source, Store, store};
use crablet_config::{Settings, TlsVersion};
use crablet_host::{Clock, LinuxFiles, SystemClock};
use crablet_model::api;
use crablet_server::{
    ApiReviews, AuthorizationMode, KubeletServer, KubeletServerPorts, KubeletServerSettings, PodView,
    TlsSettings, Verbosity,
};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::info;

use crate::logging::Control;

use super::Agent;
use super::containers::ReachedContainers;
use super::logs::FoundLogs;
use super::served::ServedManifests;

/// The gate that also tells the API server, through the Node, to send WebSockets as they are.
pub const WEBSOCKETS: &str = "ExtendWebSocketsToKubelet";
/// What `/logs/` shows.
const SYSTEM_LOGS: &str = "/var/log";

/// `/debug/flags/v` turns it.
struct SetVerbosity(Control);

impl Verbosity for SetVerbosity {
    fn set(&self, verbosity: u32) {
        self.0.set_verbosity(verbosity);
    }
}

/// Opened before the agent starts: an address that is taken ends the program.
pub struct MainPort {
    listener: TcpListener,
}

impl MainPort {
    /// `None`: it is switched off, or nobody could be let in. The cluster is asked who a token's owner is and what they
    /// may; without one, only settings that need no answer let anybody in.
    pub async fn open(settings: &Settings, joined: bool) -> anyhow::Result<Option<Self>> {
        if !settings.enable_server {
            return Ok(None);
        }
        let authentication = &settings.authentication;
        let needs_cluster = authentication.webhook || settings.authorization.webhook;
        let lets_in = authentication.anonymous || authentication.client_ca_file.is_some();
        if !joined && (needs_cluster || !lets_in) {
            info!(
                port = settings.port,
                "Not serving the kubelet's port: without a cluster it needs authentication.webhook.enabled: false, authorization.mode: AlwaysAllow, and authentication.x509.clientCAFile or authentication.anonymous"
            );
            return Ok(None);
        }
        let address = SocketAddr::from((settings.address, settings.port));
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
        Ok(Some(Self { listener }))
    }

    /// Answers from now on.
    pub async fn serve(self, settings: &Settings, agent: &mut Agent, log: &Control) -> anyhow::Result<()> {
        let certificate =
            certificate(settings, agent).await.context("cannot get a certificate to serve with")?;
        let authentication = &settings.authentication;
        let gate = |name: &str| settings.feature_gates.enabled(name);
        let wanted = KubeletServerSettings {
            node: settings.node_name.as_str().into(),
            tls: TlsSettings {
                min_version: match settings.tls_min_version {
                    TlsVersion::Tls12 => "VersionTLS12".to_owned(),
                    TlsVersion::Tls13 => "VersionTLS13".to_owned(),
                },
                cipher_suites: settings.tls_cipher_suites.clone(),
            },
            client_ca_file: authentication.client_ca_file.clone(),
            token_webhook: authentication.webhook.then_some(authentication.webhook_cache_ttl),
            anonymous: authentication.anonymous,
            authorization: match &settings.authorization {
                rules if rules.webhook => {
                    AuthorizationMode::Webhook { allowed_for: rules.allow_ttl, denied_for: rules.deny_ttl }
                }
                _ => AuthorizationMode::AlwaysAllow,
            },
            debugging_handlers: settings.enable_debugging_handlers,
            split_log_streams: gate("PodLogsQuerySplitStreams"),
            websockets: gate(WEBSOCKETS),
            checkpoint: gate("ContainerCheckpoint"),
            flagz: gate("ComponentFlagz"),
            statusz: gate("ComponentStatusz"),
            system_logs: settings.enable_system_log_handler,
            system_log_query: settings.enable_system_log_query,
            profiling_handler: settings.enable_profiling_handler,
            debug_flags_handler: settings.enable_debug_flags_handler,
        };
        let view: Arc<dyn PodView> = Arc::new(agent.served_view());
        let reviews = agent.api.clone().map(|api| Arc::new(ApiReviews::new(api)) as _);
        let ports = KubeletServerPorts {
            certificate,
            pods: view,
            logs: Arc::new(FoundLogs { view: agent.view.clone(), runtime: agent.runtime.clone() }),
            reviews,
            containers: Arc::new(ReachedContainers {
                view: agent.view.clone(),
                runtime: agent.runtime.clone(),
                clock: Arc::new(SystemClock),
                checkpoints: settings.root_dir.join("checkpoints"),
            }),
            manifests: Arc::new(ServedManifests(agent.submitted.clone())),
            verbosity: Arc::new(SetVerbosity(log.clone())),
            flags: settings.flags.clone(),
            version: settings.reported_version.to_string(),
            started: SystemClock.now(),
            system_log_folder: SYSTEM_LOGS.into(),
            journalctl: "journalctl".into(),
            configz: configz(settings),
            files: Arc::new(LinuxFiles),
            clock: Arc::new(SystemClock),
        };
        let server = KubeletServer::new(wanted, ports).await.context("port 10250")?;
        agent.tasks.spawn(server.serve(self.listener, std::future::pending()));
        Ok(())
    }
}

/// The body of `/configz`: all configurations of the process by their names, and this process has one.
fn configz(settings: &Settings) -> Bytes {
    format!(r#"{{"kubeletconfig":{}}}"#, &*settings.configz.0).into()
}

async fn certificate(
    settings: &Settings,
    agent: &mut Agent,
) -> anyhow::Result<watch::Receiver<Option<Arc<rustls::sign::CertifiedKey>>>> {
    let files = Arc::new(LinuxFiles);
    let source = match (&agent.api, &settings.tls_cert_file, &settings.tls_private_key_file) {
        (Some(api), certificate, key) if settings.server_tls_bootstrap => {
            let store =
                Store::new(files.clone(), Arc::new(SystemClock), settings.cert_dir.clone(), store::SERVER);
            let store = match (certificate, key) {
                (Some(certificate), Some(key)) => store.with_fallback(certificate.clone(), key.clone()),
                _ => store,
            };
            Source::Requested {
                store,
                node_name: settings.node_name.clone(),
                api: api.clone(),
                addresses: addresses(agent.node_view.clone(), &mut agent.tasks),
                dns_only: settings.feature_gates.enabled("AllowDNSOnlyNodeCSR"),
                rng: fastrand::Rng::new(),
            }
        }
        (_, Some(certificate), Some(key)) => {
            Source::Files { certificate: certificate.clone(), key: key.clone() }
        }
        _ => Source::SelfSigned {
            folder: settings.cert_dir.clone(),
            host: settings.node_name.clone(),
            addresses: settings
                .node_ips
                .iter()
                .copied()
                .filter(|ip| !ip.is_unspecified())
                .collect::<Vec<IpAddr>>(),
        },
    };
    Ok(Serving::start(source, files, Arc::new(SystemClock), &mut agent.tasks).await?.certificate)
}

/// What the Node says of its addresses: a certificate is asked for under all of them, and not before there is a
/// Node.
fn addresses(
    mut view: watch::Receiver<Arc<super::NodeView>>,
    tasks: &mut JoinSet<()>,
) -> watch::Receiver<Vec<api::NodeAddress>> {
    let (sender, receiver) = watch::channel(Vec::new());
    tasks.spawn(async move {
        loop {
            let addresses = view.borrow_and_update().addresses.clone();
            sender.send_if_modified(|known| {
                let is_new = *known != addresses;
                *known = addresses;
                is_new
            });
            if view.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use crablet_node::NodeView;

    use super::*;

    #[tokio::test]
    async fn a_certificate_is_asked_for_under_every_name_of_the_node() {
        let address = |type_: &str, address: &str| api::NodeAddress {
            type_: type_.to_owned(),
            address: address.to_owned(),
        };
        let named = vec![
            address("InternalIP", "10.0.0.5"),
            address("InternalDNS", "vm-1.c.proj.internal"),
            address("Hostname", "vm-1.c.proj.internal"),
        ];
        // What the agent knows of itself is no Node.
        let alone = NodeView { host_ips: vec![IpAddr::from([10, 0, 0, 5])], ..NodeView::default() };
        let (node, view) = watch::channel(Arc::new(alone));
        let mut tasks = JoinSet::new();
        let mut told = addresses(view, &mut tasks);
        tokio::task::yield_now().await;
        assert!(told.borrow().is_empty());
        node.send_replace(Arc::new(NodeView { addresses: named.clone(), ..NodeView::default() }));
        told.changed().await.expect("somebody who tells");
        assert_eq!(*told.borrow(), named);
    }
}
