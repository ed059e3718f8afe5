//! What a running source can be told, and what it has to say.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::{Source, SourceSettings};

/// The outside's end. Each channel has one task at its other end, which is what keeps a simulation deterministic.
pub struct Control {
    folder: watch::Sender<Duration>,
    url: watch::Sender<Duration>,
    problems: Problems,
}

impl Control {
    /// How often the sources look by themselves, from now on.
    pub fn set_checks(&self, folder: Duration, url: Duration) {
        for (sender, pace) in [(&self.folder, folder), (&self.url, url)] {
            sender.send_if_modified(|known| std::mem::replace(known, pace) != pace);
        }
    }

    /// Manifests that are not used, one line each.
    pub fn problems(&self) -> Vec<String> {
        self.problems.all()
    }
}

/// The sources' end.
pub(super) struct Paces {
    pub folder: watch::Receiver<Duration>,
    pub url: watch::Receiver<Duration>,
}

pub(super) fn paces(settings: &SourceSettings, problems: Problems) -> (Control, Paces) {
    let (folder, folder_pace) = watch::channel(settings.folder_check);
    let (url, url_pace) = watch::channel(settings.url_check);
    (Control { folder, url, problems }, Paces { folder: folder_pace, url: url_pace })
}

/// Waits for a new pace. Never returns once nobody can give one.
pub(super) async fn changed(pace: &mut watch::Receiver<Duration>) {
    if pace.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// What is wrong with the manifests of each source as of its last look.
#[derive(Clone, Default)]
pub(super) struct Problems(Arc<Mutex<BTreeMap<Source, Vec<String>>>>);

impl Problems {
    pub fn set(&self, source: Source, problems: Vec<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(source, problems);
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().flatten().cloned().collect()
    }
}
