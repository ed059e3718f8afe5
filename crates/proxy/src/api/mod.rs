//! The proxy in front of an API server.
//!
//! TLS ends here on both sides, so the API server cannot see a client's certificate any more. For a client with a
//! certificate of the cluster's authority the proxy therefore speaks as a front proxy: it connects with its own client
//! certificate and names the client in `X-Remote-User`, `X-Remote-Group` and `X-Remote-Extra-...`, which the API server
//! believes if it was started with the matching `--requestheader-...` flags. Requests of clients without a certificate
//! go over connections without one, and bring their own token.
//!
//! Clients speak HTTP/1.1 or HTTP/2; upstream it is HTTP/1.1, one connection for each request under way, because one
//! HTTP/2 connection has room for a hundred watches and no more.

mod body;
mod entry;
mod forward;
mod headers;
mod identity;
mod redact;
mod request_info;
mod server;
mod subject;
mod tls;
mod tunnel;

use std::net::SocketAddr;
use std::path::PathBuf;

pub use self::entry::{ApiKey, ApiRecord, BodyInfo};
pub use self::server::ApiServer;
pub use self::tls::Identity;
use crate::background::Background;
use crate::error::Result;
use crate::record::{DEFAULT_KEPT, Recorder};
use crate::rules::Rules;
use crate::secrets::Salt;

/// How to start it. All certificates and keys are PEM.
#[derive(Debug, Clone)]
pub struct ApiOptions {
    /// Port 0 takes a free one; [`ApiProxy::address`] tells which.
    pub listen: SocketAddr,
    /// What clients see.
    pub serving: Identity,
    /// Who signs the clients' certificates (`--client-ca-file` of the API server).
    pub client_ca: Vec<u8>,
    /// The API server: `host:port`. It need not be there yet.
    pub upstream: String,
    /// Who signed the API server's certificate.
    pub upstream_ca: Vec<u8>,
    /// A client certificate of the front proxies' authority (`--requestheader-client-ca-file` of the API server), with
    /// a name that `--requestheader-allowed-names` allows.
    pub front_proxy: Identity,
    /// Where lines are appended.
    pub log: PathBuf,
    /// Give two proxies the same one to compare their records.
    pub salt: Salt,
    /// Bodies longer than this are not shown in the record, only their length; and request bodies up to this are read
    /// whole before they are passed on, so that rules can see them.
    pub body_limit: usize,
    /// How many lines are kept in memory.
    pub kept: usize,
}

impl ApiOptions {
    /// On a free port of this machine.
    pub fn new(
        serving: Identity,
        client_ca: impl Into<Vec<u8>>,
        upstream: impl Into<String>,
        upstream_ca: impl Into<Vec<u8>>,
        front_proxy: Identity,
        log: impl Into<PathBuf>,
    ) -> ApiOptions {
        ApiOptions {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            serving,
            client_ca: client_ca.into(),
            upstream: upstream.into(),
            upstream_ca: upstream_ca.into(),
            front_proxy,
            log: log.into(),
            salt: Salt::random(),
            body_limit: 1 << 20,
            kept: DEFAULT_KEPT,
        }
    }
}

/// The proxy for synchronous tests: it runs in threads of its own until it is dropped.
///
/// ```no_run
/// # use crablet_proxy::{Action, ApiOptions, ApiProxy, Cut, Failure, Identity, Matcher, Rule};
/// # use std::time::Duration;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let read = |name: &str| std::fs::read(format!("/run/pki/{name}"));
/// let serving = Identity { certificate: read("apiserver.crt")?, key: read("apiserver.key")? };
/// let front_proxy = Identity { certificate: read("front-proxy.crt")?, key: read("front-proxy.key")? };
/// let ca = read("ca.crt")?;
/// let options =
///     ApiOptions::new(serving, ca.clone(), "127.0.0.1:6443", ca, front_proxy, "/tmp/api.jsonl");
/// let proxy = ApiProxy::start(&options)?;
/// println!("give the kubelet a kubeconfig for https://{}", proxy.address());
///
/// let leases = Matcher::path("/apis/coordination.k8s.io/v1/**/leases/*").user("system:node:*");
/// proxy.rules().add(Rule::new(leases, Action::Fail(Failure::http(503, "no leader"))).first(3));
/// let pods = Matcher::path("/api/v1/pods").verb("watch");
/// proxy.rules().add(Rule::new(pods, Action::Cut(Cut::AfterEvents(5))).first(1));
/// proxy.record().wait("the node's status", Duration::from_secs(60), |line| {
///     line.verb == "patch" && line.resource == "nodes" && line.subresource == "status"
/// })?;
/// let patches = proxy.record().count(|key| key.verb == "patch" && key.resource == "nodes");
/// # let _ = patches;
/// # Ok(())
/// # }
/// ```
pub struct ApiProxy {
    rules: Rules,
    recorder: Recorder<ApiRecord>,
    address: SocketAddr,
    _background: Background,
}

impl ApiProxy {
    pub fn start(options: &ApiOptions) -> Result<ApiProxy> {
        let options = options.clone();
        let (background, (rules, recorder, address)) = Background::start("api-proxy", move || {
            let server = ApiServer::bind(&options)?;
            let handles = (server.rules(), server.record(), server.address());
            Ok((handles, server.run()))
        })?;
        Ok(ApiProxy { rules, recorder, address, _background: background })
    }

    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    pub fn record(&self) -> &Recorder<ApiRecord> {
        &self.recorder
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
