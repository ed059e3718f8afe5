//! The certificate that the server on port 10250 shows.
//!
//! | module | what it is |
//! |---|---|
//! | `files` | a pair of files, read again when they change |
//! | `selfsigned` | the pair that is made where nobody gives one |

mod files;
mod selfsigned;

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use crablet_apiserver::ApiServer;
use crablet_host::{Clock, Files};
use k8s_openapi::api::core::v1::NodeAddress;
use rustls::sign::CertifiedKey;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::manager::{self, CertificateState, Manager};
use crate::names::Wanted;
use crate::pair::PairError;
use crate::request;
use crate::store::{Store, StoreError};

#[derive(Debug, thiserror::Error)]
pub enum ServingError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot {doing} `{}`: {error}", path.display())]
    Disk { doing: &'static str, path: PathBuf, error: io::Error },
    #[error("error reading {}, certificate and key must be supplied as a pair", missing.display())]
    HalfAPair { missing: PathBuf },
    #[error("`{}` with `{}`: {error}", certificate.display(), key.display())]
    Pair { certificate: PathBuf, key: PathBuf, error: PairError },
    #[error("unable to generate self signed cert: {0}")]
    Generate(#[from] rcgen::Error),
}

/// Where the certificate comes from. As upstream, `serverTLSBootstrap` goes before files, and files before a pair of
/// our own.
pub enum Source {
    /// `serverTLSBootstrap`: from the signer `kubernetes.io/kubelet-serving`, once somebody approves.
    Requested {
        /// Of [`store::SERVER`](crate::store::SERVER), with `tlsCertFile` and `tlsPrivateKeyFile` as a fallback.
        store: Store,
        node_name: String,
        api: Arc<dyn ApiServer>,
        /// The node's addresses; nothing is requested while there are none.
        addresses: watch::Receiver<Vec<NodeAddress>>,
        /// The gate `AllowDNSOnlyNodeCSR`.
        dns_only: bool,
        rng: fastrand::Rng,
    },
    /// `tlsCertFile` and `tlsPrivateKeyFile`.
    Files { certificate: PathBuf, key: PathBuf },
    /// `kubelet.crt` and `kubelet.key` in `--cert-dir`, made if they are not there.
    SelfSigned { folder: PathBuf, host: String, addresses: Vec<IpAddr> },
}

/// What to serve with, kept fresh.
pub struct Serving {
    /// `None` while there is none yet.
    pub certificate: watch::Receiver<Option<Arc<CertifiedKey>>>,
    /// Of a certificate that is requested.
    pub state: Option<watch::Receiver<CertificateState>>,
}

impl Serving {
    /// Fails when there is a pair and it cannot be used.
    pub async fn start(
        source: Source,
        files: Arc<dyn Files>,
        clock: Arc<dyn Clock>,
        tasks: &mut JoinSet<()>,
    ) -> Result<Self, ServingError> {
        let (certificate, key) = match source {
            Source::Files { certificate, key } => (certificate, key),
            Source::SelfSigned { folder, host, addresses } => {
                selfsigned::ensure(files.as_ref(), clock.as_ref(), &folder, &host, &addresses).await?
            }
            Source::Requested { store, node_name, api, addresses, dns_only, rng } => {
                let (current, replace_now) = manager::begin(&store, None, clock.as_ref()).await?;
                let (shown, certificate) =
                    watch::channel(current.as_ref().map(|pair| Arc::clone(&pair.certified)));
                let (sender, state) = watch::channel(CertificateState {
                    not_after: current.as_ref().map(|pair| pair.leaf.not_after),
                    ..CertificateState::default()
                });
                let manager = Manager {
                    store,
                    api,
                    bootstrap: None,
                    signer: request::SERVING,
                    wanted: Wanted::Server { node_name, addresses, dns_only },
                    current,
                    replace_now,
                    clock,
                    rng,
                    tell: Box::new(move |pair| {
                        shown.send_replace(Some(Arc::clone(&pair.certified)));
                    }),
                    state: sender,
                };
                tasks.spawn(manager.run());
                return Ok(Self { certificate, state: Some(state) });
            }
        };
        let certificate = files::start(files, certificate, key, tasks).await?;
        Ok(Self { certificate, state: None })
    }
}
