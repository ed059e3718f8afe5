//! Noticing that there is no valid client certificate and that waiting does not help: the API server is there and
//! refuses. Only a new start can mend that, with credentials that somebody may have laid down meanwhile.

use std::sync::Arc;
use std::time::Duration;

use crablet_host::Clock;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::error;

use crate::manager::{self, CertificateState};

/// How long the agent goes on without a certificate, as upstream does.
const PATIENCE: Duration = Duration::from_secs(5 * 60);

/// Ends with the reason sent, or with the manager.
pub(crate) async fn guard(
    mut state: watch::Receiver<CertificateState>,
    clock: Arc<dyn Clock>,
    fatal: watch::Sender<Option<String>>,
) {
    loop {
        let now = *state.borrow_and_update();
        let alive = match now.not_after {
            Some(end) if clock.now() <= end => {
                tokio::select! {
                    biased;
                    changed = state.changed() => changed.is_ok(),
                    // Valid until its last second, that included.
                    () = manager::sleep_until(clock.as_ref(), Some(end + Duration::from_secs(1))) => true,
                }
            }
            _ => without(&mut state, &fatal).await,
        };
        if !alive {
            return;
        }
    }
}

/// Until there is another certificate. `false` when there is nothing left to guard.
async fn without(
    state: &mut watch::Receiver<CertificateState>,
    fatal: &watch::Sender<Option<String>>,
) -> bool {
    let missing = state.borrow().not_after;
    let patience_ends = Instant::now() + PATIENCE;
    let (what, mut told) = (if missing.is_some() { "expired" } else { "missing" }, false);
    loop {
        let now = *state.borrow_and_update();
        if now.not_after != missing {
            return true;
        }
        let impatient = Instant::now() >= patience_ends;
        if impatient && now.server_responds {
            let reason = match missing {
                Some(end) => format!(
                    "The currently active client certificate has expired ({end}) and the server is responsive, exiting."
                ),
                None => {
                    "No valid client certificate is found and the server is responsive, exiting.".to_owned()
                }
            };
            error!("{reason}");
            fatal.send_replace(Some(reason));
            return false;
        }
        if impatient && !told {
            told = true;
            error!(
                certificate = what,
                "No valid client certificate is found but the server is not responsive. A restart may be necessary to retrieve new initial credentials."
            );
        }
        tokio::select! {
            biased;
            changed = state.changed() => if changed.is_err() { return false },
            () = sleep_until(patience_ends), if !impatient => {}
        }
    }
}
