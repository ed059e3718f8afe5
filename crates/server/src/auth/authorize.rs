//! Whether somebody may.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::memo::Memo;
use super::reviews::access_review_spec;
use crate::ports::{AccessAttributes, Decision, Reviews};

/// So many questions to the cluster at a time: requests to this port do not crowd out the agent's own calls.
pub(super) const REVIEWS_AT_A_TIME: usize = 4;

pub(crate) enum Authorizer {
    AlwaysAllow,
    Webhook(Box<Webhook>),
}

pub(crate) struct Webhook {
    reviews: Arc<dyn Reviews>,
    decisions: Memo<Decision>,
    allowed_for: Duration,
    denied_for: Duration,
    turns: Semaphore,
}

impl Authorizer {
    pub fn webhook(
        reviews: Arc<dyn Reviews>,
        allowed_for: Duration,
        denied_for: Duration,
    ) -> Result<Self, String> {
        let (decisions, turns) = (Memo::new()?, Semaphore::new(REVIEWS_AT_A_TIME));
        Ok(Self::Webhook(Box::new(Webhook { reviews, decisions, allowed_for, denied_for, turns })))
    }

    pub async fn allows(&self, wanted: &AccessAttributes) -> Result<bool, String> {
        match self {
            Self::AlwaysAllow => Ok(true),
            Self::Webhook(webhook) => Ok(webhook.decide(wanted).await? == Decision::Allowed),
        }
    }
}

impl Webhook {
    async fn decide(&self, wanted: &AccessAttributes) -> Result<Decision, String> {
        let key = self.decisions.key(access_review_spec(wanted).to_string().as_bytes());
        if let Some(decision) = self.decisions.get(&key) {
            return Ok(decision);
        }
        let _turn = self.turns.acquire().await.map_err(|error| error.to_string())?;
        // Somebody may have asked the same while this one waited.
        if let Some(decision) = self.decisions.get(&key) {
            return Ok(decision);
        }
        let decision = self.reviews.access_review(wanted).await?;
        let lifetime = match decision {
            Decision::Allowed => self.allowed_for,
            Decision::Denied => self.denied_for,
        };
        self.decisions.put(key, decision, lifetime);
        Ok(decision)
    }
}
