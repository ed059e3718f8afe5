//! The tasks in which sessions run, after the connections that they came on are hyper's business no more.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::{Refused, too_many};

/// How many clients can hold streams at a time.
const MOST: usize = 512;

/// Dropping it ends every session.
pub struct Sessions {
    room: Arc<Semaphore>,
    tasks: Mutex<JoinSet<()>>,
}

/// A place for one session.
pub struct Place {
    _permit: OwnedSemaphorePermit,
}

impl Sessions {
    pub fn new() -> Self {
        Self { room: Arc::new(Semaphore::new(MOST)), tasks: Mutex::new(JoinSet::new()) }
    }

    /// In upstream's words for the runtime's own limit.
    pub fn place(&self) -> Result<Place, Refused> {
        match self.room.clone().try_acquire_owned() {
            Ok(permit) => Ok(Place { _permit: permit }),
            Err(_) => Err(too_many("maximum number of in-flight requests exceeded")),
        }
    }

    pub fn begin(&self, place: Place, session: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            session.await;
            drop(place);
        });
    }

    /// Until no session is left.
    #[cfg(test)]
    pub async fn rest(&self) {
        let all = u32::try_from(MOST).expect("a small number");
        let _ = self.room.acquire_many(all).await.expect("room");
    }
}
