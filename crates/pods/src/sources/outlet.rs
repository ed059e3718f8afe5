//! Where sources hand in their pods.

use std::sync::Arc;

use crablet_host::Clock;
use crablet_model::PodUid;
use tokio::sync::{Mutex, mpsc};

use super::control::Problems;
use super::mux::{Merge, Mux, Stated};
use super::{PodUpdate, Source};
use crate::events::EventSink;

/// The receiver of pod updates is gone: the agent is going down.
#[derive(Debug)]
pub(super) struct Closed;

#[derive(Clone)]
pub(super) struct Outlet(Arc<Shared>);

struct Shared {
    mux: Mutex<Mux>,
    updates: mpsc::Sender<PodUpdate>,
    clock: Arc<dyn Clock>,
    events: Arc<dyn EventSink>,
    problems: Problems,
}

impl Outlet {
    pub fn new(updates: mpsc::Sender<PodUpdate>, clock: Arc<dyn Clock>, events: Arc<dyn EventSink>) -> Self {
        Self(Arc::new(Shared {
            mux: Mutex::default(),
            updates,
            clock,
            events,
            problems: Problems::default(),
        }))
    }

    pub fn problems(&self) -> Problems {
        self.0.problems.clone()
    }

    /// States the full set of a source's pods. The mux stays locked until everything is sent, so that the updates of two
    /// sources never mix.
    pub async fn set(&self, source: Source, pods: &mut [Stated]) -> Result<(), Closed> {
        let mut mux = self.0.mux.lock().await;
        let merge = mux.set(source, pods, self.0.clock.now());
        self.tell(merge).await
    }

    /// One pod came or changed.
    pub async fn put(&self, source: Source, pod: &Stated) -> Result<(), Closed> {
        let mut mux = self.0.mux.lock().await;
        let merge = mux.put(source, pod, self.0.clock.now());
        self.tell(merge).await
    }

    /// A pod as the source stated it last.
    pub async fn known(&self, source: Source, uid: &PodUid) -> Option<Stated> {
        self.0.mux.lock().await.known(source, uid)
    }

    /// One pod went.
    pub async fn take(&self, source: Source, uid: &PodUid) -> Result<(), Closed> {
        let mut mux = self.0.mux.lock().await;
        let merge = mux.take(source, uid);
        self.tell(merge).await
    }

    async fn tell(&self, merge: Merge) -> Result<(), Closed> {
        for event in merge.events {
            self.0.events.emit(event);
        }
        for update in merge.updates {
            self.0.updates.send(update).await.map_err(|_| Closed)?;
        }
        Ok(())
    }
}
