//! Which of a pod's pull secrets are missing, told also where none is needed, as upstream: the image is there today, and
//! tomorrow it may have to be pulled. No start waits for that.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crablet_model::{PodRef, api};
use tokio::task::JoinSet;

use super::credentials::Credentials;

/// How long one that the API server does not tell of is looked for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Looks at a time. Beyond that an API server is away, which others tell, and the next start of a pod looks again.
const MOST: usize = 32;

/// Looks that are under way. They end with it.
#[derive(Default)]
pub(super) struct Missing {
    looks: Mutex<JoinSet<()>>,
}

impl Missing {
    pub fn tell(&self, credentials: &Arc<Credentials>, id: &PodRef, pod: Option<&api::Pod>) {
        let names = Credentials::names(pod);
        if names.is_empty() {
            return;
        }
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        while looks.try_join_next().is_some() {}
        if looks.len() >= MOST {
            tracing::debug!(pod = id.object_ref(), podUID = %id.uid, "too many pull secrets are looked for already");
            return;
        }
        let (credentials, id) = (credentials.clone(), id.clone());
        looks.spawn(async move {
            let _ = tokio::time::timeout(PATIENCE, credentials.secrets(&id, &names)).await;
        });
    }
}
