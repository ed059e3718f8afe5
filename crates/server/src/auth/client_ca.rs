//! The authorities whose client certificates are believed. The handshake takes any certificate; it is judged per
//! request, so that an unknown one gets an answer (401) instead of a broken connection.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crablet_host::Files;
use futures_util::StreamExt;
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use tokio::sync::watch;
use tracing::{error, info};

/// Far more than any bundle.
const MOST_BYTES: usize = 1 << 20;
/// As upstream's: also notices changes behind a symlink to another folder.
const CHECK_EVERY: Duration = Duration::from_secs(60);
/// A bundle is written in several steps; the last one counts.
const SETTLE: Duration = Duration::from_millis(100);

type Verifier = Arc<dyn ClientCertVerifier>;

/// The bundle as it is now.
#[derive(Clone)]
pub struct ClientCa(watch::Receiver<Verifier>);

impl ClientCa {
    pub fn verifier(&self) -> Verifier {
        self.0.borrow().clone()
    }

    /// Until the bundle has changed. Never ends when it cannot change any more. Cancel-safe.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

/// Reads the bundle again when its file changes. A bundle that cannot be used leaves the last good one in force.
pub struct Reload {
    files: Arc<dyn Files>,
    path: PathBuf,
    provider: Arc<CryptoProvider>,
    content: Vec<u8>,
    current: watch::Sender<Verifier>,
}

/// Reads the bundle of `authentication.x509.clientCAFile` for the first time.
pub async fn load(
    files: Arc<dyn Files>,
    path: PathBuf,
    provider: Arc<CryptoProvider>,
) -> Result<(ClientCa, Reload), String> {
    let content = files.read(&path, MOST_BYTES).await.map_err(|error| {
        format!("authentication.x509.clientCAFile: cannot read {}: {error}", path.display())
    })?;
    let verifier = parse(&content, &provider)
        .map_err(|why| format!("authentication.x509.clientCAFile: {}: {why}", path.display()))?;
    let (current, receiver) = watch::channel(verifier);
    Ok((ClientCa(receiver), Reload { files, path, provider, content, current }))
}

fn parse(pem: &[u8], provider: &Arc<CryptoProvider>) -> Result<Verifier, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| format!("not PEM: {error}"))?;
        roots
            .add(certificate)
            .map_err(|error| format!("a certificate cannot be used as an authority: {error}"))?;
    }
    if roots.is_empty() {
        return Err("there is no certificate in it".to_owned());
    }
    WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone())
        .build()
        .map_err(|error| error.to_string())
}

impl Reload {
    /// Never ends.
    pub async fn run(mut self) {
        let folder = self.path.parent().map_or_else(|| PathBuf::from("."), Path::to_owned);
        loop {
            let mut events = match self.files.watch(&folder).await {
                Ok(events) => events,
                Err(_) => futures_util::stream::pending().boxed(),
            };
            // Looked at after the watch has begun, so that nothing falls between the two.
            self.look().await;
            loop {
                match tokio::time::timeout(CHECK_EVERY, events.next()).await {
                    Ok(Some(Ok(_))) => {
                        tokio::time::sleep(SETTLE).await;
                        self.look().await;
                    }
                    // The watch has ended. The pause keeps a folder that comes and goes from being looked at all the time.
                    Ok(_) => {
                        tokio::time::sleep(CHECK_EVERY).await;
                        break;
                    }
                    // Watched anew as well: the folder itself may have been replaced.
                    Err(_) => break,
                }
            }
        }
    }

    async fn look(&mut self) {
        let file = self.path.display();
        let content = match self.files.read(&self.path, MOST_BYTES).await {
            Ok(content) if content == self.content => return,
            Ok(content) => content,
            Err(error) => {
                return error!(err = %error, file = %file, "Cannot read the client CA bundle, keeping the last one");
            }
        };
        match parse(&content, &self.provider) {
            Ok(verifier) => {
                info!(file = %file, "Loaded a new client CA bundle");
                self.current.send_replace(verifier);
            }
            Err(why) => {
                error!(err = %why, file = %file, "The client CA bundle cannot be used, keeping the last one")
            }
        }
        self.content = content;
    }
}
