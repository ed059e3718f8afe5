//! Watches as they are opened and run.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::path::{Resource, Target};
use super::store::{Line, Scope, Start};
use super::weather::status;
use super::{FakeApiServer, State};
use crate::port::{ApiError, WatchStream};

/// How long the server keeps a watch open that does not say.
const DEFAULT_WATCH: Duration = Duration::from_secs(1800);

impl FakeApiServer {
    pub(super) fn begin_watch(&self, path: &str) -> Result<WatchStream, ApiError> {
        let Some(target) = Target::parse(path) else {
            return Err(status(404, "NotFound", "the server could not find the requested resource"));
        };
        let mut state = self.state();
        let query = &target.query;
        if query.send_initial_events && !state.streaming_lists {
            let message = "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is \
                           forbidden for watch unless the WatchList feature gate is enabled";
            return Err(status(422, "Invalid", message));
        }
        if query.send_initial_events && query.version_match.as_deref() != Some("NotOlderThan") {
            let message = "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to \
                           NotOlderThan";
            return Err(status(422, "Invalid", message));
        }
        let version = query.version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0);
        let start = if query.send_initial_events {
            Start::WithState { bookmark: query.bookmarks }
        } else if version == 0 {
            Start::WithState { bookmark: false }
        } else {
            Start::After(version)
        };
        let scope = Scope { namespace: target.namespace.clone(), selector: query.selector.clone() };
        let lines = state.store.watch(&target.resource, scope, start);
        let open = query.timeout_seconds.map_or(DEFAULT_WATCH, Duration::from_secs);
        let watch = Open {
            lines,
            until: Instant::now() + open,
            closing: query.bookmarks.then(|| target.resource.clone()),
            state: self.state.clone(),
        };
        Ok(stream::unfold(Some(watch), |watch| async move { watch?.next().await }).boxed())
    }
}

/// A watch that runs.
struct Open {
    lines: mpsc::Receiver<Line>,
    until: Instant,
    /// The resource of the bookmark that is sent before the server closes the watch.
    closing: Option<Resource>,
    state: Arc<Mutex<State>>,
}

impl Open {
    async fn next(mut self) -> Option<(Line, Option<Self>)> {
        match tokio::time::timeout_at(self.until, self.lines.recv()).await {
            Ok(line) => line.map(|line| (line, Some(self))),
            Err(_) => {
                let resource = self.closing.take()?;
                let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                Some((Ok(state.store.bookmark(&resource, false)), None))
            }
        }
    }
}
