//! Registration: once in the agent's life. A Node that is deleted later stays deleted until the agent is started again.

use std::time::Duration;

use crablet_apiserver::{ApiError, ErrorKind, Verb};
use crablet_planner::node::{initial_node, reconcile};
use tokio::time::sleep;

use crate::status::{Lane, StatusLoop};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(7);

impl StatusLoop {
    /// Tries until it succeeds.
    pub(crate) async fn register(&mut self) {
        let mut pause = FIRST_PAUSE;
        let mut told = false;
        loop {
            match self.try_register(&mut told).await {
                Ok(()) => break,
                Err(error) => {
                    if self.failing.is_news(&error.message) {
                        tracing::error!(err = %error, node = &*self.calls.node, "Unable to register node with API server");
                    }
                    sleep(pause.max(error.retry_after.unwrap_or_default().min(LONGEST_PAUSE))).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    self.gathered.refresh().await;
                }
            }
        }
        self.failing.is_over();
        tracing::info!(node = &*self.calls.node, "Successfully registered node");
    }

    async fn try_register(&mut self, told: &mut bool) -> Result<(), ApiError> {
        let moment = self.gathered.moment(&mut self.news);
        let (node, outcome) = initial_node(&self.gathered.at(&moment));
        self.cache.set_fallback(&node);
        self.say_incomplete(&outcome.errors);
        if !std::mem::replace(told, true) {
            self.tell(outcome.events);
        }
        let body = serde_json::to_vec(&node).map_err(|error| {
            ApiError::new(ErrorKind::Invalid, format!("the Node cannot be written: {error}"))
        })?;
        match self.calls.main(Verb::Post, "/api/v1/nodes".to_owned(), body).await {
            Ok(created) => {
                self.learn(&created);
                return Ok(());
            }
            // Who may not create may still have a Node that somebody created.
            Err(error) if matches!(error.kind, ErrorKind::AlreadyExists | ErrorKind::Forbidden) => {}
            Err(error) => return Err(error),
        }
        let json = self.calls.main(Verb::Get, self.calls.node_path(), "").await?;
        let existing = self.decoded(&json)?;
        self.learn(&json);
        tracing::info!(node = &*self.calls.node, "Node was previously registered");
        // No device plugin is served, so no device of an older life of this node is true.
        match reconcile(&existing, &node, true) {
            Some(reconciled) => self.patch(&existing, &reconciled, Lane::Main).await,
            None => Ok(()),
        }
    }
}
