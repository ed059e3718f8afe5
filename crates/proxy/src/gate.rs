//! A gate that holds calls until a test lets them go, so that a test decides what happens in which order.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::error::{Error, Result};

/// Closed at first. Clones are the same gate.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    passes: Semaphore,
    arrived: Mutex<u64>,
    changed: Condvar,
}

impl Default for Inner {
    fn default() -> Inner {
        Inner { passes: Semaphore::new(0), arrived: Mutex::new(0), changed: Condvar::new() }
    }
}

impl Gate {
    pub fn new() -> Gate {
        Gate::default()
    }

    /// Lets everyone pass who is held, and everyone who comes later.
    pub fn release(&self) {
        self.0.passes.close();
    }

    /// Lets one pass: the one that is held longest, or the next to come.
    pub fn release_one(&self) {
        if !self.0.passes.is_closed() {
            self.0.passes.add_permits(1);
        }
    }

    /// How many have come to the gate so far, held or not.
    pub fn arrived(&self) -> u64 {
        *self.0.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until `count` calls have come to the gate.
    pub fn wait_arrived(&self, count: u64, within: Duration) -> Result<()> {
        let arrived = self.0.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.changed.wait_timeout_while(arrived, within, |arrived| *arrived < count);
        let (arrived, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *arrived >= count {
            return Ok(());
        }
        Err(Error::Waited { what: format!("{count} calls at a gate ({arrived} came)"), within })
    }

    /// Comes to the gate and waits for its turn. Dropping the future gives up the place.
    pub(crate) async fn pass(&self) {
        *self.0.arrived.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.changed.notify_all();
        // An error says that the gate stands open for good.
        if let Ok(pass) = self.0.passes.acquire().await {
            pass.forget();
        }
    }
}
