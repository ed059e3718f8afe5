//! Whether somebody may.

use std::sync::Arc;
use std::time::Duration;

use super::memo::{Memo, Unanswered};
use super::reviews::access_review_spec;
use crate::ports::{AccessAttributes, Decision, Reviews};

/// Those who wait have said who they are, and an API server may have hundreds of requests at a time.
const MOST_WAITING: usize = 2048;

pub(crate) enum Authorizer {
    AlwaysAllow,
    Webhook(Box<Webhook>),
}

pub(crate) struct Webhook {
    reviews: Arc<dyn Reviews>,
    decisions: Memo<Decision>,
    allowed_for: Duration,
    denied_for: Duration,
}

impl Authorizer {
    pub fn webhook(
        reviews: Arc<dyn Reviews>,
        allowed_for: Duration,
        denied_for: Duration,
    ) -> Result<Self, String> {
        let decisions = Memo::new(MOST_WAITING)?;
        Ok(Self::Webhook(Box::new(Webhook { reviews, decisions, allowed_for, denied_for })))
    }

    pub async fn allows(&self, wanted: &AccessAttributes) -> Result<bool, Unanswered> {
        match self {
            Self::AlwaysAllow => Ok(true),
            Self::Webhook(webhook) => Ok(webhook.decide(wanted).await? == Decision::Allowed),
        }
    }
}

impl Webhook {
    async fn decide(&self, wanted: &AccessAttributes) -> Result<Decision, Unanswered> {
        let (reviews, allowed_for, denied_for) = (self.reviews.clone(), self.allowed_for, self.denied_for);
        let asked = wanted.clone();
        let asking = async move {
            let decision = reviews.access_review(&asked).await?;
            let lifetime = match decision {
                Decision::Allowed => allowed_for,
                Decision::Denied => denied_for,
            };
            Ok((decision, lifetime))
        };
        let question = access_review_spec(wanted).to_string();
        self.decisions.get_or_ask(question.as_bytes(), asking).await
    }
}
