//! Asking the API server about those who ask.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use crablet_apiserver::{ApiError, ApiServer, Call, ErrorKind, Lane, Verb};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::ports::{AccessAttributes, Decision, Reviews, UserInfo};

const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// One question may take this long, retries included: upstream's limit for a shared token lookup.
const DEADLINE: Duration = Duration::from_secs(30);
const CALL_DEADLINE: Duration = Duration::from_secs(10);
/// As upstream's, but without its jitter: few ask at a time.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const TRIES: u32 = 5;

/// [`Reviews`] of the API server. What it answers is not remembered here.
pub struct ApiReviews {
    api: Arc<dyn ApiServer>,
}

impl ApiReviews {
    pub fn new(api: Arc<dyn ApiServer>) -> Self {
        Self { api }
    }

    async fn ask<T: Default + for<'a> Deserialize<'a>>(
        &self,
        path: &str,
        review: &Value,
    ) -> Result<T, String> {
        #[derive(Deserialize)]
        struct Review<T> {
            status: Option<T>,
        }
        let call =
            Call::new(Verb::Post, Lane::Main, path).with_body(review.to_string()).within(CALL_DEADLINE);
        let answer = match tokio::time::timeout(DEADLINE, self.persist(call)).await {
            Ok(answer) => answer.map_err(|error| error.to_string())?,
            Err(_) => return Err("the API server did not answer the review in time".to_owned()),
        };
        // The words of a parser could quote the answer, and with it the token.
        let review: Review<T> = serde_json::from_slice(&answer)
            .map_err(|_| "the API server's answer to the review is not understood".to_owned())?;
        Ok(review.status.unwrap_or_default())
    }

    async fn persist(&self, call: Call) -> Result<Bytes, ApiError> {
        let mut pause = FIRST_PAUSE;
        for _ in 1..TRIES {
            match self.api.call(call.clone()).await {
                Err(error) if is_worth_another_try(&error) => {
                    tokio::time::sleep(error.retry_after.unwrap_or(pause).min(DEADLINE)).await;
                    pause = pause * 3 / 2;
                }
                answer => return answer,
            }
        }
        self.api.call(call).await
    }
}

fn is_worth_another_try(error: &ApiError) -> bool {
    matches!(error.kind, ErrorKind::Unreachable | ErrorKind::Server | ErrorKind::TooManyRequests)
        || error.retry_after.is_some()
}

#[async_trait]
impl Reviews for ApiReviews {
    async fn token_review(&self, token: &str) -> Result<Option<UserInfo>, String> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct User {
            username: String,
            uid: String,
            groups: Option<Vec<String>>,
            extra: Option<BTreeMap<String, Vec<String>>>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Status {
            authenticated: bool,
            user: User,
            error: String,
        }
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": { "token": token },
        });
        let status: Status = self.ask(TOKEN_REVIEWS, &review).await?;
        match status {
            Status { authenticated: true, user, .. } => Ok(Some(UserInfo {
                name: user.username,
                uid: user.uid,
                groups: user.groups.unwrap_or_default(),
                extra: user.extra.unwrap_or_default(),
            })),
            Status { error, .. } if error.is_empty() => Ok(None),
            Status { error, .. } => Err(error),
        }
    }

    async fn access_review(&self, attributes: &AccessAttributes) -> Result<Decision, String> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Status {
            allowed: bool,
            denied: bool,
        }
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": access_review_spec(attributes),
        });
        match self.ask(ACCESS_REVIEWS, &review).await? {
            Status { allowed: true, denied: true } => {
                Err("webhook subject access review returned both allow and deny response".to_owned())
            }
            Status { allowed: true, .. } => Ok(Decision::Allowed),
            Status { .. } => Ok(Decision::Denied),
        }
    }
}

/// All that the decision depends on.
pub(super) fn access_review_spec(attributes: &AccessAttributes) -> Value {
    let user = &attributes.user;
    let mut spec = json!({
        "resourceAttributes": {
            "verb": attributes.verb,
            "version": "v1",
            "resource": "nodes",
            "subresource": attributes.subresource,
            "name": *attributes.node,
        },
        "user": user.name,
        "groups": user.groups,
    });
    if !user.uid.is_empty() {
        spec["uid"] = json!(user.uid);
    }
    if !user.extra.is_empty() {
        spec["extra"] = json!(user.extra);
    }
    spec
}

#[cfg(test)]
mod tests;
