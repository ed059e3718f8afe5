//! The orderly end of the connection to the runtime.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use crablet_cri::client::KeepOpen;
use crablet_host::keeper::Keeper;
use tokio::sync::mpsc;

/// Calls to the runtime run to their end even if the agent is killed. Without a keeper all else works as well.
pub(super) fn keep_open() -> (Option<KeepOpen>, Farewell) {
    let (alive, calls) = mpsc::channel(1);
    let keeper = Keeper::spawn().map(Arc::new);
    let keeper = keeper
        .inspect_err(|error| tracing::warn!(%error, "no keeper: a kill of the agent may cut off a call to the runtime"))
        .ok();
    let farewell = Farewell { keeper: keeper.clone(), calls };
    let keep_open = keeper.map(|keeper| -> KeepOpen {
        Arc::new(move |connection| {
            let _ = &alive; // lives as long as this does, which is as long as anything can use a connection
            if let Err(error) = keeper.keep(connection) {
                tracing::warn!(%error, "the keeper did not take a connection to the runtime");
            }
        })
    });
    (keep_open, farewell)
}

/// For the orderly end, after the agent was dropped.
pub struct Farewell {
    keeper: Option<Arc<Keeper>>,
    /// Ends when no call to the runtime is under way and no connection is left.
    calls: mpsc::Receiver<Infallible>,
}

impl Farewell {
    /// Waits a moment for calls that are under way, and tells the keeper that there are none left. Else the keeper sees
    /// that the agent has gone, and waits for them itself.
    pub async fn say(mut self, patience: Duration) {
        let are_over = tokio::time::timeout(patience, self.calls.recv()).await.is_ok();
        if are_over && let Some(keeper) = self.keeper {
            let _ = keeper.let_go(); // a keeper that has gone needs no word
        }
    }
}
