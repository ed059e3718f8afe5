//! From a bootstrap token to a first client certificate.
//!
//! | module | what it is |
//! |---|---|
//! | `kubeconfig` | whether the kubeconfig that is there still does, and the one that is written |

mod kubeconfig;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use crablet_apiserver::{ApiServer, Call, ErrorKind, Lane};
use crablet_host::{Clock, Files};
use rcgen::{KeyPair, PublicKeyData};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{info, warn};

use crate::names::{GROUP, Names};
use crate::pair::{LONGEST_FILE, signing_key};
use crate::request::{self, RequestError};
use crate::store::{self, Store, StoreError};

pub use kubeconfig::{Cluster, needs_bootstrap, write_kubeconfig};

/// Holds the key until there is a certificate for it, so that a new start goes on with the same request.
const KEY_FILE: &str = "kubelet-client.key.tmp";
/// How long to wait for an API server that does not answer before asking it anyway.
const SERVER_WAIT: Duration = Duration::from_secs(60);
const SERVER_POLL: Duration = Duration::from_secs(2);
/// How long to wait for the certificate in all, as upstream does.
const DEADLINE: Duration = Duration::from_secs(60 * 60);
const FIRST_RETRY: Duration = Duration::from_secs(2);
const LONGEST_RETRY: Duration = Duration::from_secs(32);

#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot {doing} `{}`: {error}", path.display())]
    Disk { doing: &'static str, path: PathBuf, error: io::Error },
}

/// What a bootstrap needs.
pub struct Bootstrap {
    /// With the bootstrap token.
    pub api: Arc<dyn ApiServer>,
    pub files: Arc<dyn Files>,
    pub clock: Arc<dyn Clock>,
    pub rng: fastrand::Rng,
    pub node_name: String,
    /// `--cert-dir`
    pub folder: PathBuf,
    /// `--kubeconfig`: written.
    pub kubeconfig: PathBuf,
    /// From the bootstrap kubeconfig.
    pub cluster: Cluster,
}

/// Gets a client certificate, stores it, and writes the kubeconfig that names it. Ask [`needs_bootstrap`] first.
pub async fn run(bootstrap: Bootstrap) -> Result<(), BootstrapError> {
    let Bootstrap { api, files, clock, mut rng, node_name, folder, kubeconfig, cluster } = bootstrap;
    let store = Store::new(Arc::clone(&files), Arc::clone(&clock), folder.clone(), store::CLIENT);
    let key_path = folder.join(KEY_FILE);
    let key = key(files.as_ref(), &store, &folder, &key_path).await?;

    wait_for_server(&api, &mut rng).await;
    let certificates = certificate(&api, &Names::client(&node_name), &key).await?;
    let pair = store.update(&certificates, key.serialize_pem().as_bytes()).await?;
    if clock.now() > pair.chain_ends {
        let reason = format!("one of the certificates for the CSR has expired: {}", pair.chain_ends);
        return Err(RequestError::Incompatible(reason).into());
    }
    if let Err(error) = files.remove_file(&key_path).await {
        warn!(path = %key_path.display(), %error, "Failed cleaning up private key file");
    }
    write_kubeconfig(files.as_ref(), &kubeconfig, &cluster, &store.current_path()).await
}

/// The key of the store's pair, even if its certificate is over; else the one of a bootstrap that did not end; else a
/// new one.
async fn key(
    files: &dyn Files,
    store: &Store,
    folder: &Path,
    path: &Path,
) -> Result<KeyPair, BootstrapError> {
    if let Ok(Some(pair)) = store.current().await
        && let Some(key) = signing_key(&pair.pem)
    {
        return Ok(key);
    }
    let disk = |doing, error| BootstrapError::Disk { doing, path: path.to_owned(), error };
    match files.read(path, LONGEST_FILE).await {
        Ok(pem) => {
            if let Some(key) = signing_key(&pem) {
                return Ok(key);
            }
            warn!(path = %path.display(), "No valid private key found, creating a new one");
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(disk("read", error)),
    }
    let key = KeyPair::generate().map_err(RequestError::Generate)?;
    files.create_folder(folder, 0o755).await.map_err(|error| disk("create the folder of", error))?;
    files
        .write_atomic(path, key.serialize_pem().as_bytes(), 0o600)
        .await
        .map_err(|error| disk("write", error))?;
    Ok(key)
}

async fn wait_for_server(api: &Arc<dyn ApiServer>, rng: &mut fastrand::Rng) {
    let deadline = Instant::now() + SERVER_WAIT;
    loop {
        let call = Call::get(Lane::Main, "/healthz").within(Duration::from_secs(1));
        match api.call(call).await {
            Ok(_) => return,
            Err(error) => info!(%error, "Failed to connect to apiserver"),
        }
        if Instant::now() >= deadline {
            return info!(
                "Error waiting for apiserver to come up: timed out waiting to connect to apiserver"
            );
        }
        sleep(SERVER_POLL.mul_f64(1.0 + 0.2 * rng.f64())).await;
    }
}

/// Asks until there is a certificate. The name follows from the key, so that asking again, by this process or by the
/// next, finds the request that was made.
async fn certificate(
    api: &Arc<dyn ApiServer>,
    names: &Names,
    key: &KeyPair,
) -> Result<Vec<u8>, RequestError> {
    let name = request_name(names, key);
    let deadline = Instant::now() + DEADLINE;
    let mut pause = FIRST_RETRY;
    loop {
        let round = async {
            let ticket = request::create(api, request::CLIENT, names, key, Some(&name)).await?;
            info!("Waiting for client certificate to be issued");
            request::wait(api, &ticket).await
        };
        let error = tokio::select! {
            biased;
            outcome = round => match outcome {
                // The next round makes it anew if it is gone.
                Err(error) if passes(&error) => error,
                outcome => return outcome,
            },
            () = sleep_until(deadline) => return Err(RequestError::TimedOut(name)),
        };
        info!(csr = name, %error, "Asking again for a client certificate");
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_RETRY);
    }
}

/// Whether the next try may end better.
fn passes(error: &RequestError) -> bool {
    match error {
        RequestError::Create(error) | RequestError::Retrieve(error) => {
            error.is_transient() && !matches!(error.kind, ErrorKind::Unauthorized | ErrorKind::Forbidden)
        }
        RequestError::TimedOut(_) | RequestError::Deleted(_) | RequestError::Replaced(_) => true,
        _ => false,
    }
}

/// Upstream's name for the same key and node: a digest of all that the request says.
fn request_name(names: &Names, key: &KeyPair) -> String {
    let public_key = key.subject_public_key_info();
    let parts = [public_key.as_slice(), names.common_name.as_bytes(), GROUP.as_bytes()];
    let mut digest = ring::digest::Context::new(&ring::digest::SHA512_256);
    for part in parts.into_iter().chain(request::CLIENT.usages.iter().map(|usage| usage.as_bytes())) {
        digest.update(BASE64_URL_SAFE_NO_PAD.encode(part).as_bytes());
        digest.update(b"|");
    }
    format!("node-csr-{}", BASE64_URL_SAFE_NO_PAD.encode(digest.finish()))
}
