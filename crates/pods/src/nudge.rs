//! Hints on their way to a worker.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crablet_apiserver::ObjectKey;
use crablet_model::runtime::RuntimeEventKind;
use tokio::sync::Notify;

/// More events than that at once, and the worker looks at everything.
const MOST_EVENTS: usize = 32;

/// What a worker is told between two turns.
#[derive(Debug, PartialEq, Eq)]
pub enum Told {
    /// Something has changed, nobody says what.
    Look,
    /// Something happened to this sandbox or container.
    Event { id: String, kind: RuntimeEventKind },
    /// A probe has judged. The runtime need not be asked for that.
    Probed,
}

#[derive(Default)]
pub struct Nudge {
    notify: Notify,
    told: Mutex<Vec<Told>>,
    /// Never more than the pod refers to.
    objects: Mutex<BTreeSet<Option<ObjectKey>>>,
}

impl Nudge {
    pub fn look(&self) {
        self.with(|told| {
            told.clear();
            told.push(Told::Look);
        });
        self.notify.notify_one();
    }

    pub fn probed(&self) {
        self.with(|told| {
            // Once is enough, and who looks at everything sees that too.
            if !told.iter().any(|t| matches!(t, Told::Look | Told::Probed)) {
                told.push(Told::Probed);
            }
        });
        self.notify.notify_one();
    }

    pub fn event(&self, id: String, kind: RuntimeEventKind) {
        self.with(|told| {
            if told.len() == MOST_EVENTS {
                told.clear();
                told.push(Told::Look);
            }
            // Who looks at everything needs no more.
            if told.first() != Some(&Told::Look) {
                told.push(Told::Event { id, kind });
            }
        });
        self.notify.notify_one();
    }

    /// An object that the pod refers to has come or changed; `None` for any of them.
    pub fn object(&self, key: Option<ObjectKey>) {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
        self.notify.notify_one();
    }

    /// Those since the last time.
    pub fn take_objects(&self) -> BTreeSet<Option<ObjectKey>> {
        std::mem::take(&mut *self.objects.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Until there is something to take.
    pub async fn given(&self) {
        self.notify.notified().await;
    }

    /// Everything since the last time, in order.
    pub fn take(&self) -> Vec<Told> {
        self.with(std::mem::take)
    }

    fn with<R>(&self, use_it: impl FnOnce(&mut Vec<Told>) -> R) -> R {
        use_it(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
