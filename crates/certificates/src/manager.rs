//! The loop that keeps one certificate fresh.
//!
//! ```text
//! wait until due ──> request ──> wait for the signature ──> store ──> tell ──┐
//!    ^  ^               │ failed: 2 s, doubling to 32 s      │               │
//!    │  └── other names wanted: begin again ─────────────────┘               │
//!    └───────────────────────────────────────────────────────────────────────┘
//! ```

use std::sync::Arc;
use std::time::Duration;

use crablet_apiserver::{ApiServer, ErrorKind};
use crablet_host::Clock;
use jiff::{SignedDuration, Timestamp};
use rcgen::KeyPair;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{error, info};

use crate::names::{Names, Wanted};
use crate::pair::Pair;
use crate::request::{self, RequestError, Signer};
use crate::store::{Store, StoreError};

/// Between two rounds, whatever happens.
const PAUSE: Duration = Duration::from_secs(1);
const FIRST_RETRY: Duration = Duration::from_secs(2);
const LONGEST_RETRY: Duration = Duration::from_secs(32);
/// The wall clock may be set while a deadline on it is waited for.
const LONGEST_SLEEP: Duration = Duration::from_secs(60 * 60);

/// How it stands with a certificate that is renewed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CertificateState {
    /// When the one in use ends; `None` while there is none.
    pub not_after: Option<Timestamp>,
    /// Renewals that failed since the start.
    pub renew_errors: u64,
    /// Whether the last request showed that the API server is there, even if it refused.
    pub server_responds: bool,
}

/// Told of each pair that becomes the current one.
pub(crate) type Tell = Box<dyn Fn(&Pair) + Send + Sync>;

pub(crate) struct Manager {
    pub store: Store,
    pub api: Arc<dyn ApiServer>,
    /// Asked instead while there is no valid certificate to ask `api` with.
    pub bootstrap: Option<Arc<dyn ApiServer>>,
    pub signer: Signer,
    pub wanted: Wanted,
    pub current: Option<Pair>,
    /// The current one is not to be kept, however long it is valid.
    pub replace_now: bool,
    pub clock: Arc<dyn Clock>,
    pub rng: fastrand::Rng,
    pub tell: Tell,
    pub state: watch::Sender<CertificateState>,
}

impl Manager {
    pub async fn run(mut self) {
        loop {
            let names = self.wanted.names();
            let due = names.as_ref().map(|names| self.due(names));
            tokio::select! {
                biased;
                () = self.wanted.changed_from(names.as_ref()) => {}
                () = sleep_until(self.clock.as_ref(), due) => {
                    self.replace_now = false;
                    self.renew().await;
                }
            }
            sleep(PAUSE).await;
        }
    }

    /// When to ask for the next: now if the current one does not do, else at 70 to 90 per cent of its life, so that
    /// nodes that joined together do not renew together.
    fn due(&mut self, names: &Names) -> Timestamp {
        let now = self.clock.now();
        let Some(pair) = self.current.as_ref().filter(|pair| names.satisfied_by(&pair.leaf)) else {
            return now;
        };
        if self.replace_now {
            return now;
        }
        let life = pair.leaf.not_after.duration_since(pair.leaf.not_before).as_secs_f64();
        let until = life * (0.7 + 0.2 * self.rng.f64());
        let deadline = pair.leaf.not_before + SignedDuration::from_secs(until as i64);
        info!(signer = self.signer.name, expiration = %pair.leaf.not_after, %deadline, "Certificate rotation deadline determined");
        deadline
    }

    /// Asks until there is a new one, or until the names change on the way.
    async fn renew(&mut self) {
        let mut pause = FIRST_RETRY;
        // Without names there is nothing to ask for; the round after this waits for some.
        while let Some(names) = self.wanted.names() {
            info!(signer = self.signer.name, "Rotating certificates");
            let attempt = attempt(self.asked(), self.signer, names.clone());
            let outcome = tokio::select! {
                biased;
                () = self.wanted.changed_from(Some(&names)) => return,
                outcome = attempt => outcome,
            };
            match outcome {
                Ok((certificates, key)) => match self.store.update(&certificates, key.as_bytes()).await {
                    Ok(pair) => return self.adopt(pair),
                    Err(error) => self.failed(&error, None),
                },
                Err(error) => {
                    let responds = match &error {
                        RequestError::Create(error) => Some(matches!(
                            error.kind,
                            ErrorKind::Unauthorized | ErrorKind::Forbidden | ErrorKind::NotFound
                        )),
                        _ => None,
                    };
                    self.failed(&error, responds);
                }
            }
            let jitter = 1.0 + 0.1 * self.rng.f64();
            tokio::select! {
                biased;
                () = self.wanted.changed_from(Some(&names)) => return,
                () = sleep(pause.mul_f64(jitter)) => {}
            }
            pause = (pause * 2).min(LONGEST_RETRY);
        }
    }

    fn asked(&self) -> Arc<dyn ApiServer> {
        let now = self.clock.now();
        let valid = self.current.as_ref().is_some_and(|pair| !pair.expired(now));
        match &self.bootstrap {
            Some(bootstrap) if !valid => Arc::clone(bootstrap),
            _ => Arc::clone(&self.api),
        }
    }

    fn adopt(&mut self, pair: Pair) {
        self.state.send_modify(|state| {
            state.not_after = Some(pair.leaf.not_after);
            state.server_responds = true;
        });
        (self.tell)(&pair);
        self.current = Some(pair);
    }

    fn failed(&self, error: &dyn std::error::Error, responds: Option<bool>) {
        error!(signer = self.signer.name, %error, "Unable to rotate the certificate");
        self.state.send_modify(|state| {
            state.renew_errors += 1;
            state.server_responds = responds.unwrap_or(state.server_responds);
        });
    }
}

/// A new key and a certificate for it.
async fn attempt(
    api: Arc<dyn ApiServer>,
    signer: Signer,
    names: Names,
) -> Result<(Vec<u8>, String), RequestError> {
    let key = KeyPair::generate()?;
    let ticket = request::create(&api, signer, &names, &key, None).await?;
    let certificates = request::wait(&api, &ticket).await?;
    Ok((certificates, key.serialize_pem()))
}

/// The pair to begin with: the store's while it is valid, else `initial`, which is put into the store and is to be
/// replaced at once, as upstream does with the one that an installer leaves in a kubeconfig.
pub(crate) async fn begin(
    store: &Store,
    initial: Option<(&[u8], &[u8])>,
    clock: &dyn Clock,
) -> Result<(Option<Pair>, bool), StoreError> {
    if let Some(pair) = store.current().await?.filter(|pair| !pair.expired(clock.now())) {
        return Ok((Some(pair), false));
    }
    match initial {
        Some((certificates, key)) => Ok((Some(store.update(certificates, key).await?), true)),
        None => Ok((None, true)),
    }
}

/// Until a moment of the wall clock; for ever without one.
pub(crate) async fn sleep_until(clock: &dyn Clock, moment: Option<Timestamp>) {
    let Some(moment) = moment else { return std::future::pending().await };
    while let Ok(left) = Duration::try_from(moment.duration_since(clock.now()))
        && !left.is_zero()
    {
        sleep(left.min(LONGEST_SLEEP)).await;
    }
}
