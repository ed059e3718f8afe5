//! The client certificate, renewed (`rotateCertificates`).

use std::sync::Arc;

use crablet_apiserver::ApiServer;
use crablet_host::Clock;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::expiry;
use crate::manager::{self, CertificateState, Manager};
use crate::names::{Names, Wanted};
use crate::request;
use crate::store::{Store, StoreError};

/// What the rotation of a client certificate needs.
pub struct ClientSetup {
    /// Of [`store::CLIENT`](crate::store::CLIENT), with the kubeconfig's files as a fallback if it names others.
    pub store: Store,
    pub node_name: String,
    /// With the node's own certificate.
    pub api: Arc<dyn ApiServer>,
    /// With the bootstrap token: asked while there is no valid certificate.
    pub bootstrap: Option<Arc<dyn ApiServer>>,
    /// Certificate and key that the kubeconfig holds in line, as PEM. They are put into the store if it has nothing
    /// valid, and replaced at once.
    pub initial: Option<(Vec<u8>, Vec<u8>)>,
    pub clock: Arc<dyn Clock>,
    pub rng: fastrand::Rng,
    /// Given each pair, chain and key as PEM, from which on it is the current one; the first one, if there is one,
    /// before [`ClientRotation::start`] returns.
    pub on_new: Arc<dyn Fn(Vec<u8>) + Send + Sync>,
}

/// A client certificate that is kept fresh.
pub struct ClientRotation {
    pub state: watch::Receiver<CertificateState>,
    /// Why the process must end: there is no valid certificate, and the API server is there and gives none.
    pub fatal: watch::Receiver<Option<String>>,
}

impl ClientRotation {
    /// Fails when the store cannot be read.
    pub async fn start(setup: ClientSetup, tasks: &mut JoinSet<()>) -> Result<Self, StoreError> {
        let ClientSetup { store, node_name, api, bootstrap, initial, clock, rng, on_new } = setup;
        let initial = initial.as_ref().map(|(certificates, key)| (certificates.as_slice(), key.as_slice()));
        let (current, replace_now) = manager::begin(&store, initial, clock.as_ref()).await?;
        if let Some(pair) = &current {
            on_new(pair.pem.clone());
        }
        let (sender, state) = watch::channel(CertificateState {
            not_after: current.as_ref().map(|pair| pair.leaf.not_after),
            ..CertificateState::default()
        });
        let (fatal_sender, fatal) = watch::channel(None);
        tasks.spawn(expiry::guard(state.clone(), Arc::clone(&clock), fatal_sender));
        let manager = Manager {
            store,
            api,
            bootstrap,
            signer: request::CLIENT,
            wanted: Wanted::Client(Names::client(&node_name)),
            current,
            replace_now,
            clock,
            rng,
            tell: Box::new(move |pair| on_new(pair.pem.clone())),
            state: sender,
        };
        tasks.spawn(manager.run());
        Ok(Self { state, fatal })
    }
}
