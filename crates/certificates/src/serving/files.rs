//! A certificate file and a key file, read again when they change.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crablet_host::{Files, FolderEvents};
use futures_util::StreamExt;
use futures_util::stream;
use rustls::sign::CertifiedKey;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{error, info};

use super::ServingError;
use crate::pair::{LONGEST_FILE, Pair};

/// A safety net beside the watches: links can lead to files in folders that nobody watches.
const RECHECK: Duration = Duration::from_secs(60);
/// Whoever replaces one file soon replaces the other.
const SETTLE: Duration = Duration::from_millis(500);

/// Of the two files' content; the key itself is not kept twice.
type Digest = [u8; 32];

struct PairFiles {
    files: Arc<dyn Files>,
    certificate: PathBuf,
    key: PathBuf,
}

pub(super) async fn start(
    files: Arc<dyn Files>,
    certificate: PathBuf,
    key: PathBuf,
    tasks: &mut JoinSet<()>,
) -> Result<watch::Receiver<Option<Arc<CertifiedKey>>>, ServingError> {
    let pair_files = PairFiles { files, certificate, key };
    let (content, digest) = pair_files.read().await?;
    let (sender, receiver) = watch::channel(Some(pair_files.pair(&content)?));
    tasks.spawn(follow(pair_files, digest, sender));
    Ok(receiver)
}

/// Ends when nobody wants to know any more.
async fn follow(pair_files: PairFiles, mut seen: Digest, sender: watch::Sender<Option<Arc<CertifiedKey>>>) {
    let mut events = None;
    loop {
        if events.is_none() {
            events = pair_files.watch().await;
        }
        let changed = async {
            match &mut events {
                Some(events) => events.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = sender.closed() => return,
            heard = timeout(RECHECK, changed) => match heard {
                Ok(Some(Ok(_))) => sleep(SETTLE).await,
                // The watch broke or ended; the next round asks for another, and this one looks after a while.
                Ok(_) => {
                    events = None;
                    sleep(RECHECK).await;
                }
                Err(_) => {}
            },
        }
        let read = pair_files.read().await;
        let outcome = match &read {
            Ok((_, digest)) if *digest == seen => continue,
            Ok((content, digest)) => {
                seen = *digest;
                pair_files.pair(content)
            }
            Err(error) => {
                error!(%error, "Unable to read the serving certificate, going on with the old one");
                continue;
            }
        };
        match outcome {
            Ok(certified) => {
                info!(certFile = %pair_files.certificate.display(), keyFile = %pair_files.key.display(), "Loaded certificate and key pair");
                sender.send_replace(Some(certified));
            }
            Err(error) => {
                error!(%error, "Invalid certificate and key pair from file, going on with the old one")
            }
        }
    }
}

impl PairFiles {
    async fn read(&self) -> Result<((Vec<u8>, Vec<u8>), Digest), ServingError> {
        let certificate = self.read_one(&self.certificate).await?;
        let key = self.read_one(&self.key).await?;
        let mut digest = ring::digest::Context::new(&ring::digest::SHA256);
        digest.update(&(certificate.len() as u64).to_be_bytes());
        digest.update(&certificate);
        digest.update(&key);
        let digest = digest.finish().as_ref().try_into().unwrap_or_default();
        Ok(((certificate, key), digest))
    }

    async fn read_one(&self, path: &Path) -> Result<Vec<u8>, ServingError> {
        let read = self.files.read(path, LONGEST_FILE).await;
        read.map_err(|error| ServingError::Disk { doing: "read", path: path.to_owned(), error })
    }

    fn pair(&self, (certificate, key): &(Vec<u8>, Vec<u8>)) -> Result<Arc<CertifiedKey>, ServingError> {
        let pair = Pair::from_pem(certificate, key).map_err(|error| ServingError::Pair {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            error,
        })?;
        Ok(pair.certified)
    }

    /// Of the folders that hold the two. `None` where that cannot be had: the recheck does it alone then.
    async fn watch(&self) -> Option<FolderEvents> {
        let folder = |path: &Path| path.parent().unwrap_or(Path::new("/")).to_owned();
        let (first, second) = (folder(&self.certificate), folder(&self.key));
        let events = self.files.watch(&first).await.ok()?;
        if first == second {
            return Some(events);
        }
        let more = self.files.watch(&second).await.ok()?;
        Some(stream::select(events, more).boxed())
    }
}
