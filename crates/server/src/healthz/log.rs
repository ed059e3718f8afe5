//! The check `log`: what this program writes is taken away, and not waited for.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// As upstream: the log is tried every minute, and was tried well in the last two.
const TRY_EVERY: Duration = Duration::from_secs(60);
const GOOD_FOR: Duration = Duration::from_secs(120);

/// Begins to try the log when it is first asked.
#[derive(Clone, Default)]
pub(super) struct LogCheck(Arc<Mutex<Option<Instant>>>);

impl LogCheck {
    pub fn run(&self) -> Result<(), String> {
        let mut verified = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = *verified.get_or_insert_with(|| {
            tokio::spawn(try_the_log(Arc::downgrade(&self.0)));
            Instant::now()
        });
        if last.elapsed() < GOOD_FOR { Ok(()) } else { Err("logging blocked".to_owned()) }
    }
}

async fn try_the_log(verified: std::sync::Weak<Mutex<Option<Instant>>>) {
    loop {
        // Whoever waits for somebody to read the log holds its lock meanwhile.
        let tried = tokio::task::spawn_blocking(|| std::io::stderr().lock().flush()).await;
        let Some(verified) = verified.upgrade() else { return };
        if tried.is_ok() {
            *verified.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        drop(verified);
        tokio::time::sleep(TRY_EVERY).await;
    }
}
