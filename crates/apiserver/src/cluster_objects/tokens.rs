//! Service account tokens, kept while they are good and asked for again before they are not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crablet_model::PodUid;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::json;

use crate::Now;
use crate::objects::{ObjectError, Token, TokenWanted};
use crate::port::{ApiError, ApiServer, Call, ErrorKind, Lane, Verb};

/// However long it lives, a token is asked for again after a day.
const OLDEST: SignedDuration = SignedDuration::from_hours(24);
/// Tokens of one moment are not all asked for again in one moment.
const JITTER: Duration = Duration::from_secs(10);
/// After a failed refresh, while the old token is good.
const TRY_AGAIN: SignedDuration = SignedDuration::from_secs(60);

pub(super) struct Tokens {
    api: Arc<dyn ApiServer>,
    now: Now,
    random: Mutex<fastrand::Rng>,
    slots: Mutex<BTreeMap<TokenWanted, Slot>>,
}

/// Locked while a request is in flight, so that there is only one.
type Slot = Arc<tokio::sync::Mutex<Option<Held>>>;

struct Held {
    token: Token,
    expires: Timestamp,
}

impl Tokens {
    pub fn new(api: Arc<dyn ApiServer>, now: Now, seed: u64) -> Self {
        let random = Mutex::new(fastrand::Rng::with_seed(seed));
        Self { api, now, random, slots: Mutex::default() }
    }

    pub async fn get(&self, wanted: &TokenWanted) -> Result<Token, ObjectError> {
        let slot = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            slots.entry(wanted.clone()).or_default().clone()
        };
        let mut slot = slot.lock().await;
        let now = (self.now)();
        if let Some(held) = &*slot
            && now <= held.token.refresh_at
        {
            return Ok(held.token.clone());
        }
        match self.request(wanted).await {
            Ok(held) => Ok(slot.insert(held).token.clone()),
            Err(error) => match &mut *slot {
                None => Err(ObjectError::Unavailable(format!("failed to fetch token: {error}"))),
                Some(held) if (self.now)() > held.expires => {
                    let key = cache_key(wanted);
                    Err(ObjectError::Unavailable(format!("token {key} expired and refresh failed: {error}")))
                }
                Some(held) => {
                    tracing::error!(cacheKey = cache_key(wanted), err = %error, "Couldn't update token");
                    held.token.refresh_at = ((self.now)() + TRY_AGAIN).min(held.expires);
                    Ok(held.token.clone())
                }
            },
        }
    }

    pub fn forget(&self, uid: &PodUid) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|wanted, _| wanted.pod.uid != *uid);
    }

    async fn request(&self, wanted: &TokenWanted) -> Result<Held, ApiError> {
        let path = format!(
            "/api/v1/namespaces/{}/serviceaccounts/{}/token",
            wanted.pod.namespace, wanted.service_account
        );
        let audiences = (!wanted.audiences.is_empty()).then_some(&wanted.audiences);
        let body = json!({
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "spec": {
                "audiences": audiences,
                "expirationSeconds": wanted.expiration_seconds,
                "boundObjectRef": {
                    "kind": "Pod", "apiVersion": "v1", "name": &*wanted.pod.name, "uid": wanted.pod.uid.as_str(),
                },
            },
        });
        let call = Call::new(Verb::Post, Lane::Main, path).with_body(body.to_string());
        let answer = self.api.call(call).await?;
        // What exactly cannot be read is not said: it could be the token.
        let unreadable =
            |_| ApiError::new(ErrorKind::Other, "the server's answer to the token request cannot be read");
        let answer: Answer = serde_json::from_slice(&answer).map_err(unreadable)?;
        let expires = answer.status.expiration_timestamp;
        let life = answer.spec.expiration_seconds.unwrap_or(wanted.expiration_seconds);
        let jitter = self.jitter();
        let issued = expires - SignedDuration::from_secs(life);
        let last_fifth = expires - SignedDuration::from_secs(life / 5);
        let refresh_at = (issued + OLDEST).min(last_fifth) - jitter;
        Ok(Held { token: Token { text: answer.status.token, refresh_at, expires }, expires })
    }

    fn jitter(&self) -> SignedDuration {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        SignedDuration::from_secs_f64(random.f64() * JITTER.as_secs_f64())
    }
}

/// No `Debug`: it has the token.
#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    spec: AnswerSpec,
    status: AnswerStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnswerSpec {
    expiration_seconds: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnswerStatus {
    token: String,
    expiration_timestamp: Timestamp,
}

/// Which token it is, in upstream's words (v1.36). Nothing in it is secret.
fn cache_key(wanted: &TokenWanted) -> String {
    let audiences = match wanted.audiences.as_slice() {
        [] => "[]string(nil)".to_owned(),
        some => {
            format!("[]string{{{}}}", some.iter().map(|a| format!("{a:?}")).collect::<Vec<_>>().join(", "))
        }
    };
    let TokenWanted { pod, service_account, expiration_seconds, .. } = wanted;
    let (name, namespace, uid) = (&*pod.name, &*pod.namespace, pod.uid.as_str());
    format!(
        "{service_account:?}/{namespace:?}/{audiences}/{expiration_seconds}/\
         v1.BoundObjectReference{{Kind:\"Pod\", APIVersion:\"v1\", Name:{name:?}, UID:{uid:?}}}/\"\""
    )
}
